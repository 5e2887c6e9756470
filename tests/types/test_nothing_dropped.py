"""Every public name that an annotation can be made with is enforced or refused, at every depth."""

import ast
import inspect
import socket
from dataclasses import make_dataclass
from importlib import import_module
from typing import Any

import pytest
from named_types import CASES, NOT_TYPES, Refused
from type_rows import Row, shown, tool_of
from typing_extensions import TypedDict

from mcpbus import RegistrationError, Server
from mcpbus.testing import open_client

NAMED = [(module, name) for module, cases in CASES.items() for name in cases]
PLACES = {
    "parameter": (lambda annotation: annotation, lambda value: value, "{}"),
    "list": (lambda annotation: list[annotation], lambda value: [value], "[{}]"),
    "dataclass": (
        lambda annotation: make_dataclass("Holder", [("field", annotation)]),
        lambda value: {"field": value},
        "Holder(field={})",
    ),
    "TypedDict": (
        lambda annotation: TypedDict("Holder", {"field": annotation}),
        lambda value: {"field": value},
        "{{'field': {}}}",
    ),
}


@pytest.fixture(autouse=True)
def _files(tmp_path, monkeypatch):
    """A folder with a file, a folder and a socket, for kinds of paths."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").touch()
    (tmp_path / "folder").mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("a.sock")
        yield


@pytest.mark.parametrize("module", CASES)
def test_each_public_name_has_a_case(module):
    assert public_names(module) - NOT_TYPES.get(module, set()) == set(CASES[module])


@pytest.mark.filterwarnings("ignore:The `PaymentCardNumber` class is deprecated")
@pytest.mark.parametrize(("module", "name"), NAMED)
async def test_a_name_is_enforced_or_refused_in_every_place(module, name, autojump_clock):
    case = CASES[module][name]
    server = Server("x")
    for place, (within, _, _) in PLACES.items():
        tool = tool_of(Row("x", within(case.annotation), [], []))
        if isinstance(case, Refused):
            with pytest.raises(RegistrationError, match=case.says):
                server.tool(name=place)(tool)
        else:
            server.tool(name=place)(tool)
    if not isinstance(case, Refused):
        assert (
            case.bad or case.instead_of or any(shown(value) != text for value, text in case.good.items())
        ), "no proof"
        async with open_client(server) as client:
            for place in PLACES:
                await check_values(client, case, place)


@pytest.mark.parametrize(
    "name",
    [name for cases in CASES.values() for name, case in cases.items() if getattr(case, "instead_of", None)],
)
async def test_a_name_that_accepts_more_has_an_effect(name, autojump_clock):
    [case] = [cases[name] for cases in CASES.values() if name in cases]
    server = Server("x")
    server.tool(tool_of(Row("x", case.instead_of, [], [])))
    async with open_client(server) as client:
        for value in case.good:
            assert (await client.call_tool("tool", {"v": value}))["isError"]


async def check_values(client, case, place):
    _, value_in, text_in = PLACES[place]
    for value, text in case.good.items():
        result = await client.call_tool(place, {"v": value_in(value)})
        assert (result["content"][0]["text"], result.get("isError", False)) == (text_in.format(text), False)
    for value in case.bad:
        result = await client.call_tool(place, {"v": value_in(value)})
        assert result.get("isError"), f"{value!r} is accepted in {place}: {result['content'][0]['text']}"


def public_names(module: str) -> set[str]:
    """Return the public names of a module: its ``__all__``, or what its source defines without an underscore."""
    found = import_module(module)
    if hasattr(found, "__all__"):
        return set(found.__all__)
    return {name for name in _defined(ast.parse(inspect.getsource(found)).body) if not name.startswith("_")}


def _defined(body: list[Any]):
    for node in body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            yield node.name
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.If):
            yield from _defined([*node.body, *node.orelse])
