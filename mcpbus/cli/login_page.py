"""How somebody at a terminal is shown the page to log in at, and where nobody is."""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from urllib.parse import parse_qs, urlsplit

import trio

from mcpbus.cli.terminal import echo
from mcpbus.client.errors import redact_url


def login_at(
    url: str,
    *,
    asking: Callable[[], AbstractContextManager[None]] = nullcontext,
    started: bool = False,
    pastes: bool = False,
    account: str | None = None,
    **options: Any,
) -> Any:
    """Return how to log in to a server for whom is at the terminal, with the logins that the command line keeps.

    Args:
        url: The server's.
        asking: Lasts as long as a person is waited for.
        started: Whether the program may have been started by another one, for a person who is at no terminal and has a browser.
        pastes: Whether the person may paste the address at which a browser on another machine has ended.
        account: The name of the login; None for the one without a name.
        **options: More of `OAuth`.

    Raises:
        ValueError: The name of the login is none.
    """
    from mcpbus.client.oauth.authorization_code import OAuth, can_open  # noqa: PLC0415 - as below
    from mcpbus.client.oauth.errors import LoginNeededError  # noqa: PLC0415 - most servers ask for no login
    from mcpbus.client.oauth.storage import FileTokenStorage, by_command  # noqa: PLC0415 - as above

    at_terminal, server = sys.stderr.isatty(), redact_url(url)
    store = FileTokenStorage(account=account)

    async def show(page: str) -> str | None:
        parts = urlsplit(page)
        scopes = " ".join(parse_qs(parts.query).get("scope", []))
        allowing = f" that allows {scopes}" if scopes else ""
        echo(
            f"{server} asks for a login{allowing}. Log in at {parts.hostname}, in the browser, or open this page:\n{page}",
            err=True,
        )
        with asking():
            # A browser may be what is waited for here, until it is closed.
            opened = await can_open(page)
            if not (opened or at_terminal):
                raise LoginNeededError(
                    f"no browser can be opened here: `{by_command('login', server, store)}` logs in, in a terminal"
                )
            if not (pastes and sys.stdin.isatty()):
                await trio.sleep_forever()
            return await _pasted()

    return OAuth(store=store, open_page=show if at_terminal or started else None, **options)


async def _pasted() -> str:
    """Wait for an address that is pasted."""
    echo("If that browser is on another machine, paste here the address at which it ends.", err=True)
    line = "\n"
    while not line.strip():
        # A thread that waits for a line does so until the program ends: nothing else may want one.
        line = await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
        if not line:
            await trio.sleep_forever()
    return line
