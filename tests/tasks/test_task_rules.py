"""The rules of the tasks extension (TX-1 to TX-14), each by its id."""

import re

import pytest
from task_stage import DECLARED, begin, look, look_until_over, tasking, text

from mcpbus import Limits, ProtocolError, RegistrationError, Server
from mcpbus.dispatch.methods import server_capabilities
from mcpbus.protocol.revisions import LATEST, REVISIONS, Era
from mcpbus.tasks import TASKS, TaskSupport
from mcpbus.testing import open_probe

LEGACY = [name for name, revision in REVISIONS.items() if revision.era is Era.LEGACY]
ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
MISSING = {"requiredCapabilities": {"extensions": {TASKS: {}}}}


async def refusal(awaitable):
    with pytest.raises(ProtocolError) as refused:
        await awaitable
    return refused.value


async def test_the_extension_is_declared_once_a_tool_has_tasks_and_never_to_legacy_clients():
    """TX-1."""
    server = Server("s")
    assert "extensions" not in server_capabilities(server.features, LATEST, stateless=False)
    server.add_tool(lambda: "t", name="t", task="optional")
    for revision in REVISIONS.values():
        declared = server_capabilities(server.features, revision, stateless=False)
        assert declared.get("extensions") == ({TASKS: {}} if revision.era is Era.MODERN else None)
        assert "tasks" not in declared
    server.remove_tool("t")
    assert server_capabilities(server.features, LATEST, stateless=False)["extensions"] == {TASKS: {}}


async def test_the_extension_may_be_declared_beforehand():
    """TX-1."""
    server = Server("s", capabilities=("tools", "tasks"))
    assert server_capabilities(server.features, LATEST, stateless=False)["extensions"] == {TASKS: {}}


async def test_the_handle_is_flat_and_has_what_a_task_has_and_no_more(autojump_clock):
    """TX-2, and V-15: no requestState."""
    limits = {"task_ttl": 60.0, "task_poll_interval": 0.5}
    async with tasking(limits=limits) as stage, stage.bus.connect(capabilities=DECLARED) as client:
        handle = await client.call_tool("hold")
        assert handle.pop("_meta").keys() == {"io.modelcontextprotocol/serverInfo"}
        assert ISO.fullmatch(handle.pop("createdAt"))
        assert ISO.fullmatch(handle.pop("lastUpdatedAt"))
        assert len(handle.pop("taskId")) >= 32
        assert handle == {"resultType": "task", "status": "working", "ttlMs": 60_000, "pollIntervalMs": 500}
        (await stage.job()).finish()


NOT_DECLARED = [
    {},
    {"extensions": {}},
    {"extensions": {TASKS: True}},
    {"extensions": [TASKS]},
    {"tasks": {"requests": {"tools": {"call": {}}}}},
]


@pytest.mark.parametrize("capabilities", NOT_DECLARED)
async def test_without_the_extension_an_optional_tool_runs_within_its_request(capabilities, autojump_clock):
    """TX-3. The experimental declaration of 2025-11-25 is none (SEP-2663, "Backward Compatibility")."""
    async with tasking() as stage, open_probe(stage.bus.asgi()) as probe:
        called = {"name": "typed", "arguments": {"number": 3}}
        result = (await probe.request("tools/call", called, capabilities=capabilities).reply())["result"]
        assert (result["resultType"], text(result)) == ("complete", "3")
        assert len(stage.bus.tasks) == 0


@pytest.mark.parametrize("capabilities", NOT_DECLARED)
async def test_without_the_extension_a_required_tool_is_refused_before_it_runs(capabilities, autojump_clock):
    """TX-10."""
    async with tasking() as stage, open_probe(stage.bus.asgi()) as probe:
        called = {"name": "must", "arguments": {}}
        refused = (await probe.request("tools/call", called, capabilities=capabilities).reply())["error"]
        assert (refused["code"], refused["data"]) == (-32021, MISSING)
        assert stage.jobs == []


@pytest.mark.parametrize("revision", LEGACY)
async def test_a_legacy_client_has_no_tasks_whatever_it_declares(revision, autojump_clock):
    """TX-3 and TX-17; its own `task` field is ignored."""
    async with tasking() as stage, stage.bus.connect(revision=revision, capabilities=DECLARED) as client:
        params = {"name": "typed", "arguments": {"number": 3}, "task": {"ttl": 1}}
        result = await client.request("tools/call", params)
        assert text(result) == "3"
        assert "taskId" not in result
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            assert (await refusal(client.request(method, {"taskId": "x"}))).code == -32601


@pytest.mark.parametrize("revision", LEGACY)
async def test_a_required_tool_runs_within_the_request_of_a_legacy_client(revision, autojump_clock):
    async with tasking() as stage:

        @stage.server.tool(task="required")
        async def now() -> str:
            return "now"

        async with stage.bus.connect(revision=revision) as client:
            assert text(await client.call_tool("now")) == "now"


async def test_the_declaration_of_one_request_says_nothing_of_another(autojump_clock):
    """TX-3: each request declares for itself."""
    async with tasking() as stage, stage.bus.connect() as client:
        meta = {"io.modelcontextprotocol/clientCapabilities": {"extensions": {TASKS: {}}}}
        params = {"name": "typed", "arguments": {"number": 3}}
        assert (await client.request("tools/call", params | {"_meta": meta}))["resultType"] == "task"
        assert (await client.request("tools/call", params))["resultType"] == "complete"


async def test_a_tool_without_tasks_ignores_the_task_field(autojump_clock):
    """TX-8."""
    async with tasking() as stage, stage.bus.connect(capabilities=DECLARED) as client:
        params = {"name": "plain", "arguments": {}, "task": {"ttl": 1000}}
        result = await client.request("tools/call", params)
        assert (result["resultType"], text(result)) == ("complete", "False")


@pytest.mark.parametrize("method", ["tasks/result", "tasks/list"])
async def test_methods_that_the_extension_dropped_are_not_there(method, autojump_clock):
    """TX-8."""
    async with tasking() as stage, stage.bus.connect(capabilities=DECLARED) as client:
        assert (await refusal(client.request(method, {"taskId": "x"}))).code == -32601


async def test_a_server_without_task_tools_has_none_of_the_methods(autojump_clock):
    """M-13."""
    async with Server("s").open() as bus, bus.connect(capabilities=DECLARED) as client:
        assert (await refusal(client.request("tasks/get", {"taskId": "x"}))).code == -32601


METHODS = [("tasks/get", {}), ("tasks/update", {"inputResponses": {}}), ("tasks/cancel", {})]


@pytest.mark.parametrize(("method", "params"), METHODS)
async def test_an_unknown_task_is_an_invalid_parameter(method, params, autojump_clock):
    """TX-9."""
    async with tasking() as stage, stage.bus.connect(capabilities=DECLARED) as client:
        assert (await refusal(client.request(method, {"taskId": "nobody", **params}))).code == -32602
        assert (await refusal(client.request(method, params))).code == -32602
        assert (await refusal(client.request(method, {"taskId": 3, **params}))).code == -32602


@pytest.mark.parametrize(("method", "params"), METHODS)
async def test_without_the_extension_a_task_cannot_be_touched(method, params, autojump_clock):
    """TX-10."""
    async with tasking() as stage, stage.bus.connect(capabilities=DECLARED) as client:
        task = await begin(client)
        meta = {"_meta": {"io.modelcontextprotocol/clientCapabilities": {}}}
        refused = await refusal(client.request(method, task | params | meta))
        assert (refused.code, refused.data) == (-32021, MISSING)
        assert (await look(client, task))["status"] == "working"
        (await stage.job()).finish()


@pytest.mark.parametrize("answers", [None, [], 3, "x"])
async def test_answers_that_are_no_object_are_refused(answers, autojump_clock):
    async with tasking() as stage, stage.bus.connect(capabilities=DECLARED) as client:
        task = await begin(client, "ask")
        assert (
            await refusal(client.request("tasks/update", task | {"inputResponses": answers}))
        ).code == -32602
        assert (await look(client, task))["status"] == "input_required"


async def test_a_task_can_be_looked_at_as_soon_as_its_client_knows_of_it(autojump_clock):
    """TX-4."""
    async with tasking() as stage, stage.bus.connect(capabilities=DECLARED) as client:
        seen = await look(client, await begin(client))
        assert (seen["resultType"], seen["status"]) == ("complete", "working")
        assert not {"result", "error", "inputRequests", "requestState"} & seen.keys()
        (await stage.job()).finish()


ENDS = [
    ("typed", {"number": 3}, "completed", lambda seen: text(seen["result"]) == "3"),
    ("wrong", {}, "completed", lambda seen: seen["result"]["isError"] and text(seen["result"]) == "no good"),
    (
        "broken",
        {},
        "failed",
        lambda seen: seen["error"] == {"code": -7, "message": "quite broken", "data": {"where": "here"}},
    ),
]


@pytest.mark.parametrize(("name", "arguments", "status", "right"), ENDS, ids=[row[0] for row in ENDS])
async def test_what_came_of_a_task_is_in_it(name, arguments, status, right, autojump_clock):
    """TX-5 and TX-14."""
    async with tasking() as stage, stage.bus.connect(capabilities=DECLARED) as client:
        seen = await look_until_over(client, await begin(client, name, **arguments))
        assert seen["status"] == status
        assert right(seen)
        assert len({"result", "error", "inputRequests"} & seen.keys()) == 1
        if status == "failed":
            assert seen["statusMessage"] == "quite broken"
        else:
            assert seen["result"]["resultType"] == "complete"


@pytest.mark.parametrize(("code", "leaves"), [(-32002, -32602), (-32042, -32603), (-32050, -32603), (-7, -7)])
async def test_a_task_fails_under_a_code_that_may_leave(code, leaves, autojump_clock):
    """J-17 and J-19."""
    async with tasking() as stage, stage.bus.connect(capabilities=DECLARED) as client:
        task = await begin(client)
        (await stage.job()).finish(ProtocolError(code, "gone", {"uri": "a://b"}))
        seen = await look_until_over(client, task)
        assert seen["error"] == {"code": leaves, "message": "gone", "data": {"uri": "a://b"}}


async def test_arguments_are_checked_before_there_is_a_task(autojump_clock):
    async with tasking() as stage, stage.bus.connect(capabilities=DECLARED) as client:
        result = await client.call_tool("typed", {"number": "three"})
        assert (result["resultType"], result["isError"]) == ("complete", True)
        assert len(stage.bus.tasks) == 0


async def test_a_cancel_is_acknowledged_and_cancels_the_handler(autojump_clock):
    """TX-7."""
    async with tasking() as stage, stage.bus.connect(capabilities=DECLARED) as client:
        task = await begin(client)
        job = await stage.job()
        for _ in range(2):
            acknowledged = await client.request("tasks/cancel", task)
            assert acknowledged.keys() == {"resultType", "_meta"}
            assert acknowledged["resultType"] == "complete"
            seen = await look_until_over(client, task)
            assert seen["status"] == "cancelled"
            assert not {"result", "error"} & seen.keys()
        assert job.outcome == "cancelled"
        assert stage.bus.tasks.running == 0


async def test_a_handler_that_ends_in_spite_of_a_cancel_completes_its_task(autojump_clock):
    """TX-7: it is cooperative."""
    async with tasking() as stage, stage.bus.connect(capabilities=DECLARED) as client:
        task = await begin(client, "stubborn")
        job = await stage.job()
        await client.request("tasks/cancel", task)
        assert (await look(client, task))["status"] == "working"
        job.finish("all the same")
        seen = await look_until_over(client, task)
        assert (seen["status"], text(seen["result"])) == ("completed", "all the same")
        await client.request("tasks/cancel", task)
        assert (await look(client, task))["status"] == "completed"


async def test_progress_and_log_lines_of_a_task_are_discarded_for_that_reason(autojump_clock):
    """P-7."""
    async with tasking() as stage, stage.bus.connect(capabilities=DECLARED) as client:
        heard = []
        params = {"name": "hold", "arguments": {}}
        await client.request(
            "tools/call", params, on_notification=lambda *told: heard.append(told), log_level="debug"
        )
        job = await stage.job()
        for receipt in (
            await job.ctx.progress(1),
            await job.ctx.info("x"),
            await job.ctx.notify("notifications/x"),
        ):
            assert receipt.fate.reason.name == "IN_TASK"
        job.finish()
        await stage.job()
        late = await job.ctx.info("after the end")
        assert late.fate.reason.name == "IN_TASK"
        assert heard == []
        assert stage.bus.ledger.balance() == 0


async def test_people_are_told_what_a_task_is_doing(autojump_clock):
    async with tasking() as stage, stage.bus.connect(capabilities=DECLARED) as client:
        task = await begin(client)
        job = await stage.job()
        assert job.ctx.task_id == task["taskId"]
        await job.ctx.set_task_message("half")
        assert (await look(client, task))["statusMessage"] == "half"
        await job.ctx.set_task_message(None)
        assert "statusMessage" not in await look(client, task)
        job.finish()
        await stage.job()
        await job.ctx.set_task_message("too late")
        assert "statusMessage" not in await look(client, task)


async def test_a_tool_may_have_times_of_its_own(autojump_clock):
    async with tasking() as stage:

        @stage.server.tool(task=TaskSupport(ttl=0.5, poll_interval=0.25))
        async def quick() -> str:
            return "quick"

        async with stage.bus.connect(capabilities=DECLARED) as client:
            handle = await client.call_tool("quick")
            assert (handle["ttlMs"], handle["pollIntervalMs"]) == (500, 250)


@pytest.mark.parametrize("seconds", [0, -1, float("inf"), float("nan"), 0.0001, 1e300, 2**53 // 1000 + 1])
def test_a_time_must_be_one_that_clients_can_be_told(seconds):  # TX-2
    for name in ("ttl", "poll_interval"):
        with pytest.raises(ValueError, match=f"{name} is a number of seconds"):
            TaskSupport(**{name: seconds})
        with pytest.raises(ValueError, match=f"task_{name} is a number of seconds"):
            Limits(**{f"task_{name}": seconds})


@pytest.mark.parametrize("option", ["never", "", True, {}])
def test_a_tool_cannot_have_tasks_in_any_other_way(option):
    with pytest.raises(RegistrationError, match="tool 't': task is 'optional', 'required' or a TaskSupport"):
        Server("s").add_tool(lambda: "t", name="t", task=option)
