"""The call actor: one run of an author's handler.

It owns the handler's task. What the handler says reaches a client through the request that carries the call,
which the handler's `Context` finds in the call's `Carrier`.
"""

import contextvars
from collections.abc import Awaitable, Callable

import msgspec

from actors import Address, Cell, Failed, StopReason, Succeeded, TaskEnded
from mcpbus.fate import Reason
from mcpbus.protocol.errors import ProtocolError, internal_error


class CancelCall(msgspec.Struct, frozen=True):
    """Cancel the handler; nobody waits for its result any more."""


class Finished(msgspec.Struct, frozen=True):
    """Told to the request: the handler has ended.

    Attributes:
        result: The encoded result object, or the error to answer with.
    """

    result: bytes | ProtocolError


class Carrier:
    """The request by which a call speaks to its client.

    Attributes:
        address: The request's actor.
        ended: Why what is said now reaches nobody; None while the request is open.
    """

    __slots__ = ("address", "ended")

    address: Address[object]

    def __init__(self) -> None:
        self.ended: Reason | None = None


class CallActor:
    """Runs one handler in a task of its own."""

    def __init__(
        self,
        cell: Cell[object],
        carrier: Carrier,
        run: Callable[[], Awaitable[bytes]],
        context: contextvars.Context,
    ) -> None:
        self._cell = cell
        self._carrier = carrier
        cell.on_stop(self._ended)
        self._task = cell.start_task(run, context=context)

    def handle(self, message: object) -> None:
        """Handle one message; see `actors.Actor`."""
        if isinstance(message, TaskEnded):
            self._carrier.address.tell(Finished(_result(message)))
            self._cell.stop()
        else:
            self._task.cancel()

    def _ended(self, reason: StopReason) -> None:
        if reason is StopReason.FAILED:
            self._carrier.address.tell(Finished(internal_error()))


def _result(end: TaskEnded) -> bytes | ProtocolError:
    outcome = end.outcome
    if isinstance(outcome, Succeeded):
        return outcome.value  # type: ignore[no-any-return]  # what Prepared.run returns
    if isinstance(outcome, Failed) and isinstance(outcome.exception, ProtocolError):
        return outcome.exception
    return internal_error()
