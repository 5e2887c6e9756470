"""The header fields that repeat what the body of a modern POST says, so that proxies can route by them (rules X-17 to X-24)."""

import re
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final

import msgspec

from mcpbus.protocol.errors import header_mismatch, quoted
from mcpbus.protocol.http.headers import Headers, decode_mirrored, encode_mirrored, is_plain
from mcpbus.protocol.http.mirrored_fields import METHOD_HEADER, NAME_HEADER, VERSION_HEADER
from mcpbus.protocol.http.mirrored_parameters import MirroredParameter
from mcpbus.protocol.jsonrpc import JsonRpcNotification, JsonRpcRequest
from mcpbus.protocol.large import decode_without_gc
from mcpbus.protocol.messages import CallToolParams, decode_params
from mcpbus.protocol.meta import PROTOCOL_VERSION, ModernClaim, Routing, read_routing
from mcpbus.protocol.revisions import MODERN_VERSIONS, REVISIONS, Revision, claimed, modern

_CALL: Final = "tools/call"
_LEGACY: Final = frozenset(name.encode() for name in REVISIONS if not modern(name))
_SPELLED: Final[Mapping[bytes, str]] = MappingProxyType(
    {
        VERSION_HEADER: "MCP-Protocol-Version",
        METHOD_HEADER: "Mcp-Method",
        NAME_HEADER: "Mcp-Name",
    }
)
_NAME: Final[Callable[[Routing], str | None]] = attrgetter("name")
_TASK: Final[Callable[[Routing], str | None]] = attrgetter("task_id")
# What Mcp-Name repeats of a method's params (rules X-19, TX-11).
_SOURCES: Final[Mapping[str, Callable[[Routing], str | None]]] = {
    "tools/call": _NAME,
    "prompts/get": _NAME,
    "resources/read": attrgetter("uri"),
    "tasks/get": _TASK,
    "tasks/update": _TASK,
    "tasks/cancel": _TASK,
}

# As JSON writes integers; the fraction because integers are compared by what they are, not by how they are spelled (rule X-45).
_INTEGER: Final = re.compile(r"(-?(?:0|[1-9][0-9]{0,15}))(?:\.0+)?")
_SAFE: Final = 2**53 - 1


def claims_modern(headers: Headers) -> bool:
    """Whether a version header says that a POST is a modern one, as its `_meta` may, too (rules D-1, D-3, D-4)."""
    raw = headers.raw(VERSION_HEADER)
    if raw is None or raw in _LEGACY:
        return False
    return any(modern(version) for version in headers.all(VERSION_HEADER))


def called_tool(headers: Headers) -> str | None:
    """Return the tool that a modern head says is called; None if it does not say so to the letter, or there is doubt of its era."""
    said = headers.announcement
    return said.name if said is not None and said.method == _CALL else None


def validate_request(
    headers: Headers, request: JsonRpcRequest, routing: Routing
) -> tuple[ModernClaim, Revision]:
    """Judge what a modern request says of itself, twice over.

    Raises:
        ProtocolError: in this order: -32602 for `_meta`, -32020 for the version header, -32022 for the version,
            -32020 for Mcp-Method and Mcp-Name.
    """
    claim, said = routing.meta.claim(), headers.announcement
    version, method = claim.protocol_version, request.method
    source = _SOURCES.get(method)
    name = None if source is None else source(routing)
    if (
        said is not None
        and said.name == name
        and said.method == method
        and (revision := said.revision).name == version
    ):
        return claim, revision
    _agree(headers, VERSION_HEADER, version)
    revision = claimed(version)
    _agree(headers, METHOD_HEADER, method)
    if name is not None:
        # There are clients that leave it out of tasks/*, and no proxy can need it there: a task's id means nothing to one.
        if source is not _TASK or headers.raw(NAME_HEADER) is not None:
            _agree(headers, NAME_HEADER, name)
    elif source is not None and headers.raw(NAME_HEADER) is not None:
        raise header_mismatch(
            "the header Mcp-Name is there, but the params have no name, uri or taskId for it to repeat"
        )
    return claim, revision


def validate_notification(headers: Headers, notification: JsonRpcNotification, routing: Routing) -> None:
    """Judge a modern notification, which need have none of these headers; those it has must agree (rule X-5).

    Raises:
        ProtocolError: -32020 for a header that does not agree, -32022 for the version.
    """
    said = routing.meta.values.get(PROTOCOL_VERSION)
    stated = headers.all(VERSION_HEADER)
    version = said if isinstance(said, str) else next(iter(stated), MODERN_VERSIONS[-1])
    if stated:
        _agree(headers, VERSION_HEADER, version)
    claimed(version)
    if headers.all(METHOD_HEADER):
        _agree(headers, METHOD_HEADER, notification.method)


def validate_parameters(
    headers: Headers, mirrored: Sequence[MirroredParameter], params: msgspec.Raw, *, required: bool = True
) -> None:
    """Judge the Mcp-Param-* fields of a tools/call by its arguments (rules X-45, X-46, X-50).

    Fields that no parameter is mirrored into are not looked at (rule X-47).

    Args:
        headers: of the request.
        mirrored: the parameters of the tool that is called.
        params: the whole params of the request.
        required: whether a field may not be left out.

    Raises:
        ProtocolError: -32020 for a field that does not say what the arguments say; -32602 for params that cannot be read.
    """
    # The message was read as a whole before, and the params go deeper than the arguments: what is left cannot fail.
    arguments = decode_without_gc(msgspec.json.decode, decode_params(CallToolParams, params).arguments)
    for parameter in mirrored:
        name, argument = parameter.header.lower().encode("ascii"), ".".join(parameter.path)
        value = _at(arguments, parameter.path)
        if value is None:
            if headers.all(name):
                raise header_mismatch(
                    f"the header {parameter.header} is there, but the argument {argument!r} that it repeats is not"
                )
            continue
        if not required and headers.raw(name) is None:
            continue
        stated = _only(headers, name, parameter.header, f"the argument {argument!r} has a value")
        try:
            same = _repeats(decode_mirrored(stated), value, parameter.kind)
        except ValueError as fault:
            raise header_mismatch(f"the header {parameter.header} cannot be read: {fault}") from None
        if not same:
            raise header_mismatch(
                f"the header {parameter.header} says {quoted(stated)}, which is not the argument {argument!r}"
            )


def repeat_request(
    request: JsonRpcRequest, version: str, mirrored: Sequence[MirroredParameter] = ()
) -> dict[str, str]:
    """Return the header fields that a client of a modern revision sends with a request (rules X-17 to X-19, X-44).

    Args:
        request: What the body says.
        version: The revision that its ``_meta`` claims.
        mirrored: The parameters of the tool that it calls, if it calls one that has any.

    Raises:
        ProtocolError: -32602 for params that cannot be read.
    """
    fields = {_SPELLED[VERSION_HEADER]: version, _SPELLED[METHOD_HEADER]: request.method}
    source = _SOURCES.get(request.method)
    name = None if source is None else source(read_routing(request.params))
    if name is not None:
        fields[_SPELLED[NAME_HEADER]] = encode_mirrored(name)
    if mirrored:
        arguments = msgspec.json.decode(decode_params(CallToolParams, request.params).arguments)
        for parameter in mirrored:
            text = _text_of(_at(arguments, parameter.path))
            if text is not None:
                fields[parameter.header] = encode_mirrored(text)
    return fields


def _text_of(value: Any) -> str | None:
    """What a header says of a value; None where there is nothing to say."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else None


def _at(arguments: Any, path: Sequence[str]) -> Any:
    """What the arguments have at a path; None where they have nothing or null, which both mean no header (rule X-44)."""
    for member in path:
        if not isinstance(arguments, dict):
            return None
        arguments = arguments.get(member)
    return arguments


def _repeats(stated: str, value: Any, kind: str) -> bool:
    """Whether a header's text is that of a value; a value that is not of its parameter's kind has none."""
    if kind == "string":
        return isinstance(value, str) and stated == value
    if kind == "boolean":
        return isinstance(value, bool) and stated == ("true" if value else "false")
    number = _INTEGER.fullmatch(stated)
    # What lies beyond is read differently by different programs on the way, so nothing repeats it for sure (rule X-50).
    safe = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _SAFE
    return number is not None and safe and int(number[1]) == value


def _agree(headers: Headers, name: bytes, value: str) -> None:
    """Refuse unless the header is there exactly once and says what the body says.

    Raises:
        ProtocolError: -32020.
    """
    spelled = _SPELLED[name]
    copy = _only(headers, name, spelled, f"the body says {quoted(value)}")
    try:
        stated = decode_mirrored(copy) if name == NAME_HEADER else copy
    except ValueError as fault:
        raise header_mismatch(f"the header {spelled} cannot be read: {fault}") from None
    if not is_plain(copy):
        raise header_mismatch(
            f"the header {spelled} cannot be read: it holds characters other than visible ASCII"
        )
    if stated != value:
        raise header_mismatch(f"the header {spelled} says {quoted(stated)}, the body {quoted(value)}")


def _only(headers: Headers, name: bytes, spelled: str, why: str) -> str:
    """The one copy of a header that must be there exactly once.

    Raises:
        ProtocolError: -32020.
    """
    copies = headers.all(name)
    if not copies:
        raise header_mismatch(f"the header {spelled} is missing; {why}")
    if len(copies) > 1:
        raise header_mismatch(f"the header {spelled} is there {len(copies)} times; once is right")
    return copies[0]
