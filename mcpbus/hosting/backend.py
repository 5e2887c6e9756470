"""What all backends of hosted servers have in common; see `mcpbus.core.backend.Backend`."""

import logging
import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, Literal, TypeAlias

import msgspec
import pydantic_core
import trio

from mcpbus.core.backend import Listener
from mcpbus.core.call import CallActor
from mcpbus.core.client_notification import ClientNotification
from mcpbus.core.context import Context
from mcpbus.core.hub import hub_of
from mcpbus.core.request_context import RequestContext
from mcpbus.core.sessions.session import Session
from mcpbus.dispatch.dispatcher import SESSION_METHODS
from mcpbus.features.schemas import python_types
from mcpbus.hosting.asyncio_hint import AsyncioHint
from mcpbus.hosting.detect import FoundServer
from mcpbus.hosting.home import Home
from mcpbus.hosting.mirrored import MirroredSchemas
from mcpbus.hosting.web import Beside, HostedPrincipal, HostedWeb
from mcpbus.protocol import messages as wire
from mcpbus.protocol.errors import ProtocolError, internal_error
from mcpbus.protocol.http.authentication import Authenticate, Authorizer
from mcpbus.protocol.http.mirrored_parameters import MirroredParameter
from mcpbus.protocol.jsonrpc import JsonRpcRequest
from mcpbus.protocol.large import decode_without_gc
from mcpbus.protocol.meta import Routing
from mcpbus.protocol.results import tail_for
from mcpbus.protocol.revisions import REVISIONS, Era

_log = logging.getLogger("mcpbus")

StrayMessages: TypeAlias = Literal["adopt", "session"]
"""The stream of messages that a server sends without a related request id: that of the request that runs, or of the session."""

ROUNDS: Final = frozenset({"tools/call", "prompts/get", "resources/read"})
"""The methods that may be answered with input requests."""
LIST_TOOLS: Final = "tools/list"
_NOTIFICATION_SECONDS: Final = 10.0

_decode = msgspec.json.Decoder(dict[str, Any]).decode


def read_params(raw: msgspec.Raw) -> dict[str, Any] | None:
    """Return the params of a request, as the SDK takes them; None if it has none."""
    return decode_without_gc(_decode, raw) or None


def encode(result: Mapping[str, Any]) -> bytes:
    """Encode a result, which may hold values that only pydantic makes JSON of."""
    try:
        return python_types.encode(result)
    except TypeError:
        return pydantic_core.to_json(result)


class HostedBackend:
    """The part of a backend that is the same for all SDKs.

    Args:
        found: The server.
        home: Where its code runs.
        auth: The resource server of mcpbus that lets clients in over HTTP; None if there is none.
        serves_routes: Whether its web routes are served beside the endpoint.

    Attributes:
        mirrored: The parameters of its tools that clients mirror into header fields.
    """

    has_upstream_subscriptions = False
    has_session_hooks = True

    def __init__(
        self, found: FoundServer, home: Home, auth: Authorizer | None, *, serves_routes: bool
    ) -> None:
        self.name = found.name
        self.auth = auth
        self._web = HostedWeb(found, home, serves_routes=serves_routes)
        self.authenticate: Authenticate | None = self._web.authenticate if found.checks_tokens else None
        identity = wire.Implementation(found.name, found.version)
        self.tails = {row: tail_for(identity, row) for row in REVISIONS.values()}
        self._home = home
        self._hint = AsyncioHint(found.name) if home.name == "trio" else None
        self.mirrored = MirroredSchemas(getattr(found.lowlevel, "get_tool_input_schema", None))

    def watching(self) -> AbstractContextManager[None]:
        """Watch within the block for code of the server that its home cannot run."""
        return nullcontext() if self._hint is None else self._hint.watching()

    async def _notify(self, told: ClientNotification) -> None:
        """Give a notification to the server, in the home."""
        raise NotImplementedError

    async def _serve(self, context: Context, rounds: bool) -> bytes:
        """Run a request in the home, and return the encoded result."""
        raise NotImplementedError

    def open_to_all(self) -> None:
        """See `Backend.open_to_all`."""

    def seconds_left(self, principal: Any) -> float:
        if isinstance(principal, HostedPrincipal):
            return principal.seconds_left
        return math.inf if self.auth is None else self.auth.seconds_left(principal)

    def beside(self, path: str) -> Beside | None:
        """Return the web routes of the server, as `mcpbus.core.backend.HasRoutes`."""
        return self._web.beside(path)

    def mirrored_parameters(self, tool: str, principal: object) -> Sequence[MirroredParameter]:
        return self.mirrored.find(tool, principal)

    def may_wait(self, method: str, name: object, era: Era) -> bool:  # noqa: ARG002
        return True

    def needed_scopes(
        self,
        request: JsonRpcRequest,  # noqa: ARG002
        routing: Routing,  # noqa: ARG002
        session: Session | None,  # noqa: ARG002
        principal: object,  # noqa: ARG002
    ) -> Collection[str]:
        return ()

    async def wait_subscribed(self, uris: Collection[str], key: Hashable) -> None:
        """See `Backend.wait_subscribed`."""

    def may_subscribe(self, session: Session) -> bool:  # noqa: ARG002
        return True

    def grant(self, asked: wire.SubscriptionFilter, context: RequestContext) -> wire.SubscriptionFilter:  # noqa: ARG002
        """See `Backend.grant`: all that is asked for, as the SDK grants it."""
        return msgspec.structs.replace(asked, task_ids=())

    def opened(self, session: Session) -> None:
        """See `Backend.opened`."""

    def notification_hook(self, method: str) -> Listener | None:  # noqa: ARG002
        """See `Backend.notification_hook`: the kernel and its middleware get all notifications."""
        return self._hear

    async def _hear(self, told: ClientNotification) -> None:
        with trio.move_on_after(_NOTIFICATION_SECONDS) as scope:
            try:
                await self._home.run(self._notify, told)
            except Exception:  # noqa: BLE001 - nothing waits for a notification
                _log.exception("%s failed", told.method)
        if scope.cancelled_caught:
            _log.warning("%s was not handled within %g s", told.method, _NOTIFICATION_SECONDS)

    async def call(self, call: CallActor, *, rounds: bool) -> bytes:
        """Run a request in the kernel, and return the encoded result. Call it in trio.

        Raises:
            ProtocolError: The error of the server.
        """
        context = Context(call)
        try:
            result = await self._home.run(self._serve, context, rounds)
        except ProtocolError:
            raise
        except Exception as error:
            _log.exception("%s failed", context.request_context.request.method)
            raise internal_error() from error
        if self._hint is not None:
            self._hint.note_result(result)
        return result


class HostedCall:
    """One request of a hosted server; a `Handler`.

    Args:
        backend: The server.
        rounds: Whether it may be answered with input requests.
    """

    replayable = False
    own_rounds = True
    task_support = None

    def __init__(self, backend: HostedBackend, *, rounds: bool) -> None:
        self._backend = backend
        self.rounds = rounds

    async def run(self, call: CallActor) -> bytes:
        """See `Handler.run`."""
        result = await self._backend.call(call, rounds=self.rounds)
        session = call.context.legacy_session
        change = SESSION_METHODS.get(call.context.request.method)
        if change is not None and session is not None:
            hub = hub_of(call.bus)
            change(hub, session, call.context)
            records = hub.session_directory.records_of(session)
            if records is not None:
                await records.keep(session)
        return result
