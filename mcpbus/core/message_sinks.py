"""What a call speaks to its client by: its request, the task that it has become, or nothing any more."""

import msgspec
from mcpbus_actors import Address, LazyActor

from mcpbus.core.bus_services import BusServices
from mcpbus.core.outbound import OutboundNotification, Progress
from mcpbus.protocol.routes import Reason


class MessageSink(LazyActor[object], eq=False):
    """The request by which a call speaks to its client."""

    def say(self, said: OutboundNotification | Progress) -> bool:
        """Send what is said, which is drafted, and enter it in the books.

        Returns:
            Whether there is room for more at once: it has arrived where it waits to be written, and little else does.
        """
        raise NotImplementedError


class TaskSink(msgspec.Struct, frozen=True):
    """Carries a call that has become a task.

    Attributes:
        address: Of the task's actor.
        bus: Its bus.
    """

    address: Address[object]
    bus: BusServices

    def say(self, said: OutboundNotification | Progress) -> bool:
        """See `MessageSink.say`."""
        said.receipt.emit()
        self.bus.flush_mailbox(said.data)
        self.address.tell(said)
        return said.receipt.fate is not None


class NullSink(msgspec.Struct, frozen=True):
    """Carries a call that reaches nobody.

    Attributes:
        reason: Why.
    """

    reason: Reason

    def say(self, said: OutboundNotification | Progress) -> bool:
        """See `MessageSink.say`. It is discarded."""
        said.receipt.emit()
        said.receipt.discard(self.reason)
        return True
