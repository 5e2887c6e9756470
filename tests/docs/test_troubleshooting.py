"""The page for whoever sees something go wrong leaves nothing out, and quotes what the code says."""

import ast
import re
from collections.abc import Iterator
from http import HTTPStatus

import pytest
from doc_blocks import ROOT

from mcpbus import Reason

TEXT = (ROOT / "docs/troubleshooting.md").read_text()
FAULTS = {status.value for status in HTTPStatus if status >= 400}
ANSWERING = ("auth", "core", "protocol/http", "serving", "transports")


def first_cells(heading: str) -> list[str]:
    """Return the first cell of each row of the table under a heading."""
    section = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL)[1]
    _head, _line, *rows = [line for line in section.splitlines() if line.startswith("|")]
    return [row.split("|")[1].strip() for row in rows]


def constants(folder: str) -> Iterator[object]:
    """Yield every literal in the modules of a folder of the package."""
    for path in (ROOT / "mcpbus" / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant):
                yield node.value


def test_every_reason_has_something_to_do():
    assert [cell.strip("`") for cell in first_cells("Reasons")] == [reason.name for reason in Reason]


def test_every_status_of_a_refusal_is_explained_and_no_other():
    numbers = {value for folder in ANSWERING for value in constants(folder) if type(value) is int}
    assert {int(cell) for cell in first_cells("Statuses")} == numbers & FAULTS


QUOTED = [line for cell in first_cells("Lines of the log") for line in re.findall(r"`(.+?)`", cell)]


@pytest.fixture(scope="module")
def said():
    """Every text in the package."""
    return {value for value in constants("") if isinstance(value, str)}


@pytest.mark.parametrize("line", QUOTED)
def test_what_is_quoted_of_the_log_is_what_the_code_says(line, said):
    for piece in filter(None, (each.strip(" :") for each in line.split("…"))):
        assert any(piece in text for text in said), piece


def warnings() -> Iterator[str]:
    """Yield what the log of a server says at the level of a warning and above, as it is in the code."""
    for path in (ROOT / "mcpbus").rglob("*.py"):
        if "client" in path.parts:  # whose programs have logs of their own
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(
                    func=ast.Attribute(
                        value=ast.Name("_log" | "_logger"), attr="warning" | "error" | "exception"
                    ),
                    args=[ast.Constant(str(text)), *_],
                ) if text != "%s":
                    yield text


def test_every_warning_has_something_to_do():
    rows = [".*".join(re.escape(each.strip(" :")) for each in line.split("…")) for line in QUOTED]
    said = list(warnings())
    assert len(said) > 30
    assert [text for text in said if not any(re.search(row, text) for row in rows)] == []
