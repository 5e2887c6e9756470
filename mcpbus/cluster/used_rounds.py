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
        """See `ClusterDirectory.use_round`."""
        self._folder.mkdir(exist_ok=True)
        if time.monotonic() - self._swept > _SWEEP_SECONDS:
            self._sweep()
        place = self._folder / name
        try:
            # By the clock of the day, which its state goes by, and by one that nobody sets forward, and then back.
            place.symlink_to(f"{user} {time.time() + seconds} {time.monotonic() + seconds}")
        except FileExistsError:
            return _read(place)[0] == user
        return True

    def _sweep(self) -> None:
        """Forget those that nobody can bring back any more."""
        now, self._swept = time.time(), time.monotonic()
        for place in self._folder.iterdir():
            with suppress(FileNotFoundError):  # others sweep as well
                _, until, lasting_until = _read(place)
                if until < now and lasting_until < self._swept:
                    place.unlink()


def _read(place: Path) -> tuple[str, float, float]:
    user, until, lasting_until = str(place.readlink()).split()
    return user, float(until), float(lasting_until)
