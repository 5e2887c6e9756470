"""What the rules of HTTP ask of a bus before a request is let in."""

from collections.abc import Sequence

from mcpbus.core.hub import Hub
from mcpbus.dispatch.dispatcher import LISTEN
from mcpbus.dispatch.methods import METHODS
from mcpbus.protocol.http.mirrored_parameters import MirroredParameter
from mcpbus.protocol.revisions import Era

_OFFERED = {
    era: frozenset(name for name, method in METHODS.items() if era in method.eras)
    | ({LISTEN} if era is Era.MODERN else set())
    for era in Era
}


class Directory:
    """Its sessions, methods and tools; see `mcpbus.protocol.http.messages.Directory`.

    Args:
        bus: The bus.
    """

    def __init__(self, bus: Hub) -> None:
        self._features = bus.features
        self.find_session = bus.find_session

    def offers(self, method: str, era: Era) -> bool:
        """Tell whether requests of `method` are served in `era`."""
        return method in _OFFERED[era]

    def mirrored_parameters(self, tool: str, principal: object) -> Sequence[MirroredParameter]:
        """Return the parameters of a tool that HTTP mirrors into headers; none where `principal` sees no such tool."""
        found = self._features.find_tool(tool, principal) if self._features.mirrors() else None
        return () if found is None else found.mirrored
