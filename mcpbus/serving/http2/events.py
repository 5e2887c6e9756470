"""What a client has done to an HTTP/2 connection, one thing at a time."""

from typing import TypeAlias

import msgspec

from mcpbus.serving.http2.head import Http2RequestHead


class RequestBegun(msgspec.Struct, frozen=True, gc=False):
    """A request has come, or its head.

    Attributes:
        stream_id: Its stream.
        head: Its head.
        ended: Whether that is all of it.
        body: Its body, if that has come whole with the head, in one frame. Otherwise it is told apart.
    """

    stream_id: int
    head: Http2RequestHead
    ended: bool
    body: bytes = b""


class BodyReceived(msgspec.Struct, frozen=True, gc=False):
    """A part of a request's body has come.

    Attributes:
        stream_id: Its stream.
        data: The part.
        ended: Whether it is the last one.
    """

    stream_id: int
    data: bytes
    ended: bool


class StreamGone(msgspec.Struct, frozen=True, gc=False):
    """A stream was reset, by the client or for its fault."""

    stream_id: int


class WindowOpened(msgspec.Struct, frozen=True, gc=False):
    """The client takes more: of this stream, or of all if it is 0."""

    stream_id: int


class ClientLeaves(msgspec.Struct, frozen=True, gc=False):
    """The client opens no more streams. It waits for what is under way."""


Event: TypeAlias = RequestBegun | BodyReceived | StreamGone | WindowOpened | ClientLeaves
