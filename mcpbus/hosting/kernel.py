"""A backend that answers with a server of the official SDK, version 2: each request is one call of its `ServerRunner`."""

import logging
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterator,
    Mapping,
)
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from functools import partial
from typing import Any, Final

import anyio
import trio
from mcp.server.connection import Connection
from mcp.server.runner import ServerRunner, aclose_shielded
from mcp.server.subscriptions import (
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)
from mcp.shared.jsonrpc_dispatcher import handler_exception_to_error_data
from mcp_types import Implementation, InitializeResult
from mcp_types import methods as sdk_methods

from mcpbus.core.bus_services import BusServices
from mcpbus.core.call import Handler
from mcpbus.core.client_notification import ClientNotification
from mcpbus.core.context import Context
from mcpbus.core.hub import Hub, hub_of
from mcpbus.core.request_context import RequestContext
from mcpbus.core.sessions.session import Session
from mcpbus.core.signals import FailRequest
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
from mcpbus.hosting.channels import can_ask
from mcpbus.hosting.connections import HostedSession, enveloped_connection
from mcpbus.hosting.detect import FoundServer
from mcpbus.hosting.home import Home
from mcpbus.hosting.outbound import NoOutbound, RequestOutbound, SessionOutbound, StrayOutbound
from mcpbus.hosting.web import as_principal, metadata_of
from mcpbus.protocol.errors import INTERNAL_ERROR, ProtocolError
from mcpbus.protocol.http.authentication import Authorizer
from mcpbus.protocol.meta import PROTOCOL_VERSION
from mcpbus.protocol.revisions import LATEST_LEGACY, Era, Revision
from mcpbus.protocol.routes import TransportKind

_log = logging.getLogger("mcpbus")

_UNKNOWN_ERROR: Final = 0
"""The code with which the SDK reports an exception of a handler to legacy clients."""
_INITIALIZED: Final = "notifications/initialized"


class KernelBackend(HostedBackend):
    """Answers with a server of the official SDK, or of FastMCP 4, which is built on it; see `mcpbus.core.backend.Backend`.

    Args:
        found: As for `HostedBackend`.
        home: As for `HostedBackend`.
        state: What the lifespan of the server yielded.
        stray: As for `mcpbus.host`.
        auth: As for `HostedBackend`.
        serves_routes: As for `HostedBackend`.
    """

    def __init__(
        self,
        found: FoundServer,
        home: Home,
        state: Any,
        stray: StrayMessages,
        auth: Authorizer | None = None,
        *,
        serves_routes: bool = True,
    ) -> None:
        super().__init__(found, home, auth, serves_routes=serves_routes)
        self._found = found
        self._server = found.lowlevel
        self._mark_call: Callable[[TransportKind], AbstractContextManager[None]] = lambda _: nullcontext()
        if found.is_fastmcp:
            from mcpbus.hosting import fastmcp4  # noqa: PLC0415 - it imports FastMCP

            fastmcp4.prepare()
            self._mark_call = fastmcp4.hosted_call
        self._home = home
        self._state = state
        self._adopts = stray == "adopt"
        entry = self._server.get_request_handler(LISTEN)
        handler = None if entry is None else entry.handler
        self._listens: ListenHandler | None = handler if isinstance(handler, ListenHandler) else None
        self._filtered = self._server.get_request_handler("resources/subscribe") is not None

    # -- the bus ---------------------------------------------------------------------------------

    @asynccontextmanager
    async def open(self, bus: BusServices) -> AsyncIterator[None]:
        """See `Backend.open`: changes that the server publishes reach all clients."""
        hub = hub_of(bus)
        with self.watching():
            if self._listens is None:
                yield
                return
            unsubscribe = await self._home.run(self._subscribe, self._listens, hub)
            try:
                yield
            finally:
                with trio.CancelScope(shield=True):
                    await self._home.run(unsubscribe)

    async def _subscribe(self, listens: ListenHandler, hub: Hub) -> Callable[[], Awaitable[None]]:
        """Subscribe to changes, and to the end of all listens. Runs in the home."""

        def publish(event: ServerEvent) -> None:
            self._home.post(_publish, hub, event)

        stop = listens._bus.subscribe(publish)  # noqa: SLF001 - no public name leads to it
        streams: set[Any] = listens._streams  # noqa: SLF001
        ends = _ListenEnd(partial(self._home.post, _end_listens, hub))
        streams.add(ends)

        async def unsubscribe() -> None:
            streams.discard(ends)
            stop()

        return unsubscribe

    def offers(self, method: str, era: Era) -> bool:  # noqa: ARG002
        """See `Backend.offers`. The kernel itself refuses what the revision or the server does not have."""
        return (
            method in sdk_methods.SPEC_CLIENT_METHODS or self._server.get_request_handler(method) is not None
        )

    def begin(self, context: RequestContext) -> Handler | None:
        method = context.request.method
        if method == LISTEN and self._listens is not None:
            return None
        return HostedCall(self, rounds=method in ROUNDS)

    # -- sessions --------------------------------------------------------------------------------

    def initialize(self, revision: Revision, session: Session | None) -> bytes:
        if session is not None:
            hosted: HostedSession = session.backend_state
            return hosted.take_result()
        options = self._found.initialization_options()
        result = InitializeResult(
            protocol_version=revision.name,
            capabilities=options.capabilities,
            server_info=Implementation(
                name=options.server_name,
                title=options.title,
                description=options.description,
                version=options.server_version,
                website_url=options.website_url,
                icons=options.icons,
            ),
            instructions=options.instructions,
        )
        dumped = result.model_dump(by_alias=True, mode="json", exclude_none=True)
        return encode(sdk_methods.serialize_server_result("initialize", revision.name, dumped))

    async def register(self, session: Session, context: RequestContext | None) -> None:
        """See `Backend.register`: `initialize` runs, with the middleware of the server."""
        session.backend_state = await self._home.run(self._initialize, session, context)

    async def _initialize(self, session: Session, context: RequestContext | None) -> HostedSession:
        """Run `initialize` in the home."""
        assert session.revision is not None  # noqa: S101 - it registers
        hosted = HostedSession(self._home, session, filtered=self._filtered)
        params = hosted.initialize_params() if context is None else read_params(context.request.params)
        outbound = hosted.outbound
        outbound.request_id = None if context is None else context.request.id
        outbound.message_metadata = None if context is None else metadata_of(context)
        try:
            with self._within_call(session.principal, session.transport):
                result = await self._run(hosted.connection, outbound, "initialize", params)
        except Exception as error:
            raise self._error("initialize", error, session.revision) from error
        finally:
            outbound.request_id = outbound.message_metadata = None
        hosted.result = encode(result)
        return hosted

    def session_end_hook(self, session: Session) -> Callable[[], Awaitable[None]] | None:
        """See `Backend.session_end_hook`: the connection runs what its author wants to run then."""
        hosted: HostedSession | None = session.backend_state
        return None if hosted is None else partial(self._home.run, aclose_shielded, hosted.connection)

    async def _notify(self, told: ClientNotification) -> None:
        """Give a notification to the kernel, in the home."""
        if told.session is None:
            if PROTOCOL_VERSION in (told.params.get("_meta") or {}):
                return  # the SDK, too, drops what a modern client sends without a request
            connection = Connection.from_envelope(LATEST_LEGACY.name, None, None)
            runner = ServerRunner(self._server, connection, self._state)
            try:
                await runner.on_notify(NoOutbound(), told.method, told.params or None)
            finally:
                await aclose_shielded(connection)
            return
        hosted: HostedSession = told.session.backend_state
        if told.method != _INITIALIZED:
            hosted.note_initialized()
        runner = ServerRunner(self._server, hosted.connection, self._state)
        with self._within_call(told.principal, told.session.transport):
            await runner.on_notify(hosted.outbound, told.method, told.params or None)

    # -- requests --------------------------------------------------------------------------------

    async def _serve(self, context: Context, rounds: bool) -> bytes:
        """Run a request in the kernel. Runs in the home."""
        asked = context.request_context
        request, revision = asked.request, asked.revision
        session = asked.legacy_session
        hosted: HostedSession | None = None if session is None else session.backend_state
        of_session = None if hosted is None else hosted.outbound
        outbound = RequestOutbound(
            self._home,
            context,
            of_session,
            can_ask=can_ask(context, rounds=rounds),
            is_listen=request.method == LISTEN,
        )
        outbound.message_metadata = metadata_of(asked, outbound)
        stray = StrayOutbound(outbound, of_session, adopts=self._adopts)
        params = read_params(request.params)
        if hosted is None:
            connection = enveloped_connection(revision, params, stray)
        else:
            connection = hosted.of_request(stray)
        token = asked.routing.meta.progress_token
        if of_session is not None and token is not None:
            of_session.requests[token] = outbound
        try:
            with self._within_call(asked.principal, asked.transport):
                result = await self._run(connection, outbound, request.method, params)
            if request.method == LIST_TOOLS:
                self.mirrored.note_list(asked.principal, params, result)
            return encode(result)
        except anyio.get_cancelled_exc_class():
            outbound.cancel_requested.set()
            raise
        except Exception as error:
            raise self._error(request.method, error, revision) from error
        finally:
            outbound.closed = True
            if of_session is not None and token is not None:
                of_session.requests.pop(token, None)
            if hosted is None:
                await aclose_shielded(connection)

    @contextmanager
    def _within_call(self, principal: object, transport: TransportKind) -> Iterator[None]:
        """Let the code of the server see within the block which client and transport it serves."""
        with as_principal(principal), self._mark_call(transport):
            yield

    async def _run(
        self,
        connection: Connection,
        outbound: RequestOutbound | SessionOutbound,
        method: str,
        params: Mapping[str, Any] | None,
    ) -> dict[str, Any]:
        runner = ServerRunner(self._server, connection, self._state, init_options=self._found.options)
        return await runner.on_request(outbound, method, params)

    def _error(self, method: str, error: Exception, revision: Revision) -> ProtocolError:
        """Return the error to answer with, as the SDK maps exceptions; one that it does not know is logged."""
        data = handler_exception_to_error_data(error)
        if data is not None:
            return ProtocolError(data.code, data.message, data.data)
        _log.error("%s failed", method, exc_info=error)
        if revision.era is Era.MODERN:
            return ProtocolError(INTERNAL_ERROR, "Internal server error")
        return ProtocolError(_UNKNOWN_ERROR, str(error))


class _ListenEnd:
    """Stands among the streams of a `ListenHandler`, whose `close` closes each of them."""

    def __init__(self, end: Callable[[], object]) -> None:
        self._end = end

    def close(self) -> None:
        """End all listens."""
        self._end()


def _end_listens(hub: Hub) -> None:
    for slot in hub.listens:
        if slot.address is not None:
            slot.address.tell(FailRequest("The server ended all listens"))


def _publish(hub: Hub, event: ServerEvent) -> None:
    """Publish a change to all clients of the hub. Runs in trio."""
    match event:
        case ToolsListChanged():
            hub.tools_changed()
        case PromptsListChanged():
            hub.prompts_changed()
        case ResourcesListChanged():
            hub.resources_changed()
        case ResourceUpdated(uri=uri):
            hub.resource_updated(str(uri))
