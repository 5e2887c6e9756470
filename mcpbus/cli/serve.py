"""`mcpbus serve` and `mcpbus demo`, which serve over HTTP, and `mcpbus routes`, which prints the table of routes."""

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import attrs
import click

from mcpbus.cli.http_options import http_options
from mcpbus.cli.openapi_options import openapi_options
from mcpbus.cli.options import account_option, header_option, isolation_option, log_options, revision_option
from mcpbus.cli.reload import reload_option
from mcpbus.cli.targets import Target, find_server, target_argument
from mcpbus.cli.terminal import echo
from mcpbus.metrics import addresses_of, check_inspect
from mcpbus.protocol.http.options import HttpOptions
from mcpbus.protocol.routes import render
from mcpbus.serving import ServeOptions, ServingError
from mcpbus.workers.supervisor import run_workers
from mcpbus.workers.worker import is_worker

_DEMO = "mcpbus.demo:server"


@click.command()
@reload_option
@log_options
@target_argument
@header_option
@account_option
@revision_option
@isolation_option
@openapi_options
@http_options
def serve(target: str, **given: Any) -> None:
    """Serve a server over HTTP until SIGTERM or Ctrl-C. A second one does not wait."""
    _serve_http(target, given)


@click.command()
@log_options
@http_options
def demo(**given: Any) -> None:
    """Serve the demonstration server over HTTP."""
    _serve_http(_DEMO, given)


def _authorize(server: Target, resource: str | None, issuers: Sequence[str], scopes: Sequence[str]) -> None:
    """Make a server ask for tokens, if that is wanted."""
    if resource is None and not issuers and not scopes:
        return
    if resource is None or not issuers:
        raise click.UsageError("tokens need both --resource, for which they are issued, and --issuer")
    if server.knows_principals:
        raise click.UsageError(
            "the server says itself whom it lets in; leave out --resource, --issuer and --scope"
        )
    try:
        auth = import_module("mcpbus.auth")
        verifiers = [auth.JwtVerifier(issuer) for issuer in issuers]
        server.auth = auth.ResourceServer(resource, auth.AnyTokenVerifier(*verifiers), scopes=scopes)
    except (ImportError, ValueError) as error:
        raise click.UsageError(str(error)) from error


def _cluster(given: dict[str, Any], workers: int) -> dict[str, Any]:
    """Return what makes a server a replica, if that is wanted."""
    asked = {name: given[name] for name in ("link", "advertise", "namespace") if name in given}
    if "redis" not in given:
        if asked:
            raise click.UsageError(f"--{next(iter(asked))} is for replicas, which need --redis")
        return {}
    redis = import_module("mcpbus.cluster").RedisReplicas(given["redis"], **asked)
    if workers > 1:
        redis.check_for_workers()
    return {"cluster": redis}


def _configure_telemetry(service: str) -> None:
    """Have the SDK of OpenTelemetry send what the server makes."""
    try:
        import_module("mcpbus.telemetry.sdk").configure(service)
    except (ImportError, ValueError) as error:
        raise click.UsageError(f"--otel: {error}") from None


def _serve_http(target: str, given: dict[str, Any]) -> None:
    given = {name: value for name, value in given.items() if value not in (None, ())}
    workers, headers, revision = given.pop("workers"), given.pop("headers", None), given.pop("revision", None)
    account, follow = given.pop("account", None), given.pop("follow", False)
    isolation, api = given.pop("isolation", None), given.pop("api", {})
    http: dict[str, Any] = {name: given[name] for name in attrs.fields_dict(HttpOptions) if name in given}
    serving = {name: given[name] for name in attrs.fields_dict(ServeOptions) if name in given}
    asked: dict[str, Any] = {
        name: given[name]
        for name in ("bind", "response", "metrics", "inspect", "audit", "telemetry")
        if name in given
    }
    try:
        HttpOptions(**http)  # the server makes its own; here it is to be told before anything runs
        options = ServeOptions(**serving)
        if "metrics" in given:
            addresses_of(given["metrics"], workers)
        if "inspect" in given:
            check_inspect(given["inspect"], workers)
        cluster = _cluster(given, workers)
    except ValueError as error:
        raise click.UsageError(str(error.args[0])) from error
    try:
        if workers > 1 and not is_worker():
            # They load the server, and this process does not.
            sys.exit(run_workers(workers, options, given.get("metrics"), given.get("inspect")))
        server = find_server(target, headers, revision, account, isolation=isolation, follow=follow, api=api)
        _authorize(server, given.get("resource"), given.get("issuers", ()), given.get("scopes", ()))
        if "telemetry" in given:
            _configure_telemetry(server.name)
        if workers > 1:  # the process that keeps them has opened these addresses, without the server
            asked["bind"] = options.bind
        server.run(options=options, workers=workers, **cluster, **asked, **http)
    except ServingError as error:
        raise click.ClickException(str(error)) from None


@click.command()
def routes() -> None:
    """Print which stream each message of a server goes to. That depends on its scope, the revision and the transport."""
    echo(render())
