"""Requests in brief: served without an actor, for as long as nobody could tell the difference.

Most handlers end without ever waiting. Nothing else runs meanwhile, so nothing can be said to the request, and nothing it says
can be in anybody's way: an actor and a stream for it would be made, and gone, unseen. They appear as soon as somebody needs
them: when the handler waits, when it says something or asks, or when anybody looks for the request.
"""

from collections.abc import Callable

from actors import Guest
from mcpbus.admission import Slot
from mcpbus.asking.ask import Required
from mcpbus.call import Carrier, read_outcome
from mcpbus.emission import Emission, Progress
from mcpbus.fate import Reason
from mcpbus.inbound import Inbound, OpenStream
from mcpbus.protocol.errors import ProtocolError
from mcpbus.request import RequestActor, unwanted
from mcpbus.routing import Line
from mcpbus.stream import Stream

# Before Python 3.12 each look-up by a class's name is a search.
_FINISHED = Reason.FINISHED


class Brief(Guest, kw_only=True, eq=False):
    """An admitted request whose handler is run by whoever waits for the answer: it is the handler's task.

    Attributes:
        inbound: The request.
        slot: Its place at admission.
        carrier: What its handler speaks through.
        open_stream: Opens the stream for its reply.
        stream: Where the reply comes, if there is an actor by now; otherwise None.
        opened: Given the stream as soon as there is one; to be set before the handler is run.
    """

    inbound: Inbound
    slot: Slot
    carrier: Carrier
    open_stream: OpenStream
    stream: Stream | None = None
    opened: Callable[[Stream], None] | None = None

    def run(self) -> bytes | ProtocolError | None:
        """Run the handler until it waits, or ends. No schedule point.

        Returns:
            The encoded result object, or the error to answer with, if that was all; otherwise None, and there is a `stream`.
        """
        try:
            self.begin()
        except BaseException:
            if self.stream is None:
                self._leave(Reason.FAILED)
            raise
        if self.stream is None and self.outcome is not None:
            outcome = read_outcome(self.outcome)
            if not isinstance(outcome, Required):
                self._leave(_FINISHED)
                return outcome
            self.appear()
            self.carrier.call.tell(outcome)
        self.appear()
        return None

    def appear(self) -> None:
        """Start the actor, if it is not there."""
        if self.stream is None:
            inbound, carrier, bus = self.inbound, self.carrier, self.carrier.bus
            carrier.brief = self.slot.brief = None
            ticket = inbound.ticket(bus, self.slot, self.open_stream(Line.OWN, inbound.session))
            bus.system.spawn(RequestActor, ticket, bus.ledger, carrier, self)
            self.stream = ticket.stream
            # The task outlives its connection, which is not to wait for the garbage collector with it.
            opened, self.opened = self.opened, None
            assert opened is not None  # noqa: S101 - see there
            opened(self.stream)

    def unwanted(self, said: Emission | Progress) -> Reason | None:
        """Tell why its client does not want something that needs no actor then; None if it does."""
        inbound = self.inbound
        return unwanted(said, inbound.routing.meta.progress_token, inbound.threshold(self.carrier.bus))

    def _leave(self, reason: Reason) -> None:
        carrier, slot = self.carrier, self.slot
        carrier.brief = slot.brief = None
        carrier.ended = reason
        slot.release()
