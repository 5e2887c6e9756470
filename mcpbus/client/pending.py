"""What a client waits for: the answer to a request, or the changes that a listen tells of."""

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

import msgspec
import trio

from mcpbus.client.errors import MalformedAnswerError
from mcpbus.client.kept_notifications import KeptNotifications
from mcpbus.client.reading import LONG_BYTES, Reading, Readings
from mcpbus.client.yielding import Yielder, long_work
from mcpbus.protocol.errors import ProtocolError
from mcpbus.protocol.large import PART_BYTES, decode_without_gc, weigh

MOST_RESULT_WEIGHT: Final = 64 * 1024 * 1024
"""Bytes of memory that a decoded result, or any other message, takes, roughly. A few megabytes of empty lists take a gigabyte."""
_MOST_A_BYTE: Final = 1 + PART_BYTES
"""Bytes of memory for one byte of JSON, at most."""
OnNotification = Callable[[str, dict[str, Any]], object]
"""Called with the method and the params of each notification."""

OnInputRequest: TypeAlias = Callable[[str, dict[str, Any]], Awaitable[Any]]
"""Called with the method and the params of what the server asks; returns the answer, or raises a ProtocolError to refuse it.

All else that it raises is raised again where the request is waited for in which the server asks.
"""

_results: Final = msgspec.json.Decoder(dict[str, Any])
_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def weight_fault(text: msgspec.Raw) -> str | None:
    """Return what is wrong with some JSON if it would take too much memory once it is decoded; None if it would not."""
    if len(text) * _MOST_A_BYTE > MOST_RESULT_WEIGHT and weigh(text) > MOST_RESULT_WEIGHT:
        return _heavy()
    return None


def _heavy() -> str:
    return f"takes more than {MOST_RESULT_WEIGHT:,} bytes of memory: it has too many values"


async def _check_weight(result: msgspec.Raw) -> None:
    """Refuse a result that would take too much memory. It is weighed in pieces: other tasks run in between, and before it is decoded.

    Raises:
        MalformedAnswerError: It would.
    """
    weight, turn = 0, Yielder()
    with memoryview(result) as view:
        for begin in range(0, len(view), LONG_BYTES):
            weight += weigh(view[begin : begin + LONG_BYTES])
            if weight > MOST_RESULT_WEIGHT:
                break
            await turn.pause()
    del result  # the traceback of an error would hold it for as long as the error is there
    if weight > MOST_RESULT_WEIGHT:
        raise MalformedAnswerError(f"the server's result {_heavy()}")
    await trio.lowlevel.checkpoint()


def _size(result: bytes | msgspec.Raw | Exception) -> int:
    """Return the bytes of a result, or the letters of an error."""
    return len(str(result)) if isinstance(result, Exception) else len(result)


class PendingRequest:
    """A request that waits for its answer.

    Args:
        on_notification: Told of its notifications.
        tool: Which tool it calls, if it is a call; whatever the caller gave for a name.
        on_input_request: Answers what is asked in it; None if that is left to what answers for its client.
        readings: Count its result while that waits to be decoded.

    Attributes:
        on_notification: As given.
        tool: As given.
        on_input_request: As given.
        result: The encoded result object, or the error; None until there is either.
        begun: Whether the server has begun to look at it.
        shallow: Whether only the members of the result object are told apart, and their values stay encoded.
        refusals: How many sessions have refused it.
        on_settled: Called when there is a result or an error; None if the request waits in no queue.
    """

    __slots__ = (
        "_reading",
        "_readings",
        "_task",
        "begun",
        "on_input_request",
        "on_notification",
        "on_settled",
        "refusals",
        "result",
        "shallow",
        "tool",
    )

    def __init__(
        self,
        on_notification: OnNotification | None = None,
        tool: object = None,
        on_input_request: OnInputRequest | None = None,
        readings: Readings | None = None,
    ) -> None:
        self._readings = readings
        self._reading: Reading | None = None
        self.on_notification = on_notification
        self.tool = tool
        self.on_input_request = on_input_request
        self.result: bytes | msgspec.Raw | Exception | None = None
        self.begun = False
        self.shallow = False
        self.refusals = 0
        self.on_settled: Callable[[], object] | None = None
        # An event would cost more than all else here; and there is one task that can wait.
        self._task: trio.lowlevel.Task | None = None

    @trio.lowlevel.enable_ki_protection
    def settle(self, result: bytes | msgspec.Raw | Exception) -> None:
        """Say what came of it. What comes later changes nothing."""
        if self.result is None:
            self.result = result
            if self._readings is not None and (size := _size(result)) >= LONG_BYTES:
                self._reading = Reading(self._readings, self._fail)
                self._reading.hold(2 * size)  # it will be there twice: as it came, and decoded
            if self.on_settled is not None:
                self.on_settled()
            if self._task is not None:
                task, self._task = self._task, None
                trio.lowlevel.reschedule(task)

    async def wait(self) -> dict[str, Any]:
        """Wait for the result object, if it is not there, and decode it. A checkpoint if it waits.

        Raises:
            ProtocolError: The server answered with an error.
            ClientError: There is no answer.
        """
        try:
            if self.result is None:
                self._task = trio.lowlevel.current_task()
                await trio.lowlevel.wait_task_rescheduled(self._wait_no_longer)
            if not (isinstance(self.result, msgspec.Raw) and len(self.result) >= LONG_BYTES):
                return self.decode()
            async with long_work(cancellable=True):
                if isinstance(self.result, msgspec.Raw):  # it may have been given up until now
                    try:
                        await _check_weight(self.result)
                    except MalformedAnswerError:
                        self._drop()
                        # No task hears of an error that a cancelled one raises.
                        await trio.lowlevel.checkpoint_if_cancelled()
                        raise
                return self.decode()
        finally:
            self.release()

    def release(self) -> None:
        """Count the result no longer: it is decoded, or no task waits for it."""
        reading, self._reading = self._reading, None  # each refers to the other, and so to the result
        if reading is not None:
            reading.close()

    def _fail(self) -> None:
        """Give up a result that waits to be decoded."""
        assert self._reading is not None  # noqa: S101 - it calls this
        self.result = self._reading.failure

    def decode(self) -> dict[str, Any]:
        """Decode the result object, which is there, and hold it no longer; as `wait` in all else."""
        result = self.result
        self._drop()
        if isinstance(result, Exception):
            try:
                raise result
            finally:
                del result  # each would hold the other, and so the arguments of the call, until the garbage is collected
        assert result is not None  # noqa: S101 - settled
        try:
            return _members.decode(result) if self.shallow else decode_without_gc(_results.decode, result)
        except (msgspec.DecodeError, RecursionError) as fault:
            why = str(fault)
        del result  # a traceback would hold it for as long as the error is there
        raise MalformedAnswerError(f"the server's result is none: {why}")

    def _drop(self) -> None:
        """Hold the result no longer. There still is one."""
        self.result = b""

    def _wait_no_longer(self, _: object) -> trio.lowlevel.Abort:
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED


class ChangeSubscription:
    """Somebody who listens to changes, see `Client.listen`: iterate over it for ``(method, params)`` of each change, until it ends.

    Attributes:
        acknowledged: What the server agreed to tell, as it said.
    """

    def __init__(self) -> None:
        self.acknowledged: dict[str, Any] = {}
        self._kept = KeptNotifications()
        self._stirred = trio.lowlevel.ParkingLot()
        self._begun = trio.Event()
        self._ended = False

    @property
    def dropped(self) -> int:
        """The number of changes that were dropped, the oldest first, since too many waited, or too large ones."""
        return self._kept.dropped

    async def acknowledgement(self, pending: PendingRequest) -> None:
        """Wait for the acknowledgement. For the client."""
        await self._begun.wait()
        if not self.acknowledged:
            await pending.wait()

    def put(self, method: str, params: dict[str, Any], text: msgspec.Raw) -> None:
        """Take a message of this subscription, whose params were this text. For the client."""
        if method == "notifications/subscriptions/acknowledged":
            self.acknowledged = params
            self._begun.set()
        elif not self._ended:
            self._kept.add(method, params, text)
            self._stirred.unpark()

    def end(self) -> None:
        """Note that the subscription has ended. For the client."""
        self._ended = True
        self._stirred.unpark_all()
        self._begun.set()

    def __aiter__(self) -> "ChangeSubscription":
        return self

    async def __anext__(self) -> tuple[str, dict[str, Any]]:
        await trio.lowlevel.checkpoint()
        while not self._kept.items:
            if self._ended:
                raise StopAsyncIteration
            await self._stirred.park()
        return self._kept.take()


def received(error: ProtocolError) -> ProtocolError:
    """Return an error of the server's as its client gets it: without the server's traceback, and with data of its own."""
    data = None if error.encoded_data is None else msgspec.json.decode(error.encoded_data)
    return ProtocolError(error.code, error.message, data)
