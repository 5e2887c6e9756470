"""`mcpbus login` and `mcpbus logout`: at a server, for all commands of this user."""

from importlib import import_module
from typing import Any, Final

import click
import trio

from mcpbus.cli.connecting import Patience, told
from mcpbus.cli.login_page import login_at
from mcpbus.cli.options import account_option
from mcpbus.cli.targets import is_url
from mcpbus.cli.terminal import echo
from mcpbus.client.errors import ClientError
from mcpbus.client.errors import redact_url as named

_SILENT_SECONDS: Final = 60.0
"""For how long the server may say nothing, while nobody is waited for."""

_url = click.argument("url", metavar="URL")


@click.command()
@_url
@click.option(
    "--client-id", help="The name by which the issuer knows this client, if it was registered there."
)
@click.option("--client-secret", help="Its secret. In MCPBUS_LOGIN_CLIENT_SECRET other users cannot see it.")
@click.option(
    "--client-metadata-url", help="Where this client's metadata is, for issuers that read it there."
)
@click.option(
    "--issuer",
    help="The only issuer to log in at. Name it with a secret, or where it is in a private network.",
)
@click.option(
    "--scope", "scopes", multiple=True, help="What to ask for, whatever the server says; may be repeated."
)
@click.option(
    "--redirect",
    metavar="PORT | URL",
    help="The port on 127.0.0.1 at which the browser comes back, or the address with which the client is registered. [default: any]",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=300,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for the person.",
)
@click.option(
    "--assume-pkce",
    is_flag=True,
    help="The issuer supports PKCE, though it does not say so, as those of Microsoft and Amazon.",
)
@account_option
def login(url: str, **given: Any) -> None:
    """Log in to the server at URL, in a browser. All commands of this user, and proxies, are logged in there then.

    Nothing has to be said where the issuer lets clients register by themselves. What was said is kept for the next login.
    """
    _check(url)
    redirect = given["redirect"]
    given["redirect"] = int(redirect) if redirect is not None and redirect.isdecimal() else redirect
    try:
        login_at(url, **given)  # what is wrong is to be told before anything runs
    except (ValueError, TypeError) as error:
        raise click.UsageError(str(error)) from None
    by_hand = import_module("mcpbus.client.oauth.login_commands")

    async def log_in() -> str:
        patience = Patience(_SILENT_SECONDS, float("inf"))
        auth = login_at(url, started=True, pastes=True, asking=patience.asking, **given)
        with patience.scope:
            return str(await by_hand.log_in(url, auth))
        raise ClientError(f"the server said nothing for {_SILENT_SECONDS:g} seconds")

    with told():
        issuer = trio.run(log_in)
    echo(f"Logged in to {named(url)}{_as(given['account'])} at {issuer}.")


@click.command()
@_url
@account_option
def logout(url: str, account: str | None) -> None:
    """Forget the login at URL, and have its issuer take it back."""
    _check(url)
    by_hand = import_module("mcpbus.client.oauth.login_commands")
    try:
        store = import_module("mcpbus.client.oauth.storage").FileTokenStorage(account=account)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    with told():
        ended = trio.run(by_hand.log_out, url, store)
    if ended.issuer is None:
        echo(f"Nobody was logged in to {named(url)}{_as(account)}.")
    elif ended.revoked:
        echo(f"Logged out of {named(url)}{_as(account)}; {ended.issuer} has taken the login back.")
    else:
        echo(
            f"Logged out of {named(url)}{_as(account)}; {ended.issuer} has not taken the login back: its tokens are good until they expire."
        )


def _as(account: str | None) -> str:
    return "" if account is None else f" as {account}"


def _check(url: str) -> None:
    if not is_url(url):
        raise click.BadParameter(
            f"{named(url)!r} is no URL: one begins with http:// or https://", param_hint="URL"
        )
