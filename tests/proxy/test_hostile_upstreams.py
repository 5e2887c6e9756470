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


ODD_NOTIFICATIONS = [
    ("notifications/cancelled", {"requestId": 99}),
    ("notifications/initialized", {}),
    ("notifications/tasks", {"taskId": "1"}),
    ("notifications/resources/updated", {"uri": 5}),
    ("notifications/elicitation/complete", {}),
    ("notifications/roots/list_changed", {}),
    ("notifications/message", {"level": "loud", "data": 1}),
    ("notifications/message", {"level": ["info"]}),
    ("notifications/progress", {"progress": "half"}),
    ("notifications/progress", {"progress": 10**400}),
    ("acme", {"a": 1}),
    ("", {}),
]


@pytest.mark.parametrize("there", [OLD, NEW])
@pytest.mark.parametrize("scoped", [False, True])
@pytest.mark.parametrize(("method", "params"), ODD_NOTIFICATIONS)
async def test_what_no_server_says_is_dropped_and_the_call_goes_on(
    *, there, scoped, method, params, autojump_clock
):
    """The first is no more than a question that was withdrawn as its answer was on its way."""

    def call(wire, request, asked):
        token = {"progressToken": asked["_meta"]["progressToken"]}
        for within in (request, None):
            wire.say(method, params | (token if "progress" in params else {}), within=within)
        return SAID

    scripted = Scripted(there, scoped=scoped, tools_call=call)
    async with open_client(scripted.proxy(), revision=OLD) as client:
        said = []
        result = await client.call_tool("t", on_notification=lambda *each: said.append(each))
        assert (result["content"], said, [*client.notifications]) == (SAID["content"], [], [])


@pytest.mark.parametrize(
    "result",
    [
        {"resultType": "task", "task": {"taskId": "1"}},
        {"resultType": "acme"},
        {"resultType": 5},
        {"content": 5},
        {"content": [{"type": "smell"}]},
        {"content": [{"type": "text"}]},
        {"content": [{"type": "image", "data": 5, "mimeType": "image/png"}]},
        {"content": [], "isError": "yes"},
        {"content": [], "_meta": 5},
        [],
        5,
    ],
)
async def test_what_is_no_result_fails_its_call_and_the_next_one_works(result, autojump_clock, caplog):
    scripted = Scripted(NEW, tools_call=result)
    async with open_client(scripted.proxy()) as client:
        with pytest.raises(ProtocolError, match=r"answers is no result|did not answer"):
            await client.call_tool("t")
        assert "Traceback" not in caplog.text
        scripted.answers["tools_call"] = SAID
        assert (await client.call_tool("t"))["content"] == SAID["content"]
