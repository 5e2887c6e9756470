"""How long it takes to serve what asks for the same, so that answers that are there need not wait for it."""

from typing import Final

import msgspec

GATHER_SECONDS: Final = 0.00025
"""For how long an answer may wait for others, to be written together with them. What takes longer is waited for once, see `Pace`."""

_LONG_SECONDS: Final = 0.001
"""A turn that takes longer than this has what is said in it written before it ends."""

_DOUBTED: Final = 64
_DOUBTED_LONG: Final = 4
"""For how many turns what was slow once is expected to be slow again; and what was long to be long, which it may have been for
the sake of other processes.
"""


class Pace(msgspec.Struct):
    """How long turns take in which the same is asked for. As long as nothing is known of it, it is expected to be slow.

    Attributes:
        slow: For how many turns it is still expected to be slow. If for none, answers that are there wait for it.
        long: The same, of turns so slow that what is said in one does not wait for its end either.
    """

    slow: int = 1
    long: int = 1

    def mark_slow(self) -> None:
        """Expect the next turn to be slow, since this one seemed to be, perhaps for the sake of other processes."""
        self.slow = max(1, self.slow)

    def took(self, seconds: float) -> None:
        """Note how long a turn took."""
        self.slow = _DOUBTED if seconds > GATHER_SECONDS else max(0, self.slow - 1)
        self.long = _DOUBTED_LONG if seconds > _LONG_SECONDS else max(0, self.long - 1)
