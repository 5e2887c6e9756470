"""Something that many want looked up anew at once, and that is looked up once for all of them."""

from collections.abc import Awaitable, Callable

import trio


class SingleFlight:
    """Looks something up for all who have found that what they knew is out of date.

    Args:
        look_up: Looks it up. What it raises, only who had it do so gets; the next one looks it up again.

    Attributes:
        begun: How often that has begun.
    """

    __slots__ = ("_ended", "_look_up", "_turn", "begun")

    def __init__(self, look_up: Callable[[], Awaitable[object]]) -> None:
        self._look_up = look_up
        self._turn = trio.Lock()
        self._ended = 0
        self.begun = 0

    async def do(self, known: int) -> None:
        """Return when it was looked up, by whomever.

        Args:
            known: What `begun` was when what is out of date was used: a look-up that was under way then may have come too early.
        """
        async with self._turn:
            if self._ended <= known:
                self.begun += 1
                await self._look_up()
                self._ended = self.begun
