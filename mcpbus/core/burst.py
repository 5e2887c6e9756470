"""What a handler says before it waits for anything, for as long as it may go out together with the answer.

Nobody else runs meanwhile, so nobody has to hear of it. It is entered in the books when it is known where it goes, all of it together.
"""

from mcpbus.core.budget import SHORT_BYTES
from mcpbus.core.limits import Limits
from mcpbus.core.outbox import OVERHEAD_BYTES, OutboundMessage


class InlineNotifications:
    """Drafted notifications: few, and less than half of what may wait for a client.

    Args:
        limits: How much may.

    Attributes:
        messages: They, in order.
        held: How many bytes they take.
    """

    __slots__ = ("_most", "held", "messages")

    def __init__(self, limits: Limits) -> None:
        self._most = min(SHORT_BYTES, limits.outbox_bytes // 2, limits.outbox_items * OVERHEAD_BYTES // 2)
        self.messages: list[OutboundMessage] = []
        self.held = 0

    def join(self, message: OutboundMessage) -> bool:
        """Add a notification, if there is room; return whether there was."""
        held = self.held + len(message.data) + OVERHEAD_BYTES
        if held >= self._most:
            return False
        self.held = held
        self.messages.append(message)
        return True
