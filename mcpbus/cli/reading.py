"""`mcpbus read`: one resource."""

import binascii
import sys
from base64 import b64decode
from typing import Any

import click

from mcpbus.cli.arguments import checked_unicode
from mcpbus.cli.connecting import Connecting, Patience, client_options, converse
from mcpbus.cli.terminal import echo, echo_bytes, echo_data, echo_json
from mcpbus.client.client import Client


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
