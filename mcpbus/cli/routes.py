"""`mcpbus routes`: the table by which messages go."""

import click

from mcpbus.protocol.routes import render


@click.command()
def routes() -> None:
    """Print which stream a message from the server goes to, by scope, revision and transport."""
    click.echo(render())
