"""The pool of connections over real sockets: it is shared by calls, and a call that is cancelled ends its connection."""

from functools import partial

import trio

from mcpbus import Server
from mcpbus.testing import open_client

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


class Peer:
    """An HTTP/1.1 server that answers /a and never /wait."""

    def __init__(self):
        self.connections = 0
        self.requests = []
        self.waiting, self.ended = trio.Event(), trio.Event()

    async def __call__(self, stream):
        self.connections += 1
        buffer = b""
        async with stream:
            async for chunk in stream:
                buffer += chunk
                while b"\r\n\r\n" in buffer:
                    head, _, buffer = buffer.partition(b"\r\n\r\n")
                    self.requests.append(head.split(b"\r\n")[0])
                    if b"/wait" in head:
                        self.waiting.set()
                    else:
                        await stream.send_all(OK)
        if self.waiting.is_set():
            self.ended.set()


async def test_calls_share_connections_and_a_cancelled_one_ends_its_own():
    peer = Peer()
    async with trio.open_nursery() as nursery:
        [listener] = await nursery.start(partial(trio.serve_tcp, peer, 0, host="127.0.0.1"))
        port = listener.socket.getsockname()[1]
        described = {"openapi": "3.1.0", "paths": {"/a": {"get": {}}, "/wait": {"get": {}}}}
        server = Server.from_openapi(described, base_url=f"http://127.0.0.1:{port}/v1")
        async with open_client(server) as client:
            for _ in range(3):
                assert not (await client.call_tool("get_a")).get("isError")
            assert peer.connections == 1
            async with trio.open_nursery() as calls:
                calls.start_soon(client.call_tool, "get_wait")
                with trio.fail_after(30):
                    await peer.waiting.wait()
                calls.cancel_scope.cancel()
            with trio.fail_after(30):
                await peer.ended.wait()
            assert not (await client.call_tool("get_a")).get("isError")
        nursery.cancel_scope.cancel()
    assert peer.requests == [b"GET /v1/a HTTP/1.1"] * 3 + [b"GET /v1/wait HTTP/1.1", b"GET /v1/a HTTP/1.1"]


async def test_an_api_that_is_not_there_is_an_error():
    server = Server.from_openapi(
        {"openapi": "3.1.0", "paths": {"/a": {"get": {}}}}, base_url="http://127.0.0.1:9"
    )
    async with open_client(server) as client:
        result = await client.call_tool("get_a")
    assert result["content"][0]["text"].startswith("GET /a failed: ")
