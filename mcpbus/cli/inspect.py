"""`mcpbus inspect` and `mcpbus list`: what a server offers."""

from collections.abc import Iterator
from typing import Any, Final

import attrs
import click
import msgspec
import trio

from mcpbus.cli.connecting import Connecting, Patience, client_options, converse
from mcpbus.cli.schemas import label
from mcpbus.cli.terminal import echo, echo_columns, echo_json, first_line
from mcpbus.client.client import Client, ServerDescription
from mcpbus.protocol.errors import METHOD_NOT_FOUND, ProtocolError

_Items = list[dict[str, Any]]
_Row = tuple[str, str]

KINDS: Final = ("tools", "prompts", "resources", "templates")


@attrs.frozen
class _Offer:
    """The things that a server offers, by kind, and the rows in which they are shown."""

    server: ServerDescription
    revision: str
    items: dict[str, _Items]
    rows: dict[str, list[_Row]]


async def list_kind(client: Client, kind: str) -> _Items:
    """Return the descriptions of all things of a kind; none where the server has none."""
    lists = {
        "tools": client.list_tools,
        "prompts": client.list_prompts,
        "resources": client.list_resources,
        "templates": client.list_resource_templates,
    }
    try:
        return await lists[kind]()
    except ProtocolError as error:
        if error.code != METHOD_NOT_FOUND:
            raise
        return []


@click.command()
@client_options
@click.option("--json", "as_json", is_flag=True, help="Print it all, as JSON.")
def inspect(given: Connecting, as_json: bool) -> None:
    """Tell what a server is and offers. Tools, prompts and resources are told with their parameters."""
    offers: list[_Offer] = []

    async def talk(client: Client, patience: Patience) -> None:
        server = await client.describe()
        items = {}
        for kind in KINDS:
            patience.heard()
            offered = "resources" if kind == "templates" else kind
            items[kind] = await list_kind(client, kind) if offered in server.capabilities else []
        patience.heard()
        patience.fault = "the server's schemas have been read"
        rows = {} if as_json else {kind: await _all_rows(kind, items[kind]) for kind in KINDS}
        offers.append(_Offer(server, client.revision.name, items, rows))

    converse(given, talk)
    if as_json:
        echo_json(_document(offers[0]))
    else:
        _show(offers[0])


@click.command("list")
@client_options
@click.argument("kind", type=click.Choice(KINDS), default="tools")
def list_(given: Connecting, kind: str) -> None:
    """Print the names of what a server offers, one a line. Without KIND these are the tools."""
    found: _Items = []

    async def talk(client: Client, _: Patience) -> None:
        found.extend(await list_kind(client, kind))

    converse(given, talk)
    echo_columns([(_name(kind, item), first_line(item.get("description"))) for item in found])


def _name(kind: str, item: dict[str, Any]) -> str:
    member = {"resources": "uri", "templates": "uriTemplate"}.get(kind, "name")
    return str(item.get(member, ""))


def _document(offer: _Offer) -> dict[str, Any]:
    return {
        "name": offer.server.name,
        "version": offer.server.version,
        "revision": offer.revision,
        "instructions": offer.server.instructions,
        "capabilities": offer.server.capabilities,
        **offer.items,
    }


def _show(offer: _Offer) -> None:
    server = offer.server
    name = " ".join(part for part in (server.name or "a server without a name", server.version) if part)
    echo(f", revision {offer.revision}", bold=name)
    if server.instructions:
        echo(server.instructions)
    echo(f"capabilities: {', '.join(_capabilities(server.capabilities)) or 'none'}")
    for kind, rows in offer.rows.items():
        if rows:
            echo(f"\n{kind}:")
            echo_columns(rows)


def _capabilities(capabilities: dict[str, Any]) -> list[str]:
    """Each capability, with what is true or named of it."""
    told = []
    for name, parts in capabilities.items():
        named = (
            [part for part, value in parts.items() if value is not False] if isinstance(parts, dict) else []
        )
        told.append(name + (f" ({', '.join(named)})" if named else ""))
    return told


async def _all_rows(kind: str, items: _Items) -> list[_Row]:
    """Return a row for each thing and each of its parameters. Each may take a while, so a deadline is looked at between them."""
    rows: list[_Row] = []
    for item in items:
        rows.append((f"  {_name(kind, item)}", first_line(item.get("description") or item.get("title"))))
        for row in _parameters(item):
            rows.append(row)
            await trio.lowlevel.checkpoint()
    return rows


def _parameters(item: dict[str, Any]) -> Iterator[_Row]:
    schema = item.get("inputSchema")
    if isinstance(schema, dict):
        properties = schema.get("properties")
        required = schema.get("required")
        needed = frozenset(map(str, required if isinstance(required, list) else ()))
        for name, part in properties.items() if isinstance(properties, dict) else ():
            yield _parameter(name, label(part, schema), part, name in needed)
        return
    arguments = item.get("arguments")
    for argument in arguments if isinstance(arguments, list) else ():
        if isinstance(argument, dict):
            yield _parameter(argument.get("name"), "string", argument, argument.get("required") is True)


def _parameter(name: object, kind: str, described: Any, required: bool) -> _Row:
    described = described if isinstance(described, dict) else {}
    default = f" = {msgspec.json.encode(described['default']).decode()}" if "default" in described else ""
    optional = "" if required or default else ", optional"
    text = first_line(described.get("description"))
    return (f"    {name}", kind + default + optional + (f": {text}" if text else ""))
