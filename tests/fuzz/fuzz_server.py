"""The server that is fuzzed: it has one of everything that a client can reach."""

import trio

from mcpbus import Context, Limits, Server
from mcpbus.asking import AcceptedElicitation
from tests.fuzz.fuzz_virtual import HandlerError

LIMITS = Limits(
    max_sessions=8,
    idle_timeout=600,
    max_requests=30,
    max_requests_per_session=10,
    max_subscriptions_per_session=5,
    abandoned_timeout=60,
    input_timeout=60,
    max_suspended_calls=3,
    suspended_timeout=60,
    max_running_tasks=3,
    max_tasks=5,
    task_ttl=100,
    outbox_items=8,
    outbox_bytes=4_000,
    held_items=4,
)
"""Narrow, so that they are reached; all that is kept goes after `LONG` seconds."""

LONG = 3000.0

FORM = {"type": "object", "properties": {"value": {"type": "string"}}, "required": ["value"]}


async def echo(text: str) -> str:
    return text


def add(a: int, b: float = 0.5) -> float:
    return a + b


async def speak(ctx: Context, times: int = 2) -> str:
    for n in range(times % 20):
        await ctx.progress(n, 20, "on the way")
        await ctx.info({"n": n})
    return "spoken"


async def nap(ctx: Context, seconds: float = 1) -> str:
    await ctx.debug("before")
    await trio.sleep(seconds % 100)
    await ctx.warning("after")
    return "rested"


async def fail(ctx: Context, late: bool = False) -> str:
    if late:
        await ctx.progress(1)
        await trio.sleep(10)
    raise HandlerError


async def ask(ctx: Context, again: bool = False) -> str:
    answer = await ctx.elicit("Who?", FORM, key="who")
    if again:
        await ctx.sample("And why?")
    return repr(answer.data) if isinstance(answer, AcceptedElicitation) else "nobody"


async def work(ctx: Context, asks: bool = False) -> str:
    await trio.sleep(2)
    if asks:
        await ctx.elicit("Go on?", FORM)
    return "done"


TOOLS = (echo, add, speak, nap, ask)


async def content(ctx: Context) -> str:
    await ctx.info("read")
    return "content"


async def part(name: str, x: str = "") -> dict[str, str]:
    return {"name": name, "x": x}


async def review(code: str, ctx: Context) -> str:
    await ctx.progress(1)
    return f"Review {code}"


async def complete(value: str) -> list[str]:
    return [value + "1", value + "2"]


def make_server() -> Server:
    server = Server("fuzzed", version="1", instructions="Try me.")
    for tool in TOOLS:
        server.add_tool(tool)
    server.features.add_tool(fail, name="fail", timeout=5)
    server.features.add_tool(work, name="work", task="optional")
    server.resource("res://a", mime_type="text/plain")(content)
    server.resource("res://{name}/part{?x}")(part)
    server.prompt(review)
    server.completion("review", "code")(complete)
    return server
