"""A whole response while it is written: counted, entered in the ledger here or in another process, and settled in the end."""

from collections.abc import Callable
from types import TracebackType

import trio

from mcpbus.core.memory_budget import SHORT_BYTES, MemoryAccount, MemoryBudget
from mcpbus.core.receipt import DELIVERED, LOST, Fate, Location, Receipt, enter_all, enter_settled, settle_all
from mcpbus.protocol.http.messages import HttpResponse
from mcpbus.transports.response_sinks import SettleableResponse


class RecordedResponse:
    """An answer that is being written; it is delivered if that does not raise, and lost if it does.

    A short one is not counted, nor given up: the connections bound how many there are, and what is refused for want of memory is
    told so.

    Args:
        entry: What is settled when it is written; None if it has no place in the books.
        budget: Where it is counted meanwhile. If there is too much, writing it is given up.
        size: How many bytes it has.
        give_up: Ends a write that is shielded from cancellation; see `TaskResponse.give_up`.
    """

    __slots__ = ("_budget", "_counted", "_entry", "_give_up", "_size")

    def __init__(
        self,
        entry: SettleableResponse | None,
        budget: MemoryBudget,
        size: int,
        give_up: Callable[[], object] | None = None,
    ) -> None:
        self._entry = entry
        self._budget = budget
        self._size = size
        self._give_up = give_up
        self._counted: tuple[MemoryAccount, trio.CancelScope] | None = None

    def __enter__(self) -> None:
        """Begin to write it."""
        if self._size > SHORT_BYTES:
            scope = trio.CancelScope()
            account = self._budget.account("an answer", self._cut)
            self._counted = account, scope
            scope.__enter__()
            account.hold(2 * self._size)  # it is there twice, as a stream's messages are

    def _cut(self) -> None:
        assert self._counted is not None  # noqa: S101 - its account calls this
        if self._give_up is not None:
            self._give_up()
        self._counted[1].cancel()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        """Note what became of it."""
        if self._entry is not None:
            self._entry.settle(DELIVERED if kind is None else LOST)
        if self._counted is None:
            return None
        account, scope = self._counted
        account.close()
        return scope.__exit__(kind, value, traceback)


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
