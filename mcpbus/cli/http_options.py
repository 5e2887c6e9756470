"""The options of whatever serves over HTTP, as one table."""

from collections.abc import Callable
from typing import Final, TypeVar, get_args

import click

from mcpbus.cli.options import drain_option
from mcpbus.protocol.http.options import HttpOptions
from mcpbus.serving import ServeOptions
from mcpbus.transports.request_handler import ResponseMode

_SERVING = ServeOptions()
_HTTP = HttpOptions()

_Command = TypeVar("_Command", bound=Callable[..., None])


def http_options(command: _Command) -> _Command:
    """Give a command these options; what is not given is left to the classes that have the defaults."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def _yes_no(value: bool) -> str:
    return "yes" if value else "no"


def _explain_bind(_: click.Context, option: click.Parameter, value: str | None) -> None:
    if value is not None:
        address = f"127.0.0.1:{value}" if option.name == "port" else f"{value}:8000"
        raise click.UsageError(f"there is no --{option.name}: write --bind {address}")


_OPTIONS: Final = (
    click.option(
        "--bind",
        multiple=True,
        metavar="HOST:PORT",
        help=f"Where to listen; may be repeated. [default: {', '.join(_SERVING.bind)}]",
    ),
    *(
        click.option(name, hidden=True, expose_value=False, callback=_explain_bind)
        for name in ("--port", "--host")
    ),
    click.option("--path", help=f"Path of the endpoint. [default: {_HTTP.path}]"),
    click.option(
        "--sessions",
        type=click.Choice(["sessionful", "stateless"]),
        help=f"Whether legacy clients open sessions. [default: {_HTTP.sessions}]",
    ),
    click.option(
        "--response",
        type=click.Choice(get_args(ResponseMode)),
        help="What a request is answered with; auto chooses as late as it can. [default: auto]",
    ),
    click.option(
        "--allowed-host",
        "allowed_hosts",
        multiple=True,
        metavar="NAME",
        help="A Host to answer to besides loopback names; may be repeated.",
    ),
    click.option(
        "--allowed-origin",
        "allowed_origins",
        multiple=True,
        metavar="ORIGIN",
        help="An Origin to answer to besides loopback ones; may be repeated.",
    ),
    click.option(
        "--trusted-proxy",
        "trusted_proxies",
        multiple=True,
        metavar="ADDRESS",
        help="A proxy, or a network of them, whose Forwarded or X-Forwarded-For is believed; `unix` for a Unix socket; "
        "may be repeated.",
    ),
    click.option(
        "--resource",
        metavar="URL",
        help="The URL at which clients reach the server: only who brings a token that was issued for it is let in.",
    ),
    click.option(
        "--issuer",
        "issuers",
        multiple=True,
        metavar="URL",
        help="Who issues such tokens, in the form of JWTs; may be repeated.",
    ),
    click.option(
        "--scope",
        "scopes",
        multiple=True,
        metavar="SCOPE",
        help="What each token has to allow; may be repeated.",
    ),
    click.option(
        "--http-sse/--no-http-sse",
        default=None,
        help=f"Whether to serve HTTP+SSE of 2024-11-05 too. [default: {_yes_no(_HTTP.http_sse)}]",
    ),
    click.option("--sse-path", help=f"Where HTTP+SSE clients connect. [default: {_HTTP.sse_path}]"),
    click.option(
        "--websocket/--no-websocket",
        default=None,
        help=f"Whether the endpoint takes WebSockets too. [default: {_yes_no(_HTTP.websocket)}]",
    ),
    click.option(
        "--root-path",
        help="What a proxy takes off the paths of requests; HTTP+SSE clients are told it.",
    ),
    click.option(
        "--access-log/--no-access-log",
        default=None,
        help=f"Whether to log a line about each request. [default: {_yes_no(_HTTP.access_log)}]",
    ),
    click.option(
        "--metrics",
        metavar="HOST:PORT",
        help="Where Prometheus finds figures, at /metrics; with several workers the first one is there, each other one at "
        "the next port. [default: nowhere]",
    ),
    click.option(
        "--inspect",
        metavar="HOST:PORT",
        help="Where the inspector is, on this machine alone: what is in flight, where it waits, and what became of messages; "
        "with several workers as --metrics. [default: nowhere]",
    ),
    click.option(
        "--audit",
        metavar="FILE",
        help="Where a line of JSON is written for each call, - for standard error; with several workers each has FILE.N. "
        "[default: nowhere]",
    ),
    click.option(
        "--otel",
        "telemetry",
        is_flag=True,
        default=None,
        help="Send spans and metrics by OpenTelemetry, as OTEL_EXPORTER_OTLP_ENDPOINT and the like say.",
    ),
    click.option("--certfile", type=click.Path(dir_okay=False), help="PEM certificate chain, for TLS."),
    click.option("--keyfile", type=click.Path(dir_okay=False), help="PEM private key of the certificate."),
    click.option(
        "--ca-certs",
        type=click.Path(dir_okay=False),
        help="PEM certificates of authorities. Clients need a certificate of one of them.",
    ),
    click.option(
        "--server",
        type=click.Choice(["mcpbus", "hypercorn"]),
        help=f"Who serves: mcpbus's own server, or hypercorn. [default: {_SERVING.server}]",
    ),
    click.option(
        "--workers",
        type=click.IntRange(min=1),
        default=1,
        metavar="NUMBER",
        help="How many processes serve; sessions are found from all of them. [default: 1]",
    ),
    click.option(
        "--redis",
        metavar="URL",
        help="Redis or Valkey, in which the processes that serve the same server on several machines find each other.",
    ),
    click.option(
        "--link",
        metavar="HOST:PORT",
        help="Where this one listens for the others; the port is 0, any that is free, with several workers. [default: 0.0.0.0:0]",
    ),
    click.option(
        "--advertise",
        metavar="HOST:PORT",
        help="Where the others find it. [default: the address from which it speaks to Redis]",
    ),
    click.option(
        "--namespace",
        metavar="NAME",
        help="What sets them apart from other servers in this Redis. [default: default]",
    ),
    drain_option,
    click.option(
        "--write-deadline",
        "write_deadline",
        type=float,
        metavar="SECONDS",
        help="How long a client may accept nothing before it loses its connection. "
        f"[default: {_SERVING.write_deadline:g}]",
    ),
    click.option(
        "--max-connections",
        type=int,
        metavar="NUMBER",
        help="Connections at once; past it idle ones make room. "
        "[default: seven eighths of the descriptors that the process may open]",
    ),
)
