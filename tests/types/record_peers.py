"""Record what the official SDK and FastMCP list, accept and reject for each row of the table of annotations.

Run it from the root of the repository after a change of a row::

    python3 tests/types/record_peers.py ["NAME OF A ROW" ...]

Without names it records all rows. It makes an environment with both peers in ``.venv/peers`` (this needs a package index), runs itself there, and writes
``tests/types/peers.json``. The tests only read that file.
"""

# A peer may refuse an annotation with any exception.
# ruff: noqa: BLE001

import asyncio
import json
import logging
import os
import subprocess
import sys
import warnings
from collections.abc import Awaitable, Callable
from importlib import metadata
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
RECORD = HERE / "peers.json"
PEERS = ROOT / ".venv" / "peers"
PACKAGES = [
    "mcp>=2.3,<3",
    "fastmcp>=4,<5",
    "pydantic[email]",
    "attrs",
    "msgspec",
    "annotated-types",
    "typing-extensions",
]
VERSIONS = ["mcp", "fastmcp", "pydantic", "attrs", "msgspec"]

Call = Callable[[str, dict[str, Any]], Awaitable[Any]]


def main() -> None:
    """Install the peers, unless this runs beside them, and record them."""
    if "--here" not in sys.argv:
        subprocess.run([sys.executable, "-m", "venv", PEERS], check=True)
        subprocess.run([PEERS / "bin" / "pip", "install", "--quiet", "--upgrade", *PACKAGES], check=True)
        os.chdir(ROOT)
        os.execv(PEERS / "bin" / "python", ["python", __file__, "--here", *sys.argv[1:]])
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    os.chdir(ROOT)
    asyncio.run(record({name for name in sys.argv[1:] if name != "--here"}))


async def record(wanted: set[str]) -> None:
    """Ask both peers about each row, or about those that are wanted and those that are new, and write the record."""
    from all_rows import ROWS, arguments_of
    from type_results import RESULTS

    if unknown := wanted - set(ROWS):
        raise SystemExit(f"the table has no rows {sorted(unknown)}")
    known = json.loads(RECORD.read_text())["rows"] if wanted else {}
    rows, results = {}, {}
    for name, row in ROWS.items():
        if name in known and name not in wanted:
            rows[name] = known[name]
        else:
            arguments = arguments_of(row)
            rows[name] = merged(await ask_sdk(row, arguments), await ask_fastmcp(row, arguments), arguments)
    for name, row in RESULTS.items():
        results[name] = {"sdk": await result_of_sdk(row), "fastmcp": await result_of_fastmcp(row)}
    versions = {name: metadata.version(name) for name in VERSIONS}
    lines = [f'"versions": {json.dumps(versions)}']
    for part, entries in (("rows", rows), ("results", results)):
        body = ",\n".join(f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in entries.items())
        lines.append(f'"{part}": {{\n{body}\n}}')
    RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def merged(sdk: dict[str, Any], fastmcp: dict[str, Any], arguments: list[dict[str, Any]]) -> dict[str, Any]:
    """Return one entry of the record: the arguments that both accept, that both reject, and the others."""
    entry: dict[str, Any] = {"sdk": sdk["listed"], "fastmcp": fastmcp["listed"]}
    if "refused" in sdk["listed"] or "refused" in fastmcp["listed"]:
        return entry
    texts = list(dict.fromkeys(map(json.dumps, arguments)))
    pairs = {text: (sdk["answers"][text], fastmcp["answers"][text]) for text in texts}
    entry["accepted"] = {text: a for text, (a, b) in pairs.items() if a == b and a is not None}
    entry["split"] = {text: [a, b] for text, (a, b) in pairs.items() if a != b}
    entry["rejected"] = [text for text, (a, b) in pairs.items() if a is None and b is None]
    return entry


async def answers_of(call: Call, arguments: list[dict[str, Any]]) -> dict[str, str | None]:
    """Return the text of each call, or None for a call that fails."""
    answers: dict[str, str | None] = {}
    for each in arguments:
        result = await call("tool", each)
        answers[json.dumps(each)] = None if result.is_error else result.content[0].text
    return answers


async def ask_sdk(row: Any, arguments: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the schema that the official SDK lists for a row, and its answers to the arguments."""
    from mcp import Client
    from mcp.server import MCPServer
    from type_rows import tool_of

    server = MCPServer("x")
    try:
        server.tool()(tool_of(row))
    except Exception as error:
        return {"listed": {"refused": type(error).__name__}}
    async with Client(server) as client:
        listed = (await client.list_tools()).tools[0].input_schema
        return {"listed": listed, "answers": await answers_of(client.call_tool, arguments)}


async def ask_fastmcp(row: Any, arguments: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the schema that FastMCP lists for a row, and its answers to the arguments."""
    from fastmcp import Client, FastMCP
    from type_rows import tool_of

    server = FastMCP("x")
    try:
        server.tool(tool_of(row))
    except Exception as error:
        return {"listed": {"refused": type(error).__name__}}
    async with Client(server) as client:

        async def call(name: str, values: dict[str, Any]) -> Any:
            return await client.call_tool(name, values, raise_on_error=False)

        listed = (await client.list_tools())[0].input_schema
        return {"listed": listed, "answers": await answers_of(call, arguments)}


async def result_of_sdk(row: Any) -> dict[str, Any]:
    """Return what the official SDK lists for a return annotation, and the structured content of a call."""
    from mcp import Client
    from mcp.server import MCPServer
    from type_results import tool_with

    server = MCPServer("x")
    try:
        server.tool()(tool_with(row))
        async with Client(server) as client:
            tool = (await client.list_tools()).tools[0]
            result = await client.call_tool("tool", {})
    except Exception as error:
        return {"refused": type(error).__name__}
    return {"listed": tool.output_schema, "structured": result.structured_content}


async def result_of_fastmcp(row: Any) -> dict[str, Any]:
    """Return what FastMCP lists for a return annotation, and the structured content of a call."""
    from fastmcp import Client, FastMCP
    from type_results import tool_with

    server = FastMCP("x")
    try:
        server.tool(tool_with(row))
        async with Client(server) as client:
            tool = (await client.list_tools())[0]
            result = await client.call_tool("tool", {}, raise_on_error=False)
    except Exception as error:
        return {"refused": type(error).__name__}
    return {"listed": tool.output_schema, "structured": result.structured_content}


if __name__ == "__main__":
    main()
