"""The body of a request while it comes: whoever sends one slowly makes the server keep what has come of it."""

from types import TracebackType
from typing import Self

import trio

from mcpbus.core.admission import Overloaded
from mcpbus.core.budget import Budget
from mcpbus.protocol.large import LARGE_BYTES
from mcpbus.protocol.owners import Peer


class Unfinished:
    """What has come of a body, counted within its block; the block is left where it is among what has to go.

    Args:
        budget: Where it is counted.
        peer: From where it comes.

    Raises:
        Overloaded: On leaving the block: too much is kept in memory, and in this body the most.
    """

    __slots__ = ("_account", "_data", "_line", "_scope")

    def __init__(self, budget: Budget, peer: Peer) -> None:
        self._scope = trio.CancelScope()
        self._line = budget.line
        self._account = budget.account("an unfinished body", self._scope.cancel, owner=peer)
        # Not a list: pieces may have a byte each, and then take forty times as much.
        self._data = bytearray()

    def __enter__(self) -> Self:
        self._scope.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        self._account.close()
        swallowed = self._scope.__exit__(kind, value, traceback)
        if self._scope.cancelled_caught:
            raise Overloaded(
                "Too much is kept in memory, and of what is unfinished this is among the longest; try again later"
            )
        return swallowed

    def __len__(self) -> int:
        return len(self._data)

    def add(self, piece: bytes) -> None:
        """Add what has come."""
        self._data += piece
        self._account.hold(len(piece))

    async def whole(self) -> bytes:
        """Return all of it; if that is much, see `take_turn`."""
        if len(self._data) >= LARGE_BYTES:
            await take_turn(self._line)
        return bytes(self._data)


async def take_turn(line: trio.Lock) -> None:
    """Let others that bring much have their turn first, and everybody else one in between."""
    async with line:
        await trio.lowlevel.checkpoint()
