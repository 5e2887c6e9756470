"""`mcpbus watch`: what a server says that no request has caused."""

from typing import Any

import click
import msgspec

from mcpbus.cli.arguments import checked_unicode
from mcpbus.cli.connecting import Connecting, Patience, client_options, converse
from mcpbus.cli.terminal import echo
from mcpbus.client.client import Client
from mcpbus.client.errors import ClientError


@click.command()
@client_options
@click.argument("uris", callback=checked_unicode, nargs=-1, metavar="[URI]...")
def watch(given: Connecting, uris: tuple[str, ...]) -> None:
    """Print changes of a server's lists and resources, as they come. Each is a JSON object on a line; Ctrl-C ends it."""
    listening = False

    async def talk(client: Client, patience: Patience) -> None:
        nonlocal listening
        async with client.listen(tools=True, prompts=True, resources=True, uris=uris) as changes:
            listening = True
            echo("listening, until Ctrl-C", err=True)
            with patience.asking():  # it may be silent for as long as it likes
                async for method, params in changes:
                    _echo(method, params)
        raise ClientError("the server tells no more changes")

    try:
        converse(given, talk)
    except KeyboardInterrupt:
        if not listening:
            raise


def _echo(method: str, params: dict[str, Any]) -> None:
    said = {key: value for key, value in params.items() if key != "_meta"}
    echo(msgspec.json.encode({"method": method, "params": said}).decode())
