"""A hosted server within a server of mcpbus: its names get the prefix, and its messages and questions keep their call."""

import pytest
from hosted_clients import LEGACY, MODERN, Person, said_in, server_of

import mcpbus
from mcpbus import RegistrationError
from mcpbus.testing import open_bus

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


def test_it_is_mounted_once():
    server, hosted = mcpbus.Server("outer"), mcpbus.host(server_of("notes"))
    server.mount(hosted)
    with pytest.raises(RegistrationError, match="mounted in 'outer' already"):
        server.mount(hosted, prefix="again")
    with pytest.raises(RegistrationError, match=r"write mcpbus\.host\(\.\.\.\) around it"):
        server.mount(server_of("notes"))
