"""For how long the processes of a directory have been gone."""

from collections.abc import Collection

import trio


class DeadNodes:
    """Tells of processes that have ended long ago."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def left(self, gone: Collection[str], seconds: float) -> list[str]:
        """Return which of the processes that are not there were not there for so many seconds.

        Args:
            gone: Those that are not there now; another one is there again, or nothing is kept of it.
            seconds: For how long.
        """
        now = trio.current_time()
        self._since = {home: self._since.get(home, now) for home in gone}
        return [home for home, since in self._since.items() if now - since >= seconds]
