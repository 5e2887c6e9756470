"""A link: one connection between two processes, over which each has the other serve requests.

It begins with a greeting in which both prove that they have the key. Then each request has a channel of its own: whoever asks opens it,
odd numbers for the one that dialled and even ones for the other. A link on which nothing comes for a while is dead, and so
are its channels.
"""

import hmac
import os
from collections import deque
from typing import Final, Protocol

import msgspec
import trio

from mcpbus.cluster.frames import FrameError, FrameReader, Kind, Message, encode_frames
from mcpbus.cluster.messages import Hello, decode_hello, encode

_PURPOSE: Final = b"mcpbus link 1"
_NONCE_BYTES: Final = 16
_GREETING_BYTES: Final = 256
_MOST_BYTES: Final = 256 * 1024 * 1024
"""Of messages that are on their way in one direction."""
_READ_BYTES: Final = 256 * 1024
_CHANNELS: Final = 1 << 32
_PINGS: Final = 6
"""How often each end says that it is there, in the time after which it would be given up."""

LOST: Final = (OSError, trio.BrokenResourceError, trio.ClosedResourceError, FrameError, msgspec.DecodeError)
"""What ends a link."""


class Channel(Protocol):
    """One request on its way over a link."""

    def take(self, kind: int, payload: bytes, /) -> None:
        """Take a message of the other end."""

    def lose(self) -> None:
        """Take note that the link is dead."""


class Service(Protocol):
    """Who serves what comes over links."""

    def opened(self, link: "Link", channel: int, payload: bytes, /) -> Channel:
        """Begin to serve a request."""

    def changed(self, payload: bytes, /) -> None:
        """Take note of a change."""


class Incoming:
    """The messages that come over a connection.

    Args:
        stream: The connection.
    """

    def __init__(self, stream: trio.abc.ReceiveStream) -> None:
        self._stream = stream
        self._reader = FrameReader(_GREETING_BYTES)
        self._ready: deque[Message] = deque()

    def trust(self) -> None:
        """Let messages be as long as requests and answers are."""
        self._reader.limit = _MOST_BYTES

    async def take(self) -> Message:
        """Return the next message.

        Raises:
            FrameError: The connection has ended, or what comes over it is no message.
        """
        while not self._ready:
            data = await self._stream.receive_some(_READ_BYTES)
            if not data:
                raise FrameError("the connection has ended")
            self._ready.extend(self._reader.read(bytes(data)))
        return self._ready.popleft()

    async def expect(self, kind: Kind) -> bytes:
        """Return what the next message says, which is of this kind.

        Raises:
            FrameError: It is not.
        """
        found, _, payload = await self.take()
        if found != kind:
            raise FrameError(f"a message of kind {found} came in place of {kind.name}")
        return payload


async def greet(
    stream: trio.abc.Stream, incoming: Incoming, key: bytes, home: str, dialled: str | None
) -> str:
    """Tell who is at this end of a connection, and return who is at the other.

    Args:
        stream: The connection.
        incoming: What comes over it.
        key: What both have.
        home: Who is here.
        dialled: Whom we have dialled; None if the other end has.

    Raises:
        FrameError: It does not have the key, or is somebody else.
    """
    ours = Hello(home, os.urandom(_NONCE_BYTES))
    await stream.send_all(encode_frames(Kind.HELLO, 0, encode(ours)))
    theirs = decode_hello(await incoming.expect(Kind.HELLO))
    if dialled not in {None, theirs.home}:
        raise FrameError(f"{theirs.home} answers in the place of {dialled}")
    first = dialled is not None
    said = encode([ours, theirs] if first else [theirs, ours])
    key = hmac.digest(key, _PURPOSE, "sha256")
    proofs = [hmac.digest(key, role + said, "sha256") for role in (b"dialled", b"accepted")]
    await stream.send_all(encode_frames(Kind.PROOF, 0, proofs[not first]))
    if not hmac.compare_digest(await incoming.expect(Kind.PROOF), proofs[first]):
        raise FrameError("whoever is there does not have the key")
    incoming.trust()
    return theirs.home


class Link:
    """One end of a link. Both have been greeted.

    Args:
        stream: The connection.
        incoming: What comes over it.
        home: Who is at the other end.
        service: Serves what that asks for.
        dialled: Whether it was dialled from here.
        silence: Seconds after which it is dead if nothing comes.

    Attributes:
        home: The same.
        closed: Whether it is dead.
    """

    def __init__(
        self,
        stream: trio.abc.Stream,
        incoming: Incoming,
        home: str,
        service: Service,
        *,
        dialled: bool,
        silence: float,
    ) -> None:
        self.home = home
        self.closed = False
        self._stream = stream
        self._incoming = incoming
        self._service = service
        self._silence = silence
        self._parity = int(dialled)
        self._last = self._parity
        self._channels: dict[int, Channel] = {}
        self._unwritten = bytearray()
        self._something = trio.Event()
        self._scope = trio.CancelScope()

    async def run(self) -> None:
        """Carry messages until the link is dead, and then tell all channels.

        Raises:
            FrameError: Whoever is there does not speak as it has to; like all that is `LOST`, in a group.
        """
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._write)
                    nursery.start_soon(self._ping)
                    await self._read()
        finally:
            self.closed = True
            for channel in tuple(self._channels.values()):
                channel.lose()
            self._channels.clear()
            await trio.aclose_forcefully(self._stream)

    def close(self) -> None:
        """End it."""
        self.closed = True
        self._scope.cancel()

    def send(self, kind: Kind, channel: int, payload: bytes = b"") -> None:
        """Send a message, unless the link is dead. If too much waits for whoever is there, it is from now on."""
        if self.closed:
            return
        self._unwritten += encode_frames(kind, channel, payload)
        if len(self._unwritten) > _MOST_BYTES:
            self.close()
        self._something.set()

    def open(self, channel: Channel, payload: bytes) -> int:
        """Have a request served, and return the number of its channel."""
        number = self._last
        while (number := (number + 2) % _CHANNELS) in self._channels:
            pass
        self._last = number
        self._channels[number] = channel
        self.send(Kind.OPEN, number, payload)
        return number

    def leave(self, channel: int) -> None:
        """Forget a channel; what still comes for it is not looked at."""
        self._channels.pop(channel, None)

    async def _write(self) -> None:
        while True:
            await self._something.wait()
            self._something = trio.Event()
            data, self._unwritten = self._unwritten, bytearray()
            await self._stream.send_all(data)

    async def _ping(self) -> None:
        while True:
            await trio.sleep(self._silence / _PINGS)
            self.send(Kind.PING, 0)

    async def _read(self) -> None:
        while True:
            with trio.move_on_after(self._silence) as silence:
                kind, number, payload = await self._incoming.take()
            if silence.cancelled_caught:
                raise FrameError(f"nothing came for {self._silence:g} s")
            if kind == Kind.CHANGED:
                self._service.changed(payload)
            elif kind == Kind.OPEN:
                self._take_open(number, payload)
            elif number in self._channels:
                self._channels[number].take(kind, payload)

    def _take_open(self, number: int, payload: bytes) -> None:
        if number in self._channels or number % 2 == self._parity:
            raise FrameError(f"channel {number} is not for the other end to open")
        self._channels[number] = self._service.opened(self, number, payload)
