"""Exchanges as data: the requests that a client sends, and the steps between them."""

import itertools
import json
from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeAlias

import attrs

LEGACY, MODERN = "2025-11-25", "2026-07-28"
BOTH = "application/json, text/event-stream"
CLIENT = {"name": "exchanges", "version": "1"}
PREFIX = "io.modelcontextprotocol/"
Fields: TypeAlias = tuple[tuple[str, str], ...]


@attrs.frozen
class Request:
    """One HTTP request, before a transport spells it.

    A word such as `$session` in a field or in the body stands for what the client has received before; see `player.Memory`.

    Attributes:
        verb: The HTTP method.
        target: The path and the query.
        fields: The header fields, in order.
        body: The bytes of the body.
        lines: The lines in which HTTP/1.1 spells the fields, if not one plain line for each. Other transports send `fields`.
        framing: The end of the body: by its length, in chunks, in chunks with trailers after them, or no body at all.
        cuts: The offsets in the body at which the manner "pieces" pauses; thirds of the body if None.
    """

    verb: str = "POST"
    target: str = "/mcp"
    fields: Fields = ()
    body: bytes = b""
    lines: tuple[bytes, ...] | None = None
    framing: Literal["length", "chunked", "trailers", "none"] = "length"
    cuts: tuple[int, ...] | None = None

    @property
    def pieces(self) -> list[bytes]:
        """The body as the manner "pieces" sends it."""
        size = len(self.body)
        cuts = (size // 3, 2 * size // 3) if self.cuts is None else self.cuts
        edges = [0, *cuts, size]
        found = [self.body[start:end] for start, end in itertools.pairwise(edges)]
        return [piece for piece in found if piece]


@attrs.frozen
class Send:
    """The client sends a request, on a connection or stream of its own."""

    label: str
    request: Request
    quiet: bool = False
    """Whether its response is a precondition only, and no part of the outcome."""


@attrs.frozen
class Got:
    """The client waits until a response has so many messages, or is over."""

    label: str
    messages: int = 1


@attrs.frozen
class Began:
    """The client waits for the head of a response."""

    label: str


@attrs.frozen
class Ended:
    """The client waits for the end of a response."""

    label: str


@attrs.frozen
class Leave:
    """The client disconnects from a response."""

    label: str


@attrs.frozen
class Pass:
    """Time passes, in virtual seconds."""

    seconds: float


@attrs.frozen
class Do:
    """The server's program acts; see `house.House`."""

    action: str


Step: TypeAlias = Send | Got | Began | Ended | Leave | Pass | Do


@attrs.frozen
class Exchange:
    """What a client does at one server.

    Attributes:
        name: Its name, unique in all tables.
        steps: In order.
        place: The server, one of `house.PLACES`.
        ways: The names of the ways in which it is played besides the first one; those of its table if empty.
    """

    name: str
    steps: tuple[Step, ...]
    place: str = "plain"
    ways: tuple[str, ...] = ()


# -- requests ------------------------------------------------------------------------------------


def fields(**named: str | Sequence[str] | None) -> Fields:
    """Return header fields: `_` in a name is a hyphen, None leaves one out, a list repeats it."""
    found: list[tuple[str, str]] = []
    for name, value in named.items():
        values = [] if value is None else [value] if isinstance(value, str) else value
        found += [(name.replace("_", "-"), each) for each in values]
    return tuple(found)


_PLAIN: dict[str, Any] = {"host": "localhost", "content_type": "application/json", "accept": BOTH}


def encode(message: Any) -> bytes:
    """Return a message as JSON."""
    return json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode()


def rpc(method: str, params: Any = None, id: Any = 1, **more: Any) -> dict[str, Any]:  # noqa: A002
    """Return a JSON-RPC request; a notification if its id is None."""
    found: dict[str, Any] = {"jsonrpc": "2.0"}
    if id is not None:
        found["id"] = id
    found["method"] = method
    if params is not None:
        found["params"] = params
    return {**found, **more}


def post(message: Any, *, how: dict[str, Any] | None = None, **named: Any) -> Request:
    """Return a POST of a message or of bytes, with plain fields but for those that are named."""
    body = message if isinstance(message, bytes) else encode(message)
    return Request("POST", fields=fields(**{**_PLAIN, **named}), body=body, **(how or {}))


def legacy(method: str, params: Any = None, id: Any = 1, *, how: Any = None, **named: Any) -> Request:  # noqa: A002
    """Return a POST within a legacy session."""
    given = {"mcp_session_id": "$session", "mcp_protocol_version": LEGACY, **named}
    return post(rpc(method, params, id), how=how, **given)


def claim(capabilities: Any = None, **more: Any) -> dict[str, Any]:
    """Return the `_meta` of a modern request."""
    return {
        PREFIX + "protocolVersion": MODERN,
        PREFIX + "clientCapabilities": capabilities or {},
        PREFIX + "clientInfo": CLIENT,
        **more,
    }


def modern(
    method: str,
    params: Any = None,
    id: Any = 1,  # noqa: A002
    *,
    meta: dict[str, Any] | None = None,
    how: Any = None,
    **named: Any,
) -> Request:
    """Return a POST of a modern request."""
    params = {**(params or {}), "_meta": claim() if meta is None else meta}
    name = params.get("name", params.get("uri"))
    name = name if isinstance(name, str) else None
    given = {"mcp_protocol_version": MODERN, "mcp_method": method, "mcp_name": name, **named}
    return post(rpc(method, params, id), how=how, **given)


def tool(name: str, token: Any = None, /, **arguments: Any) -> dict[str, Any]:
    """Return the params of a legacy call."""
    params: dict[str, Any] = {"name": name, "arguments": arguments}
    return params if token is None else {**params, "_meta": {"progressToken": token}}


def call(
    era: str,
    name: str,
    /,
    *,
    token: Any = None,
    id: Any = 1,  # noqa: A002
    named: Any = None,
    **arguments: Any,
) -> Request:
    """Return a call of a tool in an era; `named` are further header fields."""
    if era == MODERN:
        meta = claim({"elicitation": {"form": {}}}, **{PREFIX + "logLevel": "info"})
        if token is not None:
            meta["progressToken"] = token
        return modern("tools/call", tool(name, **arguments), id, meta=meta, **(named or {}))
    return legacy("tools/call", tool(name, token, **arguments), id, mcp_protocol_version=era, **(named or {}))


def get(**named: Any) -> Request:
    """Return a GET of a legacy session's stream."""
    given = {"host": "localhost", "accept": "text/event-stream", "mcp_session_id": "$session", **named}
    return Request("GET", fields=fields(**given))


def delete(**named: Any) -> Request:
    """Return a DELETE of a legacy session."""
    return Request("DELETE", fields=fields(**{"host": "localhost", "mcp_session_id": "$session", **named}))


# -- steps ---------------------------------------------------------------------------------------


def ask(request: Request, label: str = "a") -> tuple[Step, ...]:
    """Return the steps that send a request and wait for the end of its response."""
    return Send(label, request), Ended(label)


def session(era: str = LEGACY, **named: Any) -> tuple[Step, ...]:
    """Return the steps that open a legacy session; they are no part of the outcome."""
    params = {
        "protocolVersion": era,
        "capabilities": {"elicitation": {}, "roots": {}},
        "clientInfo": CLIENT,
    }
    hello = post(rpc("initialize", params, 0), **named)
    named = {"mcp_session_id": "$session", "mcp_protocol_version": era, **named}
    note = post(rpc("notifications/initialized", id=None), **named)
    return Send("hello", hello, True), Ended("hello"), Send("note", note, True), Ended("note")


def opened(era: str) -> tuple[Step, ...]:
    """Return the steps that come before a call in an era."""
    return () if era == MODERN else session(era)


def table(prefix: str, rows: Iterable[tuple[str, Request]], *, place: str = "plain") -> list[Exchange]:
    """Return exchanges of one request each, without a session."""
    return [Exchange(f"{prefix}: {name}", ask(request), place) for name, request in rows]
