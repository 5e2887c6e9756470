"""Names that tell in which process a session, a call or a task is, and that nobody else can make.

A name is ``<home>.<random>.<proof>``. The home names one run of a process; the proof is an HMAC of the rest, so that a name which
was made up is known for one without asking anybody.
"""

import base64
import hmac
import re
import secrets
from collections.abc import Sequence
from typing import Final

_HOME_BYTES: Final = 6
_RANDOM_BYTES: Final = 18
_PROOF_BYTES: Final = 6
_MOST_FOUND: Final = 4096
"""How many names that were read are remembered."""
_NAME: Final = re.compile(r"(([\w-]{8})\.[\w-]{24})\.([\w-]{8})", re.ASCII)
_PURPOSE: Final = b"mcpbus names 1"


def new_home() -> str:
    """Return the name of a process that begins to serve, which no process before it had."""
    return secrets.token_urlsafe(_HOME_BYTES)


class SignedIds:
    """Makes the names of one process, and reads those of all.

    Args:
        home: The process.
        keys: Secrets that nobody else has. The first one proves, and of all of them a proof is accepted.

    Attributes:
        home: The same.
    """

    def __init__(self, home: str, keys: Sequence[bytes]) -> None:
        self.home = home
        self._keys = [hmac.digest(key, _PURPOSE, "sha256") for key in keys]
        self._found: dict[str, str] = {}

    def new(self) -> str:
        """Return a new name."""
        name = f"{self.home}.{secrets.token_urlsafe(_RANDOM_BYTES)}"
        return f"{name}.{_prove(self._keys[0], name)}"

    def home_of(self, name: str) -> str | None:
        """Return in which process is what has this name; None if none of them gave it."""
        home = self._found.get(name)
        if home is not None:
            return home
        match = _NAME.fullmatch(name)
        if match is None or not self._is_proof(match[1], match[3]):
            return None
        if len(self._found) >= _MOST_FOUND:
            self._found.clear()
        self._found[name] = home = match[2]
        return home

    def _is_proof(self, name: str, proof: str) -> bool:
        return any(hmac.compare_digest(_prove(key, name), proof) for key in self._keys)


def _prove(key: bytes, name: str) -> str:
    digest = hmac.digest(key, name.encode(), "sha256")
    return base64.urlsafe_b64encode(digest[:_PROOF_BYTES]).decode()
