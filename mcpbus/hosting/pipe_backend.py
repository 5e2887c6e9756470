"""A backend that answers with a server of version 1 of the official SDK, or one that is built on it: FastMCP 2 and 3, fastapi_mcp.

Such a server knows no revision after 2025-11-25. A request of 2026-07-28 is translated for it, and its result is translated back.
"""

from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Final

import anyio
import attrs
import msgspec
import trio
from mcp.shared.message import ServerMessageMetadata

from mcpbus.core.bus_services import BusServices
from mcpbus.core.call import Handler
from mcpbus.core.client_notification import ClientNotification
from mcpbus.core.concurrency import background
from mcpbus.core.context import Context
from mcpbus.core.hub import Hub, hub_of
from mcpbus.core.outbound import LIST_CHANGED, RESOURCE_UPDATED
from mcpbus.core.request_context import RequestContext
from mcpbus.core.sessions.session import Session
from mcpbus.dispatch.dispatcher import LISTEN
from mcpbus.hosting.backend import (
    LIST_TOOLS,
    ROUNDS,
    HostedBackend,
    HostedCall,
    StrayMessages,
    encode,
    read_params,
)
from mcpbus.hosting.channels import Params, RequestChannel, SessionChannel, can_ask
from mcpbus.hosting.detect import FoundServer
from mcpbus.hosting.home import Home
from mcpbus.hosting.pipes import HostedPipe
from mcpbus.hosting.web import metadata_of
from mcpbus.protocol.errors import ProtocolError, internal_error
from mcpbus.protocol.http.authentication import Authorizer
from mcpbus.protocol.meta import SERVER_INFO
from mcpbus.protocol.revisions import LATEST_LEGACY, MODERN_VERSIONS, Era, Revision
from mcpbus.protocol.routes import TransportKind

_OWN_PREFIX: Final = "io.modelcontextprotocol/"
_OF_ROUNDS: Final = frozenset({"inputResponses", "requestState"})
_CACHEABLE: Final = frozenset(
    {"tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read"}
)

MODERN_METHODS: Final = frozenset({*_CACHEABLE, "tools/call", "prompts/get", "completion/complete"})
"""The requests of 2026-07-28 that older revisions have, too."""


def older_params(params: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the params of a modern request without what only that revision has."""
    if params is None:
        return None
    older = {name: value for name, value in params.items() if name not in _OF_ROUNDS}
    meta = older.pop("_meta", None)
    if isinstance(meta, Mapping):
        kept = {name: value for name, value in meta.items() if not name.startswith(_OWN_PREFIX)}
        if kept:
            older["_meta"] = kept
    return older or None


def newer_result(method: str, result: Mapping[str, Any], identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result as 2026-07-28 has it: with its kind, the server, and that it is not to be cached."""
    newer = {"resultType": "complete", **result}
    if method in _CACHEABLE:
        newer |= {"ttlMs": 0, "cacheScope": "private"}
    newer["_meta"] = {**result.get("_meta", {}), SERVER_INFO: dict(identity)}
    return newer


def discovery(described: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of ``server/discover`` for a server whose result of `initialize` is given."""
    told = {name: described[name] for name in ("capabilities", "instructions") if described.get(name)}
    result = {"capabilities": {}, **told, "supportedVersions": list(MODERN_VERSIONS)}
    return newer_result("server/discover", result, described["serverInfo"]) | {
        "ttlMs": 0,
        "cacheScope": "private",
    }


_DISCOVER: Final = "server/discover"
_INITIALIZED: Final = "notifications/initialized"
_LEGACY_METHODS: Final = MODERN_METHODS | {
    "ping",
    "logging/setLevel",
    "resources/subscribe",
    "resources/unsubscribe",
    "tasks/get",
    "tasks/result",
    "tasks/list",
    "tasks/cancel",
}
_MOST_IDLE: Final = 32
"""The number of pipes without a request that are kept open for requests without a session."""
_SWEEP_SECONDS: Final = 150.0
"""The time between two looks for idle pipes. A pipe without a message between two looks is closed."""
_CLIENT: Final = {"name": "mcpbus", "version": "1"}


@attrs.define(eq=False)
class _PipeSession:
    """The pipe of a legacy session; its `backend_state`.

    Attributes:
        session: The session.
        channel: Its channel.
        pipe: Its pipe, which may be closed because it was idle.
        result: The encoded result of `initialize`, until it is taken.
        opening: Lets one request at a time open the pipe again.
        ended: Whether the session has ended.
    """

    session: Session
    channel: SessionChannel
    pipe: HostedPipe
    result: bytes
    opening: anyio.Lock = attrs.field(factory=anyio.Lock)
    ended: bool = False


class PipeBackend(HostedBackend):
    """Answers with a server that serves one client over two streams; see `mcpbus.core.backend.Backend`.

    Each legacy session has a pipe. A pipe of a session over HTTP that is idle for long is closed, and opened again by its next message,
    unless the server may store state in it. Requests without a session share pipes: one pipe has one request at a time, and only those of one
    client with the same capabilities. Such a server knows no revision 2026-07-28, so it is shown the one before.

    Args:
        found: As for `HostedBackend`.
        home: As for `HostedBackend`.
        stray: As for `mcpbus.host`.
        auth: As for `HostedBackend`.
        serves_routes: As for `HostedBackend`.
    """

    def __init__(
        self,
        found: FoundServer,
        home: Home,
        stray: StrayMessages,
        auth: Authorizer | None = None,
        *,
        serves_routes: bool = True,
    ) -> None:
        super().__init__(found, home, auth, serves_routes=serves_routes)
        self._found = found
        self._adopts = stray == "adopt"
        self._hub: Hub | None = None
        self._described: dict[str, Any] = {}
        self._idle: OrderedDict[HostedPipe, Hashable] = OrderedDict()
        self._open: set[HostedPipe] = set()

    @asynccontextmanager
    async def open(self, bus: BusServices) -> AsyncIterator[None]:
        """See `Backend.open`: a first pipe shows what the server offers."""
        self._hub = hub_of(bus)
        try:
            await self._home.run(self._describe)
            async with background() as nursery:
                nursery.start_soon(self._sweep_forever)
                with self.watching():
                    yield
                nursery.cancel_scope.cancel()
        finally:
            with trio.CancelScope(shield=True):
                await self._home.run(self._close_all)

    def offers(self, method: str, era: Era) -> bool:
        if era is Era.LEGACY:
            return method in _LEGACY_METHODS
        return method in MODERN_METHODS or method in {_DISCOVER, LISTEN}

    def begin(self, context: RequestContext) -> bytes | Handler | None:
        method = context.request.method
        if method == LISTEN:
            return None
        if method == _DISCOVER:
            return encode(discovery(self._described))
        return HostedCall(self, rounds=method in ROUNDS)

    def initialize(self, revision: Revision, session: Session | None) -> bytes:
        if session is None:
            return encode({**self._described, "protocolVersion": revision.name})
        state: _PipeSession = session.backend_state
        result, state.result = state.result, b"{}"  # of which the encoder allots 4 KiB
        return result

    async def register(self, session: Session, context: RequestContext | None) -> None:
        """See `Backend.register`: the server gets `initialize` in a pipe of the session's own."""
        session.backend_state = await self._home.run(self._open_session, session, context)

    def session_end_hook(self, session: Session) -> Callable[[], Awaitable[None]] | None:
        state: _PipeSession | None = session.backend_state
        return None if state is None else partial(self._home.run, self._end_session, state)

    async def _sweep_forever(self) -> None:
        while True:
            await trio.sleep(_SWEEP_SECONDS)
            await self._home.run(self._sweep)

    # -- in the home -----------------------------------------------------------------------------

    async def _start(self, session: SessionChannel | None) -> HostedPipe:
        pipe = HostedPipe(self._found, session, adopts=self._adopts, unclaimed=self._take_unclaimed)
        self._open.add(pipe)
        self._home.spawn_here(pipe.run)
        return pipe

    async def _close(self, pipe: HostedPipe) -> None:
        self._open.discard(pipe)
        self._idle.pop(pipe, None)
        await pipe.close()

    async def _close_all(self) -> None:
        while self._open:
            await self._close(next(iter(self._open)))

    async def _describe(self) -> None:
        pipe = await self._start(None)
        try:
            self._described = await pipe.request("initialize", _hello(LATEST_LEGACY.name, {}, _CLIENT))
        finally:
            await self._close(pipe)

    async def _sweep(self) -> None:
        """Close the pipes that had no message since the last call."""
        for pipe in [*self._open]:
            if pipe.busy or pipe.used or not (pipe.session is None or self._may_close(pipe.session)):
                pipe.used = False
            else:
                await self._close(pipe)

    def _may_close(self, channel: SessionChannel) -> bool:
        """Whether a session is the same for the server if it begins again."""
        return channel.session.transport is not TransportKind.DUPLEX and self._found.has_like_sessions

    async def _open_session(self, session: Session, context: RequestContext | None) -> _PipeSession:
        resources = self._described.get("capabilities", {}).get("resources") or {}
        channel = SessionChannel(self._home, session, filtered=bool(resources.get("subscribe")))
        if context is None:  # another process got `initialize`
            pipe, result = await self._open_pipe(channel, {}, None)
            await self._restore(pipe, session)
        else:
            params = read_params(context.request.params) or {}
            pipe, result = await self._open_pipe(channel, params, metadata_of(context))
        assert session.revision is not None  # noqa: S101 - it registers
        return _PipeSession(
            session, channel, pipe, encode({**result, "protocolVersion": session.revision.name})
        )

    async def _open_pipe(
        self, channel: SessionChannel, params: Mapping[str, Any], metadata: ServerMessageMetadata | None
    ) -> tuple[HostedPipe, dict[str, Any]]:
        """Open a pipe for a session, and return it with the result of `initialize`."""
        session = channel.session
        assert session.revision is not None  # noqa: S101 - it registers
        pipe = await self._start(channel)
        try:
            hello = _hello(session.revision.name, session.client_capabilities, session.client_info)
            return pipe, await pipe.request("initialize", {**params, **hello}, metadata=metadata)
        except BaseException:
            await self._close(pipe)
            raise

    async def _restore(self, pipe: HostedPipe, session: Session) -> None:
        """Tell a new run of the server what the client of a session has told before."""
        await pipe.notify(_INITIALIZED, None)
        capabilities = self._described.get("capabilities", {})
        requests = [("resources/subscribe", {"uri": uri}) for uri in session.subscriptions]
        level = session.log_level
        if level is not None and session.threshold.chosen and "logging" in capabilities:
            requests.append(("logging/setLevel", {"level": level.value}))
        for method, params in requests:
            with suppress(ProtocolError):  # the server refuses what it took before
                await pipe.request(method, params)

    async def _pipe_of(
        self, state: _PipeSession, metadata: ServerMessageMetadata | None = None
    ) -> HostedPipe:
        """Return the pipe of a session, which is opened again if it was closed or broke.

        Raises:
            ProtocolError: The session has ended, or the server refuses to begin again.
        """
        if state.pipe.broken:
            async with state.opening:
                if state.ended:
                    raise internal_error()
                if state.pipe.broken:
                    await self._close(state.pipe)
                    state.pipe, _ = await self._open_pipe(state.channel, {}, metadata)
                    await self._restore(state.pipe, state.session)
        return state.pipe

    async def _end_session(self, state: _PipeSession) -> None:
        state.ended = True
        async with state.opening:
            await self._close(state.pipe)

    async def _notify(self, told: ClientNotification) -> None:
        """Give a notification to the server; without a session there is none that it could belong to."""
        if told.session is not None:
            state: _PipeSession = told.session.backend_state
            pipe = await self._pipe_of(state)
            await pipe.notify(told.method, told.params or None)

    async def _serve(self, context: Context, rounds: bool) -> bytes:
        """Run a request in the pipe of its session, or in one that is lent to it."""
        asked = context.request_context
        method, session = asked.request.method, asked.legacy_session
        state: _PipeSession | None = None if session is None else session.backend_state
        channel = RequestChannel(
            self._home,
            context,
            None if state is None else state.channel,
            can_ask=can_ask(context, rounds=rounds),
        )
        token = asked.routing.meta.progress_token
        params, metadata = read_params(asked.request.params), metadata_of(asked, channel)
        try:
            if state is not None:
                pipe = await self._pipe_of(state, metadata)
                result = await pipe.request(method, params, channel, token, metadata)
                self._note_list(asked, params, result)
                return encode(result)
            async with self._lend(asked) as pipe:
                result = await pipe.request(method, older_params(params), channel, token, metadata)
        finally:
            channel.closed = True
        self._note_list(asked, params, result)
        if asked.revision.era is Era.MODERN:
            result = newer_result(method, result, self._described["serverInfo"])
        return encode(result)

    def _note_list(self, asked: RequestContext, params: Params, result: dict[str, Any]) -> None:
        if asked.request.method == LIST_TOOLS:
            self.mirrored.note_list(asked.principal, params, result)

    @asynccontextmanager
    async def _lend(self, asked: RequestContext) -> AsyncIterator[HostedPipe]:
        """Lend a pipe to a request without a session."""
        capabilities = msgspec.to_builtins(asked.client_capabilities)
        info = {**_CLIENT, **msgspec.to_builtins(asked.client_info)}
        key = (asked.state_key, msgspec.json.encode([capabilities, info], order="deterministic"))
        pipe = next((each for each, owner in self._idle.items() if owner == key and not each.broken), None)
        if pipe is None:
            pipe = await self._start(None)
            try:
                await pipe.request("initialize", _hello(LATEST_LEGACY.name, capabilities, info))
                await pipe.notify(_INITIALIZED, None)
            except BaseException:
                await self._close(pipe)
                raise
        else:
            del self._idle[pipe]
        try:
            yield pipe
        finally:
            if pipe.broken:
                await self._close(pipe)
            else:
                self._idle[pipe] = key
                while len(self._idle) > _MOST_IDLE:
                    await self._close(next(iter(self._idle)))

    def _take_unclaimed(self, method: str, params: Params) -> None:
        """Publish a change that no session claims; any other such notification has no client."""
        self._home.post(self._publish, method, params)

    def _publish(self, method: str, params: Params) -> None:
        """Publish a change to all clients of the hub. Runs in trio."""
        hub = self._hub
        if hub is None:
            return
        for name, changed in LIST_CHANGED.items():
            if method == changed:
                getattr(hub, f"{name}_changed")()
        if method == RESOURCE_UPDATED and params is not None:
            hub.resource_updated(str(params.get("uri")))


def _hello(revision: str, capabilities: Any, info: Any) -> dict[str, Any]:
    """Return the params of `initialize`."""
    known = {**_CLIENT, **msgspec.to_builtins(info)}
    return {
        "protocolVersion": revision,
        "capabilities": msgspec.to_builtins(capabilities),
        "clientInfo": known,
    }
