"""The body of a request while it comes: whoever sends one slowly makes the server keep what has come of it."""

from collections.abc import Awaitable, Callable
from typing import Final

import trio

from mcpbus.core.admission import ServerOverloaded
from mcpbus.core.limits import MinDataRate
from mcpbus.core.memory_budget import MemoryBudget
from mcpbus.protocol.large import LARGE_BYTES
from mcpbus.protocol.principals import Peer

LAST_LOOK_SECONDS: Final = 0.1
"""For whoever reads a connection, past the time for what is to come on it: it may be there, and nobody has looked, as when the process was stopped."""


def last_look(until: float) -> trio.CancelScope:
    """Bound a last wait for what was to come until then: to a moment if that is noticed late, and otherwise to no time.

    Whoever sends a byte in each such moment would have as many of them.
    """
    late = trio.current_time() - until > LAST_LOOK_SECONDS
    return trio.move_on_after(LAST_LOOK_SECONDS if late else 0)


async def read_unfinished(
    begun: bytes,
    more: Callable[[float], Awaitable[tuple[bytes, bool]]],
    *,
    limit: int,
    rate: MinDataRate,
    until: float,
    budget: MemoryBudget,
    peer: Peer,
    ended: bool = False,
) -> bytes | None:
    """Read the rest of a body, which is counted while it comes, and may be given up as what is left among all that has to go.

    Args:
        begun: What has come of it.
        more: Waits until so late, by trio's clock, for a piece; returns it, and whether it was the last one.
        limit: How many bytes it may have.
        rate: How fast it has to come.
        until: How long to wait for the next piece.
        budget: Where it is counted.
        peer: From where it comes.
        ended: Whether `begun` is all of it.

    Returns:
        All of it, if that is much after others that bring much; None if it is longer than it may be.

    Raises:
        ServerOverloaded: Too much is kept in memory, and in this body the most.
    """
    # Not a list: pieces may have a byte each, and then take forty times as much.
    data = bytearray(begun)
    with trio.CancelScope() as scope:
        account = budget.account("an unfinished body", scope.cancel, owner=peer)
        try:
            account.hold(len(data))
            while not ended and len(data) <= limit:
                piece, ended = await more(until)
                until = rate.next_read(until, trio.current_time(), len(piece))
                data += piece
                account.hold(len(piece))
            if len(data) > limit:
                return None
            if len(data) >= LARGE_BYTES:
                await budget.take_turn()
            return bytes(data)
        finally:
            account.close()
    raise ServerOverloaded(
        "Too much is kept in memory, and of what is unfinished this is among the longest; try again later"
    )
