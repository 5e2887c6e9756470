"""How long what goes on may go on when a server is told to end."""

import click

drain_option = click.option(
    "--drain",
    "drain_timeout",
    type=float,
    metavar="SECONDS",
    help="How long requests may go on after SIGTERM. [default: 5]",
)
