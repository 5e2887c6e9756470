"""Where answers come from: a `Backend`. The features of a `mcpbus.Server` are one."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeAlias

from mcpbus.core.call import Handler
from mcpbus.core.client_notification import ClientNotification
from mcpbus.core.request_context import RequestContext
from mcpbus.core.session import Session
from mcpbus.protocol.http.mirrored_parameters import MirroredParameter
from mcpbus.protocol.messages import SubscriptionFilter
from mcpbus.protocol.revisions import Era, Revision

Listener: TypeAlias = Callable[[ClientNotification], Awaitable[object]]


class Backend(Protocol):
    """Who answers which method, and what is granted to whom.

    The dispatcher and the transports ask it, and know no more of what is served. What concerns sessions and streams, and calls
    once they run, is theirs. `register` apart, nothing here waits.
    """

    def offers(self, method: str, era: Era, /) -> bool:
        """Whether requests of this method are answered in this era, listens included; asked before anything is allocated for one."""

    def mirrored_parameters(self, tool: str, principal: object, /) -> Sequence[MirroredParameter]:
        """The parameters of a tool that HTTP mirrors into headers; none where this principal sees no such tool."""

    def may_wait(self, method: str, name: object, era: Era, /) -> bool:
        """Whether what answers a request may take more than one step; only then does it need a task that may stay with it.

        Args:
            method: What is asked for.
            name: Whatever was given for a name, which is that of a tool if one is called.
            era: The client's.
        """

    def begin(self, context: RequestContext, /) -> bytes | Handler | None:
        """Answer a request.

        Returns:
            The encoded result object, where it is there at once; what is to be run for it; or None if the method is none of its own.

        Raises:
            ProtocolError: What to answer instead.
        """

    def initialize(self, revision: Revision, session: Session | None, /) -> bytes:
        """The encoded InitializeResult, for a session; None stands for stateless serving."""

    @property
    def registers(self) -> bool:
        """Whether it has something to do before an initialize is answered."""

    async def register(self, session: Session, /) -> None:
        """Do it. If it raises, the session is refused; it is cancelled when its time is over.

        Raises:
            ProtocolError: What to answer instead.
        """

    def listener(self, method: str, /) -> Listener | None:
        """What is to run for a client's notification of this method, in a task of its own; None for nothing.

        It ends in time by itself, and raises nothing of an author's.
        """

    def grant(self, asked: SubscriptionFilter, context: RequestContext, /) -> SubscriptionFilter:
        """What of a filter is honoured; which tasks are whose is not for it to say.

        Raises:
            ProtocolError: What to answer instead.
        """
