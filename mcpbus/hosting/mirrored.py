"""The parameters of a hosted server's tools that clients mirror into ``Mcp-Param-*`` header fields.

The endpoint compares them before a call begins. A server whose SDK can look up the schema of a tool is asked. Of any other server the
last list counts that a client was given.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from mcpbus.protocol.http.mirrored_parameters import MirroredParameter, mirrored_parameters
from mcpbus.protocol.principals import digest_of

Lookup: TypeAlias = Callable[[str], Mapping[str, Any] | None]
"""Returns the input schema of a tool; None if it does not know the tool. Reads, and does not wait."""

_MOST_PRINCIPALS: Final = 1_000
_MOST_TOOLS: Final = 1_000

_log = logging.getLogger("mcpbus")


class MirroredSchemas:
    """The mirrored parameters of the tools of one server.

    Args:
        lookup: The server's own; None if it has none.
    """

    def __init__(self, lookup: Lookup | None) -> None:
        self._lookup = lookup
        self._looked_up: dict[str, tuple[object, Sequence[MirroredParameter]]] = {}
        self._listed: OrderedDict[Hashable, dict[str, Sequence[MirroredParameter]]] = OrderedDict()

    def find(self, tool: str, principal: object) -> Sequence[MirroredParameter]:
        """Return the mirrored parameters of a tool; none if its schema is unknown."""
        if self._lookup is None:
            return self._listed.get(_key(principal), {}).get(tool, ())
        try:
            schema = self._lookup(tool)
        except Exception:  # noqa: BLE001 - the code of the server's author, without which calls work, too
            _log.exception(
                "the schema of tool %r cannot be looked up, so Mcp-Param-* fields are not compared", tool
            )
            return ()
        if schema is None:
            return ()
        known = self._looked_up.get(tool)
        if known is None or known[0] is not schema:
            if len(self._looked_up) >= _MOST_TOOLS:
                self._looked_up.clear()
            known = self._looked_up[tool] = schema, _parameters_of(schema)
        return known[1]

    def note_list(
        self, principal: object, params: Mapping[str, Any] | None, result: Mapping[str, Any]
    ) -> None:
        """Note a list of tools that a client is given; a page without a cursor begins a new one."""
        if self._lookup is not None:
            return
        key = _key(principal)
        found = {
            str(tool.get("name")): parameters
            for tool in result.get("tools", ())
            if (parameters := _parameters_of(tool.get("inputSchema")))
        }
        before = self._listed.pop(key, {}) if (params or {}).get("cursor") else {}
        self._listed[key] = {**before, **found}
        if len(self._listed) > _MOST_PRINCIPALS:
            self._listed.popitem(last=False)


def _key(principal: object) -> Hashable:
    return None if principal is None else digest_of(principal)


def _parameters_of(schema: object) -> Sequence[MirroredParameter]:
    """Return the mirrored parameters of a schema; none if clients drop its tool."""
    try:
        return mirrored_parameters(dict(schema)) if isinstance(schema, Mapping) else ()
    except ValueError:
        return ()
