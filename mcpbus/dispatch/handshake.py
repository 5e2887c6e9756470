"""initialize: how a legacy session is registered, and what it is answered."""

import logging

import msgspec
import trio

from mcpbus.core.call import CallActor
from mcpbus.core.hub import Hub
from mcpbus.core.request_context import RequestContext
from mcpbus.core.sessions.messages import CloseSession, Registered
from mcpbus.core.sessions.session import Session, SessionStage
from mcpbus.protocol.errors import INTERNAL_ERROR, ProtocolError
from mcpbus.protocol.large import weigh
from mcpbus.protocol.messages import InitializeParams
from mcpbus.protocol.revisions import Revision
from mcpbus.protocol.routes import TransportKind

_log = logging.getLogger("mcpbus")


class Registration:
    """Registers one session: has the backend prepare for it, has it kept where others can go on with it, then answers initialize.

    Until the answer the session is in no directory. If the backend raises, or takes too long, or the client leaves,
    nothing of it is kept.
    """

    replayable = False
    rounds = False
    own_rounds = False
    task_support = None

    def __init__(self, bus: Hub, session: Session, params: InitializeParams, revision: Revision) -> None:
        self._bus = bus
        self._session = session
        self._records = bus.session_directory.records_of(session)
        session.revision = revision
        session.client_info = msgspec.to_builtins(params.client_info)
        session.client_capabilities = params.capabilities
        session.stage = SessionStage.REGISTERING
        self._size = weigh(msgspec.json.encode([params.capabilities, params.client_info]))
        session.account.hold(self._size)

    @property
    def is_kept(self) -> bool:
        """Whether others can go on with the session."""
        return self._records is not None

    async def run(self, call: CallActor) -> bytes:
        """Have the backend prepare for it in the present task, and return the encoded InitializeResult.

        Raises:
            ProtocolError: -32603: the session could not be registered, or not be kept.
        """
        try:
            await self.prepare(call.context)
            if self._records is not None:
                await self._records.keep(self._session)
            return self.complete()
        except BaseException:
            self.abandon()
            raise

    def abandon(self) -> None:
        """Keep nothing of the session; a shared channel is as it was before."""
        if self._session.transport is TransportKind.DUPLEX:
            self._session.revision = None
            self._session.enter(SessionStage.CONNECTED)
            if not self._session.address.stopped:
                self._session.account.release(self._size)
        else:
            self._session.address.tell(CloseSession(None))

    def complete(self) -> bytes:
        """Enter the session in the directory, and return the encoded InitializeResult."""
        session = self._session
        self._bus.session_directory.registered(session)
        session.address.tell(Registered())
        assert session.revision is not None  # noqa: S101 - set above
        return self._bus.backend.initialize(session.revision, session)

    async def prepare(self, context: RequestContext | None) -> None:
        """Have the backend prepare for it in the present task.

        Args:
            context: The `initialize` request; None if another process got it.

        Raises:
            ProtocolError: -32603: that took too long.
        """
        limit = self._bus.limits.on_session_timeout
        with trio.move_on_after(limit) as scope:
            await self._bus.backend.register(self._session, context)
        if scope.cancelled_caught:
            self._bus.limit_monitor.note("on_session_timeout", self._session.owner, "a session was refused")
            raise ProtocolError(INTERNAL_ERROR, "The session could not be registered in time")
