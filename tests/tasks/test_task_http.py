"""Tasks over HTTP: statuses, and the header that repeats the task's id (TX-11)."""

import pytest
import trio
from task_stage import DECLARED, tasking

from mcpbus.tasks import MemoryTaskStore
from mcpbus.testing import open_probe, wait_until_idle


async def answered(probe, method, params, **more):
    recording = await probe.request(method, params, **{"capabilities": DECLARED, **more}).ended()
    return recording.status, recording.messages[0].get("error", {}).get("code")


HEADERS = [
    ({"mcp-name": "another"}, (400, -32020)),
    ({"mcp-name": ""}, (400, -32020)),
    ({}, (200, None)),
]


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
@pytest.mark.parametrize(("headers", "expected"), HEADERS)
async def test_the_header_repeats_the_id(method, headers, expected, autojump_clock):
    async with tasking() as stage, open_probe(stage.bus.asgi()) as probe:
        params = {"name": "hold", "arguments": {}}
        call = await probe.request("tools/call", params, capabilities=DECLARED).reply()
        params = {"taskId": call["result"]["taskId"], "inputResponses": {}}
        assert await answered(probe, method, params, headers=headers) == expected


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
async def test_the_header_may_be_missing_with_a_task_alone(method, autojump_clock):
    async with tasking() as stage, open_probe(stage.bus.asgi()) as probe:
        hold = {"name": "hold", "arguments": {}}
        call = await probe.request("tools/call", hold, capabilities=DECLARED).reply()
        task = {"taskId": call["result"]["taskId"], "inputResponses": {}}
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": DECLARED,
        }
        for asked, params, status in ((method, task, 200), ("tools/call", hold, 400)):
            message = {"jsonrpc": "2.0", "id": 1, "method": asked, "params": {**params, "_meta": meta}}
            headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": asked}
            recording = await probe.post(message, headers).ended()
            assert recording.status == status
            assert recording.messages[0].get("error", {}).get("code") == (None if status == 200 else -32020)


STATUSES = [
    ("tasks/get", {"taskId": "nobody"}, {}, (400, -32602)),
    ("tasks/get", {}, {}, (400, -32602)),
    ("tasks/get", {}, {"headers": {"mcp-name": "x"}}, (400, -32020)),
    ("tasks/get", {"taskId": "nobody"}, {"capabilities": {}}, (400, -32021)),
    ("tasks/result", {"taskId": "nobody"}, {}, (404, -32601)),
    ("tasks/list", {}, {}, (404, -32601)),
    ("tools/call", {"name": "must", "arguments": {}}, {"capabilities": {}}, (400, -32021)),
    ("subscriptions/listen", {"notifications": {"taskIds": ["x"]}}, {"capabilities": {}}, (400, -32021)),
]


@pytest.mark.parametrize(("method", "params", "more", "expected"), STATUSES)
async def test_what_is_refused_has_its_status_and_leaves_nothing(
    method, params, more, expected, autojump_clock
):
    async with tasking() as stage, open_probe(stage.bus.asgi()) as probe:
        assert await answered(probe, method, params, **more) == expected
        await stage.assert_nothing_is_left()
        assert stage.bus.statistics().actors == 0


@pytest.mark.parametrize("response", ["auto", "json", "sse"])
async def test_a_handle_is_an_answer_like_any_other(response, autojump_clock):
    async with tasking() as stage, open_probe(stage.bus.asgi(response=response)) as probe:
        params = {"name": "typed", "arguments": {"number": 3}}
        handle = (await probe.request("tools/call", params, capabilities=DECLARED).reply())["result"]
        seen = await probe.request("tasks/get", {"taskId": handle["taskId"]}, capabilities=DECLARED).reply()
        assert seen["result"]["status"] in {"working", "completed"}
        assert stage.bus.ledger.balance() == 0


async def test_while_the_store_is_down_a_client_is_told_to_come_back_and_then_has_the_result(
    autojump_clock, monkeypatch
):
    store = MemoryTaskStore()

    async def fail(*_):
        raise OSError("down")

    opened = tasking(store=store, limits={"store_pause": 30.0})
    async with opened as stage, open_probe(stage.bus.asgi()) as probe:
        typed, must = {"name": "typed", "arguments": {"number": 3}}, {"name": "must", "arguments": {}}
        handle = (await probe.request("tools/call", typed, capabilities=DECLARED).reply())["result"]
        task = {"taskId": handle["taskId"]}
        await wait_until_idle(stage.bus)
        with monkeypatch.context() as broken:
            broken.setattr(store, "payload", fail)
            assert await answered(probe, "tasks/get", task) == (503, -32603)
        # It is left alone until the pause is over, and not for longer.
        await trio.sleep(29)
        refused = await probe.request("tools/call", must, capabilities=DECLARED).ended()
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert await answered(probe, "tasks/get", task) == (503, -32603)
        await trio.sleep(1)
        assert await answered(probe, "tasks/get", task) == (200, None)
