"""`mcpbus call`: one tool, once, with its progress and log lines as they come."""

import difflib
import shlex
import sys
from typing import Any

import click
import msgspec

from mcpbus.cli.connecting import Connecting, Patience, client_options, converse
from mcpbus.cli.input_requests import Interview
from mcpbus.cli.schemas import read_arguments
from mcpbus.cli.terminal import echo, echo_data, echo_json, pretty_json
from mcpbus.client.client import Client
from mcpbus.protocol.enums import LogLevel
from mcpbus.protocol.revisions import Era


@click.command()
@client_options
@click.argument("tool")
@click.argument("arguments", nargs=-1, metavar="[KEY=VALUE | KEY:=JSON | '{...}']...")
@click.option("--json", "as_json", is_flag=True, help="Print the whole result, as JSON.")
@click.option(
    "--log-level",
    type=click.Choice([level.value for level in LogLevel]),
    default="info",
    show_default=True,
    help="From which level on the server's log lines are wanted.",
)
@click.option(
    "--max-time",
    type=click.FloatRange(min=0, min_open=True),
    default=3600,
    show_default=True,
    metavar="SECONDS",
    help="How long the call may take in all, whatever the server says meanwhile.",
)
def call(  # noqa: PLR0917 - click gives each by its name
    given: Connecting, tool: str, arguments: tuple[str, ...], as_json: bool, log_level: str, max_time: float
) -> None:
    """Call a tool, and print what it returns. Progress, log lines and what went wrong go to standard error.

    A value is read by the tool's schema; KEY:=JSON says it exactly, and a JSON object says several. The server's questions are asked in the terminal.
    """
    results: list[dict[str, Any]] = []

    async def talk(client: Client, patience: Patience) -> None:
        def show(method: str, params: dict[str, Any]) -> None:
            patience.heard()
            _show_notification(method, params)

        described = _find(tool, await client.list_tools(), given.target)
        try:
            read = read_arguments(arguments, described.get("inputSchema"))
        except ValueError as fault:
            raise click.UsageError(f"{tool}: {fault}") from None
        patience.heard()
        if client.revision.era is Era.LEGACY and "logging" in (await client.describe()).capabilities:
            await client.request("logging/setLevel", {"level": log_level})
            patience.heard()
        results.append(await client.call_tool(tool, read, on_notification=show, log_level=log_level))

    converse(given, talk, interview=Interview, most=max_time)
    failed = results[0].get("isError") is True
    if as_json:
        echo_json(results[0])
    else:
        for text in _texts(results[0]):
            echo_data(text, err=failed)
    if failed:
        sys.exit(1)


def _find(name: str, tools: list[dict[str, Any]], target: str) -> dict[str, Any]:
    names = [str(tool.get("name")) for tool in tools]
    if name in names:
        return tools[names.index(name)]
    close = [each for each in names if each.startswith(name)] or difflib.get_close_matches(name, names, n=1)
    hint = (
        f"did you mean {close[0]}?" if close else f"mcpbus list {shlex.quote(target)} tells which there are."
    )
    raise click.UsageError(f"the server has no tool {name!r}: {hint}")


def _show_notification(method: str, params: dict[str, Any]) -> None:
    if method == "notifications/progress":
        total = f"/{_number(params['total'])}" if params.get("total") is not None else ""
        message = f" {params['message']}" if params.get("message") else ""
        echo(f"[{_number(params.get('progress'))}{total}]{message}", err=True)
    elif method == "notifications/message":
        data = params.get("data")
        text = data if isinstance(data, str) else msgspec.json.encode(data).decode()
        logger = f" {params['logger']}" if params.get("logger") else ""
        echo(f"{params.get('level')}{logger}: {text}", err=True)


def _number(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _texts(result: dict[str, Any]) -> list[str]:
    """What to show of a result. What is structured is told once: servers repeat it as text, for clients that are older."""
    content = result.get("content")
    blocks = [block for block in (content if isinstance(content, list) else ()) if isinstance(block, dict)]
    texts = [_text(block) for block in blocks]
    structured = result.get("structuredContent")
    if structured is None:
        return texts
    # What is no object is wrapped in one, where a revision has nothing else; a text some servers wrap by a name of their own.
    [(name, value)] = (
        structured.items() if isinstance(structured, dict) and len(structured) == 1 else [("", None)]
    )
    wrapped = name == "result" or (isinstance(value, str) and value in texts)
    values = [value, structured] if wrapped else [structured]
    said = [*texts, *map(_decode, texts)]
    shown = next((value for value in values if value in said or value == texts), structured)
    if shown in texts:
        return texts
    return [text for text in texts if shown not in (_decode(text), texts)] + [pretty_json(shown)]


def _decode(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def _text(block: dict[str, Any]) -> str:
    """A block of content, as text."""
    kind = block.get("type")
    resource = block.get("resource")
    if kind == "text":
        return str(block.get("text", ""))
    if kind == "resource_link":
        return f"{block.get('name', '')} <{block.get('uri', '')}>"
    if kind == "resource" and isinstance(resource, dict):
        return (
            str(resource["text"]) if "text" in resource else f"[{resource.get('uri')}: binary; --json has it]"
        )
    return f"[{kind}: {block.get('mimeType', 'binary')}; --json has it]"
