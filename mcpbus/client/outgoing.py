"""Messages that wait to be written to a server, counted in items and bytes; a request leaves the queue when its call ends."""

from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

import attrs
import trio

from mcpbus.client.errors import ClientError, DisconnectedError
from mcpbus.client.pending import PendingRequest

MOST_WAITING: Final = 1024
"""Messages that wait for one server."""
MOST_WAITING_BYTES: Final = 64 * 1024 * 1024
"""Bytes of the messages that wait while another one is written. A message that is alone may have more."""
_MOST_AT_ONCE: Final = 4
"""How many times as much may come in one moment, while none is written."""

OnWaiting = Callable[[int], object]
"""Called with the bytes that wait now, each time that they change."""


class _Waiting(Protocol):
    @property
    def request(self) -> PendingRequest | None:
        """The request that the message is; None for notifications and answers."""

    @property
    def size(self) -> int:
        """Bytes of the message."""


_T = TypeVar("_T", bound=_Waiting)


@attrs.define(eq=False)
class SendQueue(Generic[_T]):
    """A queue of messages to one server, the oldest first.

    Args:
        name: The server's name, for errors.

    Attributes:
        size: Bytes that wait in the queue.
        writing: Bytes that were taken and are not written yet.
        on_waiting: Called with the sum of the two when it changes.
    """

    _name: str
    size: int = attrs.field(default=0, init=False)
    writing: int = attrs.field(default=0, init=False)
    on_waiting: OnWaiting | None = attrs.field(default=None, init=False)
    # A dict, so that a message in the middle can leave.
    _messages: dict[_T, None] = attrs.field(factory=dict, init=False)
    _parked: dict[_T, None] = attrs.field(factory=dict, init=False)
    # Whether the writer waits for a message.
    _taking: bool = attrs.field(default=False, init=False)
    _closed: bool = attrs.field(default=False, init=False)
    _stirred: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot, init=False)

    def __len__(self) -> int:
        return len(self._messages)

    def put(self, message: _T) -> None:
        """Queue a message. A request leaves the queue by itself when it is settled.

        Raises:
            DisconnectedError: The server takes no messages, or the client was closed.
        """
        if self._closed:
            raise DisconnectedError("the client was closed")
        if self._messages and self._is_full(message.size):
            raise DisconnectedError(
                f"{self._name} reads nothing: {len(self._messages):,} messages with {self.size:,} bytes wait for it"
            )
        self._add(message, self._messages)
        self._stirred.unpark()

    def _is_full(self, more: int) -> bool:
        """Whether too much waits. A burst of long messages does not show that the server reads nothing."""
        if len(self._messages) + len(self._parked) >= MOST_WAITING:
            return True
        return self.size + more > MOST_WAITING_BYTES * (_MOST_AT_ONCE if self._taking else 1)

    async def take(self) -> _T | None:
        """Wait for the oldest message, which is to be `written`. None once the queue is closed and empty. A checkpoint if it waits."""
        self._taking = True
        try:
            while not (self._messages or self._closed):
                await self._stirred.park()
        finally:
            self._taking = False
        return self.take_nowait()

    def take_nowait(self) -> _T | None:
        """Return the oldest message, as `take` does; None if none waits."""
        message = next(iter(self._messages), None)
        if message is not None:
            self.writing += message.size
            self._remove(message)
        return message

    def written(self, message: _T) -> None:
        """Count a message that was taken no longer."""
        self.writing -= message.size
        self._tell()

    def park(self, message: _T) -> None:
        """Keep a message that was taken until `release`: the server does not accept it now. It counts as before."""
        self.writing -= message.size
        if message.request is None or message.request.result is None:
            self._add(message, self._parked)
        else:
            self._tell()

    def release(self) -> None:
        """Queue all messages that are parked."""
        self._messages |= self._parked
        self._parked.clear()
        self._stirred.unpark()

    def fail_parked(self, error: ClientError) -> None:
        """Fail the requests that are parked."""
        for message in [*self._parked]:
            if message.request is not None:
                message.request.settle(error)

    def withdraw(self, why: str) -> None:
        """Remove all requests that wait. Their calls fail with `DisconnectedError`."""
        for message in [*self._messages, *self._parked]:
            if message.request is not None:
                message.request.settle(DisconnectedError(why))

    def close(self) -> None:
        """Accept no more messages."""
        self._closed = True
        self._stirred.unpark_all()

    def _add(self, message: _T, lane: dict[_T, None]) -> None:
        lane[message] = None
        self.size += message.size
        if message.request is not None:
            message.request.on_settled = lambda: self._remove(message)
        self._tell()

    def _remove(self, message: _T) -> None:
        lane = self._messages if message in self._messages else self._parked
        del lane[message]
        self.size -= message.size
        if message.request is not None:
            message.request.on_settled = None
        self._tell()

    def _tell(self) -> None:
        if self.on_waiting is not None:
            self.on_waiting(self.size + self.writing)
