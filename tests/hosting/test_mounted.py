"""A hosted server within a server of mcpbus: its names get the prefix, and its messages and questions keep their call."""

from pathlib import Path

import pytest
from hosted_clients import Person, said_in, server_of

import mcpbus
from mcpbus import RegistrationError
from mcpbus.gateway import gateway
from mcpbus.testing import open_bus
from tests.hosting.fixtures import LEGACY, MODERN

SERVERS = Path(__file__).parent / "servers"

pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")


@pytest.mark.parametrize("revision", [LEGACY, MODERN])
async def test_its_tools_messages_and_questions_are_served_under_a_prefix(revision, loop):
    server = mcpbus.Server("outer")

    @server.tool
    async def own() -> str:
        return "own"

    server.mount(mcpbus.host(server_of("notes"), loop=loop), prefix="notes")
    capabilities = {"roots": {}, "elicitation": {}}
    async with (
        open_bus(server) as bus,
        bus.connect(revision=revision, capabilities=capabilities, on_input_request=Person()) as client,
    ):
        assert {"own", "notes_echo"} <= {tool["name"] for tool in await client.list_tools()}
        assert (await said_in(client, "notes_echo", text="a"))[0] == "a"
        text, said = await said_in(client, "notes_work", steps=2)
        assert text == "done"
        assert [params.get("progress") for _, params in said] == [1, 2, None]
        assert (await said_in(client, "notes_ask"))[0] == "Ada"


async def test_it_is_mounted_for_a_while(loop):
    server = mcpbus.Server("outer")
    async with open_bus(server) as bus, bus.connect() as client:
        hosted = mcpbus.host(server_of("notes"), loop=loop)
        async with server.mounting(hosted, prefix="notes"):
            await hosted.as_server().ready()
            assert "notes_echo" in {tool["name"] for tool in await client.list_tools()}
        assert await client.list_tools() == []


@pytest.mark.parametrize(("name", "warns"), [("tokens", True), ("notes", False)])
async def test_the_log_warns_of_a_server_that_would_check_tokens(name, warns, caplog):
    server = mcpbus.Server("outer")
    server.mount(mcpbus.host(server_of(name)))
    async with open_bus(server):
        assert ("checks tokens, and none reaches it" in caplog.text) is warns


def test_it_is_mounted_once():
    server, hosted = mcpbus.Server("outer"), mcpbus.host(server_of("notes"))
    server.mount(hosted)
    with pytest.raises(RegistrationError, match="mounted in 'outer' already"):
        server.mount(hosted, prefix="again")
    with pytest.raises(RegistrationError, match=r"write mcpbus\.host\(\.\.\.\) around it"):
        server.mount(server_of("notes"))


async def test_an_entry_of_a_gateway_names_a_server_in_a_file(tmp_path):
    notes = str(SERVERS / "notes.py")
    own = tmp_path / "own_server.py"
    own.write_text(
        "from mcpbus import Server\nserver = Server('own')\n@server.tool\ndef hi() -> str:\n    return 'hi'\n"
    )
    entries = {"notes": {"server": f"{notes}:mcp", "excludeTools": ["boom"]}, "own": {"server": str(own)}}
    async with (
        open_bus(gateway(entries)) as bus,
        bus.connect(capabilities={"elicitation": {}}, on_input_request=Person()) as client,
    ):
        names = {tool["name"] for tool in await client.list_tools()}
        assert {"notes_echo", "own_hi"} <= names
        assert "notes_boom" not in names
        assert (await said_in(client, "notes_ask"))[0] == "Ada"
        assert (await said_in(client, "own_hi"))[0] == "hi"


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        ({"command": "python"}, 'it has both "server" and "command" or a URL'),
        ({"url": "https://a.example"}, 'it has both "server" and "command" or a URL'),
        ({"env": {"A": "b"}}, "it has 'env', which is not for a server in the process of the gateway"),
        ({"revision": LEGACY}, "it has 'revision', which is not for a server in the process"),
        ({"server": "nothing_here.py"}, "server 'a'.*nothing_here"),
    ],
)
def test_an_entry_with_such_a_server_has_nothing_for_others(more, fault):
    with pytest.raises(ValueError, match=fault):
        gateway({"a": {"server": str(SERVERS / "notes.py"), **more}})
