"""How much a client may send that costs us something and asks for nothing."""

from collections.abc import Callable
from typing import Final

from mcpbus.serving.http2.errors import AbuseFault

BURST: Final = 1000
"""What a client has at first, and at most."""

RATE: Final = 100
"""What it is given each second."""


class TokenBucket:
    """A budget for what is cheap to send and not to take: resets, pings, settings, windows, malformed requests.

    Each such frame spends some of it (RFC 9113, section 10.5). Time gives it back, and so do answers that the
    client's windows have room for, so that one who reads a lot may say so as often as it likes, and one who only says so may not.

    Args:
        clock: Tells the time in seconds. It is only asked when the budget is used up; so after a pause a client may
            spend the budget twice.
    """

    __slots__ = ("_clock", "_left", "_since")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since = clock()
        self._left = float(BURST)

    def spend(self, amount: float) -> None:
        """Take something that asked for nothing.

        Raises:
            AbuseFault: There was too much of it.
        """
        self._left -= amount
        if self._left < 0:
            now = self._clock()
            self._left = min(BURST, self._left + (now - self._since) * RATE)
            self._since = now
            if self._left < 0:
                raise AbuseFault("it sent too many frames that ask for nothing")

    def earn(self, amount: int) -> None:
        """Note that the client had room for something that it has asked for."""
        self._left = min(BURST, self._left + amount)
