"""The option that sets the owner of each connection to another server."""

import click

isolation_option = click.option(
    "--isolation",
    type=click.Choice(["client", "call", "none"]),
    help="The owner of a connection to the server, or of a process of it: one client, one call, or all clients. [default: client]",
)
