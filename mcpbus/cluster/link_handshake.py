"""A greeting: two processes that are connected tell each other who they are, and both prove that they have the key.

The connection of a link, of which what is there is taken, and what the kernel takes is given, without waiting.
"""

import hmac
import os
from collections import deque
from collections.abc import Sequence
from typing import Final

import trio

from mcpbus.cluster.messages import (
    VERSION,
    FrameError,
    FrameKind,
    FrameReader,
    Hello,
    Message,
    OtherVersionError,
    decode_hello,
    encode,
    encode_frames,
)

_READ_BYTES: Final = 256 * 1024
_HAS_DESCRIPTORS: Final = os.name == "posix"
"""Elsewhere a socket is nothing to read and write."""


class NonblockingStream:
    """A connection, as its link uses it.

    `trio.SocketStream` asks the kernel first whether something is there, which mostly is not so; and each write is a turn of the
    scheduler.

    Args:
        stream: The connection.
    """

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._descriptor = None
        if _HAS_DESCRIPTORS and isinstance(stream, trio.SocketStream):
            self._descriptor = stream.socket.fileno()

    @property
    def is_quick(self) -> bool:
        """Whether that can be done with this one."""
        return self._descriptor is not None

    async def receive(self) -> bytes:
        """Wait for bytes, and return them; `b""` at the end.

        Raises:
            OSError: The connection was lost; or it is one of trio's own errors.
        """
        if self._descriptor is None:
            return bytes(await self._stream.receive_some(_READ_BYTES))
        while True:
            await trio.lowlevel.wait_readable(self._descriptor)
            if self._descriptor is None:
                raise trio.ClosedResourceError("the connection was closed as something came")
            try:
                return os.read(self._descriptor, _READ_BYTES)
            except BlockingIOError:
                continue

    def send_now(self, data: bytearray) -> int:
        """Give the kernel what it takes, and return how much that was. No schedule point."""
        if self._descriptor is None:
            return 0
        try:
            return os.write(self._descriptor, data)
        except OSError:  # it takes nothing now, or never: whoever waits for it is told
            return 0

    async def send_all(self, data: bytes | bytearray) -> None:
        """See `trio.abc.SendStream`."""
        await self._stream.send_all(data)

    async def close(self) -> None:
        """Close it at once."""
        self._descriptor = None
        await trio.aclose_forcefully(self._stream)


_PURPOSE: Final = b"mcpbus link 1"
_NONCE_BYTES: Final = 16
MOST_KEYS: Final = 256
"""Of which the names are in a greeting: all that a process has."""
_NAMING: Final = b"name"
_NAME_BYTES: Final = 8
_GREETING_BYTES: Final = 4096
MOST_BYTES: Final = 256 * 1024 * 1024
"""Of messages that are on their way in one direction."""


class LinkReader:
    """The messages that come over a connection.

    Args:
        stream: The connection.

    Attributes:
        stream: The same, for who does not want to wait.
        ready: Those that have come, and were not taken.
    """

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = NonblockingStream(stream)
        self._reader = FrameReader(_GREETING_BYTES)
        self.ready: deque[Message] = deque()

    def trust(self) -> None:
        """Let messages be as long as requests and answers are."""
        self._reader.limit = MOST_BYTES

    async def wait(self) -> None:
        """Wait until a message is ready. A schedule point always.

        Raises:
            FrameError: The connection has ended, or what comes over it is no message.
        """
        if self.ready:
            await trio.lowlevel.checkpoint()
        while not self.ready:
            data = await self.stream.receive()
            if not data:
                raise FrameError("the connection has ended")
            self.ready.extend(self._reader.read(data))

    async def expect(self, kind: FrameKind) -> bytes:
        """Return what the next message says, which is of this kind.

        Raises:
            FrameError: It is not.
        """
        await self.wait()
        found, _, payload = self.ready.popleft()
        if found != kind:
            raise FrameError(f"a message of kind {found} came in place of {kind.name}")
        return payload


async def greet(
    stream: trio.abc.Stream, incoming: LinkReader, keys: Sequence[bytes], home: str, dialled: str | None
) -> str:
    """Tell who is at this end of a connection, and return who is at the other.

    Args:
        stream: The connection.
        incoming: What comes over it.
        keys: Secrets, of which the other end has at least one.
        home: Who is here.
        dialled: Whom we have dialled; None if the other end has.

    Raises:
        OtherVersionError: It speaks another version.
        FrameError: It has none of the keys, or is somebody else.
    """
    named = _name_keys(keys)
    said_here = encode(Hello(home, os.urandom(_NONCE_BYTES), [*named], VERSION))
    await stream.send_all(encode_frames(FrameKind.HELLO, 0, said_here))
    said_there = await incoming.expect(FrameKind.HELLO)
    theirs = decode_hello(said_there)
    if dialled not in {None, theirs.home}:
        raise FrameError(f"{theirs.home} answers in the place of {dialled}")
    if theirs.version != VERSION:
        raise OtherVersionError(
            f"process {theirs.home} speaks version {theirs.version} over links, and this one {VERSION}"
        )
    first = dialled is not None
    # As it was said: a newer process may say more of itself than can be read here.
    said = encode([said_here, said_there] if first else [said_there, said_here])
    preferred, others = ([*named], theirs.keys) if first else (theirs.keys, [*named])
    name = next((name for name in preferred if name in others), None)
    if name is None:
        raise FrameError("whoever is there has none of the keys")
    key = named[name]
    proofs = [hmac.digest(key, role + said, "sha256") for role in (b"dialled", b"accepted")]
    await stream.send_all(encode_frames(FrameKind.PROOF, 0, proofs[not first]))
    if not hmac.compare_digest(await incoming.expect(FrameKind.PROOF), proofs[first]):
        raise FrameError("whoever is there does not have the key")
    incoming.trust()
    return theirs.home


def _name_keys(keys: Sequence[bytes]) -> dict[bytes, bytes]:
    """Return the keys for links, each by a name that tells nothing of it."""
    derived = [hmac.digest(key, _PURPOSE, "sha256") for key in keys]
    return {hmac.digest(key, _NAMING, "sha256")[:_NAME_BYTES]: key for key in derived}
