"""How many things of one kind a bus has open, such as streams."""

import trio


class ActiveCounter:
    """How many are open, for whoever waits until the last one has done what it had to."""

    __slots__ = ("_count", "_none")

    def __init__(self) -> None:
        self._count = 0
        self._none: trio.Event | None = None

    def __len__(self) -> int:
        return self._count

    def opened(self) -> None:
        """Count one."""
        self._count += 1

    def ended(self) -> None:
        """Count one no longer."""
        self._count -= 1
        if not self._count and self._none is not None:
            self._none.set()

    async def wait_none(self) -> None:
        """Wait until none is open."""
        while self._count:
            if self._none is None:
                self._none = trio.Event()
            await self._none.wait()
            self._none = None
