"""HTTP clients of an application in memory, which is called as an ASGI server calls it."""

import base64
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any, Literal, Protocol, TypeAlias, get_args

import trio

from mcpbus.core.concurrency import background
from mcpbus.protocol.jsonrpc import RequestId
from mcpbus.protocol.keywords import explained
from mcpbus.protocol.meta import CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, PROTOCOL_VERSION
from mcpbus.protocol.revisions import LATEST, LATEST_LEGACY
from mcpbus.serving.asgi import DirectApp
from mcpbus.testing.over_http1 import OverHttp1
from mcpbus.testing.recording import Recording, SentRequest

AsgiApp = Callable[..., Awaitable[None]]
Message = MutableMapping[str, Any]


class OverAsgi:
    """Calls an application for each request.

    Args:
        app: The application.
        nursery: Where the calls run; what the application raises, is raised there.
    """

    def __init__(self, app: AsgiApp, nursery: trio.Nursery) -> None:
        self._app = app
        self._nursery = nursery

    def send(self, sent: SentRequest, recording: Recording) -> None:
        """Begin an exchange."""
        self._nursery.start_soon(_AsgiExchange(sent, recording).run, self._app)


class _AsgiExchange:
    def __init__(self, sent: SentRequest, recording: Recording) -> None:
        self._recording = recording
        self._requests: list[Message] = [{"type": "http.request", "body": sent.body, "more_body": False}]
        self._scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "method": sent.verb,
            "scheme": "http",
            "path": sent.path,
            "raw_path": sent.path.encode(),
            "query_string": sent.query.encode(),
            "root_path": "",
            "headers": sent.fields,
            "client": ("127.0.0.1", 0),
            "server": ("localhost", 80),
        }

    async def run(self, app: AsgiApp) -> None:
        await app(self._scope, self._receive, self._send)
        self._recording.abort()

    async def _receive(self) -> Message:
        await trio.lowlevel.checkpoint()
        if self._requests:
            return self._requests.pop()
        await self._recording.wait_for(lambda: self._recording.disconnected or self._recording.complete)
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        """Take what the application says. After a disconnect it waits for ever, or returns at once: that is the worst servers do."""
        recording = self._recording
        await trio.lowlevel.checkpoint()
        if recording.disconnected:
            return
        await recording.wait_for(lambda: not recording.stalled)
        if recording.disconnected:
            await trio.sleep_forever()
        if recording.complete or (recording.status is None) is not (message["type"] == "http.response.start"):
            raise AssertionError(f"{message['type']} out of turn: {recording!r}")
        if recording.status is None:
            recording.begin(message["status"], message["headers"])
        else:
            recording.take(message.get("body", b""), complete=not message.get("more_body", False))


_INFO = {"name": "mcpbus test client", "version": "1"}
_BOTH = "application/json, text/event-stream"
_GRACE_SECONDS = 1.0

Shell: TypeAlias = Literal["asgi", "http1", "http2"]

DEFAULT_SHELL: Shell = "asgi"
"""What `open_probe` takes where its caller leaves it open, and the application allows it."""


@asynccontextmanager
@explained
async def open_probe(
    app: AsgiApp,
    *,
    path: str = "/mcp",
    headers: Mapping[str, str] | None = None,
    shell: Shell | None = None,
) -> AsyncIterator["AsgiProbe"]:
    """Drive an application in memory.

    At the end of the block all clients go away, and the application has a second of trio's clock to notice.

    Args:
        app: `Bus.asgi()`, or any other application. Its lifespan is not run.
        path: Where the endpoint is.
        headers: What every request carries, such as an Authorization.
        shell: How requests reach the application: "asgi", the default, calls it as an ASGI server does, and "http1" and
            "http2" send bytes through the HTTP/1.1 or HTTP/2 server of `Bus.serve`, over connections in memory.

    Raises:
        ValueError: There is no such shell.
        TypeError: The application is none, or is not mcpbus's own, so that it has no other shell than ASGI.
        Exception: What the application raises ends the block, and comes in a group.
    """
    if not callable(app):
        raise TypeError(f"open_probe takes an application: write bus.asgi(), not {app!r}")
    if shell not in {None, *get_args(Shell)}:
        raise ValueError(f"shell is {shell!r}: it must be {', '.join(map(repr, get_args(Shell)))}")
    async with background() as nursery:
        probe = AsgiProbe(_carrier(app, nursery, shell), path, headers or {})
        try:
            yield probe
        finally:
            probe.disconnect()
            nursery.cancel_scope.deadline = trio.current_time() + _GRACE_SECONDS


class ProbeTransport(Protocol):
    """How requests reach an application."""

    def send(self, sent: SentRequest, recording: Recording, /) -> None:
        """Begin an exchange."""


def _carrier(app: AsgiApp, nursery: trio.Nursery, shell: Shell | None) -> ProbeTransport:
    if isinstance(app, DirectApp):
        match shell or DEFAULT_SHELL:
            case "http1":
                return OverHttp1(app, nursery)
            case "http2":
                return _over_http2(app, nursery)
    elif shell not in {None, "asgi"}:
        raise TypeError(f"{app!r} is served through ASGI only: use shell='asgi'")
    return OverAsgi(app, nursery)


def _over_http2(app: DirectApp, nursery: trio.Nursery) -> ProbeTransport:
    over_http2 = import_module("mcpbus.testing.over_http2")
    carrier: ProbeTransport = over_http2.OverHttp2(app, nursery)
    return carrier


class AsgiProbe:
    """HTTP clients of an application, in memory. Made by `open_probe`.

    Attributes:
        recordings: All exchanges so far, in the order in which they began.
    """

    def __init__(self, carrier: ProbeTransport, path: str, headers: Mapping[str, str]) -> None:
        self.recordings: list[Recording] = []
        self._carrier = carrier
        self._path = path
        self._headers = headers
        self._ids = itertools.count(1)

    def send(
        self,
        verb: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        *,
        target: str | None = None,
    ) -> Recording:
        """Send a request and return its recording, which begins when the caller waits for it.

        Args:
            verb: The HTTP method.
            body: What it carries.
            headers: Its header fields, on top of Host and what `open_probe` was given.
            target: Its path and query, if it does not go to the endpoint.
        """
        path, _, query = (self._path if target is None else target).partition("?")
        fields = {"host": "localhost", **self._headers, **(headers or {})}
        kept = [(name.lower().encode(), value.encode("latin-1")) for name, value in fields.items()]
        recording = Recording()
        self.recordings.append(recording)
        self._carrier.send(SentRequest(verb, path, query, kept, body), recording)
        return recording

    def post(
        self, message: Mapping[str, Any] | Sequence[Any], headers: Mapping[str, str] | None = None
    ) -> Recording:
        """POST a JSON-RPC message, or an array of them."""
        fields = {"accept": _BOTH, "content-type": "application/json", **(headers or {})}
        return self.send("POST", json.dumps(message).encode(), fields)

    async def initialize(
        self,
        revision: str = LATEST_LEGACY.name,
        *,
        capabilities: Mapping[str, Any] | None = None,
        initialized: bool = True,
        headers: Mapping[str, str] | None = None,
    ) -> "LegacyHttpSession":
        """Open a legacy session.

        Args:
            revision: The protocol revision to ask for.
            capabilities: What the client declares, such as ``{"elicitation": {}}``.
            initialized: Whether to send ``notifications/initialized`` as well.
            headers: What all of the session's requests carry.

        Raises:
            AssertionError: The server did not open one.
        """
        params = {
            "protocolVersion": revision,
            "capabilities": dict(capabilities or {}),
            "clientInfo": _INFO,
        }
        answer = await self.post(_request(next(self._ids), "initialize", params), headers).ended()
        if answer.status != 200 or "mcp-session-id" not in answer.headers:
            raise AssertionError(f"initialize was answered {answer.status}: {answer.body!r}")
        session = LegacyHttpSession(
            self, answer.headers["mcp-session-id"], answer.messages[-1]["result"], headers or {}
        )
        if initialized:
            await session.notify("notifications/initialized").ended()
        return session

    def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        id: RequestId | None = None,  # noqa: A002 - the protocol's word
        progress_token: RequestId | None = None,
        log_level: str | None = None,
        capabilities: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Recording:
        """POST a request of the latest revision, complete with its ``_meta`` and its header fields.

        Args:
            method: Its method.
            params: Its parameters; what ``_meta`` they have is kept.
            id: Its id; the next integer unless given.
            progress_token: The token under which it wants progress.
            log_level: The level from which it wants log lines.
            capabilities: What the client declares, such as ``{"elicitation": {}}``.
            headers: Further header fields, or others.
        """
        declared = dict(capabilities or {})
        meta = {PROTOCOL_VERSION: LATEST.name, CLIENT_CAPABILITIES: declared, CLIENT_INFO: _INFO}
        body = _with_meta(
            params, progress_token, meta if log_level is None else {**meta, LOG_LEVEL: log_level}
        )
        fields = {"mcp-protocol-version": LATEST.name, "mcp-method": method}
        if isinstance(name := body.get("uri", body.get("name", body.get("taskId"))), str):
            fields["mcp-name"] = _mirrored(name)
        message = _request(next(self._ids) if id is None else id, method, body)
        return self.post(message, {**fields, **(headers or {})})

    def disconnect(self) -> None:
        """Let all clients go away."""
        for recording in self.recordings:
            recording.disconnect()


class LegacyHttpSession:
    """A legacy session over HTTP. Made by `AsgiProbe.initialize`.

    Attributes:
        id: Its id, as in the header Mcp-Session-Id.
        initialize_result: What the server answered to the handshake.
    """

    def __init__(
        self, probe: AsgiProbe, session_id: str, initialize_result: dict[str, Any], headers: Mapping[str, str]
    ) -> None:
        self.id = session_id
        self.initialize_result = initialize_result
        version = initialize_result["protocolVersion"]
        self._probe = probe
        self._headers = {"mcp-session-id": session_id, "mcp-protocol-version": version, **headers}
        self._ids = itertools.count(1)

    def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        id: RequestId | None = None,  # noqa: A002 - the protocol's word
        progress_token: RequestId | None = None,
    ) -> Recording:
        """POST a request in this session; see `AsgiProbe.request`."""
        body = _with_meta(params, progress_token, {})
        return self._probe.post(_request(next(self._ids) if id is None else id, method, body), self._headers)

    def notify(self, method: str, params: Mapping[str, Any] | None = None) -> Recording:
        """POST a notification in this session."""
        message = {"jsonrpc": "2.0", "method": method, "params": dict(params or {})}
        return self._probe.post(message, self._headers)

    def answer(self, question_id: RequestId, result: Mapping[str, Any]) -> Recording:
        """POST the answer to a request of the server.

        Args:
            question_id: The id of that request.
            result: The result object.
        """
        message = {"jsonrpc": "2.0", "id": question_id, "result": dict(result)}
        return self._probe.post(message, self._headers)

    def get(self, last_event_id: str | None = None) -> Recording:
        """Open the session's GET stream, or come back to the stream of the event that is named."""
        fields = {"accept": "text/event-stream", **self._headers}
        if last_event_id is not None:
            fields["last-event-id"] = last_event_id
        return self._probe.send("GET", headers=fields)

    def delete(self) -> Recording:
        """End the session."""
        return self._probe.send("DELETE", headers=self._headers)


def _request(request_id: RequestId, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


def _with_meta(
    params: Mapping[str, Any] | None, token: RequestId | None, meta: Mapping[str, Any]
) -> dict[str, Any]:
    body = dict(params or {})
    complete = {**meta, **body.get("_meta", {})}
    if token is not None:
        complete["progressToken"] = token
    return {**body, "_meta": complete} if complete else body


def _mirrored(name: str) -> str:
    """Return a name as a header field carries it: what is not plain ASCII in the sentinel's base64."""
    if name.isascii() and name.isprintable() and name == name.strip() and not name.startswith("=?"):
        return name
    return f"=?base64?{base64.b64encode(name.encode()).decode()}?="
