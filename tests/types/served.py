"""A row of the table of annotations as mcpbus serves it: the listed schema, and the answers to values."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import attrs
import trio
from all_rows import ROWS, arguments_of
from type_rows import Row, tool_of

from mcpbus import Server
from mcpbus.testing import open_client


@attrs.frozen
class Served:
    """What mcpbus lists and answers for one row.

    Attributes:
        schema: The input schema of the tool.
        answers: The text that the function returned for each JSON text of arguments, or None if mcpbus rejected them.
        errors: The text of each rejection.
    """

    schema: dict[str, Any]
    answers: dict[str, str | None]
    errors: dict[str, str]


def arguments_as_text(row: Row) -> list[dict[str, Any]]:
    """Return the valid values of a row that are no text, as the JSON text that a model may write for them."""
    return [{"v": json.dumps(value)} for value in row.valid if not isinstance(value, str)]


@cache
def served(name: str) -> Served:
    """Return what mcpbus lists for a row, and its answers to all values."""
    row = ROWS[name]
    return trio.run(_serve, row, [*arguments_of(row), *arguments_as_text(row)], False)


@cache
def served_strictly(name: str) -> Served:
    """Return the same of a server with strict arguments, for the row's own values."""
    row = ROWS[name]
    values = [{"v": value} for value in [*row.valid, *row.invalid]]
    return trio.run(_serve, row, [*values, *arguments_as_text(row)], True)


async def _serve(row: Row, tried: list[dict[str, Any]], strict: bool) -> Served:
    server = Server("x", strict_arguments=strict)
    server.tool(tool_of(row))
    answers: dict[str, str | None] = {}
    errors: dict[str, str] = {}
    async with open_client(server) as client:
        [tool] = await client.list_tools()
        for arguments in tried:
            result = await client.call_tool("tool", arguments)
            [block] = result["content"]
            text = json.dumps(arguments)
            answers[text] = None if result.get("isError") else block["text"]
            if result.get("isError"):
                errors[text] = block["text"]
    return Served(tool["inputSchema"], answers, errors)


@cache
def recorded(file: str) -> dict[str, Any]:
    """Return the content of a recorded file that lies beside this module."""
    return json.loads((Path(__file__).parent / file).read_text())
