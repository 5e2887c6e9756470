"""Servers on which clients may not listen for changes, and listens that end by themselves."""

import pytest
import trio
import trio.testing

from mcpbus import Limits, ProtocolError, Server
from mcpbus.protocol.revisions import REVISIONS
from mcpbus.testing import open_bus, open_client, open_probe


def told(**options):
    server = Server("s", **options)
    server.tool(name="one")(lambda: "1")
    server.prompt(name="two")(lambda: "2")
    server.resource("a://b")(lambda: "3")
    return server


@pytest.mark.parametrize("revision", REVISIONS)
async def test_no_change_is_declared_or_sent(revision, autojump_clock):
    server = told(listens=False)
    async with open_client(server, revision=revision) as client:
        declared = (await client.describe()).capabilities
        assert {name: declared[name] for name in ("tools", "prompts", "resources")} == {
            "tools": {},
            "prompts": {},
            "resources": {},
        }
        server.add_tool(lambda: "", name="more")
        await trio.testing.wait_all_tasks_blocked()
        assert [*client.notifications] == []
        method, params = (
            ("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
            if revision == "2026-07-28"
            else ("resources/subscribe", {"uri": "a://b"})
        )
        with pytest.raises(ProtocolError) as refused:
            await client.request(method, params)
        assert refused.value.code == -32601


async def test_a_listen_is_not_found_over_http(autojump_clock):
    async with open_bus(told(listens=False)) as bus, open_probe(bus.asgi()) as probe:
        params = {"notifications": {"toolsListChanged": True}}
        answer = await probe.request("subscriptions/listen", params).ended()
        assert (answer.status, answer.messages[0]["error"]["code"]) == (404, -32601)


async def test_a_listen_ends_in_good_order_after_its_time(autojump_clock):
    async with open_bus(told(), limits=Limits(max_listen_seconds=60)) as bus, open_probe(bus.asgi()) as probe:
        begun = trio.current_time()
        answer = await probe.request(
            "subscriptions/listen", {"notifications": {"toolsListChanged": True}}
        ).ended(timeout=100)
        assert trio.current_time() - begun == pytest.approx(60, abs=1)
        assert answer.status == 200
        assert answer.messages[0]["method"] == "notifications/subscriptions/acknowledged"
        assert "error" not in answer.messages[-1]
        assert "result" in answer.messages[-1]


def test_capabilities_by_members_are_refused_by_name():
    with pytest.raises(TypeError, match=r"write capabilities=\['tools'\], and listens=False"):
        Server("s", capabilities={"tools": {"listChanged": False}})


@pytest.mark.parametrize("seconds", [0, -1])
def test_the_time_of_a_listen_is_positive(seconds):
    with pytest.raises(ValueError, match="max_listen_seconds"):
        Limits(max_listen_seconds=seconds)
