"""A parked call that is gone: run again with the sealed answers where that is harmless, refused where it is not."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import trio
from interview import SAMPLED, accept, interviewed, retry, text

from mcpbus import Context, ToolAnnotations
from tests.at_home import OWN_PROCESSES

LOST = "the call that this state belongs to is lost"


async def three(ctx):
    """Ask three things, and tell how they were answered."""
    return [(await ctx.elicit("?", str, key=key)).data for key in "abc"]


async def to_round(it, n, **options):
    """Answer `n` questions of `three`, and return the last result."""
    result = (await it.ask(**options).reply())["result"]
    for key in "abc"[:n]:
        result = (await it.ask(params=retry(result, {key: accept(key)}), **options).reply())["result"]
    return result


async def evicted(it, monkeypatch):
    it.bus.parked_calls.evict_all()


async def pushed_out(it, monkeypatch):
    for _ in range(2):
        await it.ask().reply()


async def lapsed(it, monkeypatch):
    now = it.server.sealer.now()
    monkeypatch.setattr(it.server.sealer, "now", lambda: now)
    await trio.sleep(61)


async def crashed(it, monkeypatch):
    """The call's actor fails at something that it was told."""
    [parked] = it.bus.parked_calls._calls.values()
    parked.call.address.tell("what no actor understands")


LOSSES = [evicted, pushed_out, lapsed, pytest.param(crashed, marks=pytest.mark.failing)]
LIMITS = {"max_suspended_calls": 2, "suspended_timeout": 60}


@pytest.mark.parametrize("lose", LOSSES)
@pytest.mark.parametrize("rounds", [0, 1, 2])
async def test_a_call_that_may_be_replayed_is_run_again_and_asks_nothing_twice(
    lose, rounds, autojump_clock, monkeypatch
):
    async with interviewed(three, tool={"replay": True}, limits=LIMITS) as it:
        result = await to_round(it, rounds)
        await lose(it, monkeypatch)
        await it.quiet()
        runs = it.runs
        for key in "abc"[rounds:]:
            assert list(result["inputRequests"]) == [key]
            result = (await it.ask(params=retry(result, {key: accept(key)})).reply())["result"]
        assert it.runs == runs + 1
        assert it.outcomes[-1] == ["a", "b", "c"]
        assert isinstance(it.outcomes[0], trio.Cancelled)
        it.bus.parked_calls.evict_all()
        await it.assert_nothing_is_left()


@pytest.mark.parametrize("lose", LOSSES)
async def test_any_other_call_is_lost_and_its_client_is_told(lose, autojump_clock, monkeypatch):
    async with interviewed(three, limits=LIMITS) as it:
        result = await to_round(it, 1)
        await lose(it, monkeypatch)
        await it.quiet()
        runs = it.runs
        call = await it.ask(params=retry(result, {"b": accept("b")})).ended()
        error = call.messages[0]["error"]
        assert (call.status, error["code"], it.runs) == (400, -32602, runs)
        assert LOST in error["message"]
        # Once more: the round was used to find that out.
        repeated = await it.ask(params=retry(result, {"b": accept("b")})).reply()
        assert "used already" in repeated["error"]["message"]
        it.bus.parked_calls.evict_all()
        await it.assert_nothing_is_left()


async def test_a_call_that_is_lost_again_and_again_comes_to_its_end(autojump_clock):
    async with interviewed(three, tool={"replay": True}) as it:
        result = (await it.ask().reply())["result"]
        for key in "abc":
            it.bus.parked_calls.evict_all()
            await it.quiet()
            result = (await it.ask(params=retry(result, {key: accept(key)})).reply())["result"]
        assert (it.runs, it.outcomes[-1]) == (4, ["a", "b", "c"])
        await it.assert_nothing_is_left()


@pytest.mark.parametrize(
    ("options", "replayed"),
    [
        ({}, False),
        ({"annotations": ToolAnnotations(read_only_hint=True)}, True),
        ({"annotations": ToolAnnotations(idempotent_hint=True)}, True),
        ({"annotations": ToolAnnotations(destructive_hint=False)}, False),
        ({"annotations": ToolAnnotations(read_only_hint=True), "replay": False}, False),
        ({"replay": True}, True),
    ],
)
async def test_which_tools_are_replayed(options, replayed, autojump_clock):
    async with interviewed(three, tool=options) as it:
        result = await to_round(it, 0)
        it.bus.parked_calls.evict_all()
        await it.quiet()
        reply = await it.ask(params=retry(result, {"a": accept("a")})).reply()
        assert ("result" in reply) is replayed
        it.bus.parked_calls.evict_all()


@pytest.mark.parametrize(
    ("method", "params"), [("prompts/get", {"name": "prompt"}), ("resources/read", {"uri": "ask://r"})]
)
async def test_prompts_and_resources_are_replayed(method, params, autojump_clock):
    async with interviewed(three) as it:

        @it.server.prompt
        async def prompt(ctx: Context) -> str:
            return "".join(await three(ctx))

        @it.server.resource("ask://r")
        async def resource(ctx: Context) -> str:
            return "".join(await three(ctx))

        result = (await it.ask(method=method, params=params).reply())["result"]
        for key in "abc":
            it.bus.parked_calls.evict_all()
            await it.quiet()
            body = {**params, **retry(result, {key: accept(key)})}
            result = (await it.ask(method=method, params=body).reply())["result"]
        assert '"abc"' in json.dumps(result)
        await it.assert_nothing_is_left()


async def test_a_replay_that_asks_something_else_is_answered_anew(autojump_clock):
    async def moody(ctx):
        if it.runs > 1:
            await ctx.elicit("New?", str, key="new")
        return [(await ctx.elicit("?", str, key=key)).data for key in "ab"]

    async with interviewed(moody, tool={"replay": True}) as it:
        result = await to_round(it, 1)
        it.bus.parked_calls.evict_all()
        await it.quiet()
        result = (await it.ask(params=retry(result, {"b": accept("b")})).reply())["result"]
        assert list(result["inputRequests"]) == ["new"]
        await it.ask(params=retry(result, {"new": accept("n")})).reply()
        assert it.outcomes[-1] == ["a", "b"]


async def test_answers_too_large_to_travel_make_a_call_that_cannot_be_replayed_but_goes_on(autojump_clock):
    async def large(ctx):
        sampled = await ctx.sample("?", key="s")
        return len(sampled.text), (await ctx.elicit("?", str, key="k")).data

    picture = {**SAMPLED, "content": {"type": "text", "text": "x" * 2_000_000}}
    async with interviewed(large, tool={"replay": True}) as it:
        for lost in (False, True):
            result = (await it.ask().reply())["result"]
            result = (await it.ask(params=retry(result, {"s": picture})).reply())["result"]
            assert len(result["requestState"]) < 1000
            if lost:
                it.bus.parked_calls.evict_all()
                await it.quiet()
            reply = await it.ask(params=retry(result, {"k": accept("x")})).reply()
            assert LOST in reply["error"]["message"] if lost else it.outcomes == [(2_000_000, "x")]


async def test_a_drain_cancels_parked_calls_first(autojump_clock):
    async def forked(ctx):
        await ctx.elicit("?", str)

    async with interviewed(forked) as it:
        for _ in range(3):
            await it.ask().reply()
        began = trio.current_time()
        await it.bus.drain(5)
        await it.quiet()
        assert trio.current_time() - began < 1
        assert [type(outcome) for outcome in it.outcomes] == [trio.Cancelled] * 3
        await it.assert_nothing_is_left()


async def test_a_handler_that_catches_the_eviction_ends_at_its_leisure(autojump_clock):
    async def slow(ctx):
        try:
            await ctx.elicit("?", str)
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(5)

    async with interviewed(slow) as it:
        result = (await it.ask().reply())["result"]
        it.bus.parked_calls.evict_all()
        await it.quiet()
        reply = await it.ask(params=retry(result, {})).reply()
        assert LOST in reply["error"]["message"]
        await trio.sleep(6)
        await it.assert_nothing_is_left()


PROGRAM = Path(__file__).with_name("two_processes.py")


def in_a_process(key, params):
    """Serve one request in a process of its own, and return what it answered."""
    run = subprocess.run(
        [sys.executable, PROGRAM, key, json.dumps(params)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return json.loads(run.stdout)


@OWN_PROCESSES
def test_a_second_process_that_shares_the_keys_goes_on_and_one_that_does_not_refuses():
    key, call = "k" * 32, {"name": "ask", "arguments": {}}
    first = in_a_process(key, call)["result"]
    assert list(first["inputRequests"]) == ["a"]
    stranger = in_a_process("s" * 32, call | retry(first, {"a": accept("a")}))
    assert stranger["error"]["code"] == -32602
    result = first
    for name in "abc":
        result = in_a_process(key, call | retry(result, {name: accept(name)}))["result"]
    assert text(result) == "abc"
    # A tool that may not be repeated is lost with its process.
    first = in_a_process(key, call | {"name": "once"})["result"]
    lost = in_a_process(key, call | {"name": "once"} | retry(first, {"a": accept("a")}))
    assert LOST in lost["error"]["message"]
