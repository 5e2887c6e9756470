"""`mcpbus stdio`: a server over standard input and output. A desktop client waits for its start."""

from typing import Any

import click

from mcpbus.cli.draining import drain_option
from mcpbus.cli.logs import log_options
from mcpbus.cli.targets import find_server, target_argument


@click.command()
@log_options
@target_argument
@drain_option
def stdio(target: str, drain_seconds: float | None) -> None:
    """Serve a server over standard input and output."""
    given: dict[str, Any] = {} if drain_seconds is None else {"drain_seconds": drain_seconds}
    find_server(target).run("stdio", **given)
