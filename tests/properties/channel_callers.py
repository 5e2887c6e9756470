"""The clients with one connection for everything: a legacy session, modern requests, or both at once."""

import contextlib
import contextvars
from typing import Any

import trio
from callers import DECLARED, MODERN, Caller, request, with_meta
from ears import LineEar, MemoryEar, SocketEar, SseEar
from notebook import Heard, Sent

from mcpbus.client.errors import DisconnectedError
from mcpbus.protocol.errors import ProtocolError
from mcpbus.tasks import TASKS


class ChannelCaller(Caller):
    """A client of lines, of HTTP+SSE, or of WebSocket, down to the messages."""

    async def open(self) -> bool:
        """Connect, initialize if there is a revision, and return whether the server took it."""
        world, before = self.world, set(self.world.bus.sessions)
        self.ear = await self._connect()
        self.ear.client = self
        await world.settle()
        if self.ear.refused or self.ear.over:
            return False
        await self._greet()
        await world.settle()
        new = set(world.bus.sessions) - before
        self.inside = world.bus.sessions[new.pop()] if new else None
        return True

    async def _connect(self) -> Any:
        world = self.world
        if self.kind == "line":
            ear: Any = LineEar(world.nursery)
            await ear.open(world.bus, self.principal)
        elif self.kind == "socket":
            ear = SocketEar(world.nursery)
            await ear.open(world.apps["auto"], self.principal)
        else:
            probe, fields = world.probes["auto"], {"authorization": self.principal}
            stream = probe.send("GET", headers={"accept": "text/event-stream", **fields}, target="/sse")
            typed = {"content-type": "application/json", **fields}
            ear = SseEar(stream, lambda body, target: probe.send("POST", body, typed, target=target))
            world.adopt(ear)
            return ear
        world.ears.append(ear)
        return ear

    async def _greet(self) -> None:
        if self.revision is None:
            return
        info = {"name": self.kind, "version": "1"}
        hello = {"protocolVersion": self.revision, "capabilities": DECLARED, "clientInfo": info}
        await self.request("initialize", hello)
        await self.world.settle()
        await self.notify("notifications/initialized", {})

    async def request(self, method: str, params: dict[str, Any], **about: Any) -> Sent:
        modern = about.pop("modern", False) or self.revision is None
        request_id = self.next_id()
        if about.pop("wants", False):
            about["token"] = request_id
        if not modern:
            about["level"] = None
        about["tasks"] = bool(about.get("tasks")) and modern
        self.ear.say(request(request_id, method, with_meta(params, about, modern=modern)))
        return self.note(method, request_id, self.ear, legacy=not modern, **about)

    async def batch(self, members: list[tuple[str, dict[str, Any], dict[str, Any]]]) -> list[Sent]:
        """Send several requests in one message."""
        ids = [self.next_id() for _ in members]
        pairs = list(zip(ids, members, strict=True))
        self.ear.say(
            [request(i, m, with_meta(params, {"token": i}, modern=False)) for i, (m, params, _) in pairs]
        )
        return [self.note(m, i, self.ear, token=i, **about) for i, (m, _, about) in pairs]

    async def notify(self, method: str, params: dict[str, Any]) -> None:
        self.ear.say({"jsonrpc": "2.0", "method": method, "params": params})

    async def respond(self, message: dict[str, Any]) -> None:
        self.ear.say({"jsonrpc": "2.0", **message})

    async def cancel(self, sent: Sent) -> None:
        await self.notify("notifications/cancelled", {"requestId": sent.id})

    def leave(self) -> None:
        self.gone = True
        self.ear.leave()

    def look(self) -> None:
        if self.ear.over:
            self.gone = True


_about: contextvars.ContextVar[dict[str, Any]] = contextvars.ContextVar("about")


class MemoryCaller(ChannelCaller):
    """A client in process, which is a program: each of its requests is a task that waits for the answer.

    Questions reach `on_input_request`, which waits for the world to answer; in the modern era the client retries by itself.
    """

    async def _connect(self) -> MemoryEar:
        ear = self.ear = MemoryEar(self.world.nursery)
        self._scopes: dict[Sent, trio.CancelScope] = {}
        await ear.open(
            self.world.bus,
            self.revision or MODERN,
            self.principal,
            capabilities={**DECLARED, "extensions": {TASKS: {}}} if self.revision is None else DECLARED,
            on_input_request=self._asked,
        )
        ear.on_sent = self._sent
        self.world.ears.append(ear)
        return ear

    async def _greet(self) -> None:
        """The client did so by itself."""

    def _sent(self, message: dict[str, Any]) -> None:
        """Note a request in the moment in which it is sent: the client chooses the id."""
        if "method" not in message or "id" not in message:
            return
        about = _about.get({})
        meta = message["params"].get("_meta", {})
        sent = self.note(
            message["method"],
            message["id"],
            self.ear,
            token=meta.get("progressToken"),
            level=meta.get("io.modelcontextprotocol/logLevel"),
            call=about.get("call"),
        )
        if sent.call is not None:
            self.world.carried(sent)
        if about:
            self._scopes[sent] = about["scope"]
            about["sent"] = sent
            about["noted"].set()

    async def request(self, method: str, params: dict[str, Any], **about: Any) -> Sent:
        about = {"call": about.get("call"), **about, "scope": trio.CancelScope(), "noted": trio.Event()}
        self.world.nursery.start_soon(self._run, method, params, about)
        await about["noted"].wait()
        return about["sent"]  # type: ignore[no-any-return]

    async def _run(self, method: str, params: dict[str, Any], about: dict[str, Any]) -> None:
        _about.set(about)
        client = self.ear.client_end
        with about["scope"], contextlib.suppress(DisconnectedError, ProtocolError):
            if method == "subscriptions/listen":
                wanted = params["notifications"]
                async with client.listen(
                    tools=wanted["toolsListChanged"],
                    prompts=wanted["promptsListChanged"],
                    resources=wanted["resourcesListChanged"],
                    uris=wanted["resourceSubscriptions"],
                    task_ids=wanted["taskIds"],
                ) as listen:
                    async for _ in listen:
                        pass
            else:
                hears = (lambda *_: None) if about.get("wants") else None
                await client.request(method, params, on_notification=hears, log_level=about.get("level"))

    async def _asked(self, _method: str, params: dict[str, Any]) -> dict[str, Any]:
        world = self.world
        heard = Heard(self.ear, None, world.number_in(params), params, len(self.ear.messages))
        world.heard.append(heard)
        self.requests[heard.number] = inbox = [trio.Event()]
        await inbox[0].wait()
        if "error" in inbox[1]:
            raise ProtocolError(inbox[1]["error"]["code"], inbox[1]["error"]["message"])
        return inbox[1]["result"]  # type: ignore[no-any-return]

    async def respond(self, message: dict[str, Any]) -> None:
        inbox = self.requests.get(message["id"])
        if inbox is not None:
            inbox.append(message)
            inbox[0].set()

    async def notify(self, method: str, params: dict[str, Any]) -> None:
        with contextlib.suppress(DisconnectedError):
            await self.ear.client_end.notify(method, params)

    async def cancel(self, sent: Sent) -> None:
        self._scopes[sent].cancel()
