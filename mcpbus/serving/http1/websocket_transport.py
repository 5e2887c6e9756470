"""An HTTP/1.1 connection that was upgraded, and carries a WebSocket from then on."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import trio
from mcpbus_actors import EagerTask

from mcpbus.core.fairness import Pace
from mcpbus.protocol.http.messages import RequestHead
from mcpbus.serving.http1.request import Http1RequestConnection
from mcpbus.serving.reactor import Turn
from mcpbus.transports.response_sinks import CoalescedWriter


class Http1WebSocketTransport:
    """A `WebSocketTransport`.

    Args:
        connection: The connection.
        head: The request to upgrade.
    """

    __slots__ = ("_connection", "_head", "_pace", "_reactor", "_wire")

    def __init__(self, connection: Http1RequestConnection, head: RequestHead) -> None:
        self._connection = connection
        self._wire = connection.wire
        self._reactor = connection.reactor
        self._pace = Pace()
        self._head = head

    def watch(self, turn: Turn) -> bool:
        """See `WebSocketTransport`."""
        return self._connection.readiness.watch(partial(self._take, turn))

    def _take(self, turn: Turn) -> EagerTask | None:
        """Take a turn."""
        reactor = self._reactor
        reactor.pace = self._pace
        if self._pace.slow:
            reactor.write_first()
        try:
            return turn()
        except Exception as failure:  # noqa: BLE001 - there is no memory, and the other connections are not to blame
            self.fail(failure)
            return None

    def forget(self) -> None:
        """See `WebSocketTransport`."""
        self._connection.readiness.forget()

    @property
    def scope(self) -> trio.CancelScope:
        """See `WebSocketTransport`."""
        return self._reactor.scope

    def receive_now(self) -> bytes | None:
        """See `WebSocketTransport`."""
        return self._wire.receive_now()

    async def receive(self) -> bytes:
        """See `WebSocketTransport`."""
        return await self._wire.receive() or b""

    @property
    def in_turn(self) -> bool:
        """See `WebSocketTransport`."""
        return self._connection.service.coalescer.in_turn

    def write_later(self, writer: CoalescedWriter) -> None:
        """See `WebSocketTransport`."""
        self._connection.service.coalescer.add_in_turn(writer)

    def send_now(self, data: bytes) -> bytes | None:
        """See `WebSocketTransport`."""
        return self._wire.send_now(data)

    async def send(self, data: bytes) -> bool:
        """See `WebSocketTransport`."""
        await self._wire.send(data)
        return not self._wire.gone

    def quiet_for(self, seconds: float) -> None:
        """See `WebSocketTransport`."""
        self._wire.quiet_for(seconds)

    def start(self, function: Callable[..., Awaitable[object]], /, *args: Any) -> None:
        """See `WebSocketTransport`."""
        self._connection.start(function, *args)

    def fail(self, failure: BaseException) -> None:
        """See `WebSocketTransport`."""
        self._connection.fail(failure, self._head)

    def close(self) -> None:
        """See `WebSocketTransport`."""
        self._connection.close()
