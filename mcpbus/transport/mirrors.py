"""The header fields that repeat what the body of a modern POST says, so that proxies can route by them (rules X-17 to X-24)."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from mcpbus.protocol.errors import header_mismatch, quoted, unsupported_protocol_version
from mcpbus.protocol.jsonrpc import Notification, Request
from mcpbus.protocol.meta import PROTOCOL_VERSION, ModernClaim, Routing, read_claim
from mcpbus.protocol.revisions import MODERN_VERSIONS, Revision, modern
from mcpbus.transport.headers import Headers, decode_mirrored

VERSION_HEADER: Final = b"mcp-protocol-version"

_SPELLED: Final[Mapping[bytes, str]] = MappingProxyType(
    {
        VERSION_HEADER: "MCP-Protocol-Version",
        b"mcp-method": "Mcp-Method",
        b"mcp-name": "Mcp-Name",
    }
)
# Whose name or uri Mcp-Name repeats (rule X-19).
_NAMED: Final = frozenset({"tools/call", "prompts/get"})
_LOCATED: Final = frozenset({"resources/read"})


def claims_modern(headers: Headers, routing: Routing | None) -> bool:
    """Whether a POST is a modern one: its `_meta` says so, or its version header does (rules D-1, D-3, D-4)."""
    if routing is not None and routing.meta.claims_modern:
        return True
    return any(modern(version) for version in headers.all(VERSION_HEADER))


def judge_request(headers: Headers, request: Request, routing: Routing) -> tuple[ModernClaim, Revision]:
    """Judge what a modern request says of itself, twice over.

    Raises:
        ProtocolError: in this order: -32602 for `_meta`, -32020 for the version header, -32022 for the version,
            -32020 for Mcp-Method and Mcp-Name.
    """
    claim = read_claim(routing.meta)
    _agree(headers, VERSION_HEADER, claim.protocol_version)
    revision = _served(claim.protocol_version)
    _agree(headers, b"mcp-method", request.method)
    name = _mirrored_name(request.method, routing)
    if name is not None:
        _agree(headers, b"mcp-name", name)
    elif request.method in _NAMED | _LOCATED and headers.all(b"mcp-name"):
        raise header_mismatch(
            "the header Mcp-Name is there, but the params have no name or uri for it to repeat"
        )
    return claim, revision


def judge_notification(headers: Headers, notification: Notification, routing: Routing) -> Revision:
    """Judge a modern notification, which need have none of these headers; those it has must agree (rule X-5).

    Raises:
        ProtocolError: -32020 for a header that does not agree, -32022 for the version.
    """
    claimed = routing.meta.values.get(PROTOCOL_VERSION)
    stated = headers.all(VERSION_HEADER)
    version = claimed if isinstance(claimed, str) else next(iter(stated), MODERN_VERSIONS[-1])
    if stated:
        _agree(headers, VERSION_HEADER, version)
    revision = _served(version)
    if headers.all(b"mcp-method"):
        _agree(headers, b"mcp-method", notification.method)
    return revision


def _mirrored_name(method: str, routing: Routing) -> str | None:
    if method in _NAMED:
        return routing.name
    return routing.uri if method in _LOCATED else None


def _served(version: str) -> Revision:
    revision = modern(version)
    if revision is None:
        raise unsupported_protocol_version(version, MODERN_VERSIONS)
    return revision


def _agree(headers: Headers, name: bytes, value: str) -> None:
    """Refuse unless the header is there exactly once and says what the body says.

    Raises:
        ProtocolError: -32020.
    """
    copies, spelled = headers.all(name), _SPELLED[name]
    if not copies:
        raise header_mismatch(f"the header {spelled} is missing; the body says {quoted(value)}")
    if len(copies) > 1:
        raise header_mismatch(f"the header {spelled} is there {len(copies)} times; once is right")
    try:
        stated = decode_mirrored(copies[0]) if name == b"mcp-name" else copies[0]
    except ValueError as fault:
        raise header_mismatch(f"the header {spelled} cannot be read: {fault}") from None
    if stated != value:
        raise header_mismatch(f"the header {spelled} says {quoted(stated)}, the body {quoted(value)}")
