"""HTTP/2 straight onto the endpoint: over connections in memory, in virtual time."""

import gc
import json
from contextlib import asynccontextmanager
from time import thread_time

import h2.events
import pytest
import trio
import trio.testing
from h2.errors import ErrorCodes
from hyperframe.frame import GoAwayFrame, HeadersFrame
from peers import Http2
from wires import UnwatchedReactor

from mcpbus import Context, Limits, ServeOptions, Server
from mcpbus.protocol.principals import Peer
from mcpbus.serving.http2 import request_table
from mcpbus.serving.http2.body import Http2Body
from mcpbus.serving.http2.connection import Http2Connection
from mcpbus.serving.http2.request import Http2Request
from mcpbus.serving.http_server import HttpServer
from mcpbus.serving.response_writer import GatheringWriter
from mcpbus.serving.served_app import ServedApp
from tests.at_home import IN_TURN

CLAIM = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "client", "version": "1"},
    "io.modelcontextprotocol/logLevel": "info",
}


class Owner:
    """Who has accepted the connection."""

    peer = Peer.at("192.0.2.1")

    def __init__(self, stream):
        self.stream = stream
        self.faults = []
        self.closed = None

    def close(self):
        self.closed = trio.current_time()
        self.stream.send_stream.close()
        self.stream.receive_stream.close()

    def blame(self, fault):
        self.faults.append(fault)


class Client(Http2):
    """A client of the endpoint."""

    def __init__(self, bus, stream, connection, owner):
        super().__init__(stream)
        self.bus = bus
        self.server = connection
        self.owner = owner

    async def call(self, tool, *fields, end=True, **arguments):
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
        body["params"] = {"name": tool, "arguments": arguments, "_meta": CLAIM}
        data = json.dumps(body).encode()
        stream_id = await self.post(tool, ("content-length", str(len(data))), *fields)
        if end:
            await self.send_data(stream_id, data, end=True)
        return stream_id

    async def post(self, tool, *fields):
        return await self.request(headers=[*self.head("POST", "/mcp"), *self.about(tool), *fields], end=False)

    def head(self, method, path):
        return [(":method", method), (":path", path), (":scheme", "http"), (":authority", "localhost")]

    def about(self, tool):
        return [
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/call"),
            ("mcp-name", tool),
        ]

    async def result(self, stream_id):
        await self.until_stream(stream_id, h2.events.StreamEnded)
        return json.loads(self.bodies[stream_id])["result"]["content"][0]["text"]

    async def answered(self, stream_id):
        await self.until_stream(stream_id, h2.events.StreamEnded)
        return self.status(stream_id)

    async def ended(self):
        """Read until the server closes, and return with which code it has ended the connection."""
        code = None
        while data := await self.stream.receive_some():
            for event in self._read(data):
                if isinstance(event, h2.events.ConnectionTerminated):
                    code = event.error_code
        return code


class Tools:
    """What is called."""

    def __init__(self):
        self.server = Server("tools", version="1")
        self.go_on = trio.Event()
        self.cancelled = trio.Event()
        self.begun = 0

        @self.server.tool
        async def echo(text: str) -> str:
            return text

        @self.server.tool
        async def wait(ctx: Context) -> str:
            self.begun += 1
            try:
                await self.go_on.wait()
            except trio.Cancelled:
                self.cancelled.set()
                raise
            return "at last"

        @self.server.tool
        async def tell(ctx: Context, times: int, size: int = 1) -> str:
            for n in range(times):
                await ctx.info(str(n) * size)
            return "told"


@asynccontextmanager
async def connected(tools=None, *, limits=None, http=None, start=True, **options):
    tools = tools or Tools()
    async with (
        tools.server.open(limits=limits or Limits(), drain_timeout=0) as bus,
        trio.open_nursery() as nursery,
    ):
        reactor = UnwatchedReactor()
        service = HttpServer(ServedApp(bus.asgi(**(http or {}))), ServeOptions(**options), reactor)
        near, far = trio.testing.memory_stream_pair()
        owner = Owner(far)
        connection = Http2Connection(service, far, owner, reactor)
        nursery.start_soon(service.run)
        nursery.start_soon(connection.run)
        client = Client(bus, near, connection, owner)
        client.tools, client.service = tools, service
        if start:
            await client.start()
        yield client
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(("tool", "arguments"), [("echo", {"text": "again"}), ("nap", {})])
async def test_a_request_is_freed_with_its_answer_and_not_by_the_collector(tool, arguments, autojump_clock):
    tools = Tools()

    @tools.server.tool
    async def nap(ctx: Context) -> str:
        await trio.sleep(1)
        await ctx.info("up")
        await trio.sleep(1)
        return "rested"

    async with connected(tools) as client:
        await client.answered(await client.call(tool, **arguments))
        gc.collect()
        gc.disable()
        try:
            for _ in range(10):
                await client.answered(await client.call(tool, **arguments))
            await trio.testing.wait_all_tasks_blocked()
            kept = [
                each
                for each in gc.get_objects()
                if isinstance(each, Http2Request | Http2Body | GatheringWriter)
            ]
            assert kept == []
        finally:
            gc.enable()


async def test_a_short_call_is_answered_in_one_write_without_a_task(autojump_clock):
    async with connected() as client:
        assert await client.result(await client.call("echo", text="first")) == "first"
        tasks = []
        client.server.start = lambda *_: tasks.append(_)
        stream_id = await client.call("echo", text="again")
        events = client._read(await client.stream.receive_some())
        head, data, end = [event for event in events if event.stream_id == stream_id]
        assert dict(head.headers)[":status"] == "200"
        assert dict(head.headers)["content-length"] == str(len(data.data))
        assert data.stream_ended is end
        assert tasks == []
        assert client.bus.ledger.balance() == 0


async def test_calls_that_come_together_are_answered_each_with_its_own(autojump_clock):
    async with connected() as client:
        ids = [await client.call("echo", text=str(n)) for n in range(90)]
        assert [await client.result(each) for each in ids] == [str(n) for n in range(90)]


@IN_TURN
async def test_answers_that_are_there_do_not_wait_for_what_is_known_to_take_long(autojump_clock):
    tools, writes, before = Tools(), [], []

    @tools.server.tool
    async def compute() -> str:
        before.append(len(writes))
        until = thread_time() + 0.01
        while thread_time() < until:
            pass
        return "done"

    async def later():
        pass

    async with connected(tools) as client:
        await client.result(await client.call("compute"))
        client.server._writer._sends_now = lambda data: writes.append(data) or len(data)
        flush, client.flush = client.flush, later
        for tool, arguments in (("echo", {"text": "x"}), ("echo", {"text": "y"}), ("compute", {})):
            await client.call(tool, **arguments)
        client.flush = flush
        await client.flush()
        await trio.testing.wait_all_tasks_blocked()
    assert before == [0, 1]
    assert len(writes) == 2


QUICK, SLOW, HELD_UP = (0, 0), (0.01, 0.01), (0.01, 0)  # by the wall clock, and by that of the thread


@IN_TURN
@pytest.mark.parametrize(
    ("calls", "known"),
    [
        ([QUICK, SLOW, SLOW, QUICK, QUICK], [True, False, True, True, True]),
        ([SLOW, QUICK, QUICK], [True, True, True]),
        ([QUICK, HELD_UP, QUICK, QUICK], [True, False, True, False]),
        ([QUICK, HELD_UP, HELD_UP, QUICK, QUICK], [True, False, True, False, False]),
    ],
    ids=["slow from the second on", "slow at first", "held up by others", "held up twice"],
)
async def test_what_seems_slow_is_measured_by_the_time_of_its_thread(
    calls, known, monkeypatch, autojump_clock
):
    tools, writes, before, now = Tools(), [], [], [0.0, 0.0]
    monkeypatch.setattr(request_table, "perf_counter", lambda: now[0])
    monkeypatch.setattr(request_table, "thread_time", lambda: now[1])

    @tools.server.tool
    async def compute(wall: float, cpu: float) -> str:
        before.append(len(writes))
        now[:] = now[0] + wall, now[1] + cpu
        return "done"

    async def later():
        pass

    async with connected(tools) as client:
        await client.result(await client.call("echo", text="x"))
        client.server._writer._sends_now = lambda data: writes.append(data) or len(data)
        flush = client.flush
        for wall, cpu in calls:
            client.flush = later
            writes.clear()
            await client.call("echo", text="x")
            await client.call("compute", wall=wall, cpu=cpu)
            client.flush = flush
            await client.flush()
            await trio.testing.wait_all_tasks_blocked()
    assert before == known  # whether the answer before it was written first


async def test_what_a_handler_says_leaves_while_it_runs(autojump_clock):
    tools = Tools()

    @tools.server.tool
    async def slow(ctx: Context) -> str:
        await ctx.info("first")
        await trio.sleep(10)
        return "done"

    async with connected(tools) as client:
        stream_id = await client.call("slow")
        await client.until_stream(stream_id, h2.events.DataReceived)
        assert b'"first"' in client.bodies[stream_id]
        assert trio.current_time() < 1
        await client.until_stream(stream_id, h2.events.StreamEnded)
        assert b'"done"' in client.bodies[stream_id]


async def test_a_quiet_answer_is_kept_alive(autojump_clock):
    async with connected(limits=Limits(keep_alive=15)) as client:
        stream_id = await client.call("wait")
        await client.until_stream(stream_id, h2.events.DataReceived)
        assert trio.current_time() == pytest.approx(15, abs=1)
        client.tools.go_on.set()
        await client.until_stream(stream_id, h2.events.StreamEnded)
        assert client.bodies[stream_id].startswith(b":")
        assert b"at last" in client.bodies[stream_id]


@pytest.mark.parametrize("leaves", ["the stream", "the connection", "in disorder"])
async def test_a_client_that_leaves_cancels_what_it_asked_for(leaves, autojump_clock):
    async with connected() as client:
        stream_id = await client.call("wait")
        await trio.testing.wait_all_tasks_blocked()
        assert client.tools.begun == 1
        if leaves == "the stream":
            client.connection.reset_stream(stream_id, ErrorCodes.CANCEL)
            await client.flush()
        elif leaves == "the connection":
            await client.stream.aclose()
        else:
            await client.stream.send_all(b"\xff" * 100)
        await client.tools.cancelled.wait()
        await trio.testing.wait_all_tasks_blocked()
        assert client.bus.statistics().requests == 0
        assert client.bus.ledger.balance() == 0


async def test_a_client_that_has_left_before_a_handler_waits_cancels_it(autojump_clock):
    async def authenticate(head):
        await trio.sleep(1)
        return "somebody"

    tools = Tools()
    tools.server.authenticate = authenticate
    async with connected(tools) as client:
        stream_id = await client.call("wait")
        await trio.testing.wait_all_tasks_blocked()
        client.connection.reset_stream(stream_id, ErrorCodes.CANCEL)
        await client.flush()
        with trio.fail_after(2):
            await client.tools.cancelled.wait()
        await trio.testing.wait_all_tasks_blocked()
        assert client.bus.statistics().requests == 0


async def test_the_end_is_announced_and_what_is_under_way_goes_on(autojump_clock):
    async with connected() as client:
        first = await client.call("wait")
        await trio.testing.wait_all_tasks_blocked()
        client.server.retire()
        goodbye = await client.until(lambda event: isinstance(event, h2.events.ConnectionTerminated))
        assert goodbye.last_stream_id == first
        late = await client.call("echo", text="late")
        reset = await client.until_stream(late, h2.events.StreamReset)
        assert reset.error_code == ErrorCodes.REFUSED_STREAM
        client.tools.go_on.set()
        assert await client.result(first) == "at last"
        await client.ended()
        assert client.owner.faults == []


async def test_a_client_that_says_goodbye_has_what_it_asked_for(autojump_clock):
    async with connected() as client:
        first = await client.call("wait")
        await client.send_frames(GoAwayFrame(0))
        await trio.testing.wait_all_tasks_blocked()
        assert client.owner.closed is None
        client.tools.go_on.set()
        assert await client.result(first) == "at last"
        await client.ended()


async def test_an_idle_connection_ends_and_one_with_a_request_does_not(autojump_clock):
    async with connected(keep_alive_timeout=75) as client:
        stream_id = await client.call("wait")
        await trio.sleep(1000)
        assert client.server.idle_since() is None
        client.tools.go_on.set()
        assert "at last" in (
            await client.until_stream(stream_id, h2.events.StreamEnded) and client.bodies[stream_id].decode()
        )
        begun = trio.current_time()
        assert await client.ended() == ErrorCodes.NO_ERROR
        assert client.owner.closed == pytest.approx(begun + 75, abs=2)


async def test_what_is_asked_for_as_an_idle_connection_ends_is_refused_and_no_broken_pipe(autojump_clock):
    async with connected(keep_alive_timeout=75) as client:
        await trio.sleep(75.5)
        assert client.owner.closed is None
        stream_id = await client.call("wait")  # which has read nothing of its end
        reset = await client.until_stream(stream_id, h2.events.StreamReset)
        assert reset.error_code == ErrorCodes.REFUSED_STREAM
        assert await client.ended() == ErrorCodes.NO_ERROR
        assert client.owner.closed == pytest.approx(76, abs=0.1)


async def test_what_is_asked_for_just_as_a_drain_begins_is_refused_and_no_broken_pipe(autojump_clock):
    async with connected() as client:
        await trio.sleep(0.6)
        assert client.server.linger(1) == pytest.approx(0.4)
        stream_id = await client.call("wait")  # which has read nothing of its end
        reset = await client.until_stream(stream_id, h2.events.StreamReset)
        assert reset.error_code == ErrorCodes.REFUSED_STREAM
        assert await client.ended() == ErrorCodes.NO_ERROR
        assert client.owner.closed == pytest.approx(1, abs=0.1)


async def test_a_drain_waits_for_no_connection_that_was_idle_anyway(autojump_clock):
    async with connected() as client:
        await trio.sleep(1.1)
        assert client.server.linger(1) == 0
        assert await client.ended() == ErrorCodes.NO_ERROR
        assert trio.current_time() < 1.5


async def test_an_idle_connection_ends_at_once_when_it_is_retired(autojump_clock):
    async with connected() as client:
        client.server.retire()
        assert await client.ended() == ErrorCodes.NO_ERROR
        assert trio.current_time() < 1


@pytest.mark.parametrize(
    "said",
    [b"PRI * HTTP/2.0", HeadersFrame(1, data=b"\x82").serialize(), b"\0\0\x08\6\0"],
    ids=["preface", "head", "ping"],
)
async def test_what_is_begun_has_to_come_whole_in_time(said, autojump_clock):
    async with connected(head_timeout=10, start=False) as client:
        if not said.startswith(b"PRI"):
            await client.start()
        await client.stream.send_all(said)
        assert await client.ended() == ErrorCodes.ENHANCE_YOUR_CALM
        assert client.owner.closed == pytest.approx(10, abs=1)
        assert client.bus.statistics().limits_reached == {"head_timeout": 1}


@pytest.mark.parametrize("length", [1000, 100_000], ids=["short", "long"])
@pytest.mark.parametrize("pause", [None, 1, 0.09])
async def test_a_body_that_does_not_come_in_time_is_answered_408(length, pause, autojump_clock):
    limits = Limits(body_timeout=10, body_bytes_per_second=500)
    async with connected(limits=limits, unread_body_timeout=5) as client:
        stream_id = await client.post("echo", ("content-length", str(length)))
        client.connection.send_data(stream_id, b"{")
        await client.flush()

        async def dribble():
            while pause is not None and trio.current_time() < 40:
                await trio.sleep(pause)
                client.connection.send_data(stream_id, b" ")
                await client.flush()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(dribble)
            assert await client.answered(stream_id) == "408"
            nursery.cancel_scope.cancel()
        assert trio.current_time() < 20, "it was prolonged"
        assert client.bus.statistics().limits_reached == {"body_timeout": 1}
        assert await client.result(await client.call("echo", text="still there")) == "still there"


async def test_a_body_that_is_said_to_be_too_long_is_refused_before_it_comes(autojump_clock):
    async with connected(http={"max_body_bytes": 1000}) as client:
        stream_id = await client.post("echo", ("content-length", "1001"))
        await client.until_stream(stream_id, h2.events.ResponseReceived)
        assert client.status(stream_id) == "413"
        assert trio.current_time() < 1


@pytest.mark.parametrize("limit", [1000, 60_000])
@pytest.mark.parametrize("measured", [False, True])
async def test_a_body_of_exactly_the_limit_is_read(limit, measured, autojump_clock):
    """A short one without a task, a long one in one, with its length in the head or not."""
    async with connected(http={"max_body_bytes": limit}) as client:
        fields = [("content-length", str(limit))] if measured else []
        stream_id = await client.post("echo", *fields)
        await client.send_data(stream_id, b" " * (limit - 1))
        await client.send_data(stream_id, b"{", end=True)
        assert await client.answered(stream_id) == "400"


@pytest.mark.parametrize("length", [2000, 60_000])
async def test_a_body_that_comes_steadily_is_waited_for_however_long_that_takes(length, autojump_clock):
    """A short one without a task, a long one in one."""
    limits = Limits(body_timeout=10, body_bytes_per_second=length / 100)
    async with connected(limits=limits) as client:
        began, stream_id = trio.current_time(), await client.post("echo")
        for _ in range(20):
            await client.send_data(stream_id, b" " * (length // 20))
            await trio.sleep(4)
        await client.send_data(stream_id, b"{", end=True)
        assert await client.answered(stream_id) == "400"
        assert trio.current_time() - began >= 80
        assert client.bus.statistics().limits_reached == {}


@pytest.mark.parametrize("length", [1001, 200_000])
async def test_a_body_that_turns_out_too_long_is_refused(length, autojump_clock):
    async with connected(http={"max_body_bytes": 1000}) as client:
        stream_id = await client.post("echo")
        await client.send_data(stream_id, b" " * length, end=True)
        assert await client.answered(stream_id) == "413"


@pytest.mark.parametrize("size", [10, 20_000, 300_000])
async def test_a_body_may_come_in_any_pieces(size, autojump_clock):
    """Without a length, and with trailers."""
    async with connected() as client:
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
        body["params"] = {"name": "echo", "arguments": {"text": "x" * size}, "_meta": CLAIM}
        data = json.dumps(body).encode()
        stream_id = await client.post("echo")
        for start in range(0, len(data), 9000):
            await client.send_data(stream_id, data[start : start + 9000])
            await trio.testing.wait_all_tasks_blocked()
        client.connection.send_headers(stream_id, [("x-checksum", "1")], end_stream=True)
        await client.flush()
        assert await client.result(stream_id) == "x" * size


async def test_a_client_that_waits_to_be_told_is_told_to_go_on(autojump_clock):
    async with connected() as client:
        stream_id = await client.call("echo", ("expect", "100-continue"), end=False, text="x")
        await client.until_stream(stream_id, h2.events.InformationalResponseReceived)
        (told,) = [
            e for e in client.events[stream_id] if isinstance(e, h2.events.InformationalResponseReceived)
        ]
        assert dict(told.headers)[":status"] == "100"


@pytest.mark.parametrize(("sends", "waits"), [(b"", False), (b" ", True)])
async def test_a_client_that_waits_to_be_told_and_is_refused_is_not_waited_for(sends, waits, autojump_clock):
    """Unless it has not waited after all."""
    async with connected(http={"max_body_bytes": 1000}) as client:
        stream_id = client.connection.get_next_available_stream_id()
        fields = [("content-length", "1001"), ("expect", "100-continue")]
        head = [*client.head("POST", "/mcp"), *client.about("echo"), *fields]
        client.connection.send_headers(stream_id, head)
        if sends:
            client.connection.send_data(stream_id, sends)
        await client.flush()  # in one piece: what comes after the refusal is too late
        assert await client.answered(stream_id) == "413"
        assert (trio.current_time() >= ServeOptions().unread_body_timeout) is waits


async def test_a_long_answer_does_not_keep_a_short_one_waiting(autojump_clock):
    async with connected() as client:
        client.acknowledges = False
        long = await client.call("echo", text="x" * 3_000_000)
        await client.until_stream(long, h2.events.ResponseReceived)
        client.acknowledges = True
        client.connection.increment_flow_control_window(2**24)
        client.connection.increment_flow_control_window(2**24, long)
        short = await client.call("echo", text="short")
        assert await client.result(short) == "short"
        assert len(client.bodies[long]) < 1_000_000
        assert await client.result(long) == "x" * 3_000_000


async def test_a_long_body_does_not_keep_a_short_call_waiting(autojump_clock):
    async with connected() as client:
        long = await client.post("echo")
        room = client.connection.local_flow_control_window(long)
        await client.send_data(long, b" " * room)
        assert await client.result(await client.call("echo", text="short")) == "short"


async def test_a_client_that_opens_no_window_loses_the_stream_alone(autojump_clock):
    async with connected(write_deadline=30, limits=Limits(write_deadline=30)) as client:
        client.acknowledges = False
        stream_id = await client.call("echo", text="x" * 100_000)
        reset = await client.until_stream(stream_id, h2.events.StreamReset)
        assert reset.error_code == ErrorCodes.CANCEL
        assert trio.current_time() == pytest.approx(30, abs=2)
        await trio.testing.wait_all_tasks_blocked()
        assert client.service.counters.withheld == 1
        assert client.service.counters.buffered == 0
        assert client.bus.ledger.balance() == 0
        assert client.bus.budget.held == 0
        client.connection.increment_flow_control_window(2**20)
        assert await client.result(await client.call("echo", text="x")) == "x"


async def test_answers_that_wait_for_windows_are_counted_and_the_longest_go(autojump_clock):
    async with connected(limits=Limits(memory_bytes=2_000_000)) as client:
        client.acknowledges = False
        ids = [await client.call("echo", text="x" * 200_000) for _ in range(20)]
        resets = 0
        while not resets:
            await client.step()
            resets = sum(isinstance(e, h2.events.StreamReset) for each in ids for e in client.events[each])
        assert client.bus.budget.held <= 2_000_000
        assert client.bus.statistics().limits_reached["memory_bytes"] >= 1


@pytest.mark.parametrize(
    ("method", "path", "fields", "status"),
    [
        ("GET", "/health", [], "200"),
        ("HEAD", "/health", [], "200"),
        ("GET", "/nowhere", [], "404"),
        ("GET", "/mcp", [("accept", "text/event-stream")], "400"),
        (
            "OPTIONS",
            "/mcp",
            [("origin", "http://localhost"), ("access-control-request-method", "POST")],
            "204",
        ),
        ("GET", "/mcp", [("origin", "http://elsewhere.example")], "403"),
    ],
)
async def test_requests_without_a_body(method, path, fields, status, autojump_clock):
    async with connected() as client:
        stream_id = await client.request(headers=[*client.head(method, path), *fields])
        assert await client.answered(stream_id) == status


async def test_another_host_is_refused(autojump_clock):
    async with connected() as client:
        head = [*client.head("GET", "/mcp")[:3], (":authority", "elsewhere.example")]
        assert await client.answered(await client.request(headers=head)) == "403"


async def test_a_field_that_cannot_be_said_is_the_servers_fault(autojump_clock, caplog):
    tools = Tools()
    async with connected(tools) as client:
        endpoint = client.service.app.direct("/mcp")
        endpoint.cors_headers = lambda _: [(b"x-a", b"b\r\nc: d")]
        stream_id = await client.call("echo", text="x")
        reset = await client.until_stream(stream_id, h2.events.StreamReset)
        assert reset.error_code == ErrorCodes.INTERNAL_ERROR
    assert "cannot be a header field" in caplog.text
