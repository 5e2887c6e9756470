"""What becomes of a session with which another process goes on."""

from contextvars import Context
from typing import Final

import msgspec
from mcpbus_actors import ActorContext, Address

from mcpbus.core.message_stream import MessageStream
from mcpbus.core.sessions.delivery import SessionDelivery
from mcpbus.core.sessions.messages import SessionTakenOver, YieldSession
from mcpbus.core.sessions.session import Session, SessionCallbacks
from mcpbus.core.signals import ReturnUnsentAndEnd, Supersede

_RETURN_SECONDS: Final = 1.0
"""How long streams may take to return what they have not written, which they do at once."""


class MigrateNow(msgspec.Struct, frozen=True):
    """Wait no longer for what streams have not written."""


class SessionMigration:
    """Lets one session go elsewhere. A part of its actor, and nobody else's.

    Either this process ends, and hands the session over: it leaves as soon as nothing is on its way to the client any more, and what is
    held is in the store. Or this process was not heard of for so long that another one has taken the session over: it is found here no
    more then, and passes on what is still to be said, but lasts until the requests in flight have their answers, for which the client
    waits here.

    Args:
        cell: The cell of the session's actor.
        session: The session.
        directory: Where it is entered.
        delivery: What sends what is said to it.
    """

    __slots__ = (
        "_cell",
        "_delivery",
        "_departed",
        "_directory",
        "_leave",
        "_passed_on",
        "_session",
        "_taken_over",
    )

    def __init__(
        self,
        cell: ActorContext[object],
        session: Session,
        directory: SessionCallbacks,
        delivery: SessionDelivery,
    ) -> None:
        self._cell = cell
        self._session = session
        self._directory = directory
        self._delivery = delivery
        self._leave: YieldSession | None = None
        self._passed_on: tuple[MessageStream, ...] = ()
        self._taken_over: SessionTakenOver | None = None
        self._departed = False

    def on_get(self, stream: MessageStream) -> None:
        """Have a GET stream that the client has just opened go elsewhere, if the session does."""
        if self._taken_over is not None:
            stream.address.tell(ReturnUnsentAndEnd())
        elif self._leave is not None:
            self._let_go(stream)

    def on_stream_end(self, stream: Address[object]) -> None:
        """Hear that a stream has ended."""
        if self._passed_on:
            self._passed_on = tuple(each for each in self._passed_on if each.address != stream)
        self.leave_if_silent()

    def reconnect(self) -> None:
        """Have the GET stream go elsewhere, and the session stay."""
        if self._delivery.get is not None:
            self._let_go(self._delivery.get)
            self._delivery.note_dropped()

    def _let_go(self, stream: MessageStream) -> None:
        """Have a GET stream end here, whose client goes on elsewhere; what it returns is held."""
        self._delivery.let_go(stream)
        self._passed_on += (stream,)
        self._cell.watch(stream.address)
        stream.address.tell(ReturnUnsentAndEnd())

    # -- this process ends -----------------------------------------------------------------------

    def leave(self, message: YieldSession) -> None:
        """Have nothing more be said to the client; see `YieldSession`."""
        self._leave = message
        self._delivery.expects_reconnect = True
        if self._delivery.returning_stream is not None:
            self._let_go(self._delivery.returning_stream)
        if self._delivery.get is not None:
            self._let_go(self._delivery.get)
        self.leave_if_silent()

    def hurry(self) -> None:
        """Wait no longer for clients to take what is being written."""
        for stream in self._passed_on:
            stream.address.tell(Supersede())

    def leave_if_silent(self) -> None:
        """Tell whoever waits for it that nothing is on its way to the client any more, if so."""
        if self._leave is not None and not self._passed_on and not self._delivery.loading_held:
            self._leave.done()

    # -- another process has the session ---------------------------------------------------------

    def take_over(self, message: SessionTakenOver) -> None:
        """Go on elsewhere, as soon as it is known what streams have not written."""
        self._taken_over = message
        if self._delivery.get is not None:
            self._delivery.get.address.tell(ReturnUnsentAndEnd())
        self._cell.after(_RETURN_SECONDS, MigrateNow())
        self.depart_if_returned()

    def depart_if_returned(self) -> None:
        """Depart once it is here what streams have not written, of a session that another process has."""
        if self._delivery.get is None and self._delivery.returning_stream is None:
            self.depart()

    def depart(self) -> None:
        """Be found no more, and wait until what is in flight has its answers, which its client still waits for here."""
        if self._taken_over is not None and not self._departed:
            self._departed = True
            self._delivery.pass_on(self._taken_over.pass_on)
            self._directory.depart(self._session)
            self._cell.start_task(self._session.in_flight.wait_idle, context=Context())

    def end(self) -> None:
        """Have nobody wait: the session has ended."""
        if self._leave is not None:
            self._leave.done()
        if self._taken_over is not None:
            self._delivery.pass_on(self._taken_over.pass_on)
