"""How long an ASGI application waits for the client of a whole answer: as long as the write deadline, where a scope can end that."""

import socket

import pytest
import trio
from asgi_calls import encoded
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext

from mcpbus import Context, Limits, Reason, Server
from mcpbus.testing import open_bus

CALL = b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "say", "arguments": {"count": %d}}}'
FIELDS = {
    "host": "localhost",
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
    "mcp-protocol-version": "2025-11-25",
}
START = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]}
BODY = {"type": "http.response.body", "body": b"said"}
SECONDS = 60


class SlowStream:
    """A connection of hypercorn's that has one request, and takes a minute for whatever is written."""

    def __init__(self):
        self.socket, self._other = socket.socketpair()
        self.written = b""
        self._pieces = [b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"]

    async def receive_some(self, _size):
        await trio.lowlevel.checkpoint()
        return self._pieces.pop() if self._pieces else await trio.sleep_forever()

    async def send_all(self, data):
        await trio.sleep(SECONDS)
        self.written += data

    async def send_eof(self):
        raise trio.ClosedResourceError

    async def aclose(self):
        self.socket.close()
        self._other.close()


async def test_hypercorn_writes_over_http1_to_the_end_whatever_scope_is_around_it(autojump_clock):
    """If this fails, a scope bounds such a write, and `_AsgiRequest.answer` should have one for short answers too."""
    stream, took = SlowStream(), []

    async def application(_scope, _receive, send):
        begun = trio.current_time()
        with trio.move_on_after(1):
            await send(START)
        took.append(trio.current_time() - begun)
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        server = TCPServer(ASGIWrapper(application), Config(), WorkerContext(None), {}, stream)
        nursery.start_soon(server.run)
    assert took == [SECONDS]
    assert stream.written.startswith(b"HTTP/1.1 200")


def tell(count: int) -> str:
    """Say something short, or long."""
    return "x" * count


@pytest.mark.parametrize(
    ("version", "wrapped", "count", "bounded"),
    [
        ("1.1", False, 10, False),
        ("1.0", False, 10, False),
        ("1.1", False, 5000, True),
        ("1.1", True, 10, True),
        ("2", False, 10, True),
        (None, False, 10, True),
    ],
    ids=["hypercorn", "HTTP/1.0", "a long answer", "another server", "HTTP/2", "an unknown version"],
)
async def test_the_write_of_a_whole_answer_is_bounded_where_that_can_end_it(
    version, wrapped, count, bounded, autojump_clock
):
    server = Server("test")
    server.tool(tell, name="say", thread=False)
    said, receiving = trio.open_memory_channel(10)
    said.send_nowait({"type": "http.request", "body": CALL % count})
    sent = []

    async def receive():
        return await receiving.receive()

    async def send(message):
        await trio.sleep(SECONDS)
        sent.append(message["type"])

    scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": encoded(FIELDS)}
    if version is not None:
        scope["http_version"] = version
    async with open_bus(server, limits=Limits(write_deadline=SECONDS / 2)) as bus:
        app = bus.asgi(sessions="stateless")
        await app(scope, receive if wrapped else receiving.receive, send)
        assert bus.statistics().limits_reached.get("write_deadline", 0) == bounded
    assert sent == ([] if bounded else ["http.response.start", "http.response.body"])


class Connection(SlowStream):
    """A connection of hypercorn's that has one call, and takes at once what is written."""

    def __init__(self, request):
        super().__init__()
        self._pieces = [request]
        self.closed = None

    async def send_all(self, data):
        await trio.lowlevel.checkpoint()
        self.written += data

    async def send_eof(self):
        await trio.lowlevel.checkpoint()

    async def aclose(self):
        await super().aclose()
        self.closed = self.closed or trio.current_time()


async def chat(ctx: Context) -> str:
    """Say something before the reply."""
    await ctx.progress(1)
    return "done"


CHAT = b"""{"jsonrpc": "2.0", "id": 1, "method": "tools/call",
"params": {"name": "chat", "arguments": {}, "_meta": {"progressToken": 1}}}"""


@pytest.mark.parametrize(("field", "closed"), [("close", 0), ("keep-alive", 5)])
async def test_hypercorn_ends_what_an_answer_in_parts_has_begun_though_it_says_meanwhile_that_its_client_has_gone(
    field, closed, autojump_clock
):
    server = Server("test")
    server.tool(chat)
    fields = FIELDS | {"connection": field, "content-length": str(len(CHAT))}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    stream = Connection(f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + CHAT)
    async with open_bus(server) as bus:
        wrapped = ASGIWrapper(bus.asgi(sessions="stateless"))
        begun = trio.current_time()
        with trio.move_on_after(SECONDS):
            await TCPServer(wrapped, Config(), WorkerContext(None), {}, stream).run()
        assert b"done" in stream.written
        assert stream.closed - begun == closed
        said = bus.statistics()
        assert (said.delivered, said.discarded) == (2, {})


@pytest.mark.parametrize("ending", [False, True])
async def test_a_client_that_goes_ends_what_is_written_to_it_and_its_end_soon(ending, autojump_clock):
    server = Server("test")
    server.tool(chat)
    said, receiving = trio.open_memory_channel(10)
    said.send_nowait({"type": "http.request", "body": CHAT})

    async def send(message):
        if message["type"] == "http.response.body" and message["more_body"] is not ending:
            said.send_nowait({"type": "http.disconnect"})
            await trio.sleep(SECONDS / 2)

    scope = {
        "type": "http",
        "http_version": "2",
        "method": "POST",
        "path": "/mcp",
        "headers": encoded(FIELDS),
    }
    async with open_bus(server) as bus:
        app = bus.asgi(sessions="stateless")
        begun = trio.current_time()
        await app(scope, receiving.receive, send)
        assert trio.current_time() - begun == ending
        assert bus.statistics().discarded


@pytest.mark.parametrize("fails", ["http.response.start", "http.response.body"])
@pytest.mark.parametrize("call", [CALL % 10, CALL % 5000, CHAT], ids=["short", "long", "in parts"])
async def test_a_server_that_raises_for_a_client_that_has_gone_hears_nothing_of_it(
    fails, call, autojump_clock
):
    """As ASGI has it since its version 2.4; whoever looks at the books does hear of it."""
    server = Server("test")
    server.tool(tell, name="say", thread=False)
    server.tool(chat)
    said, receiving = trio.open_memory_channel(10)
    said.send_nowait({"type": "http.request", "body": call})

    async def send(message):
        await trio.lowlevel.checkpoint()
        if message["type"] == fails:
            raise ConnectionResetError("the client has left")

    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "path": "/mcp",
        "headers": encoded(FIELDS),
    }
    async with open_bus(server) as bus:
        await bus.asgi(sessions="stateless")(scope, receiving.receive, send)
        now = bus.statistics()
        assert (now.delivered, set(now.discarded)) == (0, {Reason.LOST})


@pytest.mark.parametrize("fails", ["websocket.accept", "websocket.send"])
async def test_nor_does_one_that_raises_for_a_websocket(fails, autojump_clock):
    said, receiving = trio.open_memory_channel(10)
    said.send_nowait({"type": "websocket.connect"})
    said.send_nowait({"type": "websocket.receive", "text": CHAT.decode()})

    async def send(message):
        await trio.lowlevel.checkpoint()
        if message["type"] == fails:
            raise ConnectionResetError("the client has left")

    scope = {"type": "websocket", "path": "/mcp", "headers": encoded(FIELDS), "subprotocols": ["mcp"]}
    async with open_bus(Server("test")) as bus:
        await bus.asgi()(scope, receiving.receive, send)
        assert bus.statistics().delivered == 0


async def test_an_error_of_the_system_in_an_authors_code_is_no_client_that_has_gone():
    async def authenticate(_head):
        raise ConnectionRefusedError("no directory")

    scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": encoded(FIELDS)}
    async with open_bus(Server("test", authenticate=authenticate)) as bus:
        with pytest.raises(ConnectionRefusedError):
            await bus.asgi()(scope, None, None)
