"""Questions inside a task: tasks/get shows them, tasks/update answers them (TX-5, TX-6, TX-13, V-15)."""

import pytest
import trio
from task_stage import DECLARED, FORM, SlowTaskStore, accept, begin, look, look_until_over, tasking, text

from mcpbus import Context, ProtocolError, Server, SyncContext
from mcpbus.asking import Elicit, InputUnavailableError
from mcpbus.core.signals import FailRequest
from mcpbus.tasks import MemoryTaskStore, TaskSupport
from mcpbus.testing import wait_until_idle


async def update(client, task, **answers):
    acknowledged = await client.request("tasks/update", task | {"inputResponses": answers})
    assert (acknowledged.keys(), acknowledged["resultType"]) == ({"resultType", "_meta"}, "complete")


async def asked(stage, client, task):
    """The keys of the questions that are open."""
    await wait_until_idle(stage.bus)
    seen = await look(client, task)
    assert (seen["status"] == "input_required") is ("inputRequests" in seen)
    return list(seen.get("inputRequests", ()))


async def test_a_question_is_shown_until_it_is_answered(autojump_clock):
    async with tasking() as stage, stage.bus.connect(capabilities=DECLARED) as client:
        task = await begin(client, "ask")
        await wait_until_idle(stage.bus)
        seen = [await look(client, task) for _ in range(2)]
        assert seen[0] == seen[1]
        assert seen[0]["inputRequests"]["who"]["method"] == "elicitation/create"
        assert seen[0]["inputRequests"]["who"]["params"]["message"] == "Who?"
        await update(client, task, who=accept("Ann"))
        over = await look_until_over(client, task)
        assert (over["status"], text(over["result"])) == ("completed", "Hello, Ann")
        assert "inputRequests" not in over


@pytest.mark.parametrize("tool", ["ask_both", "ask_apart"])
async def test_several_questions_are_answered_one_by_one(tool, autojump_clock):
    async with tasking() as stage, stage.bus.connect(capabilities=DECLARED) as client:
        task = await begin(client, tool)
        assert sorted(await asked(stage, client, task)) == ["a", "b"]
        await update(client, task, a=accept("Ann"))
        assert await asked(stage, client, task) == ["b"]
        await update(client, task, a=accept("Somebody else"), b=accept("Bo"))
        assert text((await look_until_over(client, task))["result"]) == "Ann and Bo"


async def test_answers_to_nothing_are_ignored(autojump_clock):
    async with tasking() as stage, stage.bus.connect(capabilities=DECLARED) as client:
        task = await begin(client, "ask")
        await update(client, task, nobody=accept("x"), other=None)
        assert await asked(stage, client, task) == ["who"]
        await update(client, task, who=accept("Ann"))
        await look_until_over(client, task)
        await update(client, task, who=accept("Bo"))
        assert text((await look(client, task))["result"]) == "Hello, Ann"


@pytest.mark.parametrize(
    "wrong", [None, 3, [], {}, {"action": "perhaps"}, {"action": "accept", "content": {"name": 3}}]
)
async def test_an_answer_of_the_wrong_form_is_refused_with_all_that_came_with_it(wrong, autojump_clock):
    async with tasking() as stage, stage.bus.connect(capabilities=DECLARED) as client:
        task = await begin(client, "ask_both")
        assert await asked(stage, client, task) == ["a", "b"]
        with pytest.raises(ProtocolError, match="'b'") as refused:
            await update(client, task, a=accept("Ann"), b=wrong)
        assert refused.value.code == -32602
        assert await asked(stage, client, task) == ["a", "b"]
        await update(client, task, a=accept("Ann"), b=accept("Bo"))
        assert (await look_until_over(client, task))["status"] == "completed"


async def test_a_key_stands_for_one_question_in_the_whole_life_of_a_task(autojump_clock):
    """TX-6, also where the handler asks again under the name that it used before."""
    async with tasking() as stage, stage.bus.connect(capabilities=DECLARED) as client:
        task = await begin(client, "explicit")
        keys = []
        while (await look(client, task))["status"] not in {"completed", "failed"}:
            keys += await asked(stage, client, task)
            await update(client, task, **{keys[-1]: accept(f"answer {len(keys)}")})
            await wait_until_idle(stage.bus)
        assert keys == ["who", "what", "who-2"]
        assert text((await look(client, task))["result"]) == "answer 3 and answer 2"


async def test_what_the_client_did_not_declare_fails_the_task(autojump_clock):
    declared = {"extensions": DECLARED["extensions"]}
    async with tasking() as stage, stage.bus.connect(capabilities=declared) as client:
        over = await look_until_over(client, await begin(client, "ask"))
        assert (over["status"], over["error"]["code"]) == ("failed", -32021)


async def test_a_handler_that_waits_for_an_answer_is_cancelled(autojump_clock):
    async with tasking() as stage, stage.bus.connect(capabilities=DECLARED) as client:
        task = await begin(client, "ask")
        assert await asked(stage, client, task) == ["who"]
        await client.request("tasks/cancel", task)
        assert (await look_until_over(client, task))["status"] == "cancelled"
        assert stage.bus.tasks.running == 0


async def test_rounds_come_before_the_task_and_its_own_questions_after(autojump_clock):
    """V-15: the handler says when the call becomes a task."""
    async with tasking() as stage, stage.bus.connect(capabilities=DECLARED) as client:
        first = await client.call_tool("later")
        assert (first["resultType"], list(first["inputRequests"])) == ("input_required", ["who"])
        assert "taskId" not in first
        assert len(stage.bus.tasks) == 0
        retry = {"requestState": first["requestState"], "inputResponses": {"who": accept("Ann")}}
        handle = await client.request("tools/call", {"name": "later", "arguments": {}} | retry)
        assert handle["resultType"] == "task"
        assert not {"requestState", "inputRequests"} & handle.keys()
        task = {"taskId": handle["taskId"]}
        assert await asked(stage, client, task) == ["who-2"]
        await update(client, task, **{"who-2": accept("Bo")})
        assert text((await look_until_over(client, task))["result"]) == "Ann and Bo"
        assert stage.jobs[-1].begun == [True, True], "to begin once more changes nothing"
        with pytest.raises(ProtocolError, match="used already"):
            await client.request("tools/call", {"name": "later", "arguments": {}} | retry)


async def test_a_retry_that_did_not_declare_the_extension_is_not_answered_with_a_task(autojump_clock):
    """TX-3 holds for the request that is answered, not for the one that began."""
    async with tasking() as stage, stage.bus.connect(capabilities=DECLARED) as client:
        first = await client.call_tool("later")
        meta = {"_meta": {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}}
        retry = {"requestState": first["requestState"], "inputResponses": {"who": accept("Ann")}}
        second = await client.request("tools/call", {"name": "later", "arguments": {}} | retry | meta)
        assert (second["resultType"], list(second["inputRequests"])) == ("input_required", ["who-2"])
        retry = {"requestState": second["requestState"], "inputResponses": {"who-2": accept("Bo")}}
        last = await client.request("tools/call", {"name": "later", "arguments": {}} | retry | meta)
        assert (last["resultType"], text(last)) == ("complete", "Ann and Bo")
        assert stage.jobs[-1].begun == [False, False]


async def test_a_call_cannot_become_a_task_while_it_waits_for_its_client(autojump_clock):
    """V-15: in another of its own tasks."""
    async with tasking() as stage:
        said = []

        @stage.server.tool(task=TaskSupport(deferred=True))
        async def both(ctx: Context) -> str:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ctx.list_roots)
                await trio.sleep(1)
                try:
                    await ctx.begin_task()
                except RuntimeError as error:
                    said.append(str(error))
                nursery.cancel_scope.cancel()
            return "both"

        async with stage.bus.connect(capabilities=DECLARED | {"roots": {}}) as client:
            assert (await client.call_tool("both"))["resultType"] == "input_required"
            await trio.sleep(2)
            assert "waits for its client" in said[0]


async def test_what_is_asked_while_a_task_begins_is_its_first_question(autojump_clock):
    async with tasking(store=SlowTaskStore()) as stage:

        @stage.server.tool(task=TaskSupport(deferred=True))
        async def both(ctx: Context) -> str:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ctx.list_roots)
                await ctx.begin_task()
            return "both"

        async with stage.bus.connect(capabilities=DECLARED | {"roots": {}}) as client:
            task = await begin(client, "both")
            assert await asked(stage, client, task) == ["roots"]
            await update(client, task, roots={"roots": []})
            assert text((await look_until_over(client, task))["result"]) == "both"


async def test_what_is_asked_while_no_task_could_begin_ends_the_request(autojump_clock, caplog):
    class Broken(MemoryTaskStore):
        async def put(self, record, payload):
            await trio.sleep(1)
            raise OSError("no disk")

    async with tasking(store=Broken()) as stage:

        @stage.server.tool(task=TaskSupport(deferred=True))
        async def both(ctx: Context) -> str:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ctx.list_roots)
                assert not await ctx.begin_task()
            return "both"

        async with stage.bus.connect(capabilities=DECLARED | {"roots": {}}) as client:
            first = await client.call_tool("both")
            assert (first["resultType"], list(first["inputRequests"])) == ("input_required", ["roots"])
            retry = {"requestState": first["requestState"], "inputResponses": {"roots": {"roots": []}}}
            last = await client.request("tools/call", {"name": "both", "arguments": {}} | retry)
            assert (last["resultType"], text(last)) == ("complete", "both")
    assert "the task store failed" in caplog.text


async def test_a_plain_function_has_the_same_words():
    """In a worker thread, and so in real time."""
    server = Server("s")

    @server.tool(task=TaskSupport(deferred=True))
    def plainly(ctx: SyncContext) -> str:
        assert ctx.task_id is None
        begun = ctx.begin_task()
        ctx.set_task_message("asking")
        answer = ctx.elicit("Who?", FORM, key="who")
        return f"{begun} {ctx.task_id is not None} {answer.data['name']}"

    async with server.open() as bus, bus.connect(capabilities=DECLARED) as client:
        task = await begin(client, "plainly")
        with trio.fail_after(60):
            async with client.listen(task_ids=[task["taskId"]]) as listen:
                async for _, seen in listen:
                    if seen["status"] == "input_required":
                        assert seen["statusMessage"] == "asking"
                        await update(client, task, who=accept("Ann"))
                    elif seen["status"] == "completed":
                        assert text(seen["result"]) == "True True Ann"
                        break


async def test_who_asks_when_its_task_has_ended_is_told_so_and_nobody_answers(autojump_clock):
    async with tasking(limits={"task_ttl": 10}) as stage:
        told, end = [], trio.Event()

        @stage.server.tool(task="required")
        async def late(ctx: Context) -> str:
            with trio.move_on_after(20, shield=True):
                await trio.sleep(11)
                with pytest.raises(InputUnavailableError) as refused:
                    await ctx.elicit("Who?", FORM, key="who")
                told.append(str(refused.value))
                await end.wait()
            return "done"

        async with stage.bus.connect(capabilities=DECLARED) as client:
            task = await begin(client, "late")
            await trio.sleep(12)
            assert len(told) == 1
            assert "its task has ended" in told[0]
            await update(client, task, who="an answer of the wrong form")
            assert (await look(client, task))["status"] == "failed"
            end.set()


async def test_questions_do_not_count_among_the_results_that_are_kept(autojump_clock):
    limits = {"task_bytes": 10}
    async with tasking(limits=limits) as stage, stage.bus.connect(capabilities=DECLARED) as client:
        first = await begin(client, "ask")
        assert await asked(stage, client, first) == ["who"]
        second = await begin(client, "ask")
        assert await asked(stage, client, second) == ["who"]


async def test_what_a_handler_no_longer_asks_is_shown_no_more(autojump_clock):
    async with tasking() as stage:

        @stage.server.tool(task="required")
        async def impatient(ctx: Context) -> str:
            async def briefly():
                with trio.move_on_after(5):
                    await ctx.elicit("Who?", FORM, key="who")

            async with trio.open_nursery() as nursery:
                nursery.start_soon(briefly)
                with trio.move_on_after(10):
                    await ctx.elicit("Which?", FORM, key="which")
            await trio.sleep(5)
            return (await ctx.elicit("What?", FORM, key="what")).data["name"]

        async with stage.bus.connect(capabilities=DECLARED) as client:
            task = await begin(client, "impatient")
            assert sorted(await asked(stage, client, task)) == ["which", "who"]
            await trio.sleep(6)
            assert await asked(stage, client, task) == ["which"]
            await update(client, task, who=accept("too late"))
            await trio.sleep(5)
            assert await asked(stage, client, task) == []
            assert (await look(client, task))["status"] == "working"
            await trio.sleep(5)
            assert await asked(stage, client, task) == ["what"]
            await update(client, task, what=accept("a thing"))
            assert text((await look_until_over(client, task))["result"]) == "a thing"


async def test_what_is_left_of_questions_that_were_answered_in_part_is_withdrawn_as_well(autojump_clock):
    async with tasking() as stage:

        @stage.server.tool(task="required")
        async def impatient(ctx: Context) -> str:
            with trio.move_on_after(5):
                await ctx.ask_all({"a": Elicit("A?", FORM), "b": Elicit("B?", FORM)})
            return (await ctx.elicit("What?", FORM, key="what")).data["name"]

        async with stage.bus.connect(capabilities=DECLARED) as client:
            task = await begin(client, "impatient")
            assert sorted(await asked(stage, client, task)) == ["a", "b"]
            await update(client, task, a=accept("Ann"))
            assert await asked(stage, client, task) == ["b"]
            await trio.sleep(6)
            assert await asked(stage, client, task) == ["what"]
            await update(client, task, what=accept("a thing"))
            assert text((await look_until_over(client, task))["result"]) == "a thing"


async def test_a_task_that_ends_in_the_turn_in_which_it_asks_stays_ended(autojump_clock):
    async with tasking() as stage:

        @stage.server.tool(task="required")
        async def persistent(ctx: Context) -> None:
            actor = stage.bus.tasks.find(ctx.task_id, None).address
            with trio.CancelScope(shield=True):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(ctx.elicit, "Who?", FORM)
                    await trio.lowlevel.checkpoint()
                    actor.tell(FailRequest("no more"))

        async with stage.bus.connect(capabilities=DECLARED) as client:
            tasks = [await begin(client, "persistent") for _ in range(30)]  # trio takes turns in any order
            await trio.sleep(1)
            seen = [await look(client, task) for task in tasks]
            assert {(task["status"], task["statusMessage"]) for task in seen} == {("failed", "no more")}


async def test_a_task_that_waits_for_its_client_does_not_hold_up_the_shutdown(autojump_clock):
    async with tasking(drain_timeout=50) as stage:
        async with stage.bus.connect(capabilities=DECLARED) as client:
            task = await begin(client, "ask")
            assert await asked(stage, client, task) == ["who"]
        closing = trio.current_time()
    assert trio.current_time() - closing < 5


async def test_who_leaves_while_a_task_begins_leaves_none_although_its_handler_goes_on(autojump_clock):
    store, begun = SlowTaskStore(), []
    async with tasking(store=store) as stage:

        @stage.server.tool(task=TaskSupport(deferred=True))
        async def goes_on(ctx: Context) -> None:
            with trio.CancelScope(shield=True):
                begun.append(await ctx.begin_task())

        async with stage.bus.connect(capabilities=DECLARED) as client:
            with trio.move_on_after(1):
                await client.call_tool("goes_on")
            await trio.sleep(10)
            assert begun == [False]
            assert len(store) == 0
        await stage.assert_nothing_is_left()
