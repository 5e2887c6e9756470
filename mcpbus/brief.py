"""Requests in brief: served without an actor, for as long as nobody could tell the difference.

Most handlers end without ever waiting. Nothing else runs meanwhile, so nothing can be said to the request, and nothing it says
can be in anybody's way: an actor and a stream for it would be made, and gone, unseen. They appear as soon as somebody needs
them: when the handler waits, when it says something or asks, or when anybody looks for the request.
"""

import contextvars
from collections.abc import Callable

import trio

from actors import Guest
from mcpbus.admission import Slot
from mcpbus.asking.ask import Required
from mcpbus.call import Carrier, Handler, read_outcome, run_rounds
from mcpbus.context import Context
from mcpbus.fate import Reason
from mcpbus.protocol.errors import ProtocolError
from mcpbus.stream import Stream


class Brief:
    """An admitted request whose handler is run by whoever waits for the answer.

    Args:
        carrier: What its handler speaks through.
        handler: What to run.
        slot: Its place at admission.
        appear: Starts its actor with a task, and returns the stream on which the reply comes.
        scope: See `actors.Guest`.

    Attributes:
        stream: Where the reply comes, if there is an actor by now; otherwise None.
        opened: Given the stream as soon as there is one; to be set before the handler begins.
        guest: Its handler's task.
    """

    __slots__ = ("_appear", "_carrier", "_slot", "guest", "opened", "stream")

    def __init__(
        self,
        carrier: Carrier,
        handler: Handler,
        slot: Slot,
        appear: Callable[[Guest], Stream],
        scope: trio.CancelScope,
    ) -> None:
        self._appear = appear
        self._carrier = carrier
        self._slot = slot
        self.stream: Stream | None = None
        self.opened: Callable[[Stream], None]
        context = Context(carrier.bus, carrier)
        self.guest = Guest(
            run_rounds, handler, context, carrier, context=contextvars.copy_context(), scope=scope
        )
        carrier.appear = slot.appear = self.appear

    def begin(self) -> bytes | ProtocolError | None:
        """Run the handler until it waits, or ends. No schedule point.

        Returns:
            The encoded result object, or the error to answer with, if that was all; otherwise None, and there is a `stream`.
        """
        try:
            ended = self.guest.begin()
        except BaseException:
            self._leave(Reason.FAILED)
            raise
        if self.stream is None and ended and self.guest.outcome is not None:
            outcome = read_outcome(self.guest.outcome)
            if not isinstance(outcome, Required):
                self._leave(Reason.FINISHED)
                return outcome
            self.appear()
            self._carrier.call.tell(outcome)
        self.appear()
        return None

    def appear(self) -> None:
        """Start the actor, if it is not there."""
        if self.stream is None:
            self._carrier.appear = self._slot.appear = None
            self.stream = self._appear(self.guest)
            self.opened(self.stream)

    def _leave(self, reason: Reason) -> None:
        if self.stream is None:
            self._carrier.appear = self._slot.appear = None
            self._carrier.ended = reason
            self._slot.release()
