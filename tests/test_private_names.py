"""What others wrote is used through its public interface alone: an upgrade may move anything else."""

import ast
import importlib
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FOLDERS = {"mcpbus_actors": HERE.parent / "actors", "mcpbus": HERE.parent}
OURS = {*FOLDERS, *sys.stdlib_module_names}


def is_private(name):
    return name.startswith("_") and not name.endswith("__")


def attributes(tree):
    """The private attributes that are named, each with the name that it is asked of, if it is one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            yield node, getattr(node.value, "id", None)


def defined(tree):
    """The private names that a piece of code gives to something."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield getattr(node, "id", None) or node.attr
        elif isinstance(node, ast.AnnAssign | ast.arg):
            yield getattr(node, "arg", None) or getattr(getattr(node, "target", None), "id", "")


def sources():
    found = {}
    for package, folder in FOLDERS.items():
        for file in (folder / package).rglob("*.py"):
            name = ".".join(file.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")
            found[name] = ast.parse(file.read_text())
    return found


def imported(tree):
    """The names of others' modules, and what is taken from them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (name for name in names if name.split(".")[0] not in OURS)


def inherited(module, name):
    """The classes of others that a class is made of."""
    cls = getattr(importlib.import_module(module), name, None)
    bases = cls.__mro__ if isinstance(cls, type) else ()
    return [base for base in bases if base.__module__.split(".")[0] not in OURS]


def violations(trees):
    known = {name for tree in trees.values() for name in defined(tree)}
    for module, tree in trees.items():
        yield from (
            f"{module} imports {name}" for name in imported(tree) if any(map(is_private, name.split(".")))
        )
        for node, of in attributes(tree):
            if of not in {"self", "cls", *sys.stdlib_module_names} and node.attr not in known:
                yield f"{module}:{node.lineno} names {node.attr}, which nobody here has"
        for node in tree.body:
            bases = inherited(module, node.name) if isinstance(node, ast.ClassDef) and node.bases else []
            if not bases:
                continue
            own = {name for name in defined(node) if is_private(name)}
            used = {each.attr for each, of in attributes(node) if of in {"self", "cls"}}
            theirs = {name for name in own if any(hasattr(base, name) for base in bases)}
            for name in sorted(used - known | theirs):
                yield f"{module}: {node.name} has {name} of {bases[0].__module__}"


def test_nothing_private_of_others_is_used():
    assert list(violations(sources())) == []


BROKEN = {
    "a private module": "from h2._x import y",
    "a private name": "from hpack import _y",
    "an attribute": "def f(connection):\n    return connection._inbound_flow_control_window_manager",
}


@pytest.mark.parametrize("source", BROKEN.values(), ids=BROKEN)
def test_what_would_be_found(source):
    assert len(list(violations({"mcpbus": ast.parse(source)}))) == 1


def test_what_is_inherited_is_found_too(monkeypatch):
    source = "import h2.connection\nclass C(h2.connection.H2Connection):\n    def _begin_new_stream(self):\n        self._own = self._outbound_flow_control_window_manager"
    scope = {"__name__": "mcpbus.broken"}
    exec(source, scope)
    monkeypatch.setitem(sys.modules, "mcpbus.broken", type("Module", (), scope))
    assert [line.split()[3] for line in violations({"mcpbus.broken": ast.parse(source)})] == [
        "_begin_new_stream",
        "_outbound_flow_control_window_manager",
    ]
