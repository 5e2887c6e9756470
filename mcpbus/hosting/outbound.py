"""The ways in which a hosted server reaches its client: the `Outbound` channels of its SDK, on the bus.

All methods run in the home of the server. A message is encoded there, so that a value that is not JSON raises in the
code of its author, and is then posted to trio.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

import anyio
from mcp.shared.dispatcher import CallOptions, ProgressFnT
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp.shared.message import ServerMessageMetadata
from mcp.shared.transport_context import TransportContext
from mcp_types import REQUEST_TIMEOUT

from mcpbus.core import notification
from mcpbus.core.context import Context
from mcpbus.core.notification import (
    ELICITATION_COMPLETE,
    LIST_CHANGED,
    MESSAGE,
    PROGRESS,
    RESOURCE_UPDATED,
    OutboundNotification,
    Progress,
)
from mcpbus.core.receipt import Ledger, Receipt
from mcpbus.core.session import Session
from mcpbus.features.asking.errors import InputRequestError, InputTimeoutError
from mcpbus.features.asking.questions import InputRequest, OnProgress
from mcpbus.hosting.home import Home
from mcpbus.hosting.input_request import HostedInputRequest
from mcpbus.protocol.jsonrpc import RequestId, encode_notification
from mcpbus.protocol.messages import ListName
from mcpbus.protocol.revisions import Era
from mcpbus.protocol.routes import MessageKind, Reason

_Params = Mapping[str, Any] | None
_Relay = Callable[..., Awaitable[list[Any]]]

_OF_SESSION: Final = frozenset({*LIST_CHANGED.values(), RESOURCE_UPDATED, ELICITATION_COMPLETE})
"""Notifications that never belong to a request, though a server may send them within one."""
_LISTS: Final[Mapping[str, ListName]] = {method: name for name, method in LIST_CHANGED.items()}  # type: ignore[misc]
_MOST_IN_A_ROW: Final = 32
"""The number of notifications that one sender posts before it waits until trio has taken them."""


def _draft(
    ledger: Ledger, method: str, params: _Params, *, in_request: bool
) -> OutboundNotification | Progress:
    """Make a notification as the SDK sends it, whichever it is."""
    if method in {PROGRESS, MESSAGE}:
        return notification.relayed(ledger, method, params or {}, in_request=in_request)
    kind = MessageKind.CUSTOM if in_request else MessageKind.SESSION_CUSTOM
    data = encode_notification(method, None if params is None else dict(params))
    return OutboundNotification(kind, Receipt(method, ledger), data)


def _discard(draft: OutboundNotification | Progress, reason: Reason) -> None:
    draft.receipt.emit()
    draft.receipt.discard(reason)


async def _send_input_request(
    home: Home, relay: _Relay, method: str, params: _Params, options: CallOptions | None
) -> dict[str, Any]:
    """Send an input request to the client, and return the response.

    Raises:
        MCPError: The client refused it, cannot be asked, or did not respond in time.
    """
    options = options or {}
    on_progress = options.get("on_progress")
    report: OnProgress | None = None if on_progress is None else partial(_report, home, on_progress)
    asked: dict[str | None, InputRequest] = {None: HostedInputRequest(method, params or {})}
    try:
        [response] = await home.ask(relay, asked, options.get("timeout"), report)
    except InputTimeoutError as error:
        raise MCPError(REQUEST_TIMEOUT, error.message) from error
    except InputRequestError as error:
        raise MCPError(error.code, error.message, error.data) from error
    return dict(response)


def _report(
    home: Home, on_progress: ProgressFnT, progress: float, total: float | None, message: str | None
) -> None:
    """Report the progress of the client to the server. Runs in trio."""
    home.spawn(on_progress, progress, total, message)


class NoOutbound:
    """The dispatch context of a notification that came without a session: no client is behind it."""

    transport = TransportContext(kind="mcpbus", can_send_request=False)
    can_send_request = False
    request_id: RequestId | None = None
    message_metadata: ServerMessageMetadata | None = None

    def __init__(self) -> None:
        self.cancel_requested = anyio.Event()

    async def notify(self, method: str, params: _Params, opts: CallOptions | None = None) -> None:
        """Do nothing."""

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Do nothing."""

    async def send_raw_request(
        self,
        method: str,
        params: _Params,  # noqa: ARG002
        opts: CallOptions | None = None,  # noqa: ARG002
    ) -> dict[str, Any]:
        raise NoBackChannelError(method)


class SessionOutbound:
    """The channel of a legacy session: for messages that belong to no request.

    It is also the dispatch context of the SDK for notifications of the client and for `initialize`.

    Args:
        home: The home of the server.
        session: The session.
        filtered: Whether updates of resources reach only clients that subscribed. A server without a handler for
            subscriptions sends them to all clients.
    """

    transport = TransportContext(kind="mcpbus", can_send_request=False)
    can_send_request = False
    request_id: RequestId | None = None

    def __init__(self, home: Home, session: Session, *, filtered: bool) -> None:
        self._home = home
        self._session = session
        self._filtered = filtered
        self._posted = 0
        self.requests: dict[RequestId, RequestOutbound] = {}
        self.message_metadata: ServerMessageMetadata | None = None
        self.cancel_requested = anyio.Event()

    async def notify(self, method: str, params: _Params, opts: CallOptions | None = None) -> None:  # noqa: ARG002
        draft = _draft(self._session.bus.ledger, method, params, in_request=False)
        self._home.post(self._send, method, params or {}, draft)
        self._posted += 1
        if self._posted % _MOST_IN_A_ROW == 0:
            await self._home.flush()

    def _send(self, method: str, params: Mapping[str, Any], draft: OutboundNotification | Progress) -> None:
        """Send a notification by the rules of the session. Runs in trio."""
        session = self._session
        if method in _LISTS:
            session.list_changed(_LISTS[method])
        elif method == RESOURCE_UPDATED and self._filtered:
            session.resource_updated(str(params["uri"]))
        elif method == ELICITATION_COMPLETE:
            session.elicitation_complete(str(params["elicitationId"]))
        elif isinstance(draft, Progress):
            request = self.requests.get(params["progressToken"])
            if request is None:
                _discard(draft, Reason.FINISHED)
            else:
                request.send(draft)
        else:
            session.pass_on(draft)

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Do nothing: no request is there to report on."""

    async def send_raw_request(
        self, method: str, params: _Params, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        return await _send_input_request(self._home, self._session.relay_questions, method, params, opts)


class RequestOutbound:
    """The channel of one request; a `DispatchContext` of the SDK.

    Args:
        home: The home of the server.
        context: The call.
        session: The channel of its legacy session; None without one.
        can_ask: Whether the revision and the transport allow input requests within it.
        is_listen: Whether the request is a listen, whose notifications go out as they are.
        metadata: The HTTP request and the like, for the SDK.

    Attributes:
        closed: Whether the handler has returned.
    """

    def __init__(
        self,
        home: Home,
        context: Context,
        session: SessionOutbound | None,
        *,
        can_ask: bool,
        is_listen: bool = False,
        metadata: ServerMessageMetadata | None = None,
    ) -> None:
        self._home = home
        self._context = context
        self._session = session
        self._can_ask = can_ask
        self._is_listen = is_listen
        self._posted = 0
        self._token = context.request_context.routing.meta.progress_token
        self.closed = False
        self.request_id: RequestId | None = context.request_id
        self.message_metadata = metadata
        self.cancel_requested = anyio.Event()
        self.transport = TransportContext(kind="mcpbus", can_send_request=can_ask)

    @property
    def can_send_request(self) -> bool:
        return self._can_ask and not self.closed

    def send(self, draft: OutboundNotification | Progress) -> None:
        """Send a notification on the stream of the request. Call it in trio."""
        self._context.pass_on(draft)

    async def notify(self, method: str, params: _Params, opts: CallOptions | None = None) -> None:
        other = method == PROGRESS and (params or {}).get("progressToken") != self._token
        if self._is_listen or not (method in _OF_SESSION or other):
            await self._post(_draft(self._context.bus.ledger, method, params, in_request=True))
        elif self._session is not None:
            await self._session.notify(method, params, opts)
        else:
            draft = _draft(self._context.bus.ledger, method, params, in_request=True)
            if method == ELICITATION_COMPLETE and self._context.revision.elicitation_ids:
                await self._post(draft)
            else:  # nothing knows the other request, and revision 2026-07-28 sends changes in listens alone
                self._home.post(_discard, draft, Reason.FINISHED if other else Reason.NOT_IN_REVISION)

    async def _post(self, draft: OutboundNotification | Progress) -> None:
        self._home.post(self.send, draft)
        self._posted += 1
        if self._posted % _MOST_IN_A_ROW == 0:
            await self._home.flush()

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        await self._post(notification.progress(self._context.bus.ledger, progress, total, message))

    async def send_raw_request(
        self, method: str, params: _Params, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        if not self.can_send_request:
            raise NoBackChannelError(method)
        return await _send_input_request(self._home, self._context.relay_questions, method, params, opts)


class StrayOutbound:
    """The channel of the connection, as one request has it: messages without a related request id.

    While the request runs they go with it, if they are adopted. Later they go to the session, if there is one.

    Args:
        request: The channel of the request.
        session: The channel of its legacy session; None without one.
        adopts: Whether the request adopts them.
    """

    def __init__(self, request: RequestOutbound, session: SessionOutbound | None, *, adopts: bool) -> None:
        self._request = request
        self._session = session
        self._adopts = adopts

    def _channel(self) -> "RequestOutbound | SessionOutbound":
        if self._session is None or (self._adopts and not self._request.closed):
            return self._request
        return self._session

    async def notify(self, method: str, params: _Params, opts: CallOptions | None = None) -> None:
        await self._channel().notify(method, params, opts)

    async def send_raw_request(
        self, method: str, params: _Params, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        return await self._channel().send_raw_request(method, params, opts)


def can_ask(context: Context, *, rounds: bool) -> bool:
    """Return whether a request may contain input requests: in a legacy session, or in a modern request that has rounds."""
    if context.revision.era is Era.MODERN:
        return rounds
    return context.session is not None
