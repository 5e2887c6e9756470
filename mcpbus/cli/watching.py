"""`mcpbus watch`: what a server says that no request has caused."""

from typing import Any

import click
import msgspec

from mcpbus.cli.connecting import Connecting, Patience, client_options, converse, is_url
from mcpbus.cli.terminal import printable
from mcpbus.client.client import Client
from mcpbus.client.errors import ClientError
from mcpbus.protocol.revisions import Era


@click.command()
@client_options
@click.argument("uris", nargs=-1, metavar="[URI]...")
def watch(given: Connecting, uris: tuple[str, ...]) -> None:
    """Print changes of a server's lists, and of the resources named, until Ctrl-C: each a JSON object on a line."""

    async def talk(client: Client, patience: Patience) -> None:
        if client.revision.era is Era.MODERN:
            await _listen(client, patience, uris)
        elif is_url(given.target):
            raise ClientError(
                f"the server speaks {client.revision.name}, and tells changes on a GET stream, which is not opened here"
            )
        else:
            await _subscribe(client, patience, uris)

    converse(given, talk)


async def _listen(client: Client, patience: Patience, uris: tuple[str, ...]) -> None:
    async with client.listen(tools=True, prompts=True, resources=True, uris=uris) as changes:
        _say_so()
        with patience.asking():  # it may be silent for as long as it likes
            async for method, params in changes:
                _echo(method, params)
    raise ClientError("the server tells no more changes")


async def _subscribe(client: Client, patience: Patience, uris: tuple[str, ...]) -> None:
    for uri in uris:
        await client.request("resources/subscribe", {"uri": uri})
        patience.heard()
    _say_so()
    with patience.asking():
        while True:
            _echo(*await client.next_notification())


def _say_so() -> None:
    click.echo("listening, until Ctrl-C", err=True)


def _echo(method: str, params: dict[str, Any]) -> None:
    said = {key: value for key, value in params.items() if key != "_meta"}
    click.echo(printable(msgspec.json.encode({"method": method, "params": said}).decode()))
