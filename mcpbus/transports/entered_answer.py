"""Whole answers that are in the books already, so that whoever writes them only tells what has become of them."""

from mcpbus.core.receipt import LOST, STORED, Fate, Receipt, settle_all
from mcpbus.protocol.http.messages import Answer


class EnteredAnswer(Answer, frozen=True, gc=False):
    """An answer that is entered, here or in another process; see `Entry`, which it is."""

    def settle(self, fate: Fate) -> None:
        """Say what has become of it."""
        raise NotImplementedError


class SpokenAnswer(EnteredAnswer, frozen=True, gc=False, kw_only=True):
    """An answer with what was said before the reply.

    Attributes:
        receipts: Of all that is in it.
        kept: Whether its client finds in a store what it did not get.
    """

    receipts: list[Receipt]
    kept: bool = False

    def settle(self, fate: Fate) -> None:
        """Give all that is in it its fate."""
        settle_all(self.receipts, STORED if self.kept and fate is LOST else fate)
