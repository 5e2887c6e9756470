"""The attributes of a request: what the conventions ask for, and nothing that a client authenticates with."""

from typing import Final, TypeAlias

from mcpbus.core.request_context import Life, RequestContext
from mcpbus.protocol.principals import STDIO
from mcpbus.protocol.printable import printable, quoted
from mcpbus.protocol.routes import TransportKind
from mcpbus.telemetry import names

Attributes: TypeAlias = dict[str, str | int]

_UNKNOWN: Final = "(unknown)"
_METHOD_NOT_FOUND: Final = "-32601"
_LONGEST_ID: Final = 40
_LONGEST_URI: Final = 1_000
_NAMED: Final = {"tools/call": names.TOOL, "prompts/get": names.PROMPT}
_NO_ERROR: Final = frozenset({"ok", "cancelled", "suspended", "task"})


def method_of(life: Life) -> str:
    """Return the method of a request; one that the server does not have is a client's text, and has no name."""
    return _UNKNOWN if life.error == _METHOD_NOT_FOUND else printable(life.method, lines=False)


def span_name(common: Attributes) -> str:
    """Return the name of the span of a request with these attributes."""
    name = common.get(names.TOOL) or common.get(names.PROMPT)
    return str(common[names.METHOD]) if name is None else f"{common[names.METHOD]} {name}"


def request_attributes(method: str, name: str | None, revision: str) -> Attributes:
    """Return the attributes of a request of a method; with the name, if it is that of a tool or a prompt."""
    found: Attributes = {names.METHOD: method, names.REVISION: revision}
    if name is not None and (kind := _NAMED.get(method)) is not None:
        found[kind] = printable(name, lines=False)
        if kind is names.TOOL:
            found[names.OPERATION] = names.EXECUTE_TOOL
    return found


def uri_attribute(method: str, uri: object) -> Attributes:
    """Return the attribute for the URI of a resource that is read; none for other methods."""
    if method != "resources/read" or not isinstance(uri, str):
        return {}
    return {names.RESOURCE: printable(uri, lines=False, longest=_LONGEST_URI)}


def common_attributes(life: Life, context: RequestContext) -> Attributes:
    """Return the attributes that spans and metrics have, as far as they are known when a request begins."""
    found = request_attributes(method_of(life), life.name, context.revision.name)
    if context.peer is STDIO:
        found[names.TRANSPORT] = names.PIPE
    elif context.peer.address is not None:
        found[names.TRANSPORT] = names.TCP
    if context.transport is not TransportKind.DUPLEX:
        found[names.PROTOCOL] = names.HTTP
    return found


def span_attributes(common: Attributes, life: Life, context: RequestContext) -> Attributes:
    """Return the attributes of the span of a request that begins: those of `common_attributes`, and more."""
    found = {**common, names.REQUEST_ID: quoted(context.request.id, _LONGEST_ID)}
    found.update(uri_attribute(life.method, context.routing.uri))
    session = context.legacy_session
    if session is not None:
        # Its beginning alone: a client authenticates with the whole.
        found[names.SESSION] = session.short_id
    if context.peer.address is not None:
        found[names.CLIENT] = str(context.peer.address)
    return found


def failure_attributes(life: Life) -> Attributes:
    """Return the attributes that say how a request failed; none if it did not."""
    if life.outcome in _NO_ERROR or life.outcome is None:
        return {}
    error = life.error or life.outcome
    if error == "isError":
        return {names.ERROR: names.TOOL_ERROR}
    if life.outcome == "error" and life.error is not None and life.error.lstrip("-").isdigit():
        return {names.ERROR: error, names.STATUS_CODE: error}
    return {names.ERROR: error}
