"""Class names: each has one meaning in the whole tree."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = {
    path.relative_to(ROOT).as_posix(): path.read_text()
    for folder in ("actors", "mcpbus")
    for path in sorted((ROOT / folder).rglob("*.py"))
}


def doubled(sources):
    """Return each class name that several files define, or one file twice, with these files."""
    places = defaultdict(list)
    for path, source in sources.items():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(path)
    return {name: found for name, found in places.items() if len(found) > 1}


def test_no_class_name_occurs_twice():
    assert doubled(SOURCES) == {}


@pytest.mark.parametrize(
    "sources",
    [
        {"a.py": "class Entry: ...", "b.py": "class Entry: ..."},
        {"a.py": "class _Entry: ...", "b.py": "if True:\n    class _Entry: ..."},
        {"a.py": "def f():\n    class Entry: ...\ndef g():\n    class Entry: ..."},
    ],
    ids=["two files", "private and conditional", "one file"],
)
def test_a_doubled_name_is_found(sources):
    assert list(doubled(sources)) in (["Entry"], ["_Entry"])
