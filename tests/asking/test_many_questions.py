"""A handler that asks much at once: for each question as much is done as for the first one, and not more for each that is open; and there are not too many."""

import sys
from pathlib import Path

import pytest
import trio

import mcpbus
from mcpbus import Context, Elicit, InputRequired, InputUnavailableError, Server
from mcpbus.core.input_requests import MOST_ANSWERS
from mcpbus.testing import open_bus, wait_until_idle

HOME = str(Path(mcpbus.__file__).parent)
TASKS = {"elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}}


class Work:
    """Counts the bytecodes of mcpbus that are run in its block."""

    def __enter__(self):
        self.done = 0
        self._before = sys.gettrace()
        sys._getframe().f_trace_opcodes = True  # 3.12 looks for it when a trace is set
        sys.settrace(self._enter)
        return self

    def __exit__(self, *_):
        sys.settrace(self._before)

    def _enter(self, frame, _event, _argument):
        if not frame.f_code.co_filename.startswith(HOME):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._count

    def _count(self, _frame, event, _argument):
        self.done += event == "opcode"
        return self._count


async def one_by_one(ctx, questions):
    async with trio.open_nursery() as nursery:
        for _ in range(questions):
            nursery.start_soon(ctx.elicit, "Why?", str)


async def together(ctx, questions):
    await ctx.ask_all({str(number): Elicit("Why?", str) for number in range(questions)})


async def work_for(questions, ask_them, revision, capabilities, patience):
    """Tell what it takes that a handler asks so many questions at once, and gives them up or is cancelled."""
    server = Server("curious")

    @server.tool(task="optional")
    async def ask(ctx: Context) -> None:
        with trio.move_on_after(patience):
            await ask_them(ctx, questions)
        await trio.sleep_forever()

    async def think(_method, _params):
        await trio.sleep_forever()

    async with open_bus(server) as bus:
        connected = bus.connect(revision=revision, capabilities=capabilities, on_input_request=think)
        async with connected as client, trio.open_nursery() as nursery:
            with Work() as work:
                if capabilities is TASKS:
                    handle = await client.call_tool("ask", {})
                    await trio.sleep(2)
                    await wait_until_idle(bus)
                    await client.request("tasks/cancel", {"taskId": handle["taskId"]})
                else:
                    nursery.start_soon(client.call_tool, "ask", {})
                    await trio.sleep(2)
                    await wait_until_idle(bus)
                    nursery.cancel_scope.cancel()
                await wait_until_idle(bus)
    return work.done


@pytest.mark.parametrize("ask_them", [one_by_one, together])
@pytest.mark.parametrize("patience", [1, 3], ids=["given up", "cancelled"])
@pytest.mark.parametrize(
    ("revision", "capabilities"),
    [
        pytest.param("2025-11-25", {"elicitation": {}}, id="legacy"),
        pytest.param("2026-07-28", TASKS, id="task"),
    ],
)
async def test_what_each_of_many_questions_takes_does_not_grow_with_their_number(
    revision, capabilities, patience, ask_them, autojump_clock
):
    few, many = [await work_for(number, ask_them, revision, capabilities, patience) for number in (60, 240)]
    assert many < 6 * few


@pytest.mark.parametrize(
    ("revision", "capabilities"),
    [
        pytest.param("2025-11-25", {"elicitation": {}}, id="legacy"),
        pytest.param("2026-07-28", {"elicitation": {}}, id="modern"),
        pytest.param("2026-07-28", TASKS, id="task"),
    ],
)
async def test_no_more_wait_than_a_client_may_answer_at_once(revision, capabilities, autojump_clock):
    server = Server("curious")
    refused, given_up = [], trio.Event()

    @server.tool(task="optional")
    async def ask(ctx: Context) -> None:
        async def ask_one():
            try:
                await ctx.elicit("Why?", str)
            except InputUnavailableError as error:
                refused.append(error.message)

        async with trio.open_nursery() as nursery:
            for _ in range(MOST_ANSWERS - 1):
                nursery.start_soon(ask_one)
            await trio.sleep(1)
            await ask_two(ctx)
            nursery.start_soon(ask_one)
            await trio.sleep(1)
            assert not refused
            await ask_one()
            nursery.cancel_scope.cancel()
        # Each that is given up leaves its place to another one.
        await trio.sleep(1)
        with trio.move_on_after(1):
            await ask_one()
        given_up.set()
        await trio.sleep_forever()

    async def ask_two(ctx):
        two = {"a": Elicit("Who?", str), "b": Elicit("Where?", str)}
        with pytest.raises(InputUnavailableError):
            await ctx.ask_all(two)

    async def think(_method, _params):
        await trio.sleep_forever()

    async with open_bus(server) as bus:
        connected = bus.connect(revision=revision, capabilities=capabilities, on_input_request=think)
        async with connected as client, trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "ask", {})
            await given_up.wait()
            nursery.cancel_scope.cancel()
    assert refused == [
        "The client cannot be asked: at most 1000 questions may wait for their answers at once"
    ]


async def test_no_more_wait_of_a_session_outside_any_call(autojump_clock):
    server = Server("curious")
    refused = []

    async def ask_one(session):
        try:
            await session.elicit("Why?", str)
        except InputUnavailableError as error:
            refused.append(error.message)

    async def think(_method, _params):
        await trio.sleep_forever()

    async with open_bus(server) as bus:
        connected = bus.connect(
            revision="2025-11-25", capabilities={"elicitation": {}}, on_input_request=think
        )
        async with connected, trio.open_nursery() as nursery:
            [session] = bus.sessions.values()
            for _ in range(MOST_ANSWERS):
                nursery.start_soon(ask_one, session)
            await wait_until_idle(bus)
            assert not refused
            await ask_one(session)
            assert "at most 1000 questions" in refused[0]
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_a_handler_that_returns_too_many_questions_is_answered_with_an_error(revision):
    server = Server("curious")

    @server.tool
    async def ask() -> InputRequired:
        return InputRequired({f"q{number}": Elicit("Why?", bool) for number in range(MOST_ANSWERS + 1)})

    async with (
        open_bus(server) as bus,
        bus.connect(revision=revision, capabilities={"elicitation": {}}) as client,
    ):
        with pytest.raises(mcpbus.ProtocolError, match="at most 1000 questions"):
            await client.call_tool("ask", {})
