"""The sockets that are listened on."""

import errno
import os
import socket
import stat
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from mcpbus.serving.errors import CannotListenError
from mcpbus.serving.options import ServeOptions

_ALONE_SECONDS: Final = 1.0
"""For which a Unix socket is kept from others who begin at the same moment; that takes them less than a thousandth."""
_AGAIN_SECONDS: Final = 0.005


@contextmanager
def listening(options: ServeOptions) -> Generator[list[socket.socket]]:
    """Listen on every address of the options while the block lasts.

    Clients may connect from here on; the kernel keeps them until they are accepted.

    Raises:
        CannotListenError: An address cannot be listened on; none is then.
    """
    sockets: list[socket.socket] = []
    try:
        for bind in options.bind:
            try:
                sockets.append(_listen(bind, options.backlog))
            except OSError as error:
                # What Python adds to it is the address once more.
                reason = str(error.strerror or error).partition(" (while attempting")[0]
                raise CannotListenError(f"cannot listen on {bind}: {reason}") from error
        yield sockets
    finally:
        for sock in sockets:
            sock.close()


def url_of(sock: socket.socket, *, secure: bool) -> str:
    """Where a listening socket is reached; for a Unix socket `unix:PATH`."""
    address = sock.getsockname()
    if sock.family not in {socket.AF_INET, socket.AF_INET6}:
        return f"unix:{address}"
    host = f"[{address[0]}]" if sock.family == socket.AF_INET6 else address[0]
    return f"{'https' if secure else 'http'}://{host}:{address[1]}"


def _listen(bind: str, backlog: int) -> socket.socket:
    if bind.startswith("fd://"):
        sock = socket.socket(fileno=int(bind.removeprefix("fd://")))
        with _closed_on_failure(sock):
            sock.listen(backlog)
        return sock
    if bind.startswith("unix:"):
        return _listen_unix(Path(bind.removeprefix("unix:")), backlog)
    host, _, port = bind.rpartition(":")
    family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
    return socket.create_server((host.strip("[]"), int(port)), family=family, backlog=backlog)


def _listen_unix(path: Path, backlog: int) -> socket.socket:
    if not hasattr(socket, "AF_UNIX"):
        raise OSError("there are no Unix sockets on this system: bind to 127.0.0.1:8000, say")
    with _alone_in(path.parent):
        with suppress(FileNotFoundError):
            if stat.S_ISSOCK(path.stat().st_mode):
                if _is_listened_on(path):
                    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
                path.unlink()  # of a process that has ended: a socket's file outlives it
        sock = socket.socket(socket.AF_UNIX)
        with _closed_on_failure(sock):
            sock.bind(str(path))
            sock.listen(backlog)
    return sock


@contextmanager
def _alone_in(folder: Path) -> Generator[None]:
    """Keep others of us from a folder during the block: of two who find the same socket left behind, each would remove the other one's.

    The folder itself is locked, so that no file stays behind. Whoever may read it can lock it for ever, and there are folders that
    cannot be locked, such as on NFS, or that one may write but not read. None of that keeps a server from its start.
    """
    import fcntl  # noqa: PLC0415 - where there are no Unix sockets there is none

    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:  # whether it is there at all is seen when it is used
        yield
        return
    try:
        until = time.monotonic() + _ALONE_SECONDS
        with suppress(OSError):
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= until:
                        break
                    time.sleep(_AGAIN_SECONDS)
        yield
    finally:
        os.close(lock)


def _is_listened_on(path: Path) -> bool:
    """Whether somebody listens on a Unix socket: whoever takes its place takes its clients, and that one does not notice.

    Raises:
        OSError: That cannot be known, such as of another user's.
    """
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)  # it may have as many that wait for it as there may be
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except BlockingIOError:
            return True
    return True


@contextmanager
def _closed_on_failure(sock: socket.socket) -> Generator[None]:
    try:
        yield
    except OSError:
        sock.close()
        raise
