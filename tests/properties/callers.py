"""The clients of a world, and those of Streamable HTTP: with a session, without one, and modern."""

import itertools
import json
from typing import Any

import trio
from ears import HttpEar
from notebook import Sent

from mcpbus.tasks import TASKS

DECLARED = {"elicitation": {}, "sampling": {}}
MODERN = "2026-07-28"
_META = "io.modelcontextprotocol/"


def request(request_id: Any, method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


class Caller:
    """What all of them have in common.

    Attributes:
        kind: How it is connected.
        revision: That of its session; None if it has none.
        principal: Who it is.
        ear: Its one connection, if it has one.
        inside: Its session, as the server's program has it.
        gone: It left, or the server ended its session: its calls may be cancelled.
        gets: Its plain GET streams.
    """

    def __init__(self, world: Any, kind: str, revision: str | None, principal: str) -> None:
        self.world = world
        self.kind = kind
        self.revision = revision
        self.principal = principal
        self.ear: Any = None
        self.inside: Any = None
        self.gone = False
        self.gets: list[HttpEar] = []
        self.requests: dict[int, Any] = {}
        self._numbers = itertools.count(2)

    def next_id(self) -> Any:
        """An id that this client did not use: 1, "1", 2, "2" and so on, since they differ."""
        number = next(self._numbers)
        return number // 2 if number % 2 == 0 else str(number // 2)

    def note(self, method: str, request_id: Any, ear: Any, **about: Any) -> Sent:
        legacy = about.pop("legacy", self.revision is not None)
        sent = Sent(self, request_id, method, legacy, ear, at=trio.current_time(), **about)
        ear.expect(sent)
        self.world.sents.append(sent)
        return sent

    def look(self) -> None:
        """Note whether its session has ended by itself."""

    def __repr__(self) -> str:
        return f"<{self.kind} {self.revision or MODERN} {self.principal}>"


def with_meta(params: dict[str, Any], sent_as: dict[str, Any], *, modern: bool) -> dict[str, Any]:
    """Add what a request says of itself."""
    meta = {}
    if modern:
        declared = {**DECLARED, "extensions": {TASKS: {}}} if sent_as.get("tasks") else DECLARED
        meta = {f"{_META}protocolVersion": MODERN, f"{_META}clientCapabilities": declared}
        if sent_as.get("level") is not None:
            meta[f"{_META}logLevel"] = sent_as["level"]
    if sent_as.get("token") is not None:
        meta["progressToken"] = sent_as["token"]
    return {**params, "_meta": meta} if meta else params


class HttpCaller(Caller):
    """A client of Streamable HTTP: with a session, without one, or modern."""

    def __init__(self, world: Any, kind: str, mode: str, revision: str | None, principal: str) -> None:
        super().__init__(world, kind, revision, principal)
        self.mode = mode
        self.probe = world.probes[mode]
        self.session: Any = None
        self.headers = {"authorization": principal}
        if kind == "stateless":
            self.headers["mcp-protocol-version"] = revision

    async def open(self, *, initialized: bool) -> bool:
        """Initialize, and return whether the server opened a session."""
        try:
            self.session = await self.probe.initialize(
                self.revision, capabilities=DECLARED, initialized=initialized, headers=self.headers
            )
        except AssertionError:
            return False
        self.headers = self.session._headers
        self.inside = self.world.bus.sessions.get(self.session.id)
        return True

    def _ear(self, recording: Any, purpose: str) -> HttpEar:
        ear = self.world.ear_of(recording)
        ear.client, ear.purpose = self, purpose
        return ear

    async def request(self, method: str, params: dict[str, Any], **about: Any) -> Sent:
        about.pop("modern", None)
        request_id = self.next_id()
        if about.pop("wants", False):
            about["token"] = request_id
        sent_as = {key: about.pop(key, None) for key in ("level", "token", "tasks")}
        if self.revision is None:
            capabilities = {**DECLARED, "extensions": {TASKS: {}}} if sent_as["tasks"] else DECLARED
            recording = self.probe.request(
                method,
                params,
                id=request_id,
                progress_token=sent_as["token"],
                log_level=sent_as["level"],
                capabilities=capabilities,
                headers=self.headers,
            )
        else:
            body = request(request_id, method, with_meta(params, sent_as, modern=False))
            recording = self.probe.post(body, self.headers)
        ear = self._ear(recording, "listen" if method == "subscriptions/listen" else "post")
        sent_as["tasks"] = bool(sent_as["tasks"])
        return self.note(method, request_id, ear, **sent_as, **about)

    async def batch(self, members: list[tuple[str, dict[str, Any], dict[str, Any]]]) -> list[Sent]:
        """Send several requests in one POST."""
        ids = [self.next_id() for _ in members]
        body = [
            request(i, method, with_meta(params, {"token": i}, modern=False))
            for i, (method, params, _) in zip(ids, members, strict=True)
        ]
        fields = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        ear = self._ear(
            self.probe.send("POST", json.dumps(body).encode(), {**fields, **self.headers}), "post"
        )
        return [
            self.note(method, i, ear, token=i, **about)
            for i, (method, _, about) in zip(ids, members, strict=True)
        ]

    async def notify(self, method: str, params: dict[str, Any]) -> None:
        self.probe.post({"jsonrpc": "2.0", "method": method, "params": params}, self.headers)

    async def respond(self, message: dict[str, Any]) -> None:
        self.probe.post({"jsonrpc": "2.0", **message}, self.headers)

    async def cancel(self, sent: Sent) -> None:
        await self.notify("notifications/cancelled", {"requestId": sent.id})

    def get(self, after: str | None = None, root: HttpEar | None = None) -> HttpEar:
        """Open the GET stream, or come back to another one."""
        ear = self._ear(self.session.get(after), "get")
        ear.after = after
        if root is None:
            self.gets.append(ear)
        else:
            ear.root, ear.purpose = root, root.purpose
        return ear

    def leave(self) -> None:
        self.gone = True
        if self.session is not None:
            self.session.delete()

    def look(self) -> None:
        if self.session is not None and self.session.id not in self.world.bus.sessions:
            self.gone = True
