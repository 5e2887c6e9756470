"""What ends one request, or one connection, and what would end a server: the first goes no further, the second does not go unsaid."""

import asyncio
import gc
import itertools
import json
import logging
import time
import weakref
from contextlib import suppress

import msgspec
import pytest
import trio
from houses import CLAIM, call, legacy, open_house
from lanes import Endpoint, open_lane, post
from peers import get, receive_all, receive_until, respond, serving
from trio.testing import wait_all_tasks_blocked

from mcpbus import Context, InputRequired, ListRoots, ProtocolError, Server
from mcpbus.core.concurrency import ReportErrors, WrapBaseExceptions, run_forever
from mcpbus.core.memory_budget import MemoryAccount, MemoryBudget
from mcpbus.dispatch import dispatcher
from mcpbus.features.catalogue import FeatureSet
from mcpbus.protocol import revisions
from mcpbus.protocol.jsonrpc import encode_result
from mcpbus.protocol.routes import Reason
from mcpbus.serving import LifespanError, ServeOptions, serve
from mcpbus.serving.acceptor import AcceptedConnection
from mcpbus.serving.http1.request import Http1Request
from mcpbus.serving.http1.task import ConnectionTask
from mcpbus.serving.lifespan import lifespan
from mcpbus.serving.response_writer import GatheringWriter
from mcpbus.serving.served_app import ServedApp
from mcpbus.testing import open_bus, open_client
from mcpbus.transports import duplex
from mcpbus.transports.lines import run_channel
from tests.at_home import IN_TURN, ONE_PIECE


class OddError(BaseException):
    """A class of somebody's own."""


async def kept_cancelled():
    """The `Cancelled` of a scope that is over."""
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled as error:
            return error


@pytest.fixture
async def cancelled():
    return await kept_cancelled()


FAULTS = pytest.mark.parametrize(
    "fault", [SystemExit(3), OddError(), GeneratorExit(), asyncio.CancelledError()], ids=repr
)


# -- the means ------------------------------------------------------------------------------------


@FAULTS
async def test_what_is_contained_is_reported_and_goes_no_further(fault):
    reported = []
    with ReportErrors(reported.append):
        raise fault
    assert reported == [fault]


async def test_a_cancellation_that_nobody_made_is_contained(cancelled):
    reported = []
    async with trio.open_nursery() as nursery:
        with ReportErrors(reported.append):
            raise cancelled
        await trio.lowlevel.checkpoint()
        assert not nursery.cancel_scope.cancelled_caught
    assert reported == [cancelled]


async def test_of_a_group_what_concerns_the_task_goes_on():
    reported, odd = [], OddError()
    with trio.CancelScope() as scope:
        with ReportErrors(reported.append):
            scope.cancel()
            try:
                await trio.lowlevel.checkpoint()
            except trio.Cancelled as error:
                raise BaseExceptionGroup("both", [error, odd]) from None
        reported.append("went on")
    assert scope.cancelled_caught
    assert [group.exceptions for group in reported] == [(odd,)]


async def test_what_goes_on_of_a_group_keeps_nothing_alive():
    def fails():
        thing = OddError()
        things.append(weakref.ref(thing))
        raise BaseExceptionGroup("both", [KeyboardInterrupt(), OddError()])

    things = []
    gc.disable()
    try:
        with suppress(BaseExceptionGroup), ReportErrors(print):
            fails()
        assert things[0]() is None
    finally:
        gc.enable()


async def test_an_interruption_goes_on_and_is_no_failure():
    reported = []
    with pytest.raises(KeyboardInterrupt), ReportErrors(reported.append):
        raise KeyboardInterrupt
    assert reported == []
    with pytest.raises(KeyboardInterrupt), WrapBaseExceptions("it"):
        raise KeyboardInterrupt


@FAULTS
async def test_what_is_no_exception_becomes_one(fault):
    with pytest.raises(RuntimeError, match="it raised") as raised, WrapBaseExceptions("it"):
        raise fault
    assert raised.value.__cause__ is fault


async def test_what_serves_many_says_so_when_it_ends(cancelled):
    async def ends():
        pass

    async def is_cancelled_by_mistake():
        raise cancelled

    for function, why in ((ends, "has ended"), (is_cancelled_by_mistake, "raised Cancelled")):
        with pytest.raises(RuntimeError, match=f"the thing {why}"):
            await run_forever(function, "the thing")


async def test_what_serves_many_is_cancelled_as_anything_else():
    with trio.CancelScope() as scope:
        scope.cancel()
        await run_forever(trio.sleep_forever, "the thing")
    assert scope.cancelled_caught


# -- a lane ---------------------------------------------------------------------------------------


class Shared:
    """Runs something once for all who want it at the same time, and raises for all what was raised for the first."""

    def __init__(self):
        self._done = None
        self._error = None

    async def get(self):
        if self._done is not None:
            await self._done.wait()
            raise self._error
        self._done = trio.Event()
        try:
            await trio.sleep_forever()
        except BaseException as error:
            self._error = error
            raise
        finally:
            self._done.set()


async def test_a_cancellation_that_is_shared_by_mistake_ends_its_calls_and_not_the_lane(
    caplog, autojump_clock
):
    async with open_house() as house:
        shared = Shared()
        house.server.tool(shared.get, name="shared")
        one, other, third = [await house.connect() for _ in range(3)]
        await one.say(call("shared"))
        await wait_all_tasks_blocked()
        await other.say(call("shared"))
        await wait_all_tasks_blocked()
        await one.leave()
        assert b"Tool shared failed" in (await other.answer())[2]
        assert [record.getMessage() for record in caplog.records] == ["tools/call shared failed"]
        for client in (other, third):
            await client.say(call("echo", text="well"))
            assert b"well" in (await client.answer())[2]


def fails_once(error, function):
    errors = [error]

    def fails(*args, **fields):
        if errors:
            raise errors.pop()
        return function(*args, **fields)

    return fails


async def test_no_memory_for_what_one_client_sends_is_no_harm_to_others(monkeypatch, caplog, autojump_clock):
    async with open_house() as house:
        one, other = await house.connect(), await house.connect()
        monkeypatch.setattr(
            one.wire, "receive_now", fails_once(MemoryError(), one.wire.receive_now), raising=True
        )
        await one.say(call("echo", text="x"))
        await one.over.wait()
        assert "MemoryError" in caplog.text
        await other.say(call("echo", text="well"))
        assert b"well" in (await other.answer())[2]


@pytest.mark.parametrize("when", ["while it is read", "while another one is served"])
async def test_no_memory_for_a_request_ends_its_connection(when, monkeypatch, caplog, autojump_clock):
    async with open_house() as house:
        one, other = await house.connect(), await house.connect()
        if when == "while another one is served":
            await one.say(call("wait"))
            await wait_all_tasks_blocked()
            requests = one.connection.wire.requests
            monkeypatch.setattr(type(requests), "receive", fails_once(MemoryError(), type(requests).receive))
            await one.say(call("echo", text="x"))
        else:
            requests = one.connection.wire.requests
            monkeypatch.setattr(
                type(requests), "take_whole", fails_once(MemoryError(), type(requests).take_whole)
            )
            await one.say(call("echo", text="x"))
            assert (await one.answer())[0] == 500
        await one.over.wait()
        assert "MemoryError" in caplog.text
        await other.say(call("echo", text="well"))
        assert b"well" in (await other.answer())[2]
        house.server.go_on.set()
        await wait_all_tasks_blocked()
        assert house.bus.statistics().requests == 0


@ONE_PIECE
async def test_no_memory_for_the_answer_of_a_handler_that_has_waited_ends_its_connection(
    monkeypatch, caplog, autojump_clock
):
    async with open_house() as house:
        one, other = await house.connect(), await house.connect()
        for client in (one, other):
            await client.say(call("wait"))
            await wait_all_tasks_blocked()
        monkeypatch.setattr(revisions, "encode_result", fails_once(MemoryError(), encode_result))
        house.server.go_on.set()
        statuses = sorted([(await client.answer())[0] for client in (one, other)])
        assert statuses == [200, 500]
        assert "MemoryError" in caplog.text
        third = await house.connect()
        await third.say(call("echo", text="well"))
        assert b"well" in (await third.answer())[2]
        assert house.bus.statistics().requests == 0


@FAULTS
@pytest.mark.parametrize("path", ["/boom", "/wait"])
async def test_an_application_that_raises_ends_its_request(path, fault, monkeypatch, caplog, autojump_clock):
    def fails(*_):
        raise fault

    async def fails_later(*_):
        raise fault

    monkeypatch.setattr(Endpoint, "respond_boom", fails, raising=False)
    monkeypatch.setattr(Endpoint, "wait", fails_later)
    async with open_lane() as house:
        one, other = await house.connect(), await house.connect()
        await one.say(post(b"x", path=path))
        assert (await one.answer())[0] == 500
        assert "the application raised while it served" in caplog.text
        await other.say(post(b"x"))
        assert (await other.answer())[0] == 200


async def test_requests_that_failed_are_kept_by_nothing(monkeypatch, autojump_clock):
    monkeypatch.setattr(ServedApp, "report", lambda *_: None)  # the log of a test keeps what it tells
    gc.collect()
    before = len([kept for kept in gc.get_objects() if isinstance(kept, ConnectionTask)])
    async with open_lane() as house:
        for _ in range(3):
            client = await house.connect()
            await client.say(post(b"x", path="/fail"))
            assert (await client.answer())[0] == 500
            await client.leave()
            await client.over.wait()
        del client
        await wait_all_tasks_blocked()
        gc.collect()
        assert len([kept for kept in gc.get_objects() if isinstance(kept, ConnectionTask)]) <= before


async def test_a_lane_whose_reactor_ends_says_so(autojump_clock):
    async def ends():
        await trio.sleep(1)

    with pytest.RaisesGroup(
        pytest.RaisesGroup(pytest.RaisesExc(RuntimeError, match="what waits for connections"))
    ):
        async with open_lane() as house:
            house.lane.reactor.run = ends
            await trio.sleep_forever()


async def test_a_reactor_that_is_cancelled_by_mistake_says_so(cancelled, autojump_clock):
    def turn():
        raise cancelled

    with pytest.RaisesGroup(
        pytest.RaisesGroup(pytest.RaisesExc(RuntimeError, match="what waits for connections"))
    ):
        async with open_lane() as house:
            await wait_all_tasks_blocked()
            house.lane.reactor.call_soon(turn)
            await trio.sleep_forever()


@ONE_PIECE
@pytest.mark.parametrize("tool", ["echo", "twice"])
async def test_what_cannot_be_written_ends_its_connection_and_no_other(
    tool, monkeypatch, caplog, autojump_clock
):
    def fails_once_gathered(writer):
        if writer._gathers and not caplog.records:
            raise MemoryError
        write_now(writer)

    write_now = GatheringWriter.write_now
    async with open_house() as house:

        @house.server.tool
        async def twice(ctx: Context) -> None:
            await ctx.progress(1)
            await ctx.progress(2)  # is written a moment later, with what else is said then
            await house.server.go_on.wait()

        one, other = await house.connect(), await house.connect()
        if tool == "echo":
            monkeypatch.setattr(Http1Request, "write_now", fails_once(MemoryError(), Http1Request.write_now))
        else:
            monkeypatch.setattr(GatheringWriter, "write_now", fails_once_gathered)
        await one.say(call(tool, **({"text": "lost"} if tool == "echo" else {})))
        await one.over.wait()
        assert [record.message for record in caplog.records] == [
            "what a connection had to say could not be written"
        ]
        await other.say(call("echo", text="well"))
        assert b"well" in (await other.answer())[2]
        await wait_all_tasks_blocked()
        assert house.bus.statistics().requests == 0


async def test_what_one_connection_holds_back_does_not_keep_the_others_from_writing(caplog, autojump_clock):
    class Fails:
        def write_now(self):
            raise RuntimeError("the nursery is closed")

        def lose(self):
            lost.append(self)

    class Writes:
        def write_now(self):
            written.set()

    written, lost = trio.Event(), []
    async with open_lane() as house:
        for writer in (Fails(), Writes(), Fails()):
            house.lane.coalescer.add(writer)
        with trio.fail_after(1):
            await written.wait()
        await wait_all_tasks_blocked()
    assert len(caplog.records) == len(lost) == 2


# -- a server -------------------------------------------------------------------------------------


@FAULTS
async def test_an_asgi_application_that_raises_ends_its_request(fault, caplog):
    async def app(scope, receive, send):
        if scope["path"] == "/boom":
            raise fault
        await respond(send, b"well")

    async with serving(app) as server:
        stream = await server.connect()
        await stream.send_all(b"GET /boom HTTP/1.1\r\nhost: test\r\n\r\n")
        assert b" 500 " in await receive_until(stream, b"\r\n\r\n")
        assert "the application raised while it served" in caplog.text
        assert b"well" in await get(await server.connect(), "/")


async def test_a_lifespan_that_raises_a_cancellation_it_has_kept_ends_the_server_with_a_word(cancelled):
    async def app(scope, receive, send):
        await receive()
        await send({"type": "lifespan.startup.complete"})
        raise cancelled

    with pytest.RaisesGroup(pytest.RaisesExc(LifespanError, match="has kept")):
        async with lifespan(app):
            await trio.sleep_forever()


async def test_a_server_whose_connections_are_cancelled_by_mistake_says_so(cancelled, monkeypatch):
    async def serve_nobody(scope, receive, send):
        raise AssertionError

    async def stray():
        raise cancelled

    def accept(acceptor, *_):
        acceptor.nursery.start_soon(stray)
        return trio.sleep_forever()  # noqa: ASYNC105 - whoever calls awaits it

    monkeypatch.setattr("mcpbus.serving.acceptor.Acceptor.accept", accept)
    with (
        trio.fail_after(60),
        pytest.raises(RuntimeError, match="was ended by a cancellation that was not meant"),
    ):
        await serve(serve_nobody, ServeOptions(bind="127.0.0.1:0"))


async def test_a_connection_that_cannot_begin_is_closed_and_others_are_accepted(monkeypatch, caplog):
    async def app(scope, receive, send):
        await respond(send, b"well")

    monkeypatch.setattr(AcceptedConnection, "begin", fails_once(MemoryError(), AcceptedConnection.begin))
    async with serving(app) as server:
        assert await receive_all(await server.connect()) == b""
        assert "MemoryError" in caplog.text
        assert b"well" in await get(await server.connect(), "/")


async def test_a_system_that_is_cancelled_by_mistake_says_so(cancelled):
    async def stray():
        raise cancelled

    with pytest.raises(RuntimeError, match="was ended by a cancellation that was not meant"):  # noqa: PT012
        async with Server("it").open() as bus:
            bus.system.dispatcher.nursery.start_soon(stray)
            await trio.sleep_forever()


# -- what is asked of authors beside handlers -------------------------------------------------------


@pytest.mark.parametrize("late", [False, True])
@FAULTS
async def test_an_authenticate_that_raises_lets_that_request_fail(fault, late, caplog, autojump_clock):
    async def authenticate(head):
        if late:
            await trio.sleep(1)
        if head.headers.raw(b"authorization") is None:
            raise fault
        return "somebody"

    async with open_house(authenticate=authenticate) as house:
        one, other = await house.connect(), await house.connect()
        await one.say(call("echo", text="x"))
        assert (await one.answer())[0] == 500
        assert "authenticate raised" in caplog.text
        await other.say(call("echo", b"authorization: x", text="well"))
        assert b"well" in (await other.answer())[2]
        assert house.bus.statistics().requests == 0


async def test_an_authenticate_that_cannot_be_awaited_is_told_in_the_log_alone(caplog, autojump_clock):
    async with open_house(authenticate=lambda head: "ada") as house:
        client = await house.connect()
        await client.say(call("echo", text="x"))
        status, _, body = await client.answer()
    assert (status, body) == (500, b"the server failed\n")
    assert "authenticate is awaited, and returned a str: write an async function" in caplog.text


@FAULTS
async def test_what_tells_who_sees_a_tool_may_raise(fault, caplog, autojump_clock):
    server = Server("it", version="1")

    def visible(principal, item):
        raise fault

    @server.tool(visible=visible)
    async def hidden() -> str:
        return ""

    for revision in ("2025-11-25", "2026-07-28"):
        async with open_client(server, revision=revision) as client:
            with pytest.raises(ProtocolError, match="unknown tool"):
                await client.call_tool("hidden")
            assert (await client.request("tools/list"))["tools"] == []
    assert {record.getMessage() for record in caplog.records} == {
        "visible= failed for tool hidden, which stays hidden"
    }


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
@FAULTS
async def test_whatever_goes_wrong_before_the_handler_runs_is_that_requests_fault(
    fault, revision, monkeypatch, caplog, autojump_clock
):
    server = Server("it", version="1")

    @server.tool
    async def echo() -> str:
        return "well"

    async with open_client(server, revision=revision) as client:
        monkeypatch.setattr(FeatureSet, "find_tool", fails_once(fault, FeatureSet.find_tool))
        with pytest.raises(ProtocolError, match="-32603"):
            await client.call_tool("echo")
        assert [record.getMessage() for record in caplog.records] == ["tools/call failed"]
        assert (await client.call_tool("echo"))["content"][0]["text"] == "well"


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_a_request_that_cannot_begin_gives_its_place_back(
    revision, monkeypatch, caplog, autojump_clock
):
    server = Server("it", version="1")

    @server.tool
    async def echo() -> str:
        return "well"

    async with open_bus(server) as bus, bus.connect(revision=revision) as client:
        monkeypatch.setattr(dispatcher, "CallActor", fails_once(MemoryError(), dispatcher.CallActor))
        with pytest.raises(ProtocolError, match="-32603"):
            await client.call_tool("echo")
        assert bus.statistics().requests == 0
        assert (await client.call_tool("echo"))["content"][0]["text"] == "well"


async def test_no_memory_for_a_message_on_a_channel_is_answered(monkeypatch, caplog, autojump_clock):
    sender, receiver = trio.open_memory_channel(10)
    said = []

    async def send(data):
        said.extend(json.loads(line) for line in data.splitlines())

    server = Server("it", version="1")
    async with open_bus(server) as bus, trio.open_nursery() as nursery:
        nursery.start_soon(run_channel, bus, receiver, send)
        monkeypatch.setattr(duplex, "decode", fails_once(MemoryError(), duplex.decode))
        for id_ in (1, 2):
            await sender.send(b'{"jsonrpc":"2.0","id":%d,"method":"ping"}\n' % id_)
        await wait_all_tasks_blocked()
        await sender.aclose()
    assert [(each.get("id"), each.get("error", {}).get("code")) for each in said] == [
        (None, -32603),
        (2, None),
    ]


@pytest.mark.parametrize("late", [False, True])
@FAULTS
async def test_a_hook_that_raises_refuses_its_session(fault, late, caplog, autojump_clock):
    async def hook(session):
        if late:
            await trio.sleep(1)
        if session.client_info["name"] == "odd":
            raise fault

    async with open_house() as house:
        house.server.on_session(hook)
        client = await house.connect()
        hello = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "odd", "version": "1"},
        }
        await client.say(legacy("initialize", hello))
        assert b'"code":-32603' in (await client.answer())[2]
        assert "on_session hook" in caplog.text
        hello["clientInfo"] = {"name": "fine", "version": "1"}
        await client.say(legacy("initialize", hello))
        assert "mcp-session-id" in (await client.answer())[1]
        assert (house.bus.statistics().sessions, house.bus.statistics().requests) == (1, 0)


# -- clients that leave -----------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["a question", "questions at its end"])
async def test_a_client_that_has_gone_before_its_handler_asks_leaves_nothing(how, caplog, autojump_clock):
    async with open_house() as house:

        @house.server.tool
        async def ask(ctx: Context) -> str:
            return await ctx.list_roots() and "asked"

        @house.server.tool
        async def end_with_questions() -> str | InputRequired:
            return InputRequired({"roots": ListRoots()})

        name = "ask" if how == "a question" else "end_with_questions"
        for _ in range(10):
            client = await house.connect()
            await client.say(call("echo", text="x") * 3 + call(name, capabilities={"roots": {}}))
            await client.stream.send_stream.aclose()
            await client.all()
            await wait_all_tasks_blocked()
        statistics = house.bus.statistics()
        assert (statistics.requests, statistics.actors, dict(statistics.pending)) == (0, 0, {})
        assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize("busy", [False, True])
@pytest.mark.parametrize("fate", ["lost", "delivered"])
async def test_a_handler_that_waits_for_what_it_said_to_be_written_harms_nobody(
    fate, busy, caplog, autojump_clock
):
    """It is written in the rest of the very turn in which the handler begins to wait, and if it is lost, the handler cancelled.

    One that has taken long lets others run as soon as it has spoken. It is cancelled there, or when it waits, whichever task is first.
    """
    async with open_house() as house:
        house.bus.clock = itertools.count().__next__ if busy else trio.current_time
        heard = []

        @house.server.tool
        async def say(ctx: Context) -> str:
            await ctx.progress(1)
            receipt = await ctx.progress(2)
            await receipt.settled()
            heard.append(receipt.fate)
            await trio.lowlevel.checkpoint()
            return "said"

        client = await house.connect()
        send = client.wire.send_now

        def breaks(data):
            if fate == "lost" and b'"progress":2' in data:
                raise trio.BrokenResourceError
            return send(data)

        client.wire.send_now = breaks
        await client.say(call("say"))
        await wait_all_tasks_blocked()
        if heard or (fate, busy) != ("lost", True):
            assert [str(each).startswith("delivered") for each in heard] == [fate == "delivered"]
        other = await house.connect()
        await other.say(call("echo", text="well"))
        assert b"well" in (await other.answer())[2]
        await wait_all_tasks_blocked()
        statistics = house.bus.statistics()
        assert (statistics.requests, statistics.actors, dict(statistics.pending)) == (0, 0, {})
        assert not caplog.records


async def test_a_handler_waits_for_news_that_it_tells_its_own_client(autojump_clock):
    async with open_house() as house:

        @house.server.tool
        async def tell(ctx: Context) -> str:
            fates = await ctx.bus.resource_updated("res://a").settled()
            return ", ".join(str(fate) for fate in fates)

        @house.server.resource("res://a")
        async def resource() -> str:
            return "content"

        listener, client = await house.connect(), await house.connect()
        params = {"notifications": {"resourceSubscriptions": ["res://a"]}, "_meta": CLAIM}
        body = msgspec.json.encode(
            {"jsonrpc": "2.0", "id": 7, "method": "subscriptions/listen", "params": params}
        )
        fields = b"content-type: application/json", b"accept: application/json, text/event-stream"
        modern = b"mcp-protocol-version: 2026-07-28", b"mcp-method: subscriptions/listen"
        await listener.say(post(body, *fields, *modern, path="/mcp"))
        await listener.until(b"acknowledged")
        for leaves in (False, True):
            if leaves:
                await listener.leave()
            await client.say(call("tell"))
            assert (b"delivered" in (await client.answer())[2]) is not leaves


@IN_TURN
async def test_an_answer_that_is_there_does_not_wait_for_the_next_requests_computing(autojump_clock):
    async with open_house() as house:
        one, other = await house.connect(), await house.connect()
        answered, early = [], []

        @house.server.tool
        async def compute(milliseconds: int) -> str:
            early.append(bool(answered))
            time.sleep(milliseconds / 1000)  # noqa: ASYNC251 - that is what it is about
            return "computed"

        send = one.wire.send_now
        one.wire.send_now = lambda data: answered.append(data) or send(data)

        async def compute_behind_another(milliseconds):
            answered.clear()
            async with trio.open_nursery() as nursery:  # so that both come before the next turn
                nursery.start_soon(one.say, call("echo", text="x"))
                nursery.start_soon(other.say, call("compute", milliseconds=milliseconds))
            assert b"computed" in (await other.answer())[2]
            await one.answer()

        for milliseconds in (5, 5, 5, 0, 5):
            await compute_behind_another(milliseconds)
        assert early == [True] * 5


@pytest.mark.parametrize("failing", ["account", "hold"])
async def test_an_answer_that_cannot_be_counted_while_it_waits_is_lost_with_its_connection(
    failing, monkeypatch, caplog, autojump_clock
):
    async with open_house() as house:
        one, other = await house.connect(), await house.connect()
        one.wire.room = 10
        kind = MemoryBudget if failing == "account" else MemoryAccount
        monkeypatch.setattr(kind, failing, fails_once(MemoryError(), getattr(kind, failing)))
        await one.say(call("echo", text="lost"))
        await one.over.wait()
        assert "MemoryError" in caplog.text
        await other.say(call("echo", text="well"))
        assert b"well" in (await other.answer())[2]
        await wait_all_tasks_blocked()
        now = house.bus.statistics()
        assert (now.delivered, dict(now.discarded), dict(now.pending)) == (1, {Reason.LOST: 1}, {})
        assert house.bus.ledger.balance() == 0
