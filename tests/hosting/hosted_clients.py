"""Servers of the official SDK, in the folder `servers`, hosted; and clients in process."""

import sys
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path

import mcpbus
from tests.hosting.fixtures import LEGACY

sys.path.insert(0, str(Path(__file__).parent / "servers"))


def server_of(name):
    """The server of a file in the folder `servers`."""
    return import_module(name).mcp


class Person:
    """Answers all that a server asks, and notes what that was."""

    def __init__(self):
        self.asked = []

    async def __call__(self, method, params):
        self.asked.append(method)
        if method == "roots/list":
            return {"roots": [{"uri": "file:///home"}]}
        return {"action": "accept", "content": {"name": "Ada"}}


@asynccontextmanager
async def hosted(server, revision=LEGACY, loop="asyncio", **options):
    """A client in process, of a server that is hosted, with the bus and what it was asked."""
    person = Person()
    async with mcpbus.host(server, loop=loop, **options).open() as bus:
        capabilities = {"roots": {}, "elicitation": {}, "sampling": {}}
        async with bus.connect(
            revision=revision, capabilities=capabilities, on_input_request=person
        ) as client:
            client.person, client.bus = person, bus
            yield client


async def said_in(client, tool, **arguments):
    """Call a tool, and return its text and the notifications that came within the call."""
    said = []
    result = await client.call_tool(
        tool, arguments, on_notification=lambda *each: said.append(each), log_level="debug"
    )
    return result["content"][0]["text"], said
