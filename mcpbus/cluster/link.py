"""A link: one connection between two processes, over which each has the other serve requests.

It begins with a handshake, see `link_handshake`. Then each request has a channel of its own: whoever asks opens it, odd numbers for the one that
dialled and even ones for the other. A link on which nothing comes for a while is dead, and so are its channels.

One task for all keeps each request alive to which nothing was sent for a while.
"""

import logging
import math
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

import msgspec
import trio
from mcpbus_actors import EagerTask, Leader

from mcpbus.cluster.link_handshake import MOST_BYTES, LinkReader
from mcpbus.cluster.messages import FrameError, FrameKind, encode_frames
from mcpbus.core.concurrency import ReportErrors


class KeepAliveItem(Protocol):
    """A request to which nothing was said yet."""

    def keep_alive(self) -> None:
        """Say something without meaning. No schedule point; nothing is raised."""


class KeepAliveQueue:
    """The requests to keep alive, in the order in which that is due: a bus has one time for all of its requests."""

    def __init__(self) -> None:
        self._due: dict[KeepAliveItem, float] = {}
        self._some = trio.lowlevel.ParkingLot()

    def add(self, request: KeepAliveItem, seconds: float) -> None:
        """Keep a request alive after so many seconds."""
        if seconds == math.inf:
            return
        if not self._due:
            self._some.unpark()
        self._due[request] = trio.current_time() + seconds

    def remove(self, request: KeepAliveItem) -> None:
        """Take note that something was said to a request, or that there is nobody to hear it."""
        self._due.pop(request, None)

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            while not self._due:
                await self._some.park()
            await trio.sleep_until(next(iter(self._due.values())))
            now = trio.current_time()
            for request in [request for request, due in self._due.items() if due <= now]:
                if self._due.pop(request, None) is not None:  # else it was answered because of one before it
                    request.keep_alive()


_log = logging.getLogger("mcpbus")
_CHANNELS: Final = 1 << 32
_FAREWELL_SECONDS: Final = 1.0
"""How long it may take to end a link in order."""
_OPENING: Final = frozenset({FrameKind.OPEN, FrameKind.TELL, FrameKind.ASK})
"""The kinds of message with which a channel begins."""
_OF_CHANNELS: Final = frozenset(FrameKind) - _OPENING - {FrameKind.GOODBYE}
"""The kinds of message that a channel takes."""
_PINGS: Final = 6
"""How often each end says that it is there, in the time after which it would be given up."""
_MOST_IN_TURN: Final = 32
"""Messages that are taken before other tasks may run."""
_LINGER_SECONDS: Final = 0.005
"""How long what nobody waits for is kept back, to go with something else."""

_UNREADABLE: Final = (FrameError, msgspec.DecodeError, UnicodeError, RecursionError)
LOST: Final = (OSError, trio.BrokenResourceError, trio.ClosedResourceError, *_UNREADABLE)
"""What ends a link."""


class LinkChannel(Protocol):
    """One request on its way over a link."""

    def take(self, kind: int, payload: bytes, /) -> None:
        """Take a message of the other end."""

    def lose(self) -> None:
        """Take note that the link is dead."""


class LinkHandler(Protocol):
    """Who serves what comes over links."""

    def opened(self, link: "Link", channel: int, payload: bytes, /) -> EagerTask | None:
        """Serve a request: enter its channel, and begin. Returns a handler that waits, if there is one. No schedule point."""

    def changed(self, link: "Link", payload: bytes, /) -> None:
        """Take note of a change."""

    def asked(self, link: "Link", channel: int, payload: bytes, /) -> None:
        """Tell over a channel what became of a change. No schedule point."""

    def serving(self, link: "Link", /) -> None:
        """Take note that there may have been changes at the other end before there was this link."""

    def tell(self, link: "Link", channel: int, payload: bytes, /) -> None:
        """Say something to the client of a session, and tell over the channel what became of it. No schedule point."""

    def start(self, function: Callable[..., Awaitable[object]], /, *args: Any) -> None:
        """Run a task that goes on when the link is lost."""


class Link:
    """One end of a link. Both have been greeted.

    Args:
        incoming: What comes over its connection.
        home: Who is at the other end.
        service: Serves what that asks for.
        dialled: Whether it was dialled from here.
        silence: Seconds after which it is dead if nothing comes.

    Attributes:
        home: The same.
        closed: Whether it is dead.
        scope: Encloses the task that takes the message which is being taken.
        quiet: The requests that are served here, and to which nothing was said yet.
        in_turn: Whether messages are being taken, so that what is said is written at the end of that turn.
    """

    scope: trio.CancelScope

    def __init__(
        self, incoming: LinkReader, home: str, service: LinkHandler, *, dialled: bool, silence: float
    ) -> None:
        self.home = home
        self.closed = False
        self.quiet = KeepAliveQueue()
        self._stream = incoming.stream
        self._incoming = incoming
        self._service = service
        self._silence = silence
        self._parity = int(dialled)
        self._last = self._parity
        self._taken = 1 - self._parity  # the last channel that the other end has opened
        self._leaving = False
        self._channels: dict[int, LinkChannel] = {}
        self._unwritten = bytearray()
        self._unhurried = bytearray()
        self._lingering = trio.lowlevel.ParkingLot()
        self._something = trio.lowlevel.ParkingLot()
        self._answered = trio.lowlevel.ParkingLot()
        self._writing = False
        self.in_turn = False
        self._heard = False  # anything, since it was last looked
        self._whole = trio.CancelScope()
        self._lost = trio.Event()
        self._why: BaseException | None = None

    async def run(self) -> None:
        """Carry messages until the link is dead, and then tell all channels.

        Raises:
            FrameError: Whoever is there does not speak as it has to; like all that is `LOST`, in a group.
        """
        try:
            with self._whole:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._write)
                    nursery.start_soon(self._linger)
                    nursery.start_soon(self.quiet.run)
                    nursery.start_soon(self._ping)
                    # Handlers that wait have its tasks, and go on when the link is lost.
                    self._service.start(Leader(self._wait, self._take_turn, self._incoming.ready).run)
                    await self._lost.wait()
                    if self._why is not None:
                        raise self._why
        finally:
            self.closed = True
            for channel in tuple(self._channels.values()):
                with ReportErrors(self._report):
                    channel.lose()
            self._channels.clear()
            await self._stream.close()

    def _report(self, failure: BaseException) -> None:
        _log.error("a request was not told that the link to process %s is lost", self.home, exc_info=failure)

    def lose(self) -> None:
        """See `mcpbus.transports.response_sinks.CoalescedWriter`."""
        self.close()

    def close(self) -> None:
        """End it."""
        self.closed = True
        self._whole.cancel()

    async def close_gracefully(self) -> None:
        """End it once all is said to what has come; what comes from now on may be asked elsewhere, which the other end is told."""
        self._leaving = True
        with trio.move_on_after(_FAREWELL_SECONDS):
            while not self.closed and any(number % 2 != self._parity for number in self._channels):
                await self._answered.park()
            self.send(FrameKind.GOODBYE, self._taken)
            await self._lost.wait()

    def send(self, kind: FrameKind, channel: int, payload: bytes = b"") -> None:
        """Send a message, unless the link is dead. If too much waits for whoever is there, it is from now on.

        It is written at the end of the turn: the link's own, or the scheduler's.
        """
        self._put(kind, channel, payload)
        if not self.in_turn:
            self._something.unpark()

    def _put(self, kind: FrameKind, channel: int, payload: bytes) -> None:
        if self.closed:
            return
        if self._unhurried:
            self._unwritten += self._unhurried
            self._unhurried.clear()
        self._unwritten += encode_frames(kind, channel, payload)
        if len(self._unwritten) > MOST_BYTES:
            self.close()

    def send_with_next(self, kind: FrameKind, channel: int) -> None:
        """Send a message for which nobody waits, with the next one, or soon: one that comes alone costs as much as a request."""
        if self._stream.is_quick and not self.closed:
            if not self._unhurried:
                self._lingering.unpark()
            self._unhurried += encode_frames(kind, channel)
        else:
            self.send(kind, channel)

    def open(
        self,
        channel: LinkChannel,
        payload: bytes,
        kind: FrameKind = FrameKind.OPEN,
        flush_last: "Callable[[Link], None] | None" = None,
    ) -> int:
        """Have a request served, or something told, and return the number of its channel.

        Args:
            channel: Takes what comes for it.
            payload: What is asked.
            kind: What is to be done with that.
            flush_last: Has it written once no turn is due any more, which spares one of the scheduler's.
        """
        number = self._last
        while (number := (number + 2) % _CHANNELS) in self._channels or not number:
            pass  # 0 is for what belongs to no channel
        self._last = number
        self.enter(number, channel)
        if flush_last is None:
            self.send(kind, number, payload)
            return number
        others = bool(self._unwritten)  # for which somebody is about to write
        self._put(kind, number, payload)
        if not others:
            flush_last(self)
        return number

    def enter(self, number: int, channel: LinkChannel) -> None:
        """Have a channel take what comes for this number, in place of what took it before."""
        self._channels[number] = channel

    def leave(self, channel: int) -> None:
        """Forget a channel; what still comes for it is not looked at."""
        self._channels.pop(channel, None)
        if self._leaving:
            self._answered.unpark_all()

    async def _write(self) -> None:
        while True:
            while not self._unwritten:
                await self._something.park()
            data, self._unwritten = self._unwritten, bytearray()
            del data[: self._stream.send_now(data)]
            if data:
                self._writing = True
                await self._stream.send_all(data)
                self._writing = False

    async def _linger(self) -> None:
        while True:
            if not self._unhurried:
                await self._lingering.park()
            await trio.sleep(_LINGER_SECONDS)
            self._unwritten += self._unhurried
            self._unhurried.clear()
            self.write_now()

    def write_now(self) -> None:
        """Write what was sent in a turn; the rest is left to the task that writes."""
        if self._unwritten and not self._writing and not self.closed:
            del self._unwritten[: self._stream.send_now(self._unwritten)]
        if self._unwritten:
            self._something.unpark()

    async def _ping(self) -> None:
        """Find whether the other end is dead by how often nothing came, not for how long: who was stopped itself has looked once."""
        unheard = 0
        while unheard < _PINGS:
            self._heard = False
            await trio.sleep(self._silence / _PINGS)
            unheard = 0 if self._heard else unheard + 1
            self.send(FrameKind.PING, 0)
        raise FrameError(f"nothing came for {self._silence:g} s")

    async def _wait(self) -> bool:
        """Wait until something has come, and return whether it has; not if the link is dead."""
        try:
            await self._incoming.wait()
        except LOST as why:
            self._end(why)
        self._heard = True
        return not self.closed

    def _end(self, why: BaseException) -> None:
        self.closed = True
        self._why = why
        self._lost.set()

    def _take_turn(self, scope: trio.CancelScope) -> EagerTask | None:
        """Take what has come, up to a bound; returns a handler that waits, if there is one."""
        self.scope = scope
        ready, eager = self._incoming.ready, None
        self.in_turn = True
        try:
            # Who helps may come after the end: what is left is for nobody, who would never be told that the link is lost.
            for _ in range(0 if self.closed else min(len(ready), _MOST_IN_TURN)):
                eager = self._take(*ready.popleft())
                if eager is not None:
                    break
        except _UNREADABLE as why:
            self._end(why)
        finally:
            self.in_turn = False
            self.write_now()
        return eager

    def _take(self, kind: int, number: int, payload: bytes) -> EagerTask | None:
        channel = self._channels.get(number)
        if channel is not None and kind in _OF_CHANNELS:
            channel.take(kind, payload)
        elif kind in _OPENING:
            return self._take_opening(kind, number, payload)
        elif kind == FrameKind.GOODBYE:
            self._part(number)
        elif kind == FrameKind.CHANGED:
            self._service.changed(self, payload)
        elif kind == FrameKind.SERVING:
            self._service.serving(self)
        return None

    def _take_opening(self, kind: int, number: int, payload: bytes) -> EagerTask | None:
        if not number or number in self._channels or number % 2 == self._parity:
            raise FrameError(f"channel {number} is not for the other end to open")
        if self._leaving:
            return None
        self._taken = number
        if kind == FrameKind.OPEN:
            return self._service.opened(self, number, payload)
        if kind == FrameKind.TELL:
            self._service.tell(self, number, payload)
        else:
            self._service.asked(self, number, payload)
        return None

    def _part(self, taken: int) -> None:
        """Tell those channels that were opened after this one that nothing was done for them. The link is dead from now on."""
        for number, channel in tuple(self._channels.items()):
            if number % 2 == self._parity and 0 < (number - taken) % _CHANNELS < _CHANNELS // 2:
                with ReportErrors(self._report):
                    channel.take(FrameKind.GOODBYE, b"")
        self._end(FrameError("it has said goodbye"))
