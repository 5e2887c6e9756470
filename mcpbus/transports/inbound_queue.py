"""What the client of a shared channel sends, taken in its order by a `Leader`, or in turns of its connection.

What waits for nothing is taken in a row. The rest is left to a task: to wait for room for what the client does not read, for others
that bring much, and between the parts of an array.
"""

from collections.abc import Callable

import trio
from mcpbus_actors import EagerTask

from mcpbus.core.memory_budget import MemoryBudget
from mcpbus.protocol.jsonrpc import is_batch
from mcpbus.protocol.large import LARGE_BYTES
from mcpbus.transports.duplex import IN_A_ROW, DuplexChannel


class InboundQueue:
    """Takes the messages of one client.

    Args:
        channel: Where to.
        budget: In whose line those wait who bring much.
        following: Returns the message that has come after the one that was returned last; None if there is none.

    Attributes:
        next: The message that is taken next; None if none is there.
    """

    __slots__ = ("_budget", "_channel", "_following", "_over", "_row_ended", "next")

    def __init__(
        self, channel: DuplexChannel, budget: MemoryBudget, following: Callable[[], bytes | None]
    ) -> None:
        self._channel = channel
        self._budget = budget
        self._following = following
        self._row_ended = False
        self._over = False
        self.next: bytes | None = None

    def advance(self) -> None:
        """Look for the next message. Once nothing more is taken there is none: the last one has ended the connection, perhaps."""
        following = self._following()
        self.next = None if self._over else following

    def take(self, scope: trio.CancelScope) -> EagerTask | None:
        """Take messages until there is none, a handler waits, which is returned, or something has to be waited for."""
        for _ in range(IN_A_ROW):
            message = self.next
            if (
                message is None
                or self._channel.above_high_water
                or self._channel.registering
                or _is_apart(message)
            ):
                return None
            eager = self._channel.take_now(message, scope)
            self.advance()
            if eager is not None:
                return eager
        self._row_ended = True
        return None

    async def wait_ready(self) -> None:
        """Wait until the next message can be taken in a row; what cannot be is taken here. There may be none then."""
        if self._channel.registering and self.next is not None:
            await self._channel.session.until_registered()
        while self._channel.above_high_water:
            await self._channel.wait_writable()
        apart = self.next is not None and _is_apart(self.next)
        if apart or self._row_ended:
            self._row_ended = False
            await trio.lowlevel.checkpoint()
        if apart and self.next is not None:
            await self._take_apart(self.next)

    async def _take_apart(self, message: bytes) -> None:
        """Take a message that is long, or an array: others that bring much have their turn first, or its parts wait for room."""
        if len(message) >= LARGE_BYTES:
            await self._budget.take_turn()
        if not self._over:
            await self._channel.take(message)
        self.advance()

    def end(self) -> None:
        """Take nothing more; from now on none is following."""
        self._over = True
        self.next = None


def _is_apart(message: bytes) -> bool:
    """Whether a message may have to be waited for: a long one, or an array."""
    return len(message) >= LARGE_BYTES or is_batch(message)
