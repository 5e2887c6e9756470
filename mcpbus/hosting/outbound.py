"""The channels of a hosted server as version 2 of the official SDK takes them: `Outbound` and `DispatchContext`."""

from typing import Any

import anyio
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp.shared.message import ServerMessageMetadata
from mcp.shared.transport_context import TransportContext
from mcp_types import REQUEST_TIMEOUT

from mcpbus.core.context import Context
from mcpbus.core.sessions.session import Session
from mcpbus.features.input_requests.errors import InputRequestError, InputTimeoutError
from mcpbus.hosting.channels import Params, RequestChannel, SessionChannel
from mcpbus.hosting.home import Home
from mcpbus.protocol.jsonrpc import RequestId

_NO_REQUESTS = TransportContext(kind="mcpbus", can_send_request=False)


async def _send_request(
    channel: RequestChannel | SessionChannel, method: str, params: Params, options: CallOptions | None
) -> dict[str, Any]:
    """Send an input request, and return the response.

    Raises:
        MCPError: The client refused it, cannot be asked, or did not respond in time.
    """
    options = options or {}
    try:
        return await channel.ask(method, params, options.get("timeout"), options.get("on_progress"))
    except InputTimeoutError as error:
        raise MCPError(REQUEST_TIMEOUT, error.message) from error
    except InputRequestError as error:
        raise MCPError(error.code, error.message, error.data) from error


class NoOutbound:
    """The dispatch context of a notification that came without a session: no client is behind it."""

    transport = _NO_REQUESTS
    can_send_request = False
    request_id: RequestId | None = None
    message_metadata: ServerMessageMetadata | None = None

    def __init__(self) -> None:
        self.cancel_requested = anyio.Event()

    async def notify(self, method: str, params: Params, opts: CallOptions | None = None) -> None:
        """Do nothing."""

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Do nothing."""

    async def send_raw_request(
        self,
        method: str,
        params: Params,  # noqa: ARG002
        opts: CallOptions | None = None,  # noqa: ARG002
    ) -> dict[str, Any]:
        raise NoBackChannelError(method)


class SessionOutbound(SessionChannel):
    """The channel of a legacy session, and the dispatch context of its `initialize` and of its client's notifications."""

    transport = _NO_REQUESTS
    can_send_request = False
    request_id: RequestId | None = None

    def __init__(self, home: Home, session: Session, *, filtered: bool) -> None:
        super().__init__(home, session, filtered=filtered)
        self.message_metadata: ServerMessageMetadata | None = None
        self.cancel_requested = anyio.Event()

    async def notify(self, method: str, params: Params, opts: CallOptions | None = None) -> None:  # noqa: ARG002
        await self.send(method, params)

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Do nothing: no request is there to report on."""

    async def send_raw_request(
        self, method: str, params: Params, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        return await _send_request(self, method, params, opts)


class RequestOutbound(RequestChannel):
    """The channel of one request, and its dispatch context.

    Args:
        home: As for `RequestChannel`, like the others.
        context: The call.
        session: The channel of its session.
        can_ask: Whether input requests are allowed within it.
        is_listen: Whether it is a listen.

    Attributes:
        message_metadata: The HTTP request and the like, for the SDK.
    """

    def __init__(
        self,
        home: Home,
        context: Context,
        session: SessionOutbound | None,
        *,
        can_ask: bool,
        is_listen: bool = False,
    ) -> None:
        super().__init__(home, context, session, can_ask=can_ask, is_listen=is_listen)
        self.request_id: RequestId | None = context.request_id
        self.message_metadata: ServerMessageMetadata | None = None
        self.cancel_requested = anyio.Event()
        self.transport = TransportContext(kind="mcpbus", can_send_request=can_ask)

    @property
    def can_send_request(self) -> bool:
        return self.may_ask

    async def notify(self, method: str, params: Params, opts: CallOptions | None = None) -> None:  # noqa: ARG002
        await self.send(method, params)

    async def send_raw_request(
        self, method: str, params: Params, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        if not self.may_ask:
            raise NoBackChannelError(method)
        return await _send_request(self, method, params, opts)


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

    def _channel(self) -> RequestOutbound | SessionOutbound:
        if self._session is None or (self._adopts and not self._request.closed):
            return self._request
        return self._session

    async def notify(self, method: str, params: Params, opts: CallOptions | None = None) -> None:
        await self._channel().notify(method, params, opts)

    async def send_raw_request(
        self, method: str, params: Params, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        return await self._channel().send_raw_request(method, params, opts)
