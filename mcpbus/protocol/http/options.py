"""Who may talk to the endpoint at all: the Host and Origin fields, and CORS for the origins that may.

A page from anywhere can make its visitor's browser send requests to a server on the visitor's own machine, and can make its own name
resolve to that machine (DNS rebinding). The browser then tells on it: Origin names the page, Host the name it used (rules W-41, W-43).
What a page only embeds, as an image, comes without an Origin; then Sec-Fetch-Site says that another site's page asks (Fetch Metadata).
"""

import functools
import ipaddress
import re
from collections.abc import Iterable
from typing import Any, Final, Literal, TypedDict, cast

import attrs

from mcpbus.protocol.errors import ProtocolError, invalid_request, quoted
from mcpbus.protocol.http.headers import Headers
from mcpbus.protocol.http.messages import NO_STORE, HttpResponse, RequestHead, plain_path
from mcpbus.protocol.http.proxies import UNIX, read_network
from mcpbus.protocol.keywords import explained
from mcpbus.protocol.validators import flag, gt, one_of

_AUTHORITY: Final = re.compile(r"(\[[0-9a-f:.]+\]|[^\s:/@\[\]]+)(?::([0-9]*))?")
_ORIGIN: Final = re.compile(r"https?://([!-.0-~]+)")
_ALLOWABLE_ORIGIN: Final = re.compile(r"\*|null|[a-z][a-z0-9+.-]*://[^/\s]+")
_PATH: Final = re.compile(r"/[^?#\s]*")
_TOKENS: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+([ \t]*,[ \t]*[!#$%&'*+.^_`|~0-9A-Za-z-]+)*")
_VISIBLE: Final = re.compile(r"[!-~]+")
_ELSEWHERE: Final = frozenset({"cross-site", "same-site"})
_LONGEST_HOST: Final = 261  # a DNS name, a colon and a port

# Read by pages that use the API of the browser to speak MCP; everything else is hidden from them unless it is named.
_EXPOSED: Final = b"Mcp-Session-Id, MCP-Protocol-Version, WWW-Authenticate"
_PREFLIGHT_SECONDS: Final = b"600"


def _names(value: Iterable[Any]) -> tuple[Any, ...]:
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        return cast("tuple[Any, ...]", value)  # what is no list is told what to write
    return tuple(name.lower() if isinstance(name, str) else name for name in value)


def _plain(path: Any) -> Any:
    return plain_path(path) if isinstance(path, str) else path  # likewise


def _check_names(_: object, field: "attrs.Attribute[Any]", names: Any) -> None:
    if isinstance(names, str):
        raise TypeError(f"{field.name} is a list of texts: write {field.name}=[{names!r}]")
    if not isinstance(names, tuple):
        raise TypeError(f"{field.name} is a list of texts: write {field.name}=[...], not {names!r}")
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"{field.name} is a list of texts, in which {name!r} is none")


def _check_hosts(_: object, __: object, hosts: tuple[str, ...]) -> None:
    for host in hosts:
        if host != "*" and not _AUTHORITY.fullmatch(host):
            raise ValueError(f"allowed_hosts: {host!r} is not a host; write name, name:port, or * for any")


def _check_origins(_: object, __: object, origins: tuple[str, ...]) -> None:
    for origin in origins:
        if not _ALLOWABLE_ORIGIN.fullmatch(origin):
            raise ValueError(
                f"allowed_origins: {origin!r} is not an origin; write scheme://host[:port], or * for any"
            )


def _check_proxies(_: object, __: object, proxies: tuple[str, ...]) -> None:
    for proxy in proxies:
        try:
            read_network(proxy)
        except ValueError:
            raise ValueError(
                f"trusted_proxies: {proxy!r} is no address; write 10.0.0.1, a network such as 10.0.0.0/8, or {UNIX}"
            ) from None


def _check_path(_: object, field: "attrs.Attribute[str]", path: Any) -> None:
    if not (isinstance(path, str) and _PATH.fullmatch(path)):
        raise ValueError(
            f"{field.name} is {path!r}: write a path that begins with '/', such as {field.default!r}"
        )


def _check_root_path(_: object, __: object, path: Any) -> None:
    if path != "" and (
        not isinstance(path, str) or not _PATH.fullmatch(path) or path.endswith("/") or "//" in path
    ):
        raise ValueError(f"root_path is {path!r}: write what is before the path, such as '/tools'")


def _check_sse_path(options: "HttpOptions", _: object, path: str) -> None:
    if options.http_sse and path in {options.path, *options.health_paths}:
        raise ValueError(f"sse_path is {path!r}, where something else is: choose another, or http_sse=False")


class HttpFields(TypedDict, total=False):
    """The fields of `HttpOptions`, as keywords of functions that make one."""

    path: str
    allowed_hosts: Iterable[str]
    allowed_origins: Iterable[str]
    trusted_proxies: Iterable[str]
    max_body_bytes: int
    sessions: Literal["sessionful", "stateless"]
    get_streams: bool
    http_sse: bool
    sse_path: str
    websocket: bool
    param_headers: Literal["required", "optional"]
    root_path: str
    access_log: bool


@explained
@attrs.frozen(kw_only=True)
class HttpOptions:
    """How the endpoint is served.

    Attributes:
        path: Where it is, below the mount point. `/health` and `/healthz` answer beside it.
        allowed_hosts: What the Host field may name besides the loopback names (localhost, 127.0.0.0/8, [::1]): `name` with
            any port, `name:port`, or `*` for anything.
        allowed_origins: What the Origin field may name besides loopback origins: `scheme://host[:port]` exactly, or `*`.
        trusted_proxies: Addresses and networks of proxies that say truly from where a request comes, each in one of Forwarded and
            X-Forwarded-For; `unix` for those that connect over a Unix socket. Of nobody else these fields are read.
        max_body_bytes: The longest body of a POST that is read.
        sessions: `sessionful`: a legacy handshake opens a session that later requests name. `stateless`: nothing is
            remembered between legacy requests, so any replica can answer any of them.
        get_streams: Whether a legacy session may open a stream by GET for what belongs to no request.
        http_sse: Whether clients of the HTTP+SSE transport of 2024-11-05 are served too, at `sse_path`. Who has such a client
            cannot have another, and it passes the same checks as everybody. Not without sessions: its requests find their
            connection in one process alone.
        sse_path: Where such a client connects, below the mount point.
        websocket: Whether the endpoint takes WebSockets too, whose messages may be as long as the body of a POST.
        param_headers: Whether a call of 2026-07-28 must repeat the arguments that have `x-mcp-header` in `Mcp-Param-*` fields
            (`required`), or may leave the fields out (`optional`). One that says something else is refused in any case.
        root_path: What a proxy takes off the paths of requests, such as `/tools`, which clients of HTTP+SSE have to be told. By
            default what the ASGI server says of it, in its scope's `root_path`.
        access_log: Whether each request has a line in the log, by the logger `mcpbus.access`.

    Raises:
        ValueError: An option cannot be right; the message says what would be.
    """

    path: str = attrs.field(default="/mcp", converter=_plain, validator=_check_path)
    allowed_hosts: tuple[str, ...] = attrs.field(
        default=(), converter=_names, validator=[_check_names, _check_hosts]
    )
    allowed_origins: tuple[str, ...] = attrs.field(
        default=(), converter=_names, validator=[_check_names, _check_origins]
    )
    trusted_proxies: tuple[str, ...] = attrs.field(
        default=(), converter=_names, validator=[_check_names, _check_proxies]
    )
    max_body_bytes: int = attrs.field(default=4 * 1024 * 1024, validator=gt(0))
    sessions: Literal["sessionful", "stateless"] = attrs.field(
        default="sessionful", validator=one_of("sessionful", "stateless")
    )
    get_streams: bool = attrs.field(default=True, validator=flag)
    http_sse: bool = attrs.field(default=True, validator=flag)
    sse_path: str = attrs.field(default="/sse", converter=_plain, validator=[_check_path, _check_sse_path])
    websocket: bool = attrs.field(default=True, validator=flag)
    param_headers: Literal["required", "optional"] = attrs.field(
        default="required", validator=one_of("required", "optional")
    )
    root_path: str = attrs.field(default="", validator=_check_root_path)
    access_log: bool = attrs.field(default=False, validator=flag)

    @property
    def health_paths(self) -> tuple[str, str]:
        """Where it says whether all is well: beside the endpoint, under both names that probes ask for."""
        beside = self.path.rpartition("/")[0]
        return f"{beside}/health", f"{beside}/healthz"


def validate_host(headers: Headers, options: HttpOptions) -> ProtocolError | None:
    """Why the Host field is refused; None if it is not. A shell puts HTTP/2's `:authority` there, as ASGI has it."""
    hosts = headers.all(b"host")
    if len(hosts) != 1 or not hosts[0]:
        return invalid_request("exactly one Host header is needed")
    host = hosts[0].lower()
    if is_loopback(host) or "*" in options.allowed_hosts or host in options.allowed_hosts:
        return None
    authority = _AUTHORITY.fullmatch(host)
    if authority is not None and authority[1] in options.allowed_hosts:
        return None
    return invalid_request(
        f"Host {quoted(host)} is neither a loopback name nor one of the option allowed_hosts"
    )


def validate_origin(headers: Headers, options: HttpOptions) -> ProtocolError | None:
    """Why the page that a browser asks for is refused; None if it is not. A client that is no browser names none, and may."""
    origins = headers.all(b"origin")
    if not origins:
        return _validate_site(headers, options)
    if len(origins) == 1 and _allows(origins[0], options):
        return None
    return invalid_request(
        f"Origin {quoted(', '.join(origins))} is neither a loopback origin nor one of the option allowed_origins"
    )


def _validate_site(headers: Headers, options: HttpOptions) -> ProtocolError | None:
    """Why a request without an Origin is refused: a page of elsewhere embeds what it must not read, and which page is not said."""
    site = headers.get(b"sec-fetch-site")
    if site is None or site.lower() not in _ELSEWHERE or "*" in options.allowed_origins:
        return None
    return invalid_request(
        f"Sec-Fetch-Site {quoted(site)} without an Origin: a page of another origin embeds this address"
    )


def _allows(origin: str, options: HttpOptions) -> bool:
    origin = origin.lower()
    page = _ORIGIN.fullmatch(origin)
    loopback = page is not None and is_loopback(page[1])
    # Whatever is allowed is also echoed, so even `*` lets pass only what may stand in a header field.
    anything = "*" in options.allowed_origins and _VISIBLE.fullmatch(origin) is not None
    return loopback or anything or origin in options.allowed_origins


def is_loopback(authority: str) -> bool:
    """Whether a host, with its port or without, is this machine."""
    return len(authority) <= _LONGEST_HOST and _remembered_loopback(authority)


@functools.lru_cache(maxsize=256)
def _remembered_loopback(authority: str) -> bool:
    parts = _AUTHORITY.fullmatch(authority)
    return parts is not None and is_loopback_host(parts[1].strip("[]"))


def is_loopback_host(host: str) -> bool:
    """Whether a host, without brackets and port, is this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def cors_headers(head: RequestHead, options: HttpOptions) -> list[tuple[bytes, bytes]]:
    """What lets a page of an allowed origin read the answer; nothing for other callers."""
    if head.headers.raw(b"origin") is None:
        return []
    origins = head.headers.all(b"origin")
    if len(origins) != 1 or not _allows(origins[0], options):
        return []
    return [
        (b"access-control-allow-origin", origins[0].encode("latin-1")),
        (b"access-control-expose-headers", _EXPOSED),
        (b"vary", b"Origin"),
    ]


def is_well_known(path: str) -> bool:
    """Whether it is an address at which clients look for what a whole origin has to say (RFC 8615), here or not."""
    return path.startswith("/.well-known/")


def is_preflight(head: RequestHead) -> bool:
    """Whether a browser asks, in a page's name, if it may send the real request."""
    asked = head.headers.get(b"access-control-request-method")
    return head.verb == "OPTIONS" and asked is not None and head.headers.get(b"origin") is not None


def preflight(head: RequestHead, verbs: bytes) -> HttpResponse:
    """The answer to a preflight, `cors_headers` apart. The fields asked for are allowed: Mcp-Param-* names no list can foresee."""
    wanted = head.headers.get(b"access-control-request-headers") or ""
    fields = [(b"access-control-allow-headers", wanted.encode())] if _TOKENS.fullmatch(wanted) else []
    headers = [
        (b"access-control-allow-methods", verbs),
        *fields,
        (b"access-control-max-age", _PREFLIGHT_SECONDS),
        (b"vary", b"Access-Control-Request-Method, Access-Control-Request-Headers"),
        NO_STORE,  # what a browser keeps of it has a time of its own, above
    ]
    return HttpResponse(204, headers)
