"""The option that names one of several accounts at a server."""

import click

account_option = click.option(
    "--as",
    "account",
    metavar="NAME",
    help="The name of the login, if you have several accounts at that URL. [default: the login without a name]",
)
