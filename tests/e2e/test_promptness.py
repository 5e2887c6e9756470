"""What a handler says is on the wire at once, while it still runs (the tenth second of a ten-second script is too late)."""

import json

import h2.config
import h2.connection
import h2.events
import pytest
import trio
from wire import ACCEPT, LEGACY, MODERN, call, modernized, serving

from mcpbus import Context, Server

# From the handler's call to the bytes in the client's hands, in seconds.
AT_ONCE = 0.05
# Other programs may hold the processor for a while; a server that waits for something does so every time. One that does not is
# seldom asked more than once.
ATTEMPTS = 50


def make_server():
    server = Server("prompt")
    server.said_at, server.go_on = [], trio.Event()

    @server.tool
    async def speak(ctx: Context) -> str:
        server.go_on = trio.Event()
        for n in (1, 2):
            server.said_at.append(trio.current_time())
            await ctx.progress(n)
            await server.go_on.wait()
        return "spoken"

    return server


class Http2:
    """One request over HTTP/2 with prior knowledge."""

    def __init__(self, stream):
        self.stream = stream
        self.http = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        self.http.initiate_connection()
        self._said = []
        self.status = None

    async def send(self, body, headers=()):
        data = json.dumps(body).encode()
        fields = {":method": "POST", ":path": "/mcp", ":scheme": "http", ":authority": "localhost"}
        self.http.send_headers(1, list((fields | ACCEPT | dict(headers)).items()))
        self.http.send_data(1, data, end_stream=True)
        await self.stream.send_all(self.http.data_to_send())

    async def said(self):
        while not self._said:
            for event in self.http.receive_data(await self.stream.receive_some()):
                if isinstance(event, h2.events.ResponseReceived):
                    self.status = dict(event.headers)[":status"]
                elif isinstance(event, h2.events.DataReceived):
                    self.http.acknowledge_received_data(event.flow_controlled_length, 1)
                    self._said += [json.loads(line[6:]) for line in event.data.split(b"\n\n") if line]
                elif isinstance(event, h2.events.StreamEnded):
                    self._said.append(None)
            await self.stream.send_all(self.http.data_to_send())
        return self._said.pop(0)


@pytest.mark.parametrize("era", [LEGACY, MODERN])
@pytest.mark.parametrize("protocol", ["HTTP/1.1", "HTTP/2"])
async def test_the_first_notification_leaves_before_there_is_a_second(protocol, era):
    server = make_server()
    delays = []
    async with serving(server) as served:
        opener = await served.peer()
        session = await opener.open_session() if era == LEGACY else {}
        for attempt in range(ATTEMPTS):
            peer = await served.peer()
            http2 = Http2(peer.stream) if protocol == "HTTP/2" else None
            body = call("speak", id=attempt, token=attempt)
            headers = session
            if era == MODERN:
                body, headers = modernized(body)
            await (http2 or peer).send(body, headers)
            if http2 is None:
                assert (await peer.head())[0] == 200
            first = await (http2 or peer).said()
            delays.append(trio.current_time() - server.said_at[-1])
            assert first["params"] == {"progressToken": attempt, "progress": 1}
            assert len(server.said_at) == 2 * attempt + 1  # the second is still to come
            server.go_on.set()
            assert (await (http2 or peer).said())["params"]["progress"] == 2
            assert (await (http2 or peer).said())["result"]["content"][0]["text"] == "spoken"
            assert await (http2 or peer).said() is None
            assert http2 is None or http2.status == "200"
            if delays[-1] < AT_ONCE:
                break
    assert min(delays) < AT_ONCE, delays


async def test_each_of_many_notifications_leaves_at_once():
    """A client answers each of them before the handler makes the next."""
    server, go_on = Server("dialogue"), [trio.Event() for _ in range(100)]

    @server.tool
    async def dialogue(ctx: Context) -> str:
        for n, event in enumerate(go_on):
            await ctx.progress(n + 1)
            await event.wait()
        return "done"

    async with serving(server) as served:
        peer = await served.peer()
        await peer.send(*modernized(call("dialogue", id=1, token=1)))
        await peer.head()
        for event in go_on:
            assert "progress" in (await peer.said())["params"]
            event.set()
        assert "result" in await peer.said()


@pytest.mark.parametrize("era", [LEGACY, MODERN])
async def test_change_notifications_leave_at_once(era):
    async with serving(make_server()) as served:
        peer = await served.peer()
        if era == LEGACY:
            session = await (await served.peer()).open_session()
            await peer.send(None, session, verb="GET")
            await peer.head()
        else:
            wanted = {"method": "subscriptions/listen", "jsonrpc": "2.0", "id": "listen"}
            wanted["params"] = {"notifications": {"toolsListChanged": True}}
            await peer.send(*modernized(wanted))
            await peer.head()
            assert (await peer.said())["method"] == "notifications/subscriptions/acknowledged"
        delays = []
        for _ in range(ATTEMPTS):
            said_at = trio.current_time()
            served.bus.tools_changed()
            assert (await peer.said())["method"] == "notifications/tools/list_changed"
            delays.append(trio.current_time() - said_at)
            if delays[-1] < AT_ONCE:
                break
        assert min(delays) < AT_ONCE, delays
