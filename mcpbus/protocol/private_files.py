"""Files that can hold secrets: the owner alone may read them, and they are replaced as a whole.

Client configuration files hold tokens in ``env`` and ``headers``, login files hold refresh tokens, and event and task stores hold
results. `replace` writes all of the first two, `create` begins the others.
"""

import errno
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

try:
    import fcntl
except ImportError:  # as on Windows, where the last program to write wins
    fcntl = None  # type: ignore[assignment]

PRIVATE: Final = stat.S_IRUSR | stat.S_IWUSR
"""Mode 0600."""

_LOOK_SECONDS: Final = 0.02
_MOST_SECONDS: Final = 10.0
"""Until a lock of another program is an error."""
_NO_LOCKS: Final = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS}
"""The file system has no locks."""


def replace(file: Path, data: bytes, *, mode: int = PRIVATE) -> None:
    """Replace the contents of a file, or make it. At any moment, also after a power failure, it has its old or its new contents.

    Args:
        file: The file. A link is replaced, not the file that it leads to.
        data: The contents.
        mode: The mode of the file.

    Raises:
        OSError: The file cannot be written. It is as it was.
    """
    handle, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    written = Path(name)
    try:
        with open(handle, "wb") as stream:  # noqa: PTH123 - it is open already
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        if mode != PRIVATE:
            written.chmod(mode)
        written.replace(file)
    except BaseException:
        written.unlink(missing_ok=True)
        raise


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other programs that call this function from changing files of a folder within the block. The lock leaves no file behind.

    Raises:
        OSError: The folder is not there, or another program has held the lock for 10 s.
    """
    if fcntl is None:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        until = time.monotonic() + _MOST_SECONDS
        while not _lock(handle):
            if time.monotonic() >= until:
                raise TimeoutError(
                    errno.ETIMEDOUT, f"another program has locked its folder for {_MOST_SECONDS:g} s"
                )
            time.sleep(_LOOK_SECONDS)
        yield
    finally:
        os.close(handle)


def create(path: str | os.PathLike[str]) -> None:
    """Make an empty file with mode 0600 if it is not there yet. If it is, and is this user's, take the rights of all others.

    A file that is there is not opened: to close it would end the locks that SQLite in this process has on it (POSIX, fcntl).

    Raises:
        OSError: The file cannot be made.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, PRIVATE))
        return
    restrict(path)


def restrict(path: str | os.PathLike[str]) -> None:
    """Take the rights of all others from a file, if it is there and is this user's.

    Raises:
        OSError: The mode cannot be changed.
    """
    with suppress(FileNotFoundError):
        found = os.stat(path)  # noqa: PTH116 - it may be a text
        if stat.S_ISREG(found.st_mode) and found.st_mode & 0o077 and found.st_uid == _user():
            os.chmod(path, found.st_mode & 0o700)  # noqa: PTH101


def _user() -> int:
    return os.geteuid() if hasattr(os, "geteuid") else 0


def _lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        return error.errno in _NO_LOCKS
    return True
