"""Plain functions ask too, and block their thread meanwhile. In real time, since threads know no other."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import pytest
import trio
from interview import EVERYTHING, MODERN, ROOTS, SAMPLED, accept, retry, text

from mcpbus import Limits, Server, SyncContext
from mcpbus.asking import Elicit, InputRequestError, ListRoots
from mcpbus.testing import open_probe, wait_until_idle


async def answer(method, params):
    if method == "elicitation/create":
        return {"action": "accept"} if "url" in params else accept("x")
    return ROOTS if method == "roots/list" else SAMPLED


@asynccontextmanager
async def threaded(script, *, limits=None, **tool):
    server = Server("threads", version="1")
    outcomes, ended = [], trio.Event()

    @server.tool(**tool)
    def ask(ctx: SyncContext) -> str:
        try:
            outcomes.append(script(ctx))
        except BaseException as error:
            outcomes.append(error)
            raise
        finally:
            outcomes.append(threading.current_thread())
            if not trio.lowlevel.in_trio_run():
                trio.from_thread.run_sync(ended.set, trio_token=token)
        return repr(outcomes[0])

    token = trio.lowlevel.current_trio_token()
    async with server.open(limits=Limits(**(limits or {})), drain_timeout=0.1) as bus:
        bus.outcomes, bus.ended = outcomes, ended
        yield bus


@pytest.mark.parametrize("revision", ["2025-11-25", MODERN])
async def test_every_kind_of_question(revision):
    def everything(ctx):
        answers = ctx.ask_all({"a": Elicit("?", str), "b": ListRoots()})
        return [
            ctx.elicit("?", str).data,
            ctx.elicit_url("?", "https://a.example").data,
            ctx.sample("?").text,
            ctx.list_roots()[0].uri,
            answers["a"].data,
        ]

    async with (
        threaded(everything) as bus,
        bus.connect(revision=revision, capabilities=EVERYTHING, on_input_request=answer) as client,
    ):
        with trio.fail_after(60):
            await client.call_tool("ask")
        assert bus.outcomes[0] == ["x", None, "yo", "file:///x", "x"]
        assert bus.outcomes[1] is not threading.main_thread()


@pytest.mark.parametrize("how", ["cancelled", "evicted", "lapsed", "drained"])
async def test_a_thread_that_waits_for_an_answer_is_let_go(how):
    def wait(ctx):
        return ctx.elicit("?", str)

    limits = {"suspended_timeout": 0.2} if how == "lapsed" else None
    with trio.fail_after(60):
        async with threaded(wait, limits=limits) as bus, open_probe(bus.asgi()) as probe:
            if how == "cancelled":
                session = await probe.initialize(capabilities=EVERYTHING)
                call = session.request("tools/call", {"name": "ask"}, id=7)
                await call.message()
                await session.notify("notifications/cancelled", {"requestId": 7}).ended()
            else:
                await probe.request("tools/call", {"name": "ask"}, capabilities=EVERYTHING).reply()
                if how == "evicted":
                    bus.parked_calls.evict_all()
                elif how == "drained":
                    await bus.drain(0.1)
            await bus.ended.wait()
            assert isinstance(bus.outcomes[0], InputRequestError | trio.Cancelled)
            await wait_until_idle(bus)
            assert (bus.statistics().actors, len(bus.parked_calls)) == (bus.statistics().sessions, 0)
            assert bus.ledger.balance() == 0


async def test_the_thread_is_the_same_after_the_retry():
    def two(ctx):
        before = threading.get_ident()
        ctx.elicit("?", str, key="k")
        return before == threading.get_ident()

    async with threaded(two) as bus, open_probe(bus.asgi()) as probe:
        call = {"name": "ask"}
        result = (await probe.request("tools/call", call, capabilities=EVERYTHING).reply())["result"]
        body = call | retry(result, {"k": accept("x")})
        result = (await probe.request("tools/call", body, capabilities=EVERYTHING).reply())["result"]
        assert text(result) == "True"


async def test_one_that_runs_in_line_cannot_wait():
    def wait(ctx):
        return ctx.elicit("?", str)

    async with (
        threaded(wait, thread=False) as bus,
        bus.connect(revision=MODERN, capabilities=EVERYTHING) as client,
    ):
        await client.call_tool("ask")
        assert "leave out thread=False" in str(bus.outcomes[0])


def in_a_thread(call):
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(call).result()


def in_a_run(call):
    async def main():
        return call()

    return trio.run(main)


ASKED = {
    "elicit": lambda ctx: ctx.elicit("Who?", str),
    "elicit_url": lambda ctx: ctx.elicit_url("Who?", "https://example.com"),
    "sample": lambda ctx: ctx.sample("Who?"),
    "list_roots": lambda ctx: ctx.list_roots(),
    "ask_all": lambda ctx: ctx.ask_all({}),
    "begin_task": lambda ctx: ctx.begin_task(),
}
SAID = {"info": lambda ctx: ctx.info("x"), "tools_changed": lambda ctx: ctx.bus.tools_changed()}


@pytest.mark.parametrize(
    ("where", "call", "told"),
    [
        *((in_a_thread, call, "hand the answer to threads of your own") for call in ASKED.values()),
        *(
            (in_a_run, call, r"trio\.run\(\) was called: leave that out")
            for call in {**ASKED, **SAID}.values()
        ),
    ],
)
async def test_what_no_thread_but_its_own_may_do_is_told_and_the_call_goes_on(where, call, told):
    server = Server("threads")

    @server.tool
    def tool(ctx: SyncContext) -> str:
        with pytest.raises(RuntimeError, match=told):
            where(lambda: call(ctx))
        return "done"

    with trio.fail_after(30):
        async with server.open() as bus, bus.connect() as client:
            assert (await client.call_tool("tool"))["content"][0]["text"] == "done"
            assert bus.statistics().emitted == 1  # the answer


@pytest.mark.parametrize("call", SAID.values())
async def test_a_thread_of_the_functions_own_may_say_things(call):
    server = Server("threads")

    @server.tool
    def tool(ctx: SyncContext) -> str:
        in_a_thread(lambda: call(ctx))
        return "done"

    with trio.fail_after(30):
        async with server.open() as bus, bus.connect() as client:
            assert (await client.call_tool("tool"))["content"][0]["text"] == "done"
