"""A whole answer that its client does not take at once."""

from collections.abc import Callable

from mcpbus.core.memory_budget import MemoryAccount
from mcpbus.core.receipt import DELIVERED, LOST
from mcpbus.protocol.http.messages import HttpResponse
from mcpbus.protocol.principals import Peer
from mcpbus.serving.asgi import DirectEndpoint
from mcpbus.transports.response_sinks import SettleableResponse


class UnsentResponse:
    """Enters an answer in the books, and counts it while it waits.

    Args:
        answer: The answer.
        endpoint: Who gave it.
    """

    __slots__ = ("_account", "_answer", "_endpoint", "_entry")

    def __init__(self, answer: HttpResponse, endpoint: DirectEndpoint) -> None:
        self._answer: HttpResponse | None = answer  # until it is in the books
        self._endpoint = endpoint
        self._account: MemoryAccount | None = None
        self._entry: SettleableResponse | None = None

    def hold(self, size: int, lose: Callable[[], None], peer: Peer) -> None:
        """Count it, and so many bytes of it, until it is sent.

        Args:
            size: How many bytes wait.
            lose: Gives it up, to make room.
            peer: For whom it waits.
        """
        assert self._answer is not None  # noqa: S101 - it is not sent yet
        self._entry = self._endpoint.record_response(self._answer)
        self._answer = None  # as long as all that waits of it
        self._account = self._endpoint.budget.account("an answer", lose, owner=peer)
        self._account.hold(size)

    def sent(self, whole: bool) -> None:
        """Note what has become of it. Harmless once that was done."""
        fate = DELIVERED if whole else LOST
        answer, entry = self._answer, self._entry
        self._answer = self._entry = None
        if answer is not None:
            self._endpoint.record(answer, fate)
        if entry is not None:
            entry.settle(fate)
        if self._account is not None:
            self._account.close()
