"""`mcpbus stdio`: a server over standard input and output. A desktop client waits for its start."""

from typing import TYPE_CHECKING, Any

import click

from mcpbus.cli.openapi_options import openapi_options
from mcpbus.cli.options import (
    account_option,
    drain_option,
    header_option,
    isolation_option,
    log_options,
    revision_option,
)
from mcpbus.cli.targets import find_server, is_list, target_argument
from mcpbus.serving.errors import ServingError

if TYPE_CHECKING:
    from mcpbus.upstream.connection_pool import Isolation

follow_option = click.option(
    "--reload/--no-reload",
    "follow",
    default=False,
    help="Follow the changes of a file that names servers. [default: no]",
)


@click.command()
@log_options
@target_argument
@header_option
@account_option
@revision_option
@isolation_option
@openapi_options
@follow_option
@drain_option
def stdio(
    target: str,
    *,
    headers: dict[str, str],
    account: str | None,
    revision: str | None,
    isolation: "Isolation | None",
    follow: bool,
    api: dict[str, Any],
    drain_timeout: float | None,
) -> None:
    """Serve a server over standard input and output."""
    if follow and not is_list(target):
        raise click.UsageError(
            "--reload is for a TARGET that is a file which names servers: a client starts any other server again by itself"
        )
    given: dict[str, Any] = {} if drain_timeout is None else {"drain_timeout": drain_timeout}
    try:
        server = find_server(target, headers, revision, account, isolation=isolation, follow=follow, api=api)
        server.run("stdio", **given)
    except ServingError as error:
        raise click.ClickException(str(error)) from None
