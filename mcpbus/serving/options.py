"""What a served application may be told: where to listen, and how long to wait for whom."""

import re
from collections.abc import Iterable
from typing import Literal

import attrs

from mcpbus.core.limits import AS_LIMITS, DRAIN_SECONDS
from mcpbus.protocol.keywords import Elsewhere, explained_as
from mcpbus.protocol.validators import ge, gt, one_of

_BIND = re.compile(
    r"unix:.+ | fd://\d+ | (?: \[ [0-9A-Fa-f:.%]+ \] | [^\s:\[\]/]+ ) : (?P<port>\d{1,5})", re.VERBOSE
)


def _to_binds(value: str | Iterable[str]) -> tuple[str, ...]:
    # What is no text, such as a port alone, is told what to write.
    return (value,) if isinstance(value, str | bytes) or not isinstance(value, Iterable) else tuple(value)


def _check_binds(_: object, __: object, binds: tuple[str, ...]) -> None:
    if not binds:
        raise ValueError("bind is empty: give at least one HOST:PORT")
    for bind in binds:
        match = _BIND.fullmatch(str(bind))
        if match is None or int(match["port"] or 0) > 65535:
            raise ValueError(
                f"cannot bind to {bind!r}: write HOST:PORT (127.0.0.1:8000, [::1]:8000, port 0 for any free one), "
                "unix:PATH or fd://NUMBER"
            )


def _check_ca_certs(options: "ServeOptions", _: object, ca_certs: str | None) -> None:
    if ca_certs is not None and options.certfile is None:
        raise ValueError(
            "ca_certs verifies clients over TLS, which needs certfile and keyfile: give all three"
        )


def _check_keyfile(options: "ServeOptions", _: object, keyfile: str | None) -> None:
    if (keyfile is None) != (options.certfile is None):
        raise ValueError("TLS needs both certfile and keyfile: give both, or neither for cleartext")


_OF_OUR_OWN = (
    "write_deadline",
    "unread_body_bytes",
    "unread_body_timeout",
    "head_timeout",
    "max_connections",
)


_ELSEWHERE: Elsewhere = {
    **AS_LIMITS,
    "host": lambda host: f'write bind="{host}:8000"',
    "port": lambda port: f'write bind="127.0.0.1:{port}"',
}


@explained_as(elsewhere=_ELSEWHERE)
@attrs.frozen(kw_only=True)
class ServeOptions:
    """How an application is served. Durations are in seconds.

    Attributes:
        bind: Where to listen: one or several of `HOST:PORT` (port 0 takes any free one), `unix:PATH`, `fd://NUMBER`.
        server: Who serves: "mcpbus", its own server, or "hypercorn", an extra of the installation, which does not promise what
            write_deadline, unread_body_bytes, unread_body_timeout, head_timeout and max_connections say.
        certfile: PEM file of the certificate chain; given together with `keyfile`, or not at all (then cleartext).
        keyfile: PEM file of the certificate's private key.
        ca_certs: PEM file of the authorities whose certificates clients must have. Without it clients need none.
        drain_timeout: How long requests may go on after a shutdown was asked for.
        write_deadline: A client that accepts nothing for this long loses its connection.
        keep_alive_timeout: How long a connection without a request stays open. Many clients keep connections in
            a pool for a minute, and a server that is quicker to close races with their next request.
        websocket_ping_interval: For how long nothing is said on a WebSocket before it is sent a ping frame, so that whatever is between us
            and its client does not take it for dead, and that a client is, of which nothing is heard.
        unread_body_bytes: How much of a request body is read and thrown away after the application has answered, so
            that a client which still uploads sees the answer. Beyond it the stream or connection is reset.
        unread_body_timeout: How long that may take.
        max_head_bytes: The longest head of a request that the lane or HTTP/2 reads.
        head_timeout: How long the rest of a head may take, for the lane or HTTP/2, once its first byte has come.
        tls_handshake_timeout: How long a TLS handshake may take, counted from when the connection was accepted.
        max_connections: Connections at once; past it an idle one makes room of the address that has most, or the newcomer is
            refused. By default seven eighths of the descriptors that the process may open when it begins to serve.
        backlog: Connections that the kernel may hold before they are accepted.

    Raises:
        ValueError: An option cannot be right; the message says what would be.
    """

    bind: tuple[str, ...] = attrs.field(
        default=("127.0.0.1:8000",), converter=_to_binds, validator=_check_binds
    )
    server: Literal["mcpbus", "hypercorn"] = attrs.field(
        default="mcpbus", validator=one_of("mcpbus", "hypercorn")
    )
    certfile: str | None = None
    keyfile: str | None = attrs.field(default=None, validator=_check_keyfile)
    ca_certs: str | None = attrs.field(default=None, validator=_check_ca_certs)
    drain_timeout: float = attrs.field(default=DRAIN_SECONDS, validator=ge(0))
    write_deadline: float = attrs.field(default=30.0, validator=gt(0))
    keep_alive_timeout: float = attrs.field(default=75.0, validator=gt(0))
    websocket_ping_interval: float = attrs.field(default=15.0, validator=gt(0))
    unread_body_bytes: int = attrs.field(default=4 * 1024 * 1024, validator=ge(0))
    unread_body_timeout: float = attrs.field(default=5.0, validator=ge(0))
    max_head_bytes: int = attrs.field(default=32 * 1024, validator=ge(1024))
    head_timeout: float = attrs.field(default=10.0, validator=gt(0))
    tls_handshake_timeout: float = attrs.field(default=10.0, validator=gt(0))
    max_connections: int | None = attrs.field(default=None, validator=attrs.validators.optional(ge(1)))
    backlog: int = attrs.field(default=1024, validator=ge(1))

    def __attrs_post_init__(self) -> None:
        if self.server == "mcpbus":
            return
        for name in _OF_OUR_OWN:
            if getattr(self, name) != getattr(attrs.fields(ServeOptions), name).default:
                raise ValueError(
                    f'{name} is a promise of mcpbus\'s own server: leave it out, or server="hypercorn"'
                )
