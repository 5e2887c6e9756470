"""Where logins are kept between requests, connections and programs, each by the URI of its server.

Logins in files, for programs that come and go, and for several of them at once.
"""

import logging
import os
import shlex
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import urlsplit

import trio

from mcpbus.client.errors import redact_url
from mcpbus.client.oauth.errors import LoginError
from mcpbus.protocol.keywords import explained
from mcpbus.protocol.private_files import PRIVATE, replace
from mcpbus.protocol.validators import check_text


class TokenStorage(Protocol):
    """Keeps logins, and lets one at a time of all who share it see to one of them.

    What is kept holds secrets: whoever can read it is logged in.
    """

    async def load(self, server: str) -> bytes | None:
        """Return what is kept of the login at a server; None if nothing is.

        Args:
            server: Its URI.
        """

    async def save(self, server: str, login: bytes | None) -> None:
        """Keep a login instead of the last one; None to forget it."""

    def lock(self, server: str) -> AbstractAsyncContextManager[None]:
        """Wait until nobody else sees to the login at a server, and have nobody do so as long as the block lasts.

        Who logs in, or renews a token, does so in there: of two who did at once, one would get nothing, or lose what the other has.
        """


def by_command(verb: str, server: str, store: TokenStorage | None) -> str:
    """Return the command that logs in, or out, at a server with the logins of a store.

    Args:
        verb: ``login`` or ``logout``.
        server: What may be told of the server's URL.
        store: Keeps the logins.
    """
    account = getattr(store, "account", None)
    return f"mcpbus {verb} {server}" + ("" if account is None else f" --as {shlex.quote(account)}")


@explained
class MemoryTokenStorage:
    """Keeps logins as long as the program runs. One is for all connections that are given it, in one run of trio at a time."""

    def __init__(self) -> None:
        self._logins: dict[str, bytes] = {}
        self._turns: dict[str, trio.Lock] = {}

    async def load(self, server: str) -> bytes | None:
        """See `TokenStorage.load`."""
        await trio.lowlevel.checkpoint()
        return self._logins.get(server)

    async def save(self, server: str, login: bytes | None) -> None:
        """See `TokenStorage.save`."""
        if login is None:
            self._logins.pop(server, None)
        else:
            self._logins[server] = login
        await trio.lowlevel.checkpoint()

    @asynccontextmanager
    async def lock(self, server: str) -> AsyncIterator[None]:
        """See `TokenStorage.lock`."""
        async with self._turns.setdefault(server, trio.Lock()):
            yield

    def __repr__(self) -> str:
        return f"<MemoryTokenStorage of {len(self._logins)} logins>"


try:
    import fcntl
except ImportError:  # as on Windows, where one program at a time has a login
    fcntl = None  # type: ignore[assignment]

_log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 0.1
"""How often to see whether another program has let go of a login."""
_PATIENCE_SECONDS: Final = 2.0
"""After how long it is told that one is waited for: somebody may be logging in there."""
_MOST_SECONDS: Final = 900.0
"""After how long one is waited for no more: it may have been stopped."""
_LONGEST_NAME: Final = 100
"""Letters that the name of an account may have."""


@explained
class FileTokenStorage:
    """Keeps logins in a folder that nobody else may read, one file each.

    Programs that share the folder see to one login after the other, and each uses what another one has got.

    Args:
        folder: The folder; if left out, `default_folder`, which the command line uses.
        account: A name, for a user with several accounts at one server. Logins of another name, or without one, are none of its.

    Raises:
        TypeError: One is of another type.
        ValueError: The name is none.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None, *, account: str | None = None) -> None:
        if folder is not None and not isinstance(folder, str | os.PathLike):
            raise TypeError(f"FileTokenStorage: folder is a text or a path, not {folder!r}")
        if account is not None:
            check_text("FileTokenStorage", account=account)
            if not account.strip() or len(account) > _LONGEST_NAME or not account.isprintable():
                raise ValueError(
                    f"FileTokenStorage: account is a name of 1 to {_LONGEST_NAME} letters, such as 'work', not {account!r}"
                )
        self.folder = default_folder() if folder is None else Path(folder)
        self.account = account
        self._turns: dict[str, trio.Lock] = {}

    async def load(self, server: str) -> bytes | None:
        """See `TokenStorage.load`.

        Raises:
            LoginError: It cannot be read.
        """
        await trio.lowlevel.checkpoint()
        try:
            self._check_folder()
            return self._file(server).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._failure("read", error) from None

    async def save(self, server: str, login: bytes | None) -> None:
        """See `TokenStorage.save`. Whatever happens, the file has one of the two.

        Raises:
            LoginError: It cannot be written.
        """
        await trio.lowlevel.checkpoint()
        file = self._file(server)
        try:
            if login is None:
                # What a program has left that ended in the middle of writing, holds secrets, too.
                for each in (file, *self.folder.glob(f".{file.name}.*")):
                    each.unlink(missing_ok=True)
            else:
                self._make_folder()
                replace(file, login)
        except OSError as error:
            raise self._failure("kept", error) from None

    @asynccontextmanager
    async def lock(self, server: str) -> AsyncIterator[None]:
        """See `TokenStorage.lock`. Another program that ends lets go of it, however it ends.

        Raises:
            LoginError: Nothing can be written there.
        """
        async with self._turns.setdefault(server, trio.Lock()):
            try:
                self._make_folder()
                # It stays when nobody has it: were it removed, two could have locked two of that name.
                handle = os.open(self._file(server).with_suffix(".lock"), os.O_RDWR | os.O_CREAT, PRIVATE)
            except OSError as error:
                raise self._failure("kept", error) from None
            try:
                await self._lock(handle, redact_url(server))
                yield
            finally:
                os.close(handle)

    async def _lock(self, handle: int, server: str) -> None:
        begun, is_told = trio.current_time(), False
        while not self._locked(handle):
            await trio.sleep(_LOOK_SECONDS)  # another program tells nobody
            waited = trio.current_time() - begun
            if waited >= _PATIENCE_SECONDS and not is_told:
                is_told = True
                _log.warning("another program sees to the login at %s, and is waited for", server)
            if waited >= _MOST_SECONDS:
                raise LoginError(
                    f"another program has seen to the login at {server} for {waited:.0f} s, and may have been stopped: end it"
                )

    def _locked(self, handle: int) -> bool:
        """Lock a file, unless somebody else has."""
        if fcntl is None:
            return True
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            raise self._failure("seen to", error) from None
        return True

    def _make_folder(self) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._check_folder()

    def _check_folder(self) -> None:
        """Refuse a folder where somebody else could put what is believed.

        Raises:
            LoginError: It is one.
            OSError: There is none.
        """
        if sys.platform != "win32" and self.folder.stat().st_mode & stat.S_IWOTH:
            raise LoginError(
                f"everybody may write into {self.folder}, where logins are kept: chmod o-w, or use another folder"
            )

    def _file(self, server: str) -> Path:
        # Its beginning is for people who look for it; what is unlike in two URIs may be alike in what files may be called.
        host = "".join(each if each.isalnum() or each in "-." else "_" for each in urlsplit(server).netloc)
        # No URI has a space, so none of a server with a name is that of another server.
        known = server if self.account is None else f"{server} {self.account}"
        return self.folder / f"{host[:80]}-{sha256(known.encode()).hexdigest()[:16]}.json"

    def _failure(self, done: str, error: OSError) -> LoginError:
        return LoginError(f"logins cannot be {done} in {self.folder}: {error.strerror or error}")

    def __repr__(self) -> str:
        account = "" if self.account is None else f", account={self.account!r}"
        return f"FileTokenStorage({str(self.folder)!r}{account})"


def default_folder() -> Path:
    """Return where logins are: in the user's configuration folder, as the system, or ``XDG_CONFIG_HOME``, has it."""
    if sys.platform == "win32":
        base = os.environ.get("APPDATA") or Path.home()
    else:
        base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base, "mcpbus", "logins")
