"""`mcpbus routes`: the table by which messages go."""

import click

from mcpbus.cli.terminal import echo
from mcpbus.protocol.routes import render


@click.command()
def routes() -> None:
    """Print which stream each message of a server goes to. That depends on its scope, the revision and the transport."""
    echo(render())
