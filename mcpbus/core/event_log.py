"""The logs of streams, which number their messages, and the names of streams.

A name says which process answers a request on the stream, and which request. The process that takes over a session replies to the
requests that another one has left, although nothing is stored of them. Each name belongs to one session: a client that resumes by an
event of another session gets no reply in this one.
"""

import base64
import binascii
import re
import secrets
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from hashlib import sha256
from typing import Final, Generic, TypeVar

import msgspec

from mcpbus.core.stores.circuit_breaker import CircuitBreaker, StoreDownError
from mcpbus.core.stores.protocol import EventStore
from mcpbus.protocol.jsonrpc import RequestId, encode_id
from mcpbus.protocol.routes import StreamKind

_NAME_BYTES: Final = 9
_MARK_BYTES: Final = 3
"""Of the session: for who confuses two of them, and not for who makes names up, to whom a reply tells nothing new."""
_LETTERS: Final = 16
"""Those of both."""
_LONGEST_ID: Final = 96

_decode_id: Callable[[bytes], RequestId] = msgspec.json.Decoder(RequestId).decode


def name_request(prefix: str, process: str, session: str, request: RequestId) -> str | None:
    """Return a name for the stream of a request; None if the request's id is too long to be in it.

    Args:
        prefix: With what it begins.
        process: Where the request runs.
        session: The session that it belongs to.
        request: Its id.
    """
    told = base64.urlsafe_b64encode(encode_id(request)).rstrip(b"=").decode()
    if len(told) > _LONGEST_ID:
        return None
    random = secrets.token_bytes(_NAME_BYTES)
    letters = base64.urlsafe_b64encode(random + _mark(random, session)).decode()
    return f"{prefix}{process}{letters}{told}"


def request_elsewhere(name: str, prefix: str, process: str, session: str) -> RequestId | None:
    """Return which request of another process is answered on a stream; None if it is of this one, or no such stream of this session.

    Args:
        name: The stream's name.
        prefix: As for `name_request`.
        process: This one.
        session: The session whose client names it.
    """
    begin = len(prefix) + len(process)
    letters, told = name[begin : begin + _LETTERS], name[begin + _LETTERS :]
    if not name.startswith(prefix) or name[len(prefix) : begin] == process or not told:
        return None
    try:
        both = base64.urlsafe_b64decode(letters)
        if both[_NAME_BYTES:] != _mark(both[:_NAME_BYTES], session):
            return None
        return _decode_id(base64.urlsafe_b64decode(told + "=" * (-len(told) % 4)))
    except (binascii.Error, UnicodeError, msgspec.DecodeError, RecursionError):
        return None


def _mark(random: bytes, session: str) -> bytes:
    return sha256(random + session.encode()).digest()[:_MARK_BYTES]


_EVENT_ID = re.compile(r"([A-Za-z0-9_-]{1,128})\.([0-9]{1,15})")
_GET, _REQUEST = "g", "r"
_RANDOM_BYTES = 9

T = TypeVar("T")
"""Streams."""

_REMEMBERED = 32
"""How many streams that have ended a session knows the last event of."""

_MOST_BROKEN = 1_000
"""How many streams with a gap it knows: as many as may have been open when a store failed."""


def parse_event_id(event_id: str) -> tuple[str, int] | None:
    """Return the stream and the number that an event's id names; None if it names none."""
    match = _EVENT_ID.fullmatch(event_id)
    return None if match is None else (match[1], int(match[2]))


def is_get_stream(name: str) -> bool:
    """Return whether a log's name is that of a GET stream; its client can tell us nothing else once it has ended."""
    return name.startswith(_GET)


def lost_request(name: str, process: str | None, session: str) -> RequestId | None:
    """Return which request was answered on a stream in a process that has ended; None if it was none, or in this process.

    Args:
        name: The name of the stream's log.
        process: This one; None if there are no others.
        session: The session whose client names it.
    """
    return None if process is None else request_elsewhere(name, _REQUEST, process, session)


class EventLog:
    """What one stream has said, in a store.

    Args:
        store: Keeps it.
        breaker: Calls the store.
        session: The id of the session that it belongs to.
        name: The stream's name in the store, and in its events' ids; see `ResumableStreams.new_name`.
        primes: Whether it begins with an id without data, as 2025-11-25 has it.

    Attributes:
        session: The id of the session that it belongs to.
        name: The same.
        offered: Whether an event id has gone out: only then can a client come back.
        finished: Whether the last message of the stream was kept.
        used: Whether the store may have something of it.
    """

    __slots__ = (
        "_breaker",
        "_broken",
        "_last",
        "_primes",
        "_store",
        "finished",
        "name",
        "offered",
        "session",
        "used",
    )

    def __init__(
        self, store: EventStore, breaker: CircuitBreaker, session: str, name: str, *, primes: bool
    ) -> None:
        self._store = store
        self._breaker = breaker
        self.session = session
        self._primes = primes
        self._last = 0
        self._broken = False
        self.name = name
        self.offered = False
        self.finished = False
        self.used = False

    @property
    def primes(self) -> bool:
        """Whether the stream begins with an id without data, as 2025-11-25 has it, and as long as its client can come back."""
        return self._primes and not self._broken and not self._breaker.open

    @property
    def resumable(self) -> bool:
        """Whether a client that lost the stream could come back to it."""
        return self.offered and not self._broken

    @property
    def last(self) -> int:
        """The number of the last event that was kept; 0 before the first."""
        return self._last

    def offer(self) -> str:
        """Return the id of the last event, for an event without data that tells it to the client."""
        self.offered = True
        return f"{self.name}.{self._last}"

    def end(self) -> None:
        """Keep nothing any more: nobody can come back."""
        self._broken = True

    async def append(self, said: Sequence[bytes], *, final: bool) -> int | None:
        """Keep messages, and return the number of the first one; None if they were not kept, which ends the resumability.

        A cancellation waits for the store, for no longer than its deadline: afterwards it is known what is kept. What a store
        keeps only after that is not asked for any more, since nobody comes back to a stream with a gap.

        Args:
            said: The encoded messages.
            final: Whether the last of them is the last of the stream.
        """
        if self._broken:
            return None
        try:
            await self._breaker.call(self._asking(said, final))
        except StoreDownError:
            return self._note(said, final, False)
        return self._note(said, final, True)

    def append_soon(
        self, said: Sequence[bytes], told: Callable[[int | None], object], *, final: bool
    ) -> None:
        """Keep messages as `append` does, without waiting for the store: `told` is given what that returns, now or later."""
        if self._broken:
            told(None)
        else:
            self._breaker.begin(self._asking(said, final), lambda kept: told(self._note(said, final, kept)))

    def _asking(self, said: Sequence[bytes], final: bool) -> Callable[[], Awaitable[None]]:
        """What asks the store to keep messages."""
        self.used = True
        return partial(self._store.append, self.session, self.name, self._last + 1, said, final=final)

    def _note(self, said: Sequence[bytes], final: bool, kept: bool) -> int | None:
        """Take note of whether the store has kept messages, and return the number of the first one."""
        if not kept:
            self._broken = True
            return None
        before = self._last
        self._last += len(said)
        self.finished = final
        self.offered = True
        return before + 1


class ResumableStreams(Generic[T]):
    """Where a session's streams are found by the names of their logs.

    Of those that ended lately with nothing left to say it is known where, though no store was ever told of a stream
    without events: whoever comes back to one must hear that there is nothing to wait for, not that it never was. Of
    those with a gap, where the store failed, nothing is replayed, whatever it has of them later on.
    """

    __slots__ = ("_broken", "_ended", "_live", "_names", "_opened", "_used")

    def __init__(self) -> None:
        self._live: dict[str, tuple[T | None, EventLog]] = {}
        # Most sessions have no such streams, and there are many sessions.
        self._ended: dict[str, int] | None = None
        self._broken: dict[str, int] | None = None
        self._names = ""
        self._opened = 0
        self._used = False

    def new_name(self, kind: StreamKind) -> str:
        """Return a name for one more stream.

        Names follow each other, so that a store finds those of a session close together. Another process that has the session, before
        or after this one, begins them otherwise.
        """
        if not self._names:
            self._names = secrets.token_urlsafe(_RANDOM_BYTES)
        self._opened += 1
        return f"{_GET if kind is StreamKind.STANDALONE else _REQUEST}{self._names}{self._opened}"

    def add(self, stream: T | None, log: EventLog) -> None:
        """Enter a stream; or the log alone of what is answered without one."""
        self._live[log.name] = stream, log

    def find(self, name: str) -> T | None:
        """Return a stream that has not ended."""
        live = self._live.get(name)
        return None if live is None else live[0]

    def name_after(self, log: EventLog, process: str, request: RequestId) -> None:
        """Have a stream that was just entered tell in its name which request of which process is answered on it."""
        name = name_request(_REQUEST, process, log.session, request)
        if name is not None:
            self._live[name] = self._live.pop(log.name)
            log.name = name

    def inherit(self) -> None:
        """Know that the store may have something of the session, of another process's streams."""
        self._used = True

    def ended(self, log: EventLog, *, complete: bool) -> None:
        """Note that a stream has ended, and whether its log has all that it had to say."""
        self._live.pop(log.name, None)
        self._used = self._used or log.used
        if log.resumable and complete:
            self._ended = _remember(self._ended, log, _REMEMBERED)
        elif log.offered and not log.resumable:
            self._broken = _remember(self._broken, log, _MOST_BROKEN)

    def ended_with(self, name: str, number: int) -> bool:
        """Return whether a stream is known to have ended with this event, and with nothing left to say."""
        return self._ended is not None and self._ended.get(name) == number

    def has_gap(self, name: str) -> bool:
        """Return whether the store is known not to have all of a stream that has ended."""
        return self._broken is not None and name in self._broken

    def close(self) -> bool:
        """Keep nothing any more, since the session has ended; return whether the store may have something of it."""
        for _, log in self._live.values():
            self._used = self._used or log.used
            log.end()
        return self._used


def _remember(known: dict[str, int] | None, log: EventLog, most: int) -> dict[str, int]:
    """Remember a log and its last event, and forget the first one that is known if there are too many."""
    known = {} if known is None else known
    known[log.name] = log.last
    if len(known) > most:
        del known[next(iter(known))]
    return known
