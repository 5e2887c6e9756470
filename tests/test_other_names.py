"""Names of FastMCP, the official SDK and Starlette: each is answered with the name for it here, which exists."""

import re
import subprocess
import sys

import pytest

import mcpbus
import mcpbus.asyncio
import mcpbus.auth
import mcpbus.client
import mcpbus.stores
import mcpbus.testing
from mcpbus import Context, Server, SyncContext
from mcpbus.protocol.other_names import CLIENT_IS_CONNECTED, OTHER_NAMES
from mcpbus.testing import open_client

NAMES = [(owner, name) for owner, names in OTHER_NAMES.items() for name in names]
CLASSES = {
    "Server": [mcpbus.Server],
    "Context": [mcpbus.Context, mcpbus.SyncContext],
    "Session": [mcpbus.Session],
}
WRITTEN = re.compile(r"\b(server|ctx\.bus|ctx\.session|ctx|client|mcpbus(?:\.[a-z]+)?)\.(\w+)")
MEANT = {
    "server": mcpbus.Server,
    "ctx": mcpbus.Context,
    "ctx.bus": mcpbus.Bus,
    "ctx.session": mcpbus.Session,
    "client": mcpbus.Client,
}


@pytest.mark.parametrize(("owner", "name"), NAMES)
def test_the_name_here_exists_and_the_other_does_not(owner, name):
    hint = OTHER_NAMES[owner][name]
    found = WRITTEN.findall(hint)
    for place, attribute in found:
        where = MEANT.get(place) or eval(place, {"mcpbus": mcpbus})
        assert hasattr(where, attribute), hint
    for each in CLASSES.get(owner, ()):
        assert name not in dir(each)
    if owner == "mcpbus":
        assert name not in mcpbus.__dir__()


@pytest.mark.parametrize("name", OTHER_NAMES["mcpbus"])
def test_an_import_of_another_name_says_what_to_write(name):
    with pytest.raises(ImportError) as raised:
        exec(f"from mcpbus import {name}")
    assert (
        str(raised.value) == f"module 'mcpbus' has no attribute {name!r}; write {OTHER_NAMES['mcpbus'][name]}"
    )


def test_no_other_attribute_is_there():
    server = Server("s")
    for owner in (server, mcpbus):
        assert not hasattr(owner, "nonsense")
    with pytest.raises(AttributeError, match=r"^Server has no attribute 'tol'$") as raised:
        server.tol  # noqa: B018
    assert (raised.value.name, raised.value.obj) == ("tol", server)


@pytest.mark.parametrize("name", OTHER_NAMES["Server"])
def test_a_server_says_what_to_write(name):
    with pytest.raises(AttributeError) as raised:
        getattr(Server("s"), name)
    assert str(raised.value) == f"Server has no attribute {name!r}; write {OTHER_NAMES['Server'][name]}"


async def test_a_context_and_a_session_say_what_to_write(autojump_clock):
    server = Server("s")
    said = {}

    def note(owner, target):
        for name in OTHER_NAMES[owner]:
            with pytest.raises(AttributeError) as raised:
                getattr(target, name)
            said[type(target).__name__, name] = str(raised.value)

    @server.tool
    async def one(ctx: Context) -> None:
        note("Context", ctx)
        note("Session", ctx.session)

    @server.tool
    def two(ctx: SyncContext) -> None:
        note("Context", ctx)

    async with open_client(server, revision="2025-11-25") as client:
        assert not (await client.call_tool("one")).get("isError")
        assert not (await client.call_tool("two")).get("isError")
    assert len(said) == 2 * len(OTHER_NAMES["Context"]) + len(OTHER_NAMES["Session"])
    assert said["SyncContext", "report_progress"] == (
        "SyncContext has no attribute 'report_progress'; write ctx.progress(1, 2)"
    )
    assert (
        said["Session", "create_message"]
        == "Session has no attribute 'create_message'; write ctx.session.sample(...)"
    )


@pytest.mark.parametrize("args", [(Server("s"),), ("http://a.example/mcp",), ()])
def test_a_client_is_not_made_of_a_server(args):
    with pytest.raises(TypeError) as raised:
        mcpbus.Client(*args)
    assert str(raised.value) == CLIENT_IS_CONNECTED


def test_type_checkers_still_know_which_attributes_there_are(tmp_path):
    file = tmp_path / "wrong.py"
    file.write_text(
        "from mcpbus import Client, Context, Server\nServer('s').nonsense\n"
        "async def f(ctx: Context) -> None:\n    ctx.nonsense\n    assert ctx.session\n    ctx.session.nonsense\nClient()\n"
    )
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path / "cache"), str(file)]
    told = subprocess.run(command, check=False, capture_output=True, text=True).stdout
    assert told.count('has no attribute "nonsense"') == 3
    assert "Missing positional arguments" in told
