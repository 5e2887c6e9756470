"""Where a request whose own task writes the answer is given the stream on which that comes."""

import trio

from mcpbus.transports.outlets import KeepAliveHandler
from mcpbus.transports.rendering import StreamedResponse


class StreamOutlet:
    """The outlet of a request whose own task writes the answer."""

    __slots__ = ("opened", "scope")

    gathers = False

    def __init__(self, scope: trio.CancelScope | None = None) -> None:
        self.scope = scope
        self.opened: StreamedResponse | None = None

    def open(self, opened: StreamedResponse) -> None:
        """See `ResponseSink`: whoever has made it looks for the stream here."""
        self.opened = opened

    def on_handler_waiting(self, _request: KeepAliveHandler, _quiet: float) -> None:
        """See `ResponseSink`: the task writes what comes on a stream."""
