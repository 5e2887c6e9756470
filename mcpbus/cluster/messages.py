"""What is said over a link, each as an array to whose end newer processes may add; what an older one does not know, it leaves alone."""

from typing import Final, TypeAlias

import msgspec

from mcpbus.protocol.levels import LogLevel

Fields: TypeAlias = list[tuple[bytes, bytes]]

VERSION: Final = 1
"""What is spoken over links. It is another one only where processes of the last one would misunderstand what is said: kinds of message, and
fields at the end of one, which they leave alone, are none; nor are kinds of what is told, and lists that change."""


class Hello(msgspec.Struct, array_like=True, frozen=True):
    """Who speaks.

    Attributes:
        home: Which process.
        nonce: What only this connection has.
        keys: Names of the keys that it takes, the one that it would rather take before others.
        version: What it speaks; see `VERSION`.
    """

    home: str
    nonce: bytes
    keys: list[bytes]
    version: int = 1


class Open(msgspec.Struct, array_like=True, frozen=True):
    """A request that is to be served.

    Attributes:
        head: A `ForwardedHead`, encoded. Many requests have the same, byte for byte, and so it is read once.
        peer: The address from where it came; None from one that has none.
        body: The whole of it.
    """

    head: bytes
    peer: str | None
    body: bytes


class ForwardedHead(msgspec.Struct, array_like=True, frozen=True):
    """What comes before the body of a request.

    Attributes:
        endpoint: Which of the endpoints is to serve it; the first one that was made is 0.
        verb: See `RequestHead`.
        path: Likewise.
        query: Likewise.
        root: Likewise.
        fields: Its header fields.
    """

    endpoint: int
    verb: str
    path: str
    query: str
    root: str
    fields: Fields


class WholeResponse(msgspec.Struct, array_like=True, frozen=True):
    """A whole answer; see `Answer`."""

    status: int
    headers: Fields
    body: bytes


class ResponseStarted(msgspec.Struct, array_like=True, frozen=True):
    """The head of an answer of status 200 in pieces."""

    headers: Fields


class ResponsePiece(msgspec.Struct, array_like=True, frozen=True):
    """A piece of an answer, the last one unless `more`."""

    data: bytes
    more: bool


class SendToSession(msgspec.Struct, array_like=True, frozen=True):
    """What is to be said to the client of a session.

    Attributes:
        session: The session.
        kind: What it is, the value of a `mcpbus.protocol.routes.MessageKind`; None if nothing is, and the session is to end.
        method: Its method.
        data: The encoded JSON-RPC notification.
        level: The level of a log line.
        uri: The resource that was updated.
        held: If it was held for the client by who had the session before: the epoch of that one, and the name by which it may have been kept.
    """

    session: str
    kind: str | None
    method: str
    data: bytes
    level: LogLevel | None
    uri: str | None
    held: tuple[int, str] | None = None


class Changed(msgspec.Struct, array_like=True, frozen=True):
    """A change; see `mcpbus.core.notification.ChangeEvent`.

    Attributes:
        list: Which list, a `ListName`; None if it is a resource.
        uri: Which resource.
        number: Which of the changes of its process it is.
    """

    list: str | None
    uri: str
    number: int = 0


class Fates(msgspec.Struct, array_like=True, frozen=True):
    """What became of a change.

    Attributes:
        fates: How many copies have which fate: its verdict and its reason, as in `SendFate`, and the number.
        known: Whether it is known, or was forgotten.
    """

    fates: list[tuple[str, str | None, int]]
    known: bool = False


class SendFate(msgspec.Struct, array_like=True, frozen=True):
    """What became of it; see `mcpbus.core.receipt.Fate`. In words, so that newer processes can have more of them."""

    verdict: str
    reason: str | None


encode = msgspec.msgpack.Encoder().encode
decode_hello = msgspec.msgpack.Decoder(Hello).decode
decode_open = msgspec.msgpack.Decoder(Open).decode
decode_head = msgspec.msgpack.Decoder(ForwardedHead).decode
decode_answered = msgspec.msgpack.Decoder(WholeResponse).decode
decode_started = msgspec.msgpack.Decoder(ResponseStarted).decode
decode_said = msgspec.msgpack.Decoder(ResponsePiece).decode
decode_tell = msgspec.msgpack.Decoder(SendToSession).decode
decode_changed = msgspec.msgpack.Decoder(Changed).decode
decode_number = msgspec.msgpack.Decoder(int).decode
decode_fates = msgspec.msgpack.Decoder(Fates).decode
decode_told = msgspec.msgpack.Decoder(SendFate).decode
