"""The rounds of calls that were used, as links in a folder that point nowhere: each is there at once with all that it says, or not."""

import time
from contextlib import suppress
from pathlib import Path
from typing import Final

_SWEEP_SECONDS: Final = 60.0


class UsedRounds:
    """The rounds that processes of one machine have used.

    Args:
        folder: Where they are.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._swept = time.monotonic()

    def use(self, name: str, user: str, seconds: float) -> bool:
        """See `Directory.use_round`."""
        self._folder.mkdir(exist_ok=True)
        if time.monotonic() - self._swept > _SWEEP_SECONDS:
            self._sweep()
        place = self._folder / name
        try:
            place.symlink_to(f"{user} {time.time() + seconds}")
        except FileExistsError:
            return _read(place)[0] == user
        return True

    def _sweep(self) -> None:
        """Forget those that nobody can bring back any more."""
        self._swept, now = time.monotonic(), time.time()
        for place in self._folder.iterdir():
            with suppress(FileNotFoundError):  # others sweep as well
                if _read(place)[1] < now:
                    place.unlink()


def _read(place: Path) -> tuple[str, float]:
    user, until = str(place.readlink()).split()
    return user, float(until)
