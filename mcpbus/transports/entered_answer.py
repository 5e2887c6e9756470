"""A whole response with several messages in it, all of which are in the ledger, here or in another process."""

from mcpbus.core.receipt import LOST, Fate, Location, Receipt, enter_all, enter_settled, settle_all
from mcpbus.protocol.http.messages import HttpResponse


class LedgerResponse(HttpResponse, frozen=True, gc=False, kw_only=True):
    """A response with receipts of its own, so that the writer only reports what has become of it.

    Attributes:
        receipts: Those of all messages in it.
        lost: The fate of the messages if the client does not get them, which are in the ledger and in a store already. None if the
            receipts are drafts.
    """

    receipts: list[Receipt]
    lost: Fate | None = None

    def enter(self) -> None:
        """Enter the messages in the ledger, since they take a while to write."""
        if self.lost is None:
            enter_all(self.receipts, Location.WRITING)

    def record(self, fate: Fate) -> None:
        """Enter the messages in the ledger together with their fate."""
        if self.lost is None:
            enter_settled(self.receipts, fate)
        else:
            self.settle(fate)

    def settle(self, fate: Fate) -> None:
        """Give the messages their fate."""
        settle_all(self.receipts, self.lost if fate is LOST and self.lost is not None else fate)
