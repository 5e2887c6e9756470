"""Each row of the table of types in ``docs/server.md`` is true."""

import json
import re
from pathlib import Path
from types import ModuleType

import pytest
from type_rows import Row, tool_of

from mcpbus import Server
from mcpbus.testing import open_client

PAGE = Path(__file__).parent.parent.parent / "docs" / "server.md"
SECTION = PAGE.read_text().partition("### Types of parameters\n")[2].partition("\n## ")[0]
CELLS = re.compile(r"(?<!\\)\|")


def rows():
    """Return the rows of the tables of the section: an annotation, a value, the argument, and a value that is rejected."""
    lines = [line for line in SECTION.splitlines() if line.startswith("| `")]
    return [
        [cell.strip().strip("`").replace(r"\|", "|") for cell in CELLS.split(line)[1:-1]] for line in lines
    ]


@pytest.fixture(scope="module")
def page():
    """A module with the classes that the section shows."""
    module = ModuleType("page")
    exec(re.search(r"```python\n(.*?)```", SECTION, re.DOTALL)[1], vars(module))
    return module


def test_the_section_has_rows():
    assert len(rows()) > 50


@pytest.mark.parametrize("row", rows(), ids=" ".join)
async def test_a_row_of_the_page_is_true(page, row, autojump_clock):
    annotation, value, argument, rejected = row
    server = Server("x")
    server.tool(tool_of(Row("x", eval(annotation, vars(page)), [], [])))
    async with open_client(server) as client:
        result = await client.call_tool("tool", {"v": json.loads(value)})
        assert (result["content"][0]["text"], result.get("isError", False)) == (argument, False)
        if rejected:
            assert (await client.call_tool("tool", {"v": json.loads(rejected)}))["isError"]
