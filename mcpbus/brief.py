"""Requests in brief: served without an actor, for as long as nobody could tell the difference.

Most handlers end without ever waiting. Nothing else runs meanwhile, so nothing can be said to the request, and nothing it says
can be in anybody's way: an actor for it, and one for its stream, would be made, and gone, unseen. They appear as soon as
somebody needs them: when the handler waits or asks, when its client goes away, or when anybody looks for the request.
"""

from collections.abc import Callable

import trio

from actors import Guest
from mcpbus.admission import Slot
from mcpbus.asking.ask import Required
from mcpbus.call import Carrier, read_outcome
from mcpbus.emission import Emission, Progress
from mcpbus.inbound import Inbound, OpenStream
from mcpbus.protocol.errors import ProtocolError, internal_error
from mcpbus.protocol.routes import Line, Reason
from mcpbus.request import RequestActor, Ticket
from mcpbus.stream import Stream
from mcpbus.voice import Voice

# Before Python 3.12 each look-up by a class's name is a search.
_FINISHED, _OWN = Reason.FINISHED, Line.OWN


class Brief(Guest, kw_only=True, eq=False):
    """An admitted request whose handler is run by whoever waits for the answer: it is the handler's task.

    Attributes:
        inbound: The request.
        slot: Its place at admission.
        carrier: What its handler speaks through.
        open_stream: Opens the stream for its reply.
        voice: Puts into messages what its handler says, if it has said something.
        ticket: What its actor has to know, if it has said something on a stream.
        opened: Given the stream as soon as there is one; to be set before the handler is run.
    """

    inbound: Inbound
    slot: Slot
    carrier: Carrier
    open_stream: OpenStream
    voice: Voice | None = None
    ticket: Ticket | None = None
    opened: Callable[[Stream], None] | None = None

    def run(self) -> bytes | ProtocolError | None:
        """Run the handler until it waits, or ends. No schedule point.

        Returns:
            The encoded result object, or the error to answer with, if nobody has answered, or will; otherwise None.
        """
        try:
            self.begin()
        except BaseException:
            self._answer(internal_error(), Reason.FAILED)
            raise
        if self.outcome is not None and self.carrier.brief is self:
            outcome = read_outcome(self.outcome)
            if not isinstance(outcome, Required):
                return self._answer(outcome, _FINISHED)
            self.carrier.tell_call(outcome)
        self.appear()
        return None

    @trio.lowlevel.enable_ki_protection
    def say(self, said: Emission | Progress) -> None:
        """Say something on the request's stream."""
        if self.voice is None:
            self.voice = self.inbound.voice(self.carrier.bus)
        message = self.voice.word(said)
        if message is not None:
            stream = self.carrier.stream or self.open()
            # A shared channel has its actor already, and others who speak.
            (stream.send if stream.brief is None else stream.put)(message)

    def open(self) -> Stream:
        """Open the stream; to be called once."""
        ticket = self.ticket = self._make_ticket()
        stream = self.carrier.stream = ticket.stream
        if stream.line is _OWN:
            stream.brief = self
        self._show(stream)
        return stream

    def appear(self) -> None:
        """Start the actor, if it is not there."""
        carrier = self.carrier
        if carrier.brief is self:
            spoken = self._leave()
            ticket, bus = spoken or self._make_ticket(), carrier.bus
            bus.system.spawn(RequestActor, ticket, bus.ledger, carrier, self, self.voice)
            if spoken is None:
                self._show(ticket.stream)

    def _make_ticket(self) -> Ticket:
        inbound = self.inbound
        return inbound.ticket(self.carrier.bus, self.slot, self.open_stream(_OWN, inbound.session))

    def _show(self, stream: Stream) -> None:
        # The task outlives its connection, which is not to wait for the garbage collector with it.
        opened, self.opened = self.opened, None
        assert opened is not None  # noqa: S101 - see there
        opened(stream)

    @trio.lowlevel.enable_ki_protection
    def _answer(self, result: bytes | ProtocolError, reason: Reason) -> bytes | ProtocolError | None:
        """End the request if it has no actor; return what to answer, unless it has said something on a stream, which has that now."""
        carrier = self.carrier
        if carrier.brief is not self:
            return None
        ticket = self._leave()
        carrier.stream, carrier.ended = None, reason
        self.slot.release()
        if carrier.account is not None:
            carrier.let_go()
        if ticket is None:
            return result
        stream, reply = ticket.stream, ticket.reply(carrier.bus.ledger, result)
        if stream.line is not _OWN:
            # What was said may still be in the mailbox of the channel's actor, and the reply comes after it.
            stream.send(reply)
            return None
        stream.put(reply)
        if not stream.over:
            stream.address  # noqa: B018 - what is still to be written is its actor's from now on
        return None

    def _leave(self) -> Ticket | None:
        """Be in brief no longer, and return the ticket if there is one."""
        self.carrier.brief = self.slot.brief = None
        ticket, self.ticket = self.ticket, None
        if ticket is not None:
            ticket.stream.brief = None
        return ticket
