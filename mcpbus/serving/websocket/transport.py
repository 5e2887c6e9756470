"""What carries a WebSocket: the bytes of a connection that was upgraded, and its time."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import trio

from mcpbus.serving.reactor import Turn
from mcpbus.transports.response_sinks import CoalescedWriter


class WebSocketTransport(Protocol):
    """Carries one WebSocket. Tells its `KeepAliveHandler` when time is over, see `quiet_for`, and when it is lost."""

    # -- what comes ------------------------------------------------------------------------------

    def watch(self, turn: Turn, /) -> bool:
        """Have a turn taken whenever something has come, and return True; if that cannot be, return False."""

    def forget(self) -> None:
        """Have no turn taken any more."""

    @property
    def scope(self) -> trio.CancelScope:
        """Encloses the task that takes the turn which is under way."""

    def receive_now(self) -> bytes | None:
        """In a turn: what has come; None if it is not there after all, and nothing once the client has gone. No schedule point."""

    async def receive(self) -> bytes:
        """Wait for what the client sends; nothing once it has gone, or the connection was closed."""

    # -- what is said ----------------------------------------------------------------------------

    @property
    def in_turn(self) -> bool:
        """Whether a turn is under way, of this connection or of another one."""

    def write_later(self, writer: CoalescedWriter, /) -> None:
        """Have somebody write together with what others say in this turn, or else in this turn of the scheduler."""

    def send_now(self, data: bytes, /) -> bytes | None:
        """Send what the client takes at once, and return the rest; None if it has gone. No schedule point."""

    async def send(self, data: bytes, /) -> bool:
        """Send all of it, and return whether the client was there. If that is cancelled, nothing more can be said."""

    # -- time, and the end -----------------------------------------------------------------------

    def quiet_for(self, seconds: float, /) -> None:
        """Let the connection be quiet for so many seconds from now on; then its speaker is told once."""

    def start(self, function: Callable[..., Awaitable[object]], /, *args: Any) -> None:
        """Run a task of the connection's; what it raises ends the connection."""

    def fail(self, failure: BaseException, /) -> None:
        """Report a failure of ours, and end the connection. No schedule point."""

    def close(self) -> None:
        """End the connection. Harmless once that was done. No schedule point."""
