"""The folder that workers have in common, and what is done of those that killed programs have left behind."""

import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import attrs

_PREFIX: Final = "mcpbus-workers-"
_PARTS: Final = ["links", "sessions"]


@attrs.frozen
class WorkerFolder:
    """The folder.

    Attributes:
        path: Where it is.
        lock: A descriptor of it. Nobody cleans it up as long as any process has that: neither systemd-tmpfiles, however old
            it is, nor a program that is started later.
        links: Where workers listen for each other.
        sessions: Where they keep their sessions.
    """

    path: Path
    lock: int

    @property
    def links(self) -> Path:
        """See the class."""
        return self.path / _PARTS[0]

    @property
    def sessions(self) -> Path:
        """See the class."""
        return self.path / _PARTS[1]

    def mend(self) -> bool:
        """Make anew what somebody has removed of it; returns whether anything was.

        Raises:
            OSError: It cannot be made; something else may be in its place.
        """
        if not self._is_in_place():
            self._make_anew()
        elif self.links.is_dir() and self.sessions.is_dir():
            return False
        self.make_parts()
        return True

    def _is_in_place(self) -> bool:
        """Whether it is there: where everybody may have a folder, somebody else may make one of its name once it is gone."""
        try:
            found = self.path.lstat()
        except FileNotFoundError:
            return False
        return os.path.samestat(os.fstat(self.lock), found)

    def _make_anew(self) -> None:
        try:
            self.path.mkdir(mode=stat.S_IRWXU)
        except FileExistsError:
            raise FileExistsError(errno.EEXIST, "something else is in its place") from None
        try:
            lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:  # another time, there may be a descriptor for it
            self.path.rmdir()
            raise
        try:
            _lock(lock)
            os.dup2(lock, self.lock, inheritable=False)
        finally:
            os.close(lock)

    def make_parts(self) -> None:
        """Make what is in it."""
        for part in (self.links, self.sessions):
            part.mkdir(exist_ok=True)

    def remove(self) -> None:
        """Remove it; harmless where it is gone, or something else is in its place."""
        with suppress(OSError):
            if self._is_in_place():
                shutil.rmtree(self.path, ignore_errors=True)


@contextmanager
def worker_folder() -> Iterator[WorkerFolder]:
    """Make one, which only this user may read, and remove it in the end; and those first whose programs were killed."""
    _sweep()
    path = Path(tempfile.mkdtemp(prefix=_PREFIX))
    lock = os.open(path, os.O_RDONLY)
    folder = WorkerFolder(path, lock)
    try:
        _lock(lock)
        # Only a folder with these is swept. They are made when it is locked, so that one is not swept that begins.
        folder.make_parts()
        yield folder
    finally:
        folder.remove()
        os.close(lock)


def _lock(folder: int) -> None:
    import fcntl  # noqa: PLC0415 - where there are no Unix sockets there is none

    fcntl.flock(folder, fcntl.LOCK_EX)


def _sweep() -> None:
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):  # it is locked, somebody else's, no folder, or gone meanwhile
            _remove_if_left(path)


def _remove_if_left(path: Path) -> None:
    import fcntl  # noqa: PLC0415 - as above

    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        found = os.fstat(folder)
        ours = found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) == stat.S_IRWXU
        if ours and sorted(part.name for part in path.iterdir()) == _PARTS:
            shutil.rmtree(path)
    finally:
        os.close(folder)
