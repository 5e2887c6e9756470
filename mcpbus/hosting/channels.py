"""The ways in which a hosted server reaches its client: channels of the bus, for whichever SDK the server has.

All methods run in the home of the server, unless they state otherwise. A message is encoded there, so that a value that is not
JSON raises in the code of its author, and is then posted to trio.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

from mcpbus.core import outbound
from mcpbus.core.context import Context
from mcpbus.core.hub import hub_of
from mcpbus.core.outbound import (
    ELICITATION_COMPLETE,
    LIST_CHANGED,
    MESSAGE,
    PROGRESS,
    RESOURCE_UPDATED,
    OutboundNotification,
    Progress,
)
from mcpbus.core.receipt import Ledger
from mcpbus.core.sessions.session import Session
from mcpbus.core.signals import CloseConnection
from mcpbus.features.input_requests.errors import cannot_ask
from mcpbus.features.input_requests.requests import InputRequest, OnProgress
from mcpbus.hosting.home import Home
from mcpbus.hosting.input_request import HostedInputRequest
from mcpbus.protocol.jsonrpc import RequestId, encode_notification
from mcpbus.protocol.messages import ListName
from mcpbus.protocol.revisions import Era
from mcpbus.protocol.routes import MessageKind, Reason

Params: TypeAlias = Mapping[str, Any] | None
ReportProgress: TypeAlias = Callable[[float, float | None, str | None], Awaitable[None]]
"""An async function of a server that gets the progress of its client with an input request."""
_Relay: TypeAlias = Callable[..., Awaitable[list[Any]]]

_OF_SESSION: Final = frozenset({*LIST_CHANGED.values(), RESOURCE_UPDATED, ELICITATION_COMPLETE})
"""Notifications that never belong to a request, though a server may send them within one."""
_LISTS: Final[Mapping[str, ListName]] = {method: name for name, method in LIST_CHANGED.items()}  # type: ignore[misc]
_RETRY_SECONDS: Final = 1.0
_MOST_IN_A_ROW: Final = 32
"""The number of notifications that one sender posts before it waits until trio has taken them."""


def _draft(
    ledger: Ledger, method: str, params: Params, *, in_request: bool
) -> OutboundNotification | Progress:
    """Make a notification as the SDK sends it, whichever it is."""
    if method in {PROGRESS, MESSAGE}:
        return outbound.relayed(ledger, method, params or {}, in_request=in_request)
    kind = MessageKind.CUSTOM if in_request else MessageKind.SESSION_CUSTOM
    data = encode_notification(method, None if params is None else dict(params))
    return OutboundNotification(kind, ledger.receipt(method, ledger), data)


def _discard(draft: OutboundNotification | Progress, reason: Reason) -> None:
    draft.receipt.emit()
    draft.receipt.discard(reason)


async def _ask(  # noqa: PLR0917 - called in two places
    home: Home,
    relay: _Relay,
    method: str,
    params: Params,
    timeout: float | None,  # noqa: ASYNC109 - the bus measures it
    on_progress: ReportProgress | None,
) -> dict[str, Any]:
    """Send an input request to the client, and return the response.

    Raises:
        InputRequestError: The client refused it, cannot be asked, or did not respond in time.
    """
    report: OnProgress | None = None if on_progress is None else partial(_report, home, on_progress)
    asked: dict[str | None, InputRequest] = {None: HostedInputRequest(method, params or {})}
    [response] = await home.ask(relay, asked, timeout, report)
    return dict(response)


def _report(
    home: Home, on_progress: ReportProgress, progress: float, total: float | None, message: str | None
) -> None:
    """Report the progress of the client to the server. Runs in trio."""
    home.spawn(on_progress, progress, total, message)


class SessionChannel:
    """The channel of a legacy session: for messages that belong to no request.

    Args:
        home: The home of the server.
        session: The session.
        filtered: Whether updates of resources reach only clients that subscribed. A server without a handler for
            subscriptions sends them to all clients.

    Attributes:
        session: The session.
        requests: The requests of the session that run, by progress token.
    """

    def __init__(self, home: Home, session: Session, *, filtered: bool) -> None:
        self._home = home
        self.session = session
        self._filtered = filtered
        self._posted = 0
        self.requests: dict[RequestId, RequestChannel] = {}

    async def send(self, method: str, params: Params) -> None:
        """Send a notification to the client."""
        draft = _draft(self.session.bus.ledger, method, params, in_request=False)
        self._home.post(self._send, method, params or {}, draft)
        self._posted += 1
        if self._posted % _MOST_IN_A_ROW == 0:
            await self._home.flush()

    def _send(self, method: str, params: Mapping[str, Any], draft: OutboundNotification | Progress) -> None:
        """Send a notification by the rules of the session. Runs in trio."""
        session = self.session
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
                request.pass_on(draft)
        else:
            session.pass_on(draft)

    async def close_get_stream(self) -> None:
        """Close the connection of the GET stream, so that the client reconnects."""
        self._home.post(self.session.address.tell, CloseConnection(_RETRY_SECONDS))

    async def ask(
        self,
        method: str,
        params: Params,
        timeout: float | None = None,  # noqa: ASYNC109
        on_progress: ReportProgress | None = None,
    ) -> dict[str, Any]:
        """Send an input request that belongs to no request, and return the response.

        Raises:
            InputRequestError: The client refused it, cannot be asked, or did not respond in time.
        """
        return await _ask(self._home, self.session.relay_questions, method, params, timeout, on_progress)


class RequestChannel:
    """The channel of one request.

    Args:
        home: The home of the server.
        context: The call.
        session: The channel of its legacy session; None without one.
        can_ask: Whether the revision and the transport allow input requests within it.
        is_listen: Whether the request is a listen, whose notifications go out as they are.

    Attributes:
        closed: Whether the handler has returned.
    """

    def __init__(
        self,
        home: Home,
        context: Context,
        session: SessionChannel | None,
        *,
        can_ask: bool,
        is_listen: bool = False,
    ) -> None:
        self._home = home
        self._context = context
        self._session = session
        self._can_ask = can_ask
        self._is_listen = is_listen
        self._posted = 0
        self._token = context.request_context.routing.meta.progress_token
        self.closed = False

    def pass_on(self, draft: OutboundNotification | Progress) -> None:
        """Send a notification on the stream of the request. Call it in trio."""
        self._context.pass_on(draft)

    async def send(self, method: str, params: Params) -> None:
        """Send a notification within the request, or to the session if it never belongs to a request."""
        other = method == PROGRESS and (params or {}).get("progressToken") != self._token
        if self._is_listen or not (method in _OF_SESSION or other):
            await self._post(_draft(self._context.bus.ledger, method, params, in_request=True))
        elif self._session is not None:
            await self._session.send(method, params)
        else:
            draft = _draft(self._context.bus.ledger, method, params, in_request=True)
            if method == ELICITATION_COMPLETE and self._context.revision.elicitation_ids:
                await self._post(draft)
            else:  # nothing knows the other request, and revision 2026-07-28 sends changes in listens alone
                self._home.post(_discard, draft, Reason.FINISHED if other else Reason.NOT_IN_REVISION)

    async def _post(self, draft: OutboundNotification | Progress) -> None:
        self._home.post(self.pass_on, draft)
        self._posted += 1
        if self._posted % _MOST_IN_A_ROW == 0:
            await self._home.flush()

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report the progress of the request."""
        await self._post(outbound.progress(self._context.bus.ledger, progress, total, message))

    @property
    def close_callbacks(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """Return the functions that close the streams of the request and of its session, if the client could resume them."""
        hub, revision = hub_of(self._context.bus), self._context.revision
        if self._session is None or hub.event_store is None or not revision.priming:
            return {}
        return {
            "close_sse_stream": partial(self._home.ask, self._context.close_stream, _RETRY_SECONDS),
            "close_standalone_sse_stream": self._session.close_get_stream,
        }

    @property
    def may_ask(self) -> bool:
        """Whether the client can be asked now."""
        return self._can_ask and not self.closed

    async def ask(
        self,
        method: str,
        params: Params,
        timeout: float | None = None,  # noqa: ASYNC109
        on_progress: ReportProgress | None = None,
    ) -> dict[str, Any]:
        """Send an input request within the request, and return the response.

        Raises:
            InputRequestError: The client refused it, cannot be asked, or did not respond in time.
        """
        if not self.may_ask:
            raise cannot_ask("its request has ended, or has no input requests")
        return await _ask(self._home, self._context.relay_questions, method, params, timeout, on_progress)


def can_ask(context: Context, *, rounds: bool) -> bool:
    """Return whether a request may contain input requests: in a legacy session, or in a modern request that has rounds."""
    if context.revision.era is Era.MODERN:
        return rounds
    return context.session is not None
