"""Attacks by an upstream server of a gateway, with and without a client of the attacker's."""

import json
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import trio

from tests.attacks.attacker import SECONDS, Attacker, encoded, initialize, message, post, request
from tests.attacks.hostile_site import hostile_site
from tests.attacks.target import Target

SCRIPT = str(Path(__file__).with_name("hostile_upstream.py"))
Run = Callable[[Attacker], Awaitable[None]]


@asynccontextmanager
async def _gateway(bad: dict[str, object], folder: Path) -> AsyncIterator[Target]:
    go = folder / "go"
    good = {"command": sys.executable, "args": [SCRIPT, "none", str(go)]}
    file = folder / "servers.json"
    file.write_text(json.dumps({"mcpServers": {"good": good, "bad": bad}}))
    yield Target([str(file)], go)


@asynccontextmanager
async def program(kind: str) -> AsyncIterator[Target]:
    """A gateway of an honest program and a hostile one."""
    with tempfile.TemporaryDirectory() as name:
        arguments = [SCRIPT, kind, str(Path(name) / "go")]
        async with _gateway({"command": sys.executable, "args": arguments}, Path(name)) as target:
            yield target


@asynccontextmanager
async def site(kind: str) -> AsyncIterator[Target]:
    """A gateway of an honest program and a hostile site."""
    with tempfile.TemporaryDirectory() as name:
        async with hostile_site(kind, Path(name) / "go") as url, _gateway({"url": url}, Path(name)) as target:
            yield target


async def wait(attacker: Attacker) -> None:
    """Let the upstream server attack by itself."""
    attacker.go()
    await trio.sleep(SECONDS)


async def listen(attacker: Attacker) -> None:
    """The same, while clients listen: to all lists, and to a thousand resources."""
    for _ in range(5):
        found = await attacker.session()
        get = f"GET /mcp HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\nmcp-session-id: {found['mcp-session-id']}\r\n\r\n"
        await attacker.each(1, get.encode())
        await attacker.each(1, post(encoded(message("logging/setLevel", {"level": "debug"}, 1)), found))
        bodies = [encoded(message("resources/subscribe", {"uri": f"bad+d://{n}"}, n)) for n in range(100)]
        await attacker.each(1, *(post(body, found) for body in bodies))
    await trio.sleep(1)
    await wait(attacker)


async def call(attacker: Attacker, *, tasks: int = 30) -> None:
    """Call its tool again and again."""
    await attacker.call("bad_t", {})
    attacker.go()
    meta = {"progressToken": "t", "io.modelcontextprotocol/logLevel": "debug"}
    once = partial(attacker.call, "bad_t", {}, meta=meta, wait=3)
    await attacker.repeat(tasks, once)


async def call_in_sessions(attacker: Attacker) -> None:
    """Call its tool as legacy clients that accept questions and answer none."""
    attacker.go()
    for _ in range(5):
        stream = await attacker.connect()
        opened = initialize()
        opened["params"]["capabilities"] = {"elicitation": {}, "sampling": {}}
        head = await attacker.ask(stream, post(encoded(opened)))
        found = {"mcp-session-id": head.partition(b"mcp-session-id: ")[2].partition(b"\r\n")[0].decode()}
        await attacker.ask(stream, post(encoded(message("notifications/initialized")), found))
        called = encoded(message("tools/call", {"name": "bad_t", "arguments": {}}, 1))
        await attacker.each(2, post(called, found))
    await trio.sleep(SECONDS)


async def abandon(attacker: Attacker) -> None:
    """Make 400 calls with 3 MB of arguments, and abandon each."""
    await attacker.call("bad_t", {})
    attacker.go()
    data = request("bad_t", {"x": "y" * 3_000_000})
    made = 0

    async def once() -> None:
        nonlocal made
        made += 1
        await attacker.exchange(data, wait=0.3)

    await attacker.repeat(10, once, seconds=12)


async def many_sessions(attacker: Attacker) -> None:
    """Have many sessions list its tools."""
    attacker.go()
    await trio.sleep(1)

    async def once() -> None:
        found = await attacker.session()
        listed = encoded(message("tools/list", {}, 1))
        await attacker.exchange(post(listed, {**found, "connection": "close"}), wait=3)

    await attacker.repeat(5, once)


PROGRAMS: dict[str, tuple[str, Run]] = {
    "a program that stops reading, 400 abandoned calls of 3 MB": ("stops reading", abandon),
    "a program that floods stderr with lines of escapes": ("stderr lines", wait),
    "a program that floods stderr without a newline": ("stderr without lines", wait),
    "a program that writes a line without end": ("a line without end", wait),
    "a program that writes no JSON": ("no JSON", wait),
    "a program whose lists change without end": ("changes", listen),
    "a program whose resources change without end": ("updates", listen),
    "a program that logs without end": ("logs", listen),
    "a program that sends responses to nothing": ("unknown responses", listen),
    "a program that asks without end, outside calls": ("questions of no call", listen),
    "a program with 60,000 tools": ("many tools", many_sessions),
    "a program whose list has pages without end": ("endless pages", many_sessions),
    "a program whose list repeats a page": ("pages that repeat", many_sessions),
    "a program with 14 MB of descriptions": ("long descriptions", many_sessions),
    "a program whose names have control characters": ("escapes", many_sessions),
    "a program with ambiguous deep schemas": ("deep schemas", many_sessions),
    "a program that speaks without end in a call": ("speaks", call),
    "a program that asks without end in a call": ("asks", call_in_sessions),
    "a program that exits at each call": ("exits", call),
    "a program that writes byte by byte": ("slow bytes", call),
    "results of 60 MB": ("60 MB", call),
    "results of 15 MB": ("15 MB", call),
    "results of 5 million values": ("values", call),
    "results of 500,000 blocks": ("blocks", call),
    "results that are 2 million arrays deep": ("deep", call),
    "results of 15 million digits": ("digits", call),
    "results of control characters": ("escapes", call),
    "errors of 8 MB of control characters": ("errors", call),
}
SITES: dict[str, tuple[str, Run]] = {
    "a site that sends SSE comments without end": ("comments", call),
    "a site that sends one SSE comment without end": ("a comment without end", call),
    "a site that sends an SSE line without end": ("a line without end", call),
    "a site that sends an SSE event without end": ("data without end", call),
    "a site that sends empty SSE events": ("empty events", call),
    "a site that sends SSE ids of 60 KB": ("ids", call),
    "a site that sends notifications without end": ("notifications", call),
    "a site whose answer unpacks to 500 MB": ("a bomb", call),
    "a site whose answer has 10 GB": ("10 GB", call),
    "a site that sends header fields without end": ("fields", call),
    "a site that challenges with 48 KB": ("challenge", call),
    "a site that challenges 90 times": ("challenges", call),
    "a site that redirects without end": ("redirects", call),
    "a site that loses each session": ("lost sessions", call),
    "a site that asks to retry at once": ("retry at once", call),
    "a site whose GET stream has no end": ("GET without end", listen),
    "a site whose GET stream ends at once": ("GET that ends", listen),
}
