"""Handlers that return what they need, and are run again with the answers: the same in every era."""

import pytest
from interview import EVERYTHING, LEGACY, MODERN, accept, interviewed, retry, text

from mcpbus import Context
from mcpbus.asking import AcceptedElicitation, Elicit, InputRequired, ListRoots

ALL = ["2025-06-18", "2025-11-25", MODERN]


def answering(asked):
    async def answer(method, params):
        asked.append(params.get("message", method))
        if method == "roots/list":
            return {"roots": []}
        return accept(params["message"].lower())

    return answer


async def called(script, revision):
    asked = []
    async with (
        interviewed(script) as it,
        it.bus.connect(
            revision=revision, capabilities=EVERYTHING, on_input_request=answering(asked)
        ) as client,
    ):
        result = await client.call_tool("ask")
        await it.quiet()
        assert it.bus.statistics().requests == len(it.bus.parked_calls) == 0
    return result, asked, it


@pytest.mark.parametrize("revision", ALL)
async def test_a_handler_is_run_again_with_its_state_and_the_answers(revision, autojump_clock):
    async def explicit(ctx):
        if ctx.round_state is None:
            return InputRequired({"a": Elicit("A", str), "b": ListRoots()}, state={"n": [1, "x", None]})
        answers = await ctx.ask_all({"a": Elicit("A", str), "b": ListRoots()})
        return [ctx.round_state, answers["a"], answers["b"]]

    _, asked, it = await called(explicit, revision)
    assert sorted(asked) == ["A", "roots/list"]
    assert it.outcomes[1:] == [[{"n": [1, "x", None]}, AcceptedElicitation("a"), []]]
    assert it.runs == 2


@pytest.mark.parametrize("revision", ALL)
async def test_a_state_alone_is_a_round_too(revision, autojump_clock):  # V-6
    """V-6: a client may retry at once."""

    async def explicit(ctx):
        n = ctx.round_state or 0
        return InputRequired(state=n + 1) if n < 3 else n

    result, asked, it = await called(explicit, revision)
    assert (text(result), asked, it.runs) == ("3", [], 4)


@pytest.mark.parametrize("revision", ALL)
async def test_later_runs_know_the_answers_of_all_earlier_ones(revision, autojump_clock):
    async def explicit(ctx):
        step = ctx.round_state or 0
        answers = [(await ctx.elicit("?", str, key=f"k{n}")).data for n in range(step)]
        if step < 3:
            return InputRequired({f"k{step}": Elicit(f"Q{step}", str)}, state=step + 1)
        return answers

    _, asked, it = await called(explicit, revision)
    assert asked == ["Q0", "Q1", "Q2"]
    assert it.outcomes[-1] == ["q0", "q1", "q2"]


@pytest.mark.parametrize("revision", ALL)
async def test_a_question_that_is_returned_again_is_asked_again(revision, autojump_clock):
    async def explicit(ctx):
        if (ctx.round_state or 0) < 3:
            return InputRequired({"k": Elicit("Again", str)}, state=(ctx.round_state or 0) + 1)
        return (await ctx.elicit("Again", str, key="k")).data

    _, asked, it = await called(explicit, revision)
    assert asked == ["Again"] * 3
    assert it.outcomes[-1] == "again"


@pytest.mark.parametrize("revision", ALL)
async def test_a_question_that_was_asked_in_the_same_run_is_asked_again_by_its_key(revision, autojump_clock):
    async def explicit(ctx):
        answer = await ctx.elicit("First", str, key="k")
        return (
            InputRequired({"k": Elicit("Second", str)}, state=1) if ctx.round_state is None else answer.data
        )

    _, asked, it = await called(explicit, revision)
    assert asked == ["First", "Second"]
    assert it.outcomes[-1] == "second"


@pytest.mark.parametrize("revision", ALL)
async def test_both_ways_of_asking_mix(revision, autojump_clock):
    async def mixed(ctx):
        name = await ctx.elicit("Name", str, key="k")
        if ctx.round_state is None:
            return InputRequired({"k2": Elicit("Second", str)}, state=name.data)
        return [name.data, ctx.round_state, (await ctx.elicit("Second", str, key="k2")).data]

    _, asked, it = await called(mixed, revision)
    assert asked == ["Name", "Second"]
    assert it.outcomes[-1] == ["name", "name", "second"]


@pytest.mark.parametrize("revision", [*LEGACY, MODERN])
async def test_what_the_client_cannot_be_asked_is_the_same_error_as_ever(revision, autojump_clock):
    async def explicit(ctx):
        return InputRequired({"k": Elicit("?", str)}, state=1)

    async with interviewed(explicit) as it:
        if revision == MODERN:
            call = await it.ask(capabilities={"roots": {}}).ended()
            assert (call.status, call.messages[0]["error"]["code"]) == (400, -32021)
        else:
            session = await it.session(revision, {"roots": {}})
            reply = await session.request("tools/call", it.call).reply()
            assert reply["error"]["code"] == -32603
        await it.assert_nothing_is_left()


@pytest.mark.parametrize("revision", ["2025-11-25", MODERN])
async def test_a_handler_that_never_stops_asking_is_stopped(revision, autojump_clock):
    async def endless(ctx):
        return InputRequired({"k": Elicit("?", str)})

    with pytest.raises(Exception, match=r"asked .* times and did not come to an end"):
        await called(endless, revision)


def test_asking_for_nothing_is_refused():
    with pytest.raises(ValueError, match="questions, or a state"):
        InputRequired()


async def test_nothing_waits_between_the_rounds_and_a_round_is_used_once(autojump_clock):
    async def explicit(ctx):
        if ctx.round_state is None:
            return InputRequired({"k": Elicit("?", str)}, state="begun")
        return (await ctx.elicit("?", str, key="k")).data

    async with interviewed(explicit) as it:
        result = (await it.ask().reply())["result"]
        assert result["resultType"] == "input_required"
        await it.assert_nothing_is_left()
        again = it.ask(params=retry(result, {"k": accept("x")}))
        assert text((await again.reply())["result"]) == "x"
        repeated = await it.ask(params=retry(result, {"k": accept("x")})).ended()
        assert (repeated.status, it.runs) == (400, 2)
        await it.assert_nothing_is_left()


async def test_an_answer_that_cannot_be_used_is_asked_for_again_in_the_middle(autojump_clock):
    async def explicit(ctx):
        if ctx.round_state is None:
            return InputRequired({"k": Elicit("?", str)}, state="begun")
        return [ctx.round_state, (await ctx.elicit("?", str, key="k")).data]

    async with interviewed(explicit, tool={"replay": True}) as it:
        result = (await it.ask().reply())["result"]
        result = (await it.ask(params=retry(result, {"k": 5})).reply())["result"]
        assert list(result["inputRequests"]) == ["k"]
        # The call that waits now is lost; its state is not.
        it.bus.parked_calls.evict_all()
        await it.quiet()
        await it.ask(params=retry(result, {"k": accept("x")})).reply()
        assert it.outcomes[-1] == ["begun", "x"]
        await it.assert_nothing_is_left()


@pytest.mark.parametrize("revision", ALL)
async def test_prompts_and_resources_return_it_too(revision, autojump_clock):
    async def explicit(ctx):
        return None

    async with interviewed(explicit) as it:

        @it.server.prompt
        async def prompt(ctx: Context) -> str | InputRequired:
            if ctx.round_state is None:
                return InputRequired({"k": Elicit("P", str)}, state=1)
            return (await ctx.elicit("P", str, key="k")).data

        @it.server.resource("ask://r")
        async def resource(ctx: Context) -> str | InputRequired:
            if ctx.round_state is None:
                return InputRequired({"k": Elicit("R", str)}, state=1)
            return (await ctx.elicit("R", str, key="k")).data

        async with it.bus.connect(
            revision=revision, capabilities=EVERYTHING, on_input_request=answering([])
        ) as client:
            [message] = await client.get_prompt("prompt")
            [contents] = await client.read_resource("ask://r")
        assert (message["content"]["text"], contents["text"]) == ("p", "r")


async def test_a_completion_that_returns_it_is_a_failure_of_the_server(autojump_clock, caplog):
    async with interviewed(None) as it:

        @it.server.prompt
        def question(name: str) -> str:
            return name

        @it.server.completion("question", "name")
        async def complete(value: str) -> list[str]:
            return InputRequired({"k": Elicit("?", str)})

        params = {
            "ref": {"type": "ref/prompt", "name": "question"},
            "argument": {"name": "name", "value": "x"},
        }
        reply = await it.ask(method="completion/complete", params=params).reply()
        assert reply["error"] == {"code": -32603, "message": "Internal error"}
        await it.assert_nothing_is_left()


async def test_a_call_that_is_to_be_run_again_takes_no_room_of_those_that_wait(autojump_clock):
    async def either(ctx):
        if it.runs == 1:
            return (await ctx.elicit("?", str, key="k")).data
        return InputRequired({"k": Elicit("?", str)}, state="begun")

    async with interviewed(either, limits={"max_suspended_calls": 1}) as it:
        waiting = (await it.ask().reply())["result"]
        await it.ask().reply()
        assert text((await it.ask(params=retry(waiting, {"k": accept("x")})).reply())["result"]) == "x"
