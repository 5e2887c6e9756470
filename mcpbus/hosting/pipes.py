"""A connection in memory to a server of version 1 of the official SDK, whose `Server.run` serves one client over two streams."""

import logging
from collections.abc import Callable
from itertools import count
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

import anyio
import attrs
from anyio.abc import TaskGroup
from mcp.server.lowlevel import server as lowlevel
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp.types import (
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
)

from mcpbus.core.outbound import PROGRESS
from mcpbus.features.input_requests.errors import InputRequestError
from mcpbus.hosting.channels import Params, RequestChannel, SessionChannel
from mcpbus.hosting.detect import FoundServer
from mcpbus.protocol.errors import INVALID_REQUEST, ProtocolError, internal_error
from mcpbus.protocol.jsonrpc import RequestId

_log = logging.getLogger("mcpbus")

_BUFFER: Final = 64
"""The number of messages to a server that wait until it reads them; then their senders wait."""
_CANCELLED: Final = "notifications/cancelled"
_CLOSE_SECONDS: Final = 5.0

_ids: Final = count(1)
"""The ids of requests, of all pipes: code of one pipe may write to another one, whose requests it must not be taken for."""

Unclaimed: TypeAlias = Callable[[str, Params], None]
"""Takes a notification that belongs to no request and no session."""


@attrs.define(eq=False)
class _Pending:
    """A request that the server has not answered.

    Attributes:
        channel: The channel of the client that sent it; None for a request of the pipe itself.
        token: Its progress token.
        done: Whether it is answered.
        result: The result.
        error: The error; None if there is none.
    """

    channel: RequestChannel | None
    token: RequestId | None
    done: anyio.Event = attrs.field(factory=anyio.Event)
    result: dict[str, Any] = attrs.field(factory=dict)
    error: ProtocolError | None = None

    def fail(self, error: ProtocolError) -> None:
        self.error = error
        self.done.set()


class HostedPipe:
    """One run of a server for one client. Create it in the home, and run it in a task there.

    A message without a related request id is adopted by the request in whose task it is sent, if `adopts`. It is found by a context
    variable of the SDK, since the SDK writes each message in the task of its sender.

    Args:
        found: The server.
        session: The channel of a legacy session; None for a pipe that is lent to single requests.
        adopts: Whether requests adopt such messages.
        unclaimed: Takes notifications that no channel takes.

    Attributes:
        session: The channel of its legacy session; None without one.
        broken: Whether it takes no messages any more.
        used: Whether a message has gone through it, set again by who looks for idle pipes.
    """

    def __init__(
        self, found: FoundServer, session: SessionChannel | None, *, adopts: bool, unclaimed: Unclaimed
    ) -> None:
        self._found = found
        self.session = session
        self._adopts = adopts
        self._unclaimed = unclaimed
        self._send, self._receive = anyio.create_memory_object_stream[SessionMessage](_BUFFER)
        self._pending: dict[str, _Pending] = {}  # FastMCP names related requests by the text of their ids
        self._ended = anyio.Event()
        self._tasks: TaskGroup | None = None
        self.broken = False
        self.used = True

    @property
    def busy(self) -> bool:
        """Whether the server has a request of it."""
        return bool(self._pending)

    async def run(self) -> None:
        """Run the server until the pipe is closed."""
        try:
            async with anyio.create_task_group() as self._tasks:
                options = self._found.initialization_options()
                await self._found.lowlevel.run(self._receive, _Writer(self), options)
                self._tasks.cancel_scope.cancel()
        finally:
            self.broken = True
            for pending in [*self._pending.values()]:
                pending.fail(internal_error())
            self._send.close()
            self._ended.set()

    async def close(self) -> None:
        """End the run, and wait until the lifespan of the server is left."""
        self.broken = True
        self._send.close()
        with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
            await self._ended.wait()

    async def request(
        self,
        method: str,
        params: Params,
        channel: RequestChannel | None = None,
        token: RequestId | None = None,
        metadata: ServerMessageMetadata | None = None,
    ) -> dict[str, Any]:
        """Send a request to the server, and return its result. A caller that is cancelled cancels the request.

        Raises:
            ProtocolError: The server answered with an error, or has ended.
        """
        number = str(next(_ids))
        pending = self._pending[number] = _Pending(channel, token)
        try:
            await self._write(
                JSONRPCRequest(jsonrpc="2.0", id=number, method=method, params=_dict(params)), metadata
            )
            await pending.done.wait()
        except anyio.get_cancelled_exc_class():
            with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
                await self.notify(_CANCELLED, {"requestId": number})
            raise
        finally:
            del self._pending[number]
        if pending.error is not None:
            raise pending.error
        return pending.result

    async def notify(self, method: str, params: Params) -> None:
        """Send a notification to the server; nothing happens if it has ended."""
        try:
            await self._write(JSONRPCNotification(jsonrpc="2.0", method=method, params=_dict(params)))
        except ProtocolError:
            return

    async def _write(self, message: Any, metadata: ServerMessageMetadata | None = None) -> None:
        self.used = True
        try:
            await self._send.send(SessionMessage(JSONRPCMessage(message), metadata))  # type: ignore[operator]
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            raise internal_error() from None

    # -- messages of the server -------------------------------------------------------------------

    async def take(self, message: Any) -> None:
        """Take a message that the server writes, in the task of its sender."""
        sent, metadata = message.message.root, message.metadata
        self.used = True
        if isinstance(sent, JSONRPCResponse | JSONRPCError):
            self._settle(sent)
            return
        channel = self._channel_of(sent, metadata)
        if isinstance(sent, JSONRPCRequest):
            assert self._tasks is not None  # noqa: S101 - it runs
            self._tasks.start_soon(self._ask, channel, sent)
        elif channel is None:
            self._unclaimed(sent.method, sent.params)
        else:
            await channel.send(sent.method, sent.params)

    def _settle(self, answer: Any) -> None:
        pending = self._pending.get(str(answer.id))
        if pending is None:
            return
        if isinstance(answer, JSONRPCError):
            error = answer.error
            pending.fail(ProtocolError(error.code, error.message, error.data))
        else:
            pending.result = answer.result
            pending.done.set()

    def _channel_of(self, sent: Any, metadata: Any) -> RequestChannel | SessionChannel | None:
        """Return the channel of a message: of its related request, of its progress token, of the task that sends it, or of the session."""
        related = metadata.related_request_id if isinstance(metadata, ServerMessageMetadata) else None
        if related is None and sent.method == PROGRESS:
            token = (sent.params or {}).get("progressToken")
            related = next((number for number, each in self._pending.items() if each.token == token), None)
        if related is None and self._adopts:
            related = _request_of_task()
        pending = None if related is None else self._pending.get(str(related))
        return self.session if pending is None or pending.channel is None else pending.channel

    async def _ask(self, channel: RequestChannel | SessionChannel | None, asked: Any) -> None:
        """Send an input request to the client, and its response to the server."""
        answer: Any
        if channel is None:
            data = ErrorData(code=INVALID_REQUEST, message="no client is behind this connection")
            answer = JSONRPCError(jsonrpc="2.0", id=asked.id, error=data)
        else:
            try:
                result = await channel.ask(asked.method, asked.params)
                answer = JSONRPCResponse(jsonrpc="2.0", id=asked.id, result=result)
            except InputRequestError as error:
                data = ErrorData(code=error.code, message=error.message, data=error.data)
                answer = JSONRPCError(jsonrpc="2.0", id=asked.id, error=data)
        try:
            await self._write(answer)
        except ProtocolError:
            return


def _request_of_task() -> RequestId | None:
    """Return the id of the request in whose task this runs; None outside of any."""
    variable: Any = getattr(lowlevel, "request_ctx", None)  # version 1 alone has it
    context = None if variable is None else variable.get(None)
    return None if context is None else context.request_id


class _Writer:
    """The stream to which a server writes."""

    def __init__(self, pipe: HostedPipe) -> None:
        self._pipe = pipe

    async def send(self, message: Any) -> None:
        """Take a message."""
        await self._pipe.take(message)

    async def aclose(self) -> None:
        """Do nothing: the pipe knows when the server ends."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def _dict(params: Params) -> dict[str, Any] | None:
    return None if params is None else dict(params)
