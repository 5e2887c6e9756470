"""The option that fixes the revision which is spoken to another server."""

import click

from mcpbus.protocol.revisions import REVISIONS

revision_option = click.option(
    "--revision",
    type=click.Choice(list(REVISIONS)),
    help="The protocol revision to speak to the server. [default: the newest that both know]",
)
