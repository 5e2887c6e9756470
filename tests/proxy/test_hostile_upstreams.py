"""Other servers that are broken, or mean it: what they say harms nobody but who called them."""

from contextlib import suppress

import pytest
from scripted import SAID, Scripted
from upstreams import NEW, OLD

from mcpbus import ProtocolError
from mcpbus.testing import open_client

ANY = [None, True, 5, "x", [], [1], {}, {"x": 1}]


@pytest.mark.parametrize("there", [OLD, NEW])
@pytest.mark.parametrize("name", [None, "tools", "prompts", "resources", "logging"])
async def test_capabilities_may_be_anything(there, name, autojump_clock):
    for odd in ANY:
        scripted = Scripted(there, capabilities=odd if name is None else {"tools": {}, name: odd})
        async with open_client(scripted.proxy(optional=True), revision=OLD) as client:
            for method, params in (
                ("logging/setLevel", {"level": "debug"}),
                ("resources/subscribe", {"uri": "d://a"}),
            ):
                with suppress(ProtocolError):
                    await client.request(method, params)
            if name is not None:
                assert (await client.call_tool("t"))["content"] == SAID["content"]
