"""The state that a client carries from one round of a request to the next: sealed, so that it can only be brought back.

Sealed, see `cipher`, and bound to what it was made for: the principal, the method, a digest of the
parameters, and a time (2026-07-28, Multi Round-Trip Requests, "Server Requirements", 5). What does not fit is
refused, and the client is not told which of these it was.
"""

import base64
import binascii
import hashlib
import os
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from mcpbus.protocol.errors import ProtocolError, invalid_params
from mcpbus.protocol.jsonrpc import JsonRpcRequest
from mcpbus.protocol.large import decode_without_gc
from mcpbus.protocol.principals import BoundPrincipal

if TYPE_CHECKING:
    from mcpbus.protocol.cipher import Cipher

_PURPOSE = b"mcpbus request state 1"
_SECRET_BYTES = 16


class Binding(msgspec.Struct, frozen=True):
    """What a state was made for, and may be used for.

    Attributes:
        method: The request's method.
        digest: Of its parameters, without those that change from round to round.
        principal: Who asks.
    """

    method: str
    digest: bytes
    principal: Any

    @classmethod
    def of(cls, request: JsonRpcRequest, principal: object) -> "Binding":
        """Return what a state for this request is bound to."""
        params = decode_without_gc(_params.decode, request.params)
        for changing in ("_meta", "inputResponses", "requestState"):
            params.pop(changing, None)
        digest = hashlib.sha256(msgspec.json.encode(params, order="deterministic")).digest()
        return cls(request.method, digest, principal)


class RoundState(msgspec.Struct, frozen=True):
    """What travels.

    Attributes:
        call: Names the call that waits for the answers.
        round: Names this round of it, which can be used once.
        method: See `Binding`.
        digest: See `Binding`.
        principal: A digest of who asked; see `BoundPrincipal`.
        expires: When it lapses, in seconds since 1970.
        answers: The answers of earlier rounds by key, for a call that has to start again; None if they are
            too many to travel, so that it cannot.
        author: The state that the call's last `InputRequired` left for this run or the next, encoded, or None.
        again: Whether the handler ended, to be run again; otherwise it waits in the middle.
    """

    call: str
    round: bytes
    method: str
    digest: bytes
    principal: bytes
    expires: float
    answers: dict[str, bytes] | None
    author: bytes | None
    again: bool


_params = msgspec.json.Decoder(dict[str, Any])
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(RoundState).decode


class StateSealer:
    """Seals states, and opens what was sealed with any of its keys.

    Args:
        keys: Secrets of at least 16 bytes. The first one seals; all of them open, so that they can be
            exchanged one after the other. Several processes that share them open each other's states. Without
            any, a random one is made, which ends with the process.
        clock: Tells the time, in seconds since 1970.

    Attributes:
        now: The clock.
        given: The keys that were given, as bytes.

    Raises:
        TypeError: A key is neither text nor bytes.
        ValueError: A key is too short.
    """

    def __init__(self, keys: Sequence[bytes | str] = (), clock: Callable[[], float] = time.time) -> None:
        for number, key in enumerate(keys):
            if not isinstance(key, str | bytes):
                raise TypeError(
                    f"secret_keys[{number}] is a text or bytes, and this is of type {type(key).__name__}"
                )
        self.given = [key.encode() if isinstance(key, str) else key for key in keys]
        secrets = self.given or [os.urandom(32)]
        for number, secret in enumerate(secrets):
            if len(secret) < _SECRET_BYTES:
                raise ValueError(
                    f"secret_keys[{number}] is {len(secret)} bytes long: a key is a secret of at least {_SECRET_BYTES} bytes, "
                    f"as secrets.token_urlsafe() makes"
                )
        self._secrets = secrets
        self.now = clock

    @cached_property
    def _ciphers(self) -> "list[Cipher]":
        from mcpbus.protocol.cipher import Cipher  # noqa: PLC0415 - most servers ask nothing

        return [Cipher(secret, _PURPOSE) for secret in self._secrets]

    def seal(
        self,
        binding: Binding,
        call: str,
        answers: dict[str, bytes] | None,
        lifetime: float,
        author: bytes | None = None,
        *,
        again: bool = False,
    ) -> tuple[bytes, str]:
        """Make a state, and return the name of its round and the text that the client gets.

        Args:
            binding: What it is for.
            call: The call that waits for it.
            answers: Encoded answers of earlier rounds by key, if they travel.
            lifetime: For how many seconds it is good.
            author: The encoded state of an `InputRequired`.
            again: Whether it is for another run.
        """
        name = os.urandom(16)
        expires = self.now() + lifetime
        owner = BoundPrincipal(binding.principal).digest
        state = RoundState(call, name, binding.method, binding.digest, owner, expires, answers, author, again)
        return name, base64.urlsafe_b64encode(self._ciphers[0].seal(_encode(state))).decode()

    def open(
        self,
        text: object,
        binding: Binding,
        owner_of: Callable[[str], BoundPrincipal | None] = lambda _: None,
    ) -> RoundState:
        """Open what a client brought back.

        Args:
            text: What it brought.
            binding: The request with which it came.
            owner_of: Returns whose a call is, given its name, if it waits in this process.

        Raises:
            ProtocolError: -32602: it was not sealed here, or not for this request, or has lapsed.
        """
        state = self._unseal(text)
        if state is None or (state.method, state.digest) != (binding.method, binding.digest):
            raise _unusable()
        owner = owner_of(state.call) or BoundPrincipal.stored(state.principal)
        if state.expires < self.now() or not owner.admits(binding.principal):
            raise _unusable()
        return state

    def call_of(self, text: object) -> str | None:
        """Return which call a state belongs to, whoever brings it; None if none of the keys sealed it."""
        state = self._unseal(text)
        return None if state is None else state.call

    def _unseal(self, text: object) -> RoundState | None:
        if not isinstance(text, str):
            return None
        try:
            data = base64.b64decode(text.encode(), altchars=b"-_", validate=True)
        except (binascii.Error, UnicodeError):
            return None
        # The same bytes can be spelled in several ways, of which one was sealed.
        if base64.urlsafe_b64encode(data).decode() != text:
            return None
        opened = (cipher.open(data) for cipher in self._ciphers)
        return next((_decode(state) for state in opened if state is not None), None)


def _unusable() -> ProtocolError:
    return invalid_params(
        "it is not a state of this request, or it has lapsed; begin anew - at `params.requestState`"
    )
