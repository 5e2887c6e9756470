"""The sockets on which a server listens, alone or with other processes, and their encryption."""

import errno
import os
import socket
import ssl
import stat
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from mmap import mmap
from pathlib import Path
from typing import Final

import attrs
import trio

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


_AHEAD: Final = 2
_WAIT_SECONDS: Final = 0.0005
_MOST_WAITS: Final = 5
COUNT_BYTES: Final = 4
ABSENT: Final = 2**32 - 1
"""The count of a process that has ended."""


class ConnectionCounts:
    """How many connections each of several processes has, in memory that they share.

    The kernel gives a connection to whichever process takes it first, and of many that come at once that is one for all. So
    who has more than others waits for a moment, and lets them.

    Args:
        memory: A count of four bytes for each process.
        number: Which of them is this one's.

    Attributes:
        number: The same.
    """

    def __init__(self, memory: mmap, number: int) -> None:
        self._counts = memoryview(memory).cast("I")
        self.number = number
        self.note(0)

    def note(self, connections: int) -> None:
        """Note how many connections there are here."""
        self._counts[self.number] = connections

    @property
    def is_ahead(self) -> bool:
        """Whether there are more connections here than elsewhere."""
        return self._counts[self.number] > min(self._counts) + _AHEAD

    async def give_way(self) -> None:
        """Wait for a moment if there are more connections here than elsewhere."""
        for _ in range(_MOST_WAITS):
            if not self.is_ahead:
                return
            await trio.sleep(_WAIT_SECONDS)


@attrs.frozen
class SharedSockets:
    """What is shared with other processes that serve.

    Attributes:
        sockets: They listen already.
        board: Who has how many connections.
    """

    sockets: Sequence[socket.socket]
    board: ConnectionCounts


_PROTOCOLS: Final = ["h2", "http/1.1"]
_CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Of TLS 1.2, those that HTTP/2 admits (RFC 9113, appendix A)."""

_CERTIFICATE: Final = b"CERTIFICATE-----"
_KEY: Final = b"PRIVATE KEY-----"
_EXAMPLES: Final = {
    _CERTIFICATE: "-----BEGIN CERTIFICATE-----",
    _KEY: "-----BEGIN PRIVATE KEY-----",
}


def make_ssl_context(options: ServeOptions) -> ssl.SSLContext | None:
    """Return how connections are encrypted; None if they are not.

    Raises:
        CannotListenError: A file cannot be used.
    """
    if options.certfile is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A client of TLS 1.2 could ask for a handshake again and again, each of which takes a millisecond.
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.set_ciphers(_CIPHERS)
    context.set_alpn_protocols(_PROTOCOLS)
    certfile, keyfile = Path(options.certfile), Path(options.keyfile or options.certfile)
    try:
        context.load_cert_chain(certfile, keyfile, password=_forbid_password)
    except (OSError, _PasswordNeededError) as error:
        raise CannotListenError(_explain(certfile, keyfile, error)) from error
    if options.ca_certs is not None:
        _require_certificates(context, Path(options.ca_certs))
    return context


def _require_certificates(context: ssl.SSLContext, file: Path) -> None:
    """Require a certificate of one of these authorities from each client."""
    try:
        context.load_verify_locations(file)
    except ssl.SSLError as error:
        raise CannotListenError(
            f"there is no certificate of an authority in {file}: write it in PEM, with a line such as {_EXAMPLES[_CERTIFICATE]}"
        ) from error
    except OSError as error:
        raise CannotListenError(
            f"cannot read the certificates of authorities {file}: {error.strerror or error}"
        ) from error
    context.verify_mode = ssl.CERT_REQUIRED


class _PasswordNeededError(Exception):
    """A key is encrypted; OpenSSL would ask for the password on the terminal, and wait."""


def _forbid_password() -> str:
    raise _PasswordNeededError


def _explain(certfile: Path, keyfile: Path, error: Exception) -> str:
    """Say which file is not as it must be, and what is wrong with it: OpenSSL's own words are about its code."""
    for path, mark, words in ((certfile, _CERTIFICATE, "certificate"), (keyfile, _KEY, "private key")):
        try:
            text = path.read_bytes()
        except OSError as unreadable:
            return f"cannot read the {words} {path}: {unreadable.strerror or unreadable}"
        if mark not in text:
            return f"there is no {words} in {path}: it is to be in PEM, text with a line such as {_EXAMPLES[mark]}"
    if isinstance(error, _PasswordNeededError):
        return (
            f"the private key in {keyfile} is encrypted, and nobody can be asked for its password: write it to a file without one, "
            f"with openssl pkey -in {keyfile} -out FILE"
        )
    if isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH":
        return f"the private key in {keyfile} is not that of the first certificate in {certfile}"
    return f"cannot use the certificate in {certfile} with the private key in {keyfile}: {error}"
