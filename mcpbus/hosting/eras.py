"""Revision 2026-07-28 for a server that knows older revisions only: its requests in their words, and its results back."""

from collections.abc import Mapping
from typing import Any, Final

from mcpbus.protocol.meta import SERVER_INFO
from mcpbus.protocol.revisions import MODERN_VERSIONS

_OWN_PREFIX: Final = "io.modelcontextprotocol/"
_OF_ROUNDS: Final = frozenset({"inputResponses", "requestState"})
_CACHEABLE: Final = frozenset(
    {"tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read"}
)

MODERN_METHODS: Final = frozenset({*_CACHEABLE, "tools/call", "prompts/get", "completion/complete"})
"""The requests of 2026-07-28 that older revisions have, too."""


def older_params(params: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the params of a modern request without what only that revision has."""
    if params is None:
        return None
    older = {name: value for name, value in params.items() if name not in _OF_ROUNDS}
    meta = older.pop("_meta", None)
    if isinstance(meta, Mapping):
        kept = {name: value for name, value in meta.items() if not name.startswith(_OWN_PREFIX)}
        if kept:
            older["_meta"] = kept
    return older or None


def newer_result(method: str, result: Mapping[str, Any], identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result as 2026-07-28 has it: with its kind, the server, and that it is not to be cached."""
    newer = {"resultType": "complete", **result}
    if method in _CACHEABLE:
        newer |= {"ttlMs": 0, "cacheScope": "private"}
    newer["_meta"] = {**result.get("_meta", {}), SERVER_INFO: dict(identity)}
    return newer


def discovery(described: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of ``server/discover`` for a server whose result of `initialize` is given."""
    told = {name: described[name] for name in ("capabilities", "instructions") if described.get(name)}
    result = {"capabilities": {}, **told, "supportedVersions": list(MODERN_VERSIONS)}
    return newer_result("server/discover", result, described["serverInfo"]) | {
        "ttlMs": 0,
        "cacheScope": "private",
    }
