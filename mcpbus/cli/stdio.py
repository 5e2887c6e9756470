"""`mcpbus stdio`: a server over standard input and output. A desktop client waits for its start."""

from typing import Any

import click

from mcpbus.cli.account_option import account_option
from mcpbus.cli.draining import drain_option
from mcpbus.cli.header_option import header_option
from mcpbus.cli.logs import log_options
from mcpbus.cli.revision_option import revision_option
from mcpbus.cli.targets import find_server, target_argument
from mcpbus.serving.errors import ServingError


@click.command()
@log_options
@target_argument
@header_option
@account_option
@revision_option
@drain_option
def stdio(
    target: str,
    headers: dict[str, str],
    account: str | None,
    revision: str | None,
    drain_seconds: float | None,
) -> None:
    """Serve a server over standard input and output."""
    given: dict[str, Any] = {} if drain_seconds is None else {"drain_seconds": drain_seconds}
    try:
        find_server(target, headers, revision, account).run("stdio", **given)
    except ServingError as error:
        raise click.ClickException(str(error)) from None
