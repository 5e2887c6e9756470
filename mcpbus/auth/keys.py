"""The public keys of one issuer: fetched when they are first needed, once for all who wait, and kept."""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import trio
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, Key, OKPKey, RSAKey

from mcpbus.auth.issuer_http import IssuerHttp, ask, find_endpoint
from mcpbus.auth.jws import Algorithm, Check, make_check
from mcpbus.auth.verifiers import VerifierUnavailableError

FRESH_SECONDS: Final = 3600.0
"""How long keys are taken for all that there are."""
STALE_SECONDS: Final = 24 * 3600.0
"""How long they are good while the issuer cannot be asked."""
PAUSE_SECONDS: Final = 30.0
"""How long the issuer is left alone, having been asked for a key that it does not have."""
RETRY_SECONDS: Final = 5.0
"""How long it is left alone when it has failed."""
MOST_KEYS: Final = 64
"""Of one issuer; what it has more is not looked at."""

_MOST_FOUND: Final = 64
"""Names and algorithms for which it is remembered which keys may be meant."""
_MOST_TRIED: Final = 8
"""How many keys may be meant with one name."""

_PUBLIC: Final[Mapping[str, type[RSAKey | ECKey | OKPKey]]] = {"RSA": RSAKey, "EC": ECKey, "OKP": OKPKey}
_RSA_LENGTH: Final = 2048 // 6
"""Of a modulus in Base64, which is at least 2,048 bits long (RFC 7518, section 3.3)."""
_log = logging.getLogger("mcpbus.auth")


class Keys:
    """The keys of an issuer.

    Args:
        issuer: Who it is.
        address: Where its keys are; found through its metadata if not given.
        web: Who asks it.
    """

    def __init__(self, issuer: str, address: str | None, web: Callable[[], IssuerHttp]) -> None:
        self._issuer = issuer
        self._address = address
        self._web = web
        self._run: trio.lowlevel.TrioToken | None = None

    def _begin_anew(self) -> None:
        self._keys: Sequence[Key] = ()
        self._checks: dict[tuple[str | None, str], Sequence[Check]] = {}
        self._fetched = -math.inf
        self._tried = -math.inf
        self._failure: VerifierUnavailableError | None = None
        self._arrived: trio.Event | None = None

    def known(self, name: str | None, algorithm: Algorithm) -> Sequence[Check]:
        """Return the checks of a signature by those keys that may be meant, as far as they are known.

        Args:
            name: The key's, if a token says it.
            algorithm: With which it signs.
        """
        run = trio.lowlevel.current_trio_token()
        if run is not self._run:  # whose clock is another one
            self._run = run
            self._begin_anew()
        age = trio.current_time() - self._fetched
        if age > STALE_SECONDS:
            return ()
        found = self._checks.get((name, algorithm.name)) or self._look_up(name, algorithm)
        if found and age > FRESH_SECONDS and not self._waits():
            self._begin()
        return found

    async def find(self, name: str | None, algorithm: Algorithm) -> Sequence[Check]:
        """Return the same where none is known, having waited for the issuer unless it is left alone for a while.

        Raises:
            VerifierUnavailableError: It cannot be asked.
        """
        if self._arrived is None and not self._waits():
            self._begin()
        found: Sequence[Check] = ()
        if self._arrived is not None:
            await self._arrived.wait()
            found = self.known(name, algorithm)
        if not found and self._failure is not None:
            raise VerifierUnavailableError(str(self._failure), self._failure.retry_after)
        return found

    async def renew(self, name: str | None, algorithm: Algorithm) -> Sequence[Check]:
        """Return the same where none of those known is right: the issuer may have new ones by that name, or by none.

        It is asked no more often than for a key that it does not have; if it is left alone, or cannot be asked, there is none.
        """
        if self._arrived is None and not self._waits():
            self._begin()
        if self._arrived is None:
            return ()
        await self._arrived.wait()
        return () if self._failure is not None else self.known(name, algorithm)

    def _look_up(self, name: str | None, algorithm: Algorithm) -> Sequence[Check]:
        meant = [key for key in self._keys if name is None or key.get("kid") in {name, None}]
        found = [check for key in meant if (check := make_check(key, algorithm))][:_MOST_TRIED]
        if found and len(self._checks) < _MOST_FOUND:
            self._checks[name, algorithm.name] = found
        return found

    def _waits(self) -> bool:
        """Whether the issuer is being asked, or is left alone for a while."""
        pause = PAUSE_SECONDS if self._failure is None else RETRY_SECONDS
        return self._arrived is not None or trio.current_time() - self._tried < pause

    def _begin(self) -> None:
        # Not a task of whoever is first: others wait for the same, and it may be cancelled.
        self._arrived = trio.Event()
        trio.lowlevel.spawn_system_task(self._fetch, name=f"keys of {self._issuer}")

    async def _fetch(self) -> None:
        try:
            self._keys = await self._ask()
            self._checks = {}
            self._fetched = trio.current_time()
            self._failure = None
        except VerifierUnavailableError as failure:
            self._failure = failure
        except Exception as failure:  # noqa: BLE001 - it ends all of trio otherwise
            self._failure = VerifierUnavailableError(f"asking for keys failed: {failure!r}")
        finally:
            self._tried = trio.current_time()
            arrived, self._arrived = self._arrived, None
            if arrived is not None:
                arrived.set()
        if self._failure is not None:
            _log.warning("the keys of %s cannot be had: %s", self._issuer, self._failure)

    async def _ask(self) -> Sequence[Key]:
        web = self._web()
        address = self._address or await find_endpoint(web, self._issuer, "jwks_uri")
        entries = (await ask(web, "GET", address)).get("keys")
        if not isinstance(entries, list):
            raise VerifierUnavailableError(f"{address} has no keys")
        return [key for entry in entries[:MOST_KEYS] if (key := read_key(entry)) is not None]


def read_key(entry: Any) -> Key | None:
    """Return a key of a set; None if it is of another kind, or not to be read, which is no fault of the others."""
    kind = entry.get("kty") if isinstance(entry, dict) else None
    public = _PUBLIC.get(kind) if isinstance(kind, str) else None
    if public is None or (kind == "RSA" and len(str(entry.get("n"))) < _RSA_LENGTH):
        return None
    try:
        return public.import_key({**entry})
    except (JoseError, ValueError, TypeError, KeyError, ArithmeticError):
        return None
