"""Whole answers with more in them than a reply, so that whoever writes them only tells what has become of them."""

from mcpbus.core.receipt import LOST, Fate, Location, Receipt, enter_all, enter_settled, settle_all
from mcpbus.protocol.http.messages import HttpResponse


class LedgerResponse(HttpResponse, frozen=True, gc=False):
    """An answer that has its own place in the books, here or in another process; see `Entry`, which it is once it is entered."""

    def enter(self) -> None:
        """Enter it, since it takes a while to write."""

    def record(self, fate: Fate) -> None:
        """Enter it, unless it is another process's, together with what has become of it."""
        self.settle(fate)

    def settle(self, fate: Fate) -> None:
        """Say what has become of it."""
        raise NotImplementedError


class ResponseWithNotifications(LedgerResponse, frozen=True, gc=False, kw_only=True):
    """An answer with what was said before the reply, all of which is drafted.

    Attributes:
        receipts: Of all that is in it.
    """

    receipts: list[Receipt]

    def enter(self) -> None:
        """Enter all that is in it."""
        enter_all(self.receipts, Location.WRITING)

    def record(self, fate: Fate) -> None:
        """Enter all that is in it together with its fate."""
        enter_settled(self.receipts, fate)

    def settle(self, fate: Fate) -> None:
        """Give all that is in it its fate."""
        settle_all(self.receipts, fate)


class StoredResponse(LedgerResponse, frozen=True, gc=False, kw_only=True):
    """An answer with what was said before the reply, all of which was entered before a store was asked to keep it.

    Attributes:
        receipts: Of all that is in it.
        lost: What becomes of it if its client does not get it, who finds in the store what that has.
    """

    receipts: list[Receipt]
    lost: Fate

    def settle(self, fate: Fate) -> None:
        """Give all that is in it its fate."""
        settle_all(self.receipts, self.lost if fate is LOST else fate)
