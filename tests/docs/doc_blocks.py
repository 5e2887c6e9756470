"""Finds the code in documents and docstrings, and runs it as their readers would."""

import ast
import inspect
import re
import sys
import textwrap
import types
from collections.abc import Iterator
from pathlib import Path

import attrs
import trio
import trio.testing

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LITERAL = re.compile(r"::\n\n((?:[ ]{4}.*\n|\n)+)")


@attrs.frozen
class Block:
    """A block of code: its language, where it begins, and its text."""

    language: str
    file: Path
    line: int
    text: str

    def compile(self, flags: int = 0) -> types.CodeType:
        """Compile it so that a traceback names its own lines."""
        return compile("\n" * (self.line - 1) + self.text, str(self.file), "exec", flags=flags)


def fenced(document: Path, language: str) -> list[Block]:
    """Return the fenced blocks of a Markdown document that are in `language`."""
    text = document.read_text()
    return [
        Block(match[1], document, text.count("\n", 0, match.start()) + 2, match[2])
        for match in _FENCE.finditer(text)
        if match[1] == language
    ]


def in_docstrings() -> Iterator[Block]:
    """Yield the literal blocks (after ``::``) of all docstrings of the packages."""
    for file in sorted([*ROOT.glob("actors/**/*.py"), *ROOT.glob("mcpbus/**/*.py")]):
        text = file.read_text()
        for node in ast.walk(ast.parse(text)) if "::\n\n" in text else ():
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                docstring = inspect.cleandoc(ast.get_docstring(node) or "") + "\n"
                for match in _LITERAL.finditer(docstring):
                    line = getattr(node, "lineno", 1)
                    yield Block("python", file, line, textwrap.dedent(match[1]))


class Reader:
    """Somebody who types in what a document shows, block after block, into one module."""

    def __init__(self, name: str) -> None:
        self.module = types.ModuleType(name)
        sys.modules[name] = self.module  # annotations are looked up there

    def run(self, block: Block) -> None:
        """Run a block, and the tests that it defines."""
        before = dict(vars(self.module))
        exec(block.compile(), vars(self.module))
        for name, value in list(vars(self.module).items()):
            if name.startswith("test_") and value is not before.get(name):
                # As pytest-trio runs them: one that takes no clock has the real one, and may wait for a thread.
                clocks = [trio.testing.MockClock(autojump_threshold=0)] * len(
                    inspect.signature(value).parameters
                )
                trio.run(value, *clocks, clock=clocks[0] if clocks else None)
