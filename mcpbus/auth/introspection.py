"""Tokens that only their issuer can read: it is asked about each of them (RFC 7662).

Questions to an issuer that several want answered at the same time, and that are put once.

The line of those for whom somebody else has to be asked: so many at once, and of those who wait one of each peer in its turn.
"""

import math
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, Generic, TypeVar

import trio

from mcpbus.auth.issuer_http import SECONDS, HttpxIssuerHttp, IssuerHttp, ask, find_endpoint
from mcpbus.auth.jwt import check_claims, read_audience, read_principal
from mcpbus.auth.verifiers import InvalidTokenError, VerifiedToken, VerifierUnavailableError, brought_by
from mcpbus.protocol.http.resource_metadata import read_address
from mcpbus.protocol.keywords import explained
from mcpbus.protocol.principals import Peer
from mcpbus.protocol.validators import check_text

T = TypeVar("T")


class IntrospectionCall(Generic[T]):
    """A question that is being put; whoever waits for its answer may leave, and the others get it. With the last one it is given up.

    Args:
        put: Puts it, and returns the answer.
        name: What it is about, for who looks at trio's tasks.

    Attributes:
        waiting: How many wait for its answer.
    """

    def __init__(self, put: Callable[[], Awaitable[T]], name: str) -> None:
        self.waiting = 0
        self._ended = trio.Event()
        self._scope = trio.CancelScope()
        self._answer: T | VerifierUnavailableError
        trio.lowlevel.spawn_system_task(self._run, put, name=name)

    async def _run(self, put: Callable[[], Awaitable[T]]) -> None:
        try:
            with self._scope:
                self._answer = await put()
        except VerifierUnavailableError as failure:
            self._answer = failure
        except Exception as failure:  # noqa: BLE001 - it ends all of trio otherwise
            self._answer = VerifierUnavailableError(f"asking failed: {failure!r}")
        finally:
            self._ended.set()

    async def answer(self) -> T:
        """Wait for the answer.

        Raises:
            VerifierUnavailableError: There is none.
        """
        self.waiting += 1
        try:
            await self._ended.wait()
        finally:
            self.waiting -= 1
            if not self.waiting:
                self._scope.cancel()  # does nothing once there is an answer
        if isinstance(self._answer, VerifierUnavailableError):
            # Each who waits has one of their own, which tells of their own way only.
            raise VerifierUnavailableError(str(self._answer), self._answer.retry_after)
        return self._answer


class IssuerQueue:
    """A line in which who has many places delays nobody who has few.

    Args:
        limit: How many are served at once.
    """

    def __init__(self, limit: int) -> None:
        self._left = limit
        # Those who wait, in the order of their turns. As long as there are any, no place is left.
        self._waiting: OrderedDict[Peer | None, trio.lowlevel.ParkingLot] = OrderedDict()
        self._limit = limit

    @property
    def served(self) -> int:
        """How many are served now."""
        return self._limit - self._left

    @asynccontextmanager
    async def turn(self, peer: Peer | None) -> AsyncIterator[None]:
        """Wait for a turn of a peer's, which lasts as long as the block."""
        if self._left:
            self._left -= 1
        else:
            await self._wait(peer)
        try:
            yield
        finally:
            self._call_next()

    async def _wait(self, peer: Peer | None) -> None:
        lot = self._waiting.get(peer)
        if lot is None:
            lot = self._waiting[peer] = trio.lowlevel.ParkingLot()
        try:
            await lot.park()
        except trio.Cancelled:
            if not lot and self._waiting.get(peer) is lot:
                del self._waiting[peer]
            raise

    def _call_next(self) -> None:
        while self._waiting:
            peer, lot = self._waiting.popitem(last=False)
            if lot:  # otherwise all of that peer's have left in this turn of the scheduler
                lot.unpark()
                if lot:
                    self._waiting[peer] = lot
                return
        self._left += 1


BELIEVED_SECONDS: Final = 60.0
"""How long an answer is believed: so long a token works on that was revoked."""
_AT_ONCE: Final = 32


@explained
class IntrospectionVerifier:
    """Verifies tokens by asking their issuer, once for all requests that bring the same one at the same time.

    Args:
        issuer: Who issues them.
        client_id: What this server is called there.
        client_secret: Its secret.
        audience: For whom they have to be issued, if not for the server's own URI; one of several.
        address: Where to ask; found through the issuer's metadata if left out.
        web: Who asks the issuer.

    Raises:
        ValueError: An address is neither https nor on this machine.
    """

    local = False

    def __init__(
        self,
        issuer: str,
        *,
        client_id: str,
        client_secret: str,
        audience: str | Iterable[str] = (),
        address: str | None = None,
        web: IssuerHttp | None = None,
    ) -> None:
        read_address(issuer, "issuer")
        if address is not None:
            read_address(address, "address")
        check_text(type(self).__name__, client_id=client_id, client_secret=client_secret)
        self.issuer = issuer
        self.issuers = (issuer,)
        self.web: IssuerHttp = web or HttpxIssuerHttp()
        self._login = client_id, client_secret
        self._audience = read_audience(audience)
        self._address = address
        self._asking: dict[str, IntrospectionCall[Mapping[str, Any]]] = {}
        # Whoever makes tokens up does not have the issuer flooded with questions, and others wait behind those for their turn.
        self._line = IssuerQueue(_AT_ONCE)

    async def verify(self, token: str, resource: str, now: float) -> VerifiedToken:
        """See `TokenVerifier`."""
        question = self._asking.get(token)
        if question is None:
            question = IntrospectionCall(
                partial(self._ask, token, brought_by.get()), f"a token of {self.issuer}"
            )
            self._asking[token] = question
        try:
            claims = await question.answer()
        finally:
            if not question.waiting:
                del self._asking[token]
        if claims.get("active") is not True:
            raise InvalidTokenError("it is not active")
        if claims.get("iss", self.issuer) != self.issuer:
            raise InvalidTokenError("it was issued by somebody else")
        believed = now + BELIEVED_SECONDS
        # It need not say when a token expires: it is asked again before long.
        timed = {"exp": believed, **claims}
        found = check_claims(timed, self.issuer, self._audience or (resource,), now)
        expires = found.principal.expires if "exp" in claims else None
        # From then on its issuer is asked each time, by whose clock it is still good or not.
        until = believed if expires is None else min(believed, expires)
        return VerifiedToken(read_principal(claims, self.issuer, expires), until)

    async def _ask(self, token: str, peer: Peer | None) -> Mapping[str, Any]:
        """Return what the issuer says of a token.

        Raises:
            VerifierUnavailableError: It cannot be asked.
        """
        with trio.move_on_after(SECONDS) as line:
            async with self._line.turn(peer):
                line.deadline = math.inf
                address = self._address
                if address is None:
                    address = await find_endpoint(self.web, self.issuer, "introspection_endpoint")
                    self._address = address
                form = {"token": token, "token_type_hint": "access_token"}
                return await ask(self.web, "POST", address, form, self._login)
        raise VerifierUnavailableError(
            f"{self.issuer} has been asked about too many tokens for {SECONDS:g} s"
        )
