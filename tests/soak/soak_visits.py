"""What clients of a soak do: each visit is one of a transport, a few things asked for at random, and an end that may come too soon."""

import json
import random
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Any
from urllib.parse import urlsplit

import httpcore
import httpx
import trio
from h2.exceptions import ProtocolError
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, CloseConnection, Event, Ping, Request, TextMessage

from mcpbus.tasks import TASKS

SERVER = Path(__file__).with_name("soak_server.py")
LEGACY = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN = "2026-07-28"
CAPABILITIES: dict[str, Any] = {"elicitation": {}, "extensions": {TASKS: {}}}
CLAIM = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": CAPABILITIES,
    "io.modelcontextprotocol/logLevel": "info",
}
ANSWER = {"action": "accept", "content": {"value": "x"}}
ANSWER_SECONDS = 30.0
_TYPES = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


class WrongError(Exception):
    """The server did what it never may."""


class LostError(Exception):
    """The server ended a connection on which a client waited for an answer."""


_LOST = (
    LostError,
    httpx.TransportError,
    trio.BrokenResourceError,
    trio.ClosedResourceError,
    ConnectionError,
)


def leaves(group: BaseExceptionGroup[Any]) -> list[BaseException]:
    """All exceptions of a group, and of the groups in it."""
    return [
        leaf
        for error in group.exceptions
        for leaf in (leaves(error) if isinstance(error, BaseExceptionGroup) else [error])
    ]


class Visitor:
    """One visit's dice, and what it asks for.

    Args:
        url: Where the endpoint is.
        seed: What its dice are thrown with.
        faults: The kinds of faults that handlers have.
    """

    def __init__(self, url: str, seed: str, faults: list[str]) -> None:
        self.url = url
        self.dice = random.Random(seed)
        self._faults = faults
        self._ids = 0

    def next_id(self) -> int:
        self._ids += 1
        return self._ids

    def wish(self) -> tuple[str, dict[str, Any]]:
        """A method and its params."""
        dice, fault = self.dice, self.dice.choice(self._faults)
        tools = [
            ("echo", {"text": "x" * dice.choice([1, 1000])}),
            (
                "say",
                {
                    "times": dice.randrange(20),
                    "size": dice.choice([10, 5000]),
                    "pause": dice.choice([0, 0.01]),
                },
            ),
            ("big", {"size": dice.choice([1000, 300_000])}),
            ("wait", {"seconds": dice.random() / 2}),
            ("block", {"seconds": 0.02}),
            ("ask", {"times": dice.randint(1, 2)}),
            ("work", {"asks": dice.random() < 0.3, "fault": dice.choice(["", "", fault])}),
            ("change", {"what": dice.choice(["tool", "resource", "wait"])}),
            (
                "inside",
                {
                    "tool": "fail",
                    "revision": dice.choice([*LEGACY, MODERN]),
                    "arguments": {"kind": fault, "first": dice.choice(["", "wait", "word"])},
                },
            ),
            *[("fail", {"kind": fault, "first": dice.choice(["", "wait", "word"])})] * 4,
        ]
        others: list[tuple[str, dict[str, Any]]] = [
            ("tools/list", {}),
            ("resources/read", {"uri": "res://a"}),
            ("prompts/get", {"name": "review", "arguments": {"code": "x"}}),
        ]
        if dice.random() < 0.15:
            return dice.choice(others)
        name, arguments = dice.choice(tools)
        return "tools/call", {"name": name, "arguments": arguments}

    def patience(self) -> float:
        """How long the client waits for an answer; mostly until it comes."""
        return self.dice.choice([0.0, 0.01, 0.1, 0.3]) if self.dice.random() < 0.2 else ANSWER_SECONDS

    def request(self, method: str, params: dict[str, Any], *, modern: bool) -> dict[str, Any]:
        meta: dict[str, Any] = {"progressToken": self._ids + 1} | (CLAIM if modern else {})
        return {"jsonrpc": "2.0", "id": self.next_id(), "method": method, "params": {**params, "_meta": meta}}

    async def go_on(self, ask: Callable[[], Awaitable[None]], times: int = 6) -> None:
        """Ask for some things, each as long as there is patience for it."""
        for _ in range(self.dice.randint(1, times)):
            patience = self.patience()
            with trio.move_on_after(patience) as waiting:
                await ask()
            if waiting.cancelled_caught and patience == ANSWER_SECONDS:
                raise WrongError(f"no answer in {ANSWER_SECONDS} s")


def hello(revision: str) -> dict[str, Any]:
    info = {"name": "soak", "version": "1"}
    params = {"protocolVersion": revision, "capabilities": CAPABILITIES, "clientInfo": info}
    return {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}


def notification(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params}


# -- Streamable HTTP -----------------------------------------------------------------------------


async def _answer(
    http: httpx.AsyncClient, url: str, body: Any, fields: dict[str, str], on_input_request: Any = None
) -> dict[str, Any]:
    """POST a request, and return the answer, which is empty where the server took the request without one."""
    async with http.stream("POST", url, content=json.dumps(body), headers={**_TYPES, **fields}) as answer:
        if answer.status_code >= 500 and answer.status_code != 503:
            raise WrongError(f"{body} was answered {answer.status_code}")
        if not answer.headers.get("content-type", "").startswith("text/event-stream"):
            content = await answer.aread()
            return json.loads(content) if content else {}
        async for line in answer.aiter_lines():
            if line.startswith("data: {"):
                message = json.loads(line[6:])
                if "method" not in message:
                    return message
                if "id" in message and on_input_request is not None:
                    await on_input_request(message)
    return {}


def _modern_fields(body: dict[str, Any]) -> dict[str, str]:
    params = body["params"]
    name = params.get("name", params.get("uri", params.get("taskId")))
    fields = {"mcp-protocol-version": MODERN, "mcp-method": body["method"]}
    return fields if name is None else {**fields, "mcp-name": name}


async def modern(visitor: Visitor, http: httpx.AsyncClient) -> None:
    """Ask for things, each by itself; answer what is asked, or not; look after tasks; listen for a while."""
    dice, url = visitor.dice, visitor.url

    async def send(method: str, params: dict[str, Any]) -> dict[str, Any]:
        body = visitor.request(method, params, modern=True)
        return await _answer(http, url, body, _modern_fields(body))

    async def ask() -> None:
        method, params = visitor.wish()
        result = (await send(method, params)).get("result", {})
        while result.get("resultType") == "input_required" and dice.random() < 0.8:
            answers = dict.fromkeys(result["inputRequests"], ANSWER)
            more = {"requestState": result["requestState"], "inputResponses": answers}
            result = (await send(method, {**params, **more})).get("result", {})
        if result.get("resultType") == "task":
            task = {"taskId": result["taskId"]}
            verb = dice.choice(["get", "get", "update", "cancel"])
            answers = {"inputResponses": {}} if verb == "update" else {}
            await send(f"tasks/{verb}", {**task, **answers})

    async with trio.open_nursery() as nursery:
        if dice.random() < 0.3:
            wanted = {
                "toolsListChanged": True,
                "promptsListChanged": True,
                "resourceSubscriptions": ["res://a"],
            }
            nursery.start_soon(send, "subscriptions/listen", {"notifications": wanted})
        await visitor.go_on(ask)
        nursery.cancel_scope.cancel()


class LegacySession:
    """A session over Streamable HTTP, and what its client does in it.

    Args:
        visitor: Whose it is.
        http: Its connections.
        fields: The header fields that name it.
    """

    def __init__(self, visitor: Visitor, http: httpx.AsyncClient, fields: dict[str, str]) -> None:
        self._visitor = visitor
        self._http = http
        self._fields = fields

    async def say(self, body: dict[str, Any]) -> dict[str, Any]:
        return await _answer(self._http, self._visitor.url, body, self._fields, self._respond)

    async def _respond(self, question: dict[str, Any]) -> None:
        if self._visitor.dice.random() < 0.8:
            await self.say({"jsonrpc": "2.0", "id": question["id"], "result": ANSWER})

    async def ask(self) -> None:
        visitor, method, params = self._visitor, *self._visitor.wish()
        if visitor.dice.random() < 0.1:
            method, params = (
                f"resources/{visitor.dice.choice(['subscribe', 'unsubscribe'])}",
                {"uri": "res://a"},
            )
        body = visitor.request(method, params, modern=False)
        answer = await self.say(body)
        if answer and answer.get("id") not in {body["id"], None}:
            raise WrongError(f"{body} was answered {answer}")

    async def listen(self) -> None:
        fields = {"accept": "text/event-stream", **self._fields}
        with suppress(*_LOST):
            async with self._http.stream("GET", self._visitor.url, headers=fields) as stream:
                async for _ in stream.aiter_lines():
                    pass

    async def end(self) -> None:
        await self._http.delete(self._visitor.url, headers=self._fields)


async def legacy(visitor: Visitor, http: httpx.AsyncClient) -> None:
    """Open a session, perhaps its GET stream, ask for things, answer questions, and end it, or not."""
    dice = visitor.dice
    revision = dice.choice(LEGACY)
    opened = await http.post(visitor.url, content=json.dumps(hello(revision)), headers=_TYPES)
    if opened.status_code == 503:
        return
    fields = {"mcp-session-id": opened.headers["mcp-session-id"], "mcp-protocol-version": revision}
    session = LegacySession(visitor, http, fields)
    if dice.random() < 0.9:
        await session.say(notification("notifications/initialized"))
    async with trio.open_nursery() as nursery:
        if dice.random() < 0.5:
            nursery.start_soon(session.listen)
        await visitor.go_on(session.ask)
        if dice.random() < 0.6:
            await session.end()
        nursery.cancel_scope.cancel()


async def over_http(visitor: Visitor) -> None:
    """Over HTTP/1.1, in either era."""
    await _over_http(visitor, http2=False)


async def over_http2(visitor: Visitor) -> None:
    """Over HTTP/2, in either era."""
    await _over_http(visitor, http2=True)


class WholeWrites(httpcore.TrioBackend):
    """Connections on which what is written is written to the end, though its request is cancelled.

    Over HTTP/2 httpcore takes what it is about to write from its state, and loses it when it is cancelled then: fields of later
    requests, which refer to those of earlier ones, could not be read by any server.
    """

    async def connect_tcp(self, *args: Any, **options: Any) -> httpcore.AsyncNetworkStream:
        stream = await super().connect_tcp(*args, **options)
        write = stream.write

        async def write_all(data: bytes, *timeout: float | None) -> None:
            with trio.fail_after(ANSWER_SECONDS, shield=True):
                await write(data, *timeout)

        stream.write = write_all  # type: ignore[method-assign]
        return stream


OWN_FAULTS = ("semaphore", "SEND_SETTINGS in state ConnectionState.CLOSED")
"""What httpcore does wrong over HTTP/2 when a request is cancelled, whoever serves it: it gives the stream back twice; or, where that
request was to open the connection and another waits for it, the other begins on what has been closed before anything was read."""


async def _over_http(visitor: Visitor, *, http2: bool) -> None:
    async with httpx.AsyncClient(timeout=None, trust_env=False, verify=False) as http:
        if http2:
            pool = httpcore.AsyncConnectionPool(http1=False, http2=True, network_backend=WholeWrites())
            http._transport._pool = pool
        try:
            await visitor.dice.choice([modern, legacy])(visitor, http)
        except* (ValueError, ProtocolError) as group:
            if not all(any(fault in str(error) for fault in OWN_FAULTS) for error in leaves(group)):
                raise


# -- connections that carry everything -----------------------------------------------------------


class Channel:
    """A connection that carries everything: it answers questions, and knows which requests wait.

    Args:
        visitor: Whose it is.
        send: Sends a message.
    """

    def __init__(self, visitor: Visitor, send: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
        self._visitor = visitor
        self._sends = send
        self._one_by_one = trio.Lock()
        self._waiting: dict[int, trio.Event] = {}
        self.answers: dict[int, dict[str, Any]] = {}
        self.over = False

    async def _send(self, message: dict[str, Any]) -> None:
        async with self._one_by_one:
            await self._sends(message)

    async def take(self, message: dict[str, Any]) -> None:
        if "method" not in message:
            request_id = message.get("id")
            if request_id in self._waiting:
                self.answers[request_id] = message
                self._waiting.pop(request_id).set()
        elif "id" in message and self._visitor.dice.random() < 0.8:
            await self._send({"jsonrpc": "2.0", "id": message["id"], "result": ANSWER})

    def end(self) -> None:
        self.over = True
        for event in self._waiting.values():
            event.set()

    async def ask(self, body: dict[str, Any]) -> dict[str, Any]:
        """Send a request, and wait for its answer, or the end of the connection; one who stops to wait cancels it."""
        event = self._waiting[body["id"]] = trio.Event()
        await self._send(body)
        try:
            if not self.over:
                await event.wait()
        except trio.Cancelled:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 1), suppress(*_LOST):
                await self._send(notification("notifications/cancelled", requestId=body["id"]))
            raise
        return self.answers.get(body["id"], {})

    async def visit(self) -> None:
        """Shake hands, or not; ask for things in either era."""
        visitor = self._visitor
        settled = visitor.dice.random() < 0.8
        if settled:
            with trio.fail_after(ANSWER_SECONDS):
                await self.ask(hello(visitor.dice.choice(LEGACY)))
            await self._send(notification("notifications/initialized"))

        async def ask() -> None:
            modern = not settled or visitor.dice.random() < 0.3
            body = visitor.request(*visitor.wish(), modern=modern)
            if not await self.ask(body):
                raise LostError if self.over else WrongError(f"{body} was not answered")

        await visitor.go_on(ask)


@asynccontextmanager
async def _reading(channel: Channel, messages: AsyncIterator[dict[str, Any]]) -> AsyncIterator[None]:
    async def read() -> None:
        with suppress(*_LOST):
            async for message in messages:
                await channel.take(message)
        channel.end()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        yield
        nursery.cancel_scope.cancel()


async def over_http_sse(visitor: Visitor) -> None:
    """Over HTTP+SSE."""
    base = visitor.url.removesuffix("/mcp")
    async with (
        httpx.AsyncClient(timeout=None, trust_env=False, verify=False) as http,
        http.stream("GET", f"{base}/sse", headers={"accept": "text/event-stream"}) as stream,
    ):
        lines = stream.aiter_lines()
        endpoint = ""
        async for line in lines:
            if line.startswith("data: "):
                endpoint = base + line[6:]
                break

        async def send(message: dict[str, Any]) -> None:
            await http.post(endpoint, content=json.dumps(message), headers=_TYPES)

        async def messages() -> AsyncIterator[dict[str, Any]]:
            async for line in lines:
                if line.startswith("data: {"):
                    yield json.loads(line[6:])

        channel = Channel(visitor, send)
        async with _reading(channel, messages()):
            await channel.visit()


class Socket:
    """The client's end of a WebSocket."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.opened = trio.Event()
        self._stream = stream
        self._ws = WSConnection(ConnectionType.CLIENT)
        self._one_by_one = trio.Lock()
        self._text = ""

    async def say(self, event: Event) -> None:
        async with self._one_by_one:
            await self._stream.send_all(self._ws.send(event))

    async def send(self, message: dict[str, Any]) -> None:
        await self.say(TextMessage(data=json.dumps(message)))

    async def messages(self) -> AsyncIterator[dict[str, Any]]:
        while data := await self._stream.receive_some():
            self._ws.receive_data(data)
            for event in self._ws.events():
                if isinstance(event, CloseConnection):
                    return
                if isinstance(event, TextMessage):
                    self._text += event.data
                    if event.message_finished:
                        text, self._text = self._text, ""
                        yield json.loads(text)
                else:
                    await self._take(event)

    async def _take(self, event: Event) -> None:
        if isinstance(event, AcceptConnection):
            self.opened.set()
        elif isinstance(event, Ping):
            await self.say(event.response())


async def over_websocket(visitor: Visitor) -> None:
    """Over WebSocket."""
    address = urlsplit(visitor.url)
    assert address.hostname is not None
    assert address.port is not None
    stream = await trio.open_tcp_stream(address.hostname, address.port)
    socket = Socket(stream)
    channel = Channel(visitor, socket.send)
    async with stream, _reading(channel, socket.messages()):
        await socket.say(Request(host=address.netloc, target=address.path, subprotocols=["mcp"]))
        with trio.fail_after(ANSWER_SECONDS):
            await socket.opened.wait()
        await channel.visit()


async def over_stdio(visitor: Visitor) -> None:
    """Over standard input and output, of a process of its own, whose books are looked at before it is left."""
    process = await trio.lowlevel.open_process(
        [sys.executable, str(SERVER), "stdio"], stdin=PIPE, stdout=PIPE, stderr=DEVNULL
    )
    stdin, stdout = process.stdin, process.stdout
    assert stdin is not None
    assert stdout is not None

    async def send(message: dict[str, Any]) -> None:
        await stdin.send_all(json.dumps(message).encode() + b"\n")

    async def messages() -> AsyncIterator[dict[str, Any]]:
        rest = b""
        while data := await stdout.receive_some():
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                yield json.loads(line)

    channel = Channel(visitor, send)
    try:
        async with _reading(channel, messages()):
            await channel.visit()
            body = visitor.request("tools/call", {"name": "books", "arguments": {}}, modern=True)
            with trio.fail_after(ANSWER_SECONDS):
                books = (await channel.ask(body))["result"]["structuredContent"]
            if books["missing"]:
                raise WrongError(f"over stdio: {books}")
        await stdin.aclose()
        with trio.fail_after(ANSWER_SECONDS):
            status = await process.wait()
        if status:
            raise WrongError(f"over stdio the server ended with {status}")
    finally:
        if process.returncode is None:
            process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
            await stdin.aclose()
            await stdout.aclose()


WAYS: dict[str, tuple[int, Callable[[Visitor], Awaitable[None]]]] = {
    "HTTP/1.1": (10, over_http),
    "HTTP/2": (5, over_http2),
    "HTTP+SSE": (5, over_http_sse),
    "WebSocket": (5, over_websocket),
    "stdio": (1, over_stdio),
}
"""How a server may be visited, and how often out of all; in process it is by its own tool `inside`."""


async def visit(visitor: Visitor, way: str) -> str:
    """Visit the server, and say how it ended: "to the end", "cut" by the client, or "lost" and why, since the server ended it.

    Raises:
        WrongError: The server did what it never may.
    """
    cut = visitor.dice.random() < 0.2
    outcome = "cut"
    with trio.move_on_after(visitor.dice.random() if cut else 300):
        try:
            await WAYS[way][1](visitor)
        except* _LOST as group:
            outcome = f"lost: {leaves(group)[0]!r}"
        else:
            outcome = "to the end"
    return outcome
