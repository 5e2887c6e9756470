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


PLACEHOLDER = re.compile(r"%(?:\.\d+)?[a-z]")


def pattern(line: str) -> str:
    """Return what matches a text of which a line is quoted, with `…` for what differs from time to time."""
    return "".join(".+" if part == "…" else re.escape(part) for part in re.split("(…)", line.rstrip(" :")))


def template(text: ast.AST) -> str | None:
    """Return a text as it is in the code, with `…` for what is filled in; None if it is none."""
    match text:
        case ast.Constant(str(value)):
            return PLACEHOLDER.sub("…", value)
        case ast.JoinedStr(values):
            return "".join(template(value) or "…" for value in values)
    return None


def nodes(*without: str) -> Iterator[ast.AST]:
    """Yield all that the package is written of, but for some folders."""
    for path in (ROOT / "mcpbus").rglob("*.py"):
        if not {*without} & {*path.parts}:
            yield from ast.walk(ast.parse(path.read_text()))


@pytest.fixture(scope="module")
def said():
    """Every text in the package."""
    return {text for node in nodes() if (text := template(node)) is not None}


@pytest.mark.parametrize("line", QUOTED)
def test_what_is_quoted_of_the_log_is_what_the_code_says(line, said):
    assert any(re.search(pattern(line), text) for text in said)


def warnings() -> Iterator[str]:
    """Yield what the log of a server says at the level of a warning and above, as it is in the code."""
    for node in nodes("client"):  # whose programs have logs of their own
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name("_log" | "_logger"), attr="warning" | "error" | "exception")
                | ast.Attribute(
                    value=ast.Name("complaints" | "_complaints")
                    | ast.Attribute(attr="complaints" | "_complaints"),
                    attr="warn",
                ),
                args=[text, *_],
            ) if (written := template(text)) not in {None, "…"}:
                yield written


def is_quoted(text: str, line: str) -> bool:
    """Whether a line quotes a text, or its beginning. One that begins with what differs quotes the whole of it."""
    rest = "…?" if line.startswith("…") else r"(?!\w).*"
    return re.fullmatch(pattern(line) + rest, text, re.DOTALL) is not None


def test_every_warning_has_something_to_do():
    said = list(warnings())
    assert len(said) > 50
    assert [text for text in said if not any(is_quoted(text, line) for line in QUOTED)] == []
