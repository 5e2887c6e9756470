"""What the rules of HTTP ask of a bus before a request is let in."""

from mcpbus.core.hub import Hub


class Directory:
    """Its sessions, methods and tools; see `mcpbus.protocol.http.messages.Directory`.

    Args:
        bus: The bus.
    """

    def __init__(self, bus: Hub) -> None:
        self.find_session = bus.find_session
        self.offers = bus.backend.offers
        self.mirrored_parameters = bus.backend.mirrored_parameters
        self.call_reader = bus.backend.call_reader
