"""`mcpbus read`, which prints a resource, and `mcpbus watch`, which prints notifications that no request has caused."""

import binascii
import sys
from base64 import b64decode
from typing import Any

import click
import msgspec

from mcpbus.cli.connecting import Connecting, Patience, client_options, converse
from mcpbus.cli.schemas import checked_unicode
from mcpbus.cli.terminal import echo, echo_bytes, echo_data, echo_json
from mcpbus.client.client import Client
from mcpbus.client.errors import ClientError


@click.command()
@client_options
@click.argument("uri", callback=checked_unicode)
@click.option("--json", "as_json", is_flag=True, help="Print all contents, as JSON.")
def read(given: Connecting, uri: str, as_json: bool) -> None:
    """Print a resource. Into a file or a pipe it goes to the byte; bytes are not written to a terminal."""
    contents: list[dict[str, Any]] = []

    async def talk(client: Client, _: Patience) -> None:
        contents.extend(await client.read_resource(uri))

    converse(given, talk)
    if as_json:
        echo_json(contents)
        return
    for content in contents:
        _echo(content)


def _echo(content: dict[str, Any]) -> None:
    shown = sys.stdout.isatty()
    if "text" in content:
        echo_data(str(content["text"]), nl=shown)
    elif shown:
        kind = content.get("mimeType", "binary")
        echo(f"[{content.get('uri')}: {kind}; a file or a pipe is given its bytes]")
    else:
        try:
            echo_bytes(b64decode(str(content.get("blob")), validate=True))
        except binascii.Error as fault:
            raise click.ClickException(f"what the server answers is no base64: {fault}") from None


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
                    _echo_change(method, params)
        raise ClientError("the server tells no more changes")

    try:
        converse(given, talk)
    except KeyboardInterrupt:
        if not listening:
            raise


def _echo_change(method: str, params: dict[str, Any]) -> None:
    said = {key: value for key, value in params.items() if key != "_meta"}
    echo(msgspec.json.encode({"method": method, "params": said}).decode())
