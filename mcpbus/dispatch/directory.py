"""What the rules of HTTP ask of a bus before a request is let in."""

from mcpbus.core.backend import ReadsCalls
from mcpbus.core.hub import Hub


class HubLookup:
    """Its sessions, methods and tools; see `mcpbus.protocol.http.messages.ServerLookup`.

    Args:
        bus: The bus.
    """

    def __init__(self, bus: Hub) -> None:
        backend = bus.backend
        self.find_local_session = bus.session_directory.find
        self.offers = backend.offers
        self.mirrored_parameters = backend.mirrored_parameters
        self.call_reader = backend.call_reader if isinstance(backend, ReadsCalls) else _read_in_parts


def _read_in_parts(_tool: str) -> None:
    """Leave the arguments of all calls for later."""
