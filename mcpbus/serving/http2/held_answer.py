"""A whole answer over HTTP/2 that its client does not take at once."""

from collections.abc import Callable

from mcpbus.core.budget import Account
from mcpbus.core.receipt import DELIVERED, LOST
from mcpbus.protocol.http.messages import Answer
from mcpbus.protocol.owners import Peer
from mcpbus.serving.asgi import Endpoint
from mcpbus.transports.outlets import Entry


class HeldAnswer:
    """Enters an answer in the books, and counts it while it waits.

    Args:
        answer: The answer.
        endpoint: Who gave it.
    """

    __slots__ = ("_account", "_answer", "_endpoint", "_entry")

    def __init__(self, answer: Answer, endpoint: Endpoint) -> None:
        self._answer = answer
        self._endpoint = endpoint
        self._account: Account | None = None
        self._entry: Entry | None = None

    def hold(self, size: int, lose: Callable[[], None], peer: Peer) -> None:
        """Count it, and so many bytes of it, until it is sent.

        Args:
            size: How many bytes wait.
            lose: Gives it up, to make room.
            peer: For whom it waits.
        """
        self._entry = self._endpoint.enter(self._answer)
        self._account = self._endpoint.budget.account("an answer", lose, owner=peer)
        self._account.hold(size)

    def sent(self, whole: bool) -> None:
        """Note what has become of it."""
        fate = DELIVERED if whole else LOST
        if self._account is None:
            self._endpoint.record(self._answer, fate)
            return
        self._account.close()
        if self._entry is not None:
            self._entry.settle(fate)
