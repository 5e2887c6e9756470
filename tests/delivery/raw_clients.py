"""Clients of all transports, none of which knows mcpbus: they call, are asked, are slow, leave and come back, and note what arrives where."""

import json
import random
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Any, Final
from urllib.parse import urlsplit

import attrs
import trio
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, Event, Ping, Request, TextMessage

from tests.delivery.delivery_rules import Arrivals
from tests.delivery.raw_http import Answer, Reading, exchange

SERVER: Final = Path(__file__).with_name("checked_server.py")
LEGACY: Final = "2025-11-25"
MODERN: Final = "2026-07-28"
CAPABILITIES: Final = {"elicitation": {}}
PATIENCE_SECONDS: Final = 60.0
KINDS: Final = ("progress", "log", "custom", "session log", "session custom", "update")

Message = dict[str, Any]


@attrs.define
class Client:
    """One client: its dice, and the streams on which messages arrive for it.

    Attributes:
        url: The endpoint.
        tag: Its name.
        dice: What it does at random.
        streams: Its streams.
        store: Whether the server has an event store, so that streams can be resumed.
    """

    url: str
    tag: str
    dice: random.Random
    store: bool
    streams: list[Arrivals] = attrs.field(factory=list)
    _ids: int = 0

    def next_id(self) -> int:
        """Return the id of the next request, which names its call, too."""
        self._ids += 1
        return self._ids

    def open(self, kind: str, call: str | None = None, request: int | None = None) -> Arrivals:
        """Begin to note what arrives on a stream."""
        arrivals = Arrivals(self.tag, kind, call, request)
        self.streams.append(arrivals)
        return arrivals

    def wish(self, *, modern: bool) -> tuple[str, Message]:
        """Return a call, and its request."""
        dice, request_id = self.dice, self.next_id()
        call = f"{self.tag}.{request_id}"
        name: str
        arguments: Message
        if dice.random() < 0.2:
            name, arguments = "ask", {"call": call}
        else:
            size = dice.choice([10, 10, 3_000, 30_000])
            plan = [
                (dice.choice(KINDS), size, dice.choice([0, 0, 0.001, 0.02]))
                for _ in range(dice.randrange(1, 30))
            ]
            name, arguments = "talk", {"call": call, "client": self.tag, "plan": plan}
        meta: Message = {"progressToken": request_id}
        if modern:
            meta |= claim()
        params = {"name": name, "arguments": arguments, "_meta": meta}
        return call, {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params}

    def reading(self, times: int = 1) -> Reading:
        """Return how the next response is read, or a stream that has so many times as much."""
        dice = self.dice.random()
        if dice < 0.1:
            return Reading(most=times * self.dice.choice([300, 3_000, 30_000]))
        return Reading(pause=self.dice.choice([0.001, 0.01]) if dice < 0.3 else 0.0)


def claim() -> Message:
    """Return what each modern request says of its client."""
    prefix = "io.modelcontextprotocol/"
    return {
        f"{prefix}protocolVersion": MODERN,
        f"{prefix}clientCapabilities": CAPABILITIES,
        f"{prefix}logLevel": "info",
    }


def hello(request_id: int) -> Message:
    """Return an ``initialize``."""
    params = {
        "protocolVersion": LEGACY,
        "capabilities": CAPABILITIES,
        "clientInfo": {"name": "raw", "version": "1"},
    }
    return {"jsonrpc": "2.0", "id": request_id, "method": "initialize", "params": params}


def notification(method: str, **params: Any) -> Message:
    """Return a notification."""
    return {"jsonrpc": "2.0", "method": method, "params": params}


def answer_to(question: Message) -> Message:
    """Return the answer to a question: which call asks it."""
    value = question["params"]["message"].removeprefix("question of ")
    return {"action": "accept", "content": {"value": value}}


# -- Streamable HTTP -------------------------------------------------------------------------------


class LegacySession:
    """A session over Streamable HTTP."""

    def __init__(self, client: Client, nursery: trio.Nursery) -> None:
        self._client = client
        self._nursery = nursery
        self._fields: dict[str, str] = {}
        self._over = False

    async def begin(self) -> bool:
        """Shake hands, and wish for all that there is to hear; return whether the server has taken it."""
        client = self._client
        opened = await exchange(client.url, "POST", hello(client.next_id()))
        if opened.status != 200:
            return False
        self._fields = {"mcp-session-id": opened.fields["mcp-session-id"], "mcp-protocol-version": LEGACY}
        await self._post(notification("notifications/initialized"))
        for method, params in (
            ("logging/setLevel", {"level": "info"}),
            ("resources/subscribe", {"uri": "res://all"}),
        ):
            await self._post({"jsonrpc": "2.0", "id": client.next_id(), "method": method, "params": params})
        return True

    async def _post(self, message: Message) -> Answer:
        return await exchange(self._client.url, "POST", message, self._fields)

    def _take(self, arrivals: Arrivals, message: Message) -> None:
        arrivals.messages.append(message)
        if message.get("method") == "elicitation/create":
            said = {"jsonrpc": "2.0", "id": message["id"], "result": answer_to(message)}
            self._nursery.start_soon(self._post, said)

    async def hear(self) -> None:
        """Keep a GET stream open, now and then by a newer one that takes the place of the last one."""
        last = None
        while not self._over:
            arrivals = self._client.open("get")
            answer, reading = Answer(), self._client.reading()
            fields = self._fields if last is None else {**self._fields, "last-event-id": last}
            self._nursery.start_soon(self._read, fields, arrivals, reading, answer)
            await trio.sleep(self._client.dice.choice([0.0, 0.01, 0.1, 1.0]))
            with trio.move_on_after(self._client.dice.expovariate(1)):
                await answer.ended.wait()
            last = answer.last_event if self._client.store and answer.ended.is_set() else None

    async def _read(
        self, fields: dict[str, str], arrivals: Arrivals, reading: Reading, answer: Answer
    ) -> None:
        take = partial(self._take, arrivals)
        await exchange(self._client.url, "GET", None, fields, take=take, reading=reading, answer=answer)
        arrivals.whole = answer.whole

    async def call(self) -> None:
        """Call a tool; come back for the rest if the connection was cut, and that is possible."""
        call, request = self._client.wish(modern=False)
        arrivals = self._client.open("response", call, request["id"])
        take = partial(self._take, arrivals)
        reading = self._client.reading()
        answer = await exchange(self._client.url, "POST", request, self._fields, take=take, reading=reading)
        if not answer.whole and answer.last_event is not None and self._client.store:
            fields = {**self._fields, "last-event-id": answer.last_event}
            answer = await exchange(self._client.url, "GET", None, fields, take=take)
        arrivals.whole = answer.whole

    async def end(self) -> None:
        """End the session, and with it its streams."""
        self._over = True
        await trio.sleep(0.1)  # what was sent last is on its way
        await exchange(self._client.url, "DELETE", None, self._fields)


async def legacy_http(client: Client) -> None:
    """Open a session, hear what belongs to no call, and call."""
    async with trio.open_nursery() as nursery:
        session = LegacySession(client, nursery)
        if not await session.begin():
            return
        nursery.start_soon(session.hear)
        await _several(client, session.call)
        await session.end()


async def modern_http(client: Client) -> None:
    """Call, answer what is asked, and listen meanwhile."""

    async def send(request: Message, arrivals: Arrivals, reading: Reading | None = None) -> Answer:
        params = request["params"]
        fields = {"mcp-protocol-version": MODERN, "mcp-method": request["method"]}
        if "name" in params:
            fields["mcp-name"] = params["name"]
        return await exchange(
            client.url, "POST", request, fields, take=arrivals.messages.append, reading=reading
        )

    async def call() -> None:
        name, request = client.wish(modern=True)
        while True:
            arrivals = client.open("response", name, request["id"])
            answer = await send(request, arrivals, client.reading())
            arrivals.whole = answer.whole
            result = arrivals.messages[-1].get("result", {}) if arrivals.messages else {}
            if result.get("resultType") != "input_required":
                return
            answers = {key: answer_to(question) for key, question in result["inputRequests"].items()}
            more = {"requestState": result["requestState"], "inputResponses": answers}
            params = {**request["params"], **more}
            request = {**request, "id": client.next_id(), "params": params}

    async def listen() -> None:
        notifications = {"resourceSubscriptions": ["res://all"]}
        params = {"notifications": notifications, "_meta": claim()}
        request = {
            "jsonrpc": "2.0",
            "id": client.next_id(),
            "method": "subscriptions/listen",
            "params": params,
        }
        arrivals = client.open("listen", request=request["id"])
        await send(request, arrivals, client.reading())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(listen)
        await trio.sleep(0.05)
        await _several(client, call)
        nursery.cancel_scope.cancel()


async def _several(client: Client, call: Callable[[], Awaitable[None]]) -> None:
    for _ in range(client.dice.randint(1, 4)):
        async with trio.open_nursery() as nursery:
            for _ in range(client.dice.randint(1, 3)):
                nursery.start_soon(call)


# -- connections that carry everything -------------------------------------------------------------


class Duplex:
    """A connection that carries everything, whatever it is made of."""

    def __init__(
        self, client: Client, nursery: trio.Nursery, send: Callable[[Message], Awaitable[None]]
    ) -> None:
        self._client = client
        self._nursery = nursery
        self._sends = send
        self._one_by_one = trio.Lock()
        self.arrivals = client.open("duplex")
        self._waiting: dict[int, trio.Event] = {}
        self._over = False

    async def send(self, message: Message) -> None:
        """Send a message."""
        async with self._one_by_one:
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                await self._sends(message)

    def take(self, message: Message) -> None:
        """Note a message, and answer it if it is a question."""
        self.arrivals.messages.append(message)
        if "method" not in message:
            waiting = self._waiting.pop(message.get("id", 0), None)
            if waiting is not None:
                waiting.set()
        elif "id" in message:
            said = {"jsonrpc": "2.0", "id": message["id"], "result": answer_to(message)}
            self._nursery.start_soon(self.send, said)

    def end(self) -> None:
        """Note that nothing more arrives."""
        self._over = True
        for event in self._waiting.values():
            event.set()

    async def ask(self, request: Message) -> None:
        """Send a request, and wait for its response, or the end of the connection."""
        event = self._waiting[request["id"]] = trio.Event()
        await self.send(request)
        if not self._over:
            await event.wait()

    async def visit(self) -> None:
        """Shake hands, wish for all that there is to hear, and call."""
        client = self._client
        await self.ask(hello(client.next_id()))
        await self.send(notification("notifications/initialized"))
        subscribe = {"uri": "res://all"}
        for method, params in (("logging/setLevel", {"level": "info"}), ("resources/subscribe", subscribe)):
            message = {"jsonrpc": "2.0", "id": client.next_id(), "method": method, "params": params}
            await self.ask(message)

        async def call() -> None:
            await self.ask(client.wish(modern=False)[1])

        await _several(client, call)
        await trio.sleep(0.1)  # what was sent last is on its way


class WebSocket:
    """The client's end of a WebSocket."""

    def __init__(self, stream: trio.SocketStream, reading: Reading) -> None:
        self.opened = trio.Event()
        self._stream = stream
        self._reading = reading
        self._ws = WSConnection(ConnectionType.CLIENT)
        self._text = ""

    async def say(self, event: Event) -> None:
        """Send an event."""
        await self._stream.send_all(self._ws.send(event))

    async def send(self, message: Message) -> None:
        """Send a message."""
        await self.say(TextMessage(data=json.dumps(message)))

    async def read(self, duplex: Duplex) -> None:
        """Take messages until the connection ends, or is cut."""
        reading, count = self._reading, 0
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while data := await self._stream.receive_some(65_536):
                count += len(data)
                if reading.most is not None and count > reading.most:
                    break
                self._ws.receive_data(data)
                for event in self._ws.events():
                    await self._take(event, duplex)
                await trio.sleep(reading.pause)
        duplex.end()
        await self._stream.aclose()

    async def _take(self, event: Event, duplex: Duplex) -> None:
        if isinstance(event, AcceptConnection):
            self.opened.set()
        elif isinstance(event, Ping):
            await self.say(event.response())
        elif isinstance(event, TextMessage):
            self._text += event.data
            if event.message_finished:
                text, self._text = self._text, ""
                duplex.take(json.loads(text))


async def over_websocket(client: Client) -> None:
    """Over a WebSocket."""
    address = urlsplit(client.url)
    assert address.hostname is not None
    assert address.port is not None
    stream = await trio.open_tcp_stream(address.hostname, address.port)
    reading = client.reading(times=10)
    socket = WebSocket(stream, reading)
    async with stream, trio.open_nursery() as nursery:
        duplex = Duplex(client, nursery, socket.send)
        nursery.start_soon(socket.read, duplex)
        await socket.say(Request(host=address.netloc, target=address.path, subprotocols=["mcp"]))
        await socket.opened.wait()
        await duplex.visit()
        nursery.cancel_scope.cancel()
        duplex.arrivals.whole = reading.most is None


async def over_http_sse(client: Client) -> None:
    """Over HTTP+SSE of 2024-11-05."""
    base, answer, reading = client.url.removesuffix("/mcp"), Answer(), client.reading(times=10)

    async def send(message: Message) -> None:
        await exchange(base + answer.endpoint, "POST", message)

    async def read() -> None:
        await exchange(f"{base}/sse", "GET", take=duplex.take, reading=reading, answer=answer)
        duplex.end()

    async with trio.open_nursery() as nursery:
        duplex = Duplex(client, nursery, send)
        nursery.start_soon(read)
        await answer.addressed.wait()
        await duplex.visit()
        nursery.cancel_scope.cancel()
        duplex.arrivals.whole = reading.most is None


async def over_stdio(client: Client, environment: dict[str, str]) -> None:
    """Over standard input and output, of a process of its own."""
    process = await trio.lowlevel.open_process(
        [sys.executable, str(SERVER), "stdio"], stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=environment
    )
    stdin, stdout = process.stdin, process.stdout
    assert stdin is not None
    assert stdout is not None

    async def read() -> None:
        rest = b""
        while data := await stdout.receive_some():
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                duplex.take(json.loads(line))
        duplex.end()

    async with trio.open_nursery() as nursery:
        duplex = Duplex(client, nursery, lambda message: stdin.send_all(json.dumps(message).encode() + b"\n"))
        nursery.start_soon(read)
        await duplex.visit()
        await stdin.aclose()
        await process.wait()
        duplex.arrivals.whole = True


WAYS: Final[dict[str, tuple[int, Callable[[Client], Awaitable[None]]]]] = {
    "legacy HTTP": (10, legacy_http),
    "modern HTTP": (6, modern_http),
    "WebSocket": (4, over_websocket),
    "HTTP+SSE": (3, over_http_sse),
}
"""How a client may come to the server that all share, and how often out of all; over stdio each has a server of its own."""
