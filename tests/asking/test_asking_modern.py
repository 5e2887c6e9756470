"""Clients of 2026-07-28 are asked in the result, and come back: the handler goes on from the very line."""

import json

import pytest
import trio
from interview import EVERYTHING, MODERN, ROOTS, SAMPLED, accept, interviewed, retry, text

from mcpbus import Context
from mcpbus.asking import Elicit, ElicitUrl, InputUnavailableError, ListRoots, Sample
from mcpbus.core.receipt import DELIVERED, Fate
from mcpbus.protocol.routes import Reason
from mcpbus.transports.duplex import DuplexChannel

PARKED = Fate.discarded(Reason.SUSPENDED)

KINDS = [
    # how it is asked, what goes out, the answer, and what the handler gets
    (
        lambda ctx: ctx.list_roots(key="k"),
        {"method": "roots/list", "params": {}},
        ROOTS,
        "[Root(uri='file:///x', name=None)]",
    ),
    (
        lambda ctx: ctx.sample("Hi", key="k", max_tokens=7),
        {
            "method": "sampling/createMessage",
            "params": {
                "messages": [{"role": "user", "content": {"type": "text", "text": "Hi"}}],
                "maxTokens": 7,
            },
        },
        SAMPLED,
        "role='assistant'",
    ),
    (
        lambda ctx: ctx.elicit("Name?", str, key="k"),
        {
            "method": "elicitation/create",
            "params": {
                "message": "Name?",
                "requestedSchema": {
                    "type": "object",
                    "properties": {"value": {"type": "string"}},
                    "required": ["value"],
                },
            },
        },
        accept("x"),
        "AcceptedElicitation(data='x')",
    ),
    (
        lambda ctx: ctx.elicit_url("Pay?", "https://a.example", key="k"),
        {
            "method": "elicitation/create",
            "params": {"mode": "url", "message": "Pay?", "url": "https://a.example"},
        },
        {"action": "accept"},
        "AcceptedElicitation(data=None)",
    ),
]


def shown(ask):
    async def script(ctx):
        return repr(await ask(ctx))

    return script


@pytest.mark.parametrize(("ask", "question", "answer", "got"), KINDS)
async def test_every_kind_is_asked_in_the_result_and_answered_by_the_retry(
    ask, question, answer, got, autojump_clock
):  # V-2, V-3, Z-4
    async with interviewed(shown(ask)) as it:
        reply = await it.ask(id=1).reply()
        result = reply["result"]
        assert (reply["id"], result["resultType"]) == (1, "input_required")
        assert result["inputRequests"] == {"k": question}
        assert set(result) == {"resultType", "inputRequests", "requestState", "_meta"}
        assert len(it.bus.parked_calls) == 1
        second = await it.ask(params=retry(result, {"k": answer}), id=2).reply()
        assert (second["id"], second["result"]["resultType"]) == (2, "complete")
        assert got in text(second["result"])
        assert it.runs == 1
        await it.assert_nothing_is_left()


LACKING = [
    (lambda ctx: ctx.list_roots(), {}, {"roots": {}}),
    (lambda ctx: ctx.elicit("?", str), {"elicitation": {"url": {}}}, {"elicitation": {"form": {}}}),
    (lambda ctx: ctx.elicit_url("?", "https://a.example"), {"elicitation": {}}, {"elicitation": {"url": {}}}),
    (lambda ctx: ctx.sample("?", tools=[]), {"sampling": {}}, {"sampling": {"tools": {}}}),
    (
        lambda ctx: ctx.ask_all({"a": ListRoots(), "b": ElicitUrl("?", "https://a"), "c": Elicit("?", str)}),
        {},
        {"roots": {}, "elicitation": {"url": {}, "form": {}}},
    ),
]


@pytest.mark.parametrize(("ask", "declared", "missing"), LACKING)
async def test_what_was_not_declared_is_not_asked_and_the_client_is_told_what_to_declare(
    ask, declared, missing, autojump_clock
):  # V-4, M-12
    async with interviewed(shown(ask)) as it:
        call = await it.ask(capabilities=declared).ended()
        error = call.messages[0]["error"]
        assert (call.status, error["code"]) == (400, -32021)
        assert error["data"] == {"requiredCapabilities": missing}
        await it.assert_nothing_is_left()


async def test_the_capabilities_that_count_are_those_of_the_request_that_carries_the_call(
    autojump_clock,
):  # M-8
    async def two(ctx):
        await ctx.list_roots(key="a")
        await ctx.sample("?", key="b")

    async with interviewed(two) as it:
        first = (await it.ask(capabilities={"roots": {}, "sampling": {}}).reply())["result"]
        again = it.ask(params=retry(first, {"a": ROOTS}), capabilities={"roots": {}})
        assert (await again.reply())["error"]["code"] == -32021
        await it.assert_nothing_is_left()


async def test_several_questions_make_one_round_trip(autojump_clock):
    async def several(ctx):
        answers = await ctx.ask_all({"a": Elicit("A", str), "r": ListRoots(), "s": Sample("S")})
        return f"{answers['a'].data} {len(answers['r'])} {answers['s'].text}"

    async with interviewed(several) as it:
        result = (await it.ask().reply())["result"]
        assert list(result["inputRequests"]) == ["a", "r", "s"]
        result = (await it.ask(params=retry(result, {"a": accept("x"), "r": ROOTS, "s": SAMPLED})).reply())[
            "result"
        ]
        assert text(result) == "x 1 yo"
        await it.assert_nothing_is_left()


async def test_questions_that_two_tasks_ask_in_the_same_turn_make_one_round_trip(autojump_clock):
    async def forked(ctx):
        names = {}

        async def one(n):
            names[n] = (await ctx.elicit("?", str, key=f"k{n}")).data

        async with trio.open_nursery() as nursery:
            for n in range(3):
                nursery.start_soon(one, n)
        return [names[n] for n in range(3)]

    async with interviewed(forked) as it:
        result = (await it.ask().reply())["result"]
        assert set(result["inputRequests"]) == {"k0", "k1", "k2"}
        # One answer continues one task; the others are asked for again, and for no more.
        result = (await it.ask(params=retry(result, {"k1": accept("b")})).reply())["result"]
        assert set(result["inputRequests"]) == {"k0", "k2"}
        await it.ask(params=retry(result, {"k0": accept("a"), "k2": accept("c")})).reply()
        assert (it.outcomes, it.runs) == ([["a", "b", "c"]], 1)
        await it.assert_nothing_is_left()


async def test_the_handler_goes_on_from_the_very_line(autojump_clock):
    async def stateful(ctx):
        local, seen = object(), []
        with trio.CancelScope():
            for n in range(4):
                before = id(local)
                answer = await ctx.elicit(f"Round {n}", int)
                assert id(local) == before
                seen.append((answer.data, ctx.request_id))
        return seen

    async with interviewed(stateful) as it:
        result = (await it.ask(id="r0").reply())["result"]
        for n in range(4):
            [key] = result["inputRequests"]
            call = it.ask(params=retry(result, {key: accept(n)}), id=f"r{n + 1}")
            result = (await call.reply())["result"]
        # The context speaks of the request that carries the call at the moment.
        assert it.outcomes == [[(0, "r1"), (1, "r2"), (2, "r3"), (3, "r4")]]
        assert it.runs == 1
        await it.assert_nothing_is_left()


async def test_keys_are_made_of_the_order_of_the_questions_and_never_twice(autojump_clock):  # V-4
    async def many(ctx):
        given = (None, "elicit-2", None, "name", "name", "name-2")
        return [(await ctx.elicit("?", str, key=key)).data for key in given]

    async with interviewed(many) as it:
        result, keys = (await it.ask().reply())["result"], []
        while result["resultType"] == "input_required":
            [key] = result["inputRequests"]
            keys.append(key)
            result = (await it.ask(params=retry(result, {key: accept(key)})).reply())["result"]
        assert keys == ["elicit", "elicit-2", "elicit-3", "name", "name-2", "name-2-2"]
        assert it.outcomes == [keys]


MISSING = [None, {}, {"other": accept("x")}, {"k": {}}, {"k": {"action": "yes"}}, {"k": accept(5)}]
WRONG = [*MISSING, {"k": 5}, {"k": None}, {"k": "x"}, {"k": []}, {"k": True}, {"k": {"action": "accept"}}]


@pytest.mark.parametrize("responses", WRONG, ids=json.dumps)
async def test_a_question_whose_answer_cannot_be_used_is_asked_again(responses, autojump_clock):
    async with interviewed(shown(lambda ctx: ctx.elicit("?", str, key="k"))) as it:
        first = (await it.ask().reply())["result"]
        second = (await it.ask(params=retry(first, responses)).reply())["result"]
        assert second["inputRequests"] == first["inputRequests"]
        assert second["requestState"] != first["requestState"]
        assert it.outcomes == []
        third = (await it.ask(params=retry(second, {"k": accept("x")})).reply())["result"]
        assert (text(third), it.runs) == ("AcceptedElicitation(data='x')", 1)
        await it.assert_nothing_is_left()


LONG_KEY = "k" * 1025


@pytest.mark.parametrize(
    "responses", [{LONG_KEY: accept("x")}, {str(n): 0 for n in range(1001)}], ids=["long", "many"]
)
async def test_answers_that_are_too_many_or_by_long_keys_are_refused(responses, autojump_clock):
    async with interviewed(shown(lambda ctx: ctx.elicit("?", str, key="k"))) as it:
        call = await it.ask(params={"inputResponses": responses}).ended()
        assert (call.status, call.messages[0]["error"]["code"]) == (400, -32602)
        assert (
            "at most 1000 answers, by keys of at most 1024 characters" in call.messages[0]["error"]["message"]
        )
        assert it.runs == 0


async def test_as_many_answers_by_as_long_keys_as_there_may_be_are_taken(autojump_clock):
    key = LONG_KEY[1:]
    async with interviewed(shown(lambda ctx: ctx.elicit("?", str, key=key))) as it:
        responses = {key: accept("x"), **{str(n): 0 for n in range(999)}}
        reply = await it.ask(params={"inputResponses": responses}).reply()
        assert text(reply["result"]) == "AcceptedElicitation(data='x')"


async def test_a_question_by_a_long_key_is_not_asked(autojump_clock):
    async def asks(ctx):
        try:
            await ctx.elicit("?", str, key=LONG_KEY)
        except ValueError as error:
            return str(error)

    async with interviewed(asks) as it:
        await it.ask().reply()
        assert it.outcomes == [f"the key '{'k' * 79}…' has more than 1024 characters"]


@pytest.mark.parametrize("responses", [5, None, [], "x", True, [accept("x")]], ids=json.dumps)
async def test_answers_that_are_no_object_are_refused_and_the_round_stays_open(
    responses, autojump_clock
):  # V-11
    async with interviewed(shown(lambda ctx: ctx.elicit("?", str, key="k"))) as it:
        first = (await it.ask().reply())["result"]
        added = {"requestState": first["requestState"], "inputResponses": responses}
        call = await it.ask(params=added).ended()
        assert (call.status, call.messages[0]["error"]["code"]) == (400, -32602)
        # A first request is no different.
        first_too = await it.ask(params={"inputResponses": responses}).ended()
        assert (first_too.status, it.runs) == (400, 1)
        result = (await it.ask(params=retry(first, {"k": accept("x")})).reply())["result"]
        assert text(result) == "AcceptedElicitation(data='x')"
        await it.assert_nothing_is_left()


async def test_extra_answers_are_ignored(autojump_clock):  # V-10
    async with interviewed(shown(lambda ctx: ctx.elicit("?", str, key="k"))) as it:
        first = (await it.ask().reply())["result"]
        responses = {"zzz": 5, "k": accept("x"), "__proto__": {}}
        result = (await it.ask(params=retry(first, responses)).reply())["result"]
        assert text(result) == "AcceptedElicitation(data='x')"


async def test_answers_that_come_with_a_first_request_are_used_without_asking(autojump_clock):
    async def two(ctx):
        first = await ctx.elicit("?", str, key="a")
        return [first.data, (await ctx.elicit("?", str, key="b")).data]

    async with interviewed(two) as it:
        result = (await it.ask(params={"inputResponses": {"b": accept("2"), "a": accept("1")}}).reply())[
            "result"
        ]
        assert result["resultType"] == "complete"
        assert it.outcomes == [["1", "2"]]
        # One that cannot be used is asked for as if it had not come.
        result = (await it.ask(params={"inputResponses": {"a": accept(1), "b": accept("2")}}).reply())[
            "result"
        ]
        assert list(result["inputRequests"]) == ["a"]
        await it.ask(params=retry(result, {"a": accept("1")})).reply()
        assert it.outcomes == [["1", "2"]] * 2
        await it.assert_nothing_is_left()


async def test_what_is_said_goes_to_the_request_that_carries_the_call_with_its_own_token_and_level(
    autojump_clock,
):
    receipts = []

    async def chatty(ctx):
        async def say():
            receipts.extend([await ctx.progress(len(receipts) + 1), await ctx.info("info")])
            receipts.append(await ctx.debug("debug"))

        await say()
        await ctx.elicit("?", str, key="k")
        await say()

    async with interviewed(chatty) as it:
        first = it.ask(progress_token="one", log_level="debug")
        result = (await first.reply())["result"]
        second = it.ask(params=retry(result, {"k": accept("x")}), progress_token=2, log_level="info")
        await second.reply()

    def said(call):
        return [
            (m["params"].get("progressToken"), m["params"].get("data"))
            for m in call.messages
            if "id" not in m
        ]

    assert said(first) == [("one", None), (None, "info"), (None, "debug")]
    assert said(second) == [(2, None), (None, "info")]
    filtered = Fate.discarded(Reason.FILTERED)
    assert [receipt.fate for receipt in receipts] == [DELIVERED] * 5 + [filtered]
    # The question ends the stream that it comes on.
    assert first.messages[-1]["result"]["resultType"] == "input_required"


async def test_a_retry_without_a_token_gets_no_progress(autojump_clock):
    receipts = []

    async def chatty(ctx):
        await ctx.elicit("?", str, key="k")
        receipts.append(await ctx.progress(1))

    async with interviewed(chatty) as it:
        result = (await it.ask(progress_token="t").reply())["result"]
        again = await it.ask(params=retry(result, {"k": accept("x")})).ended()
        assert (len(again.messages), receipts[0].fate) == (1, Fate.discarded(Reason.NO_TOKEN))


async def test_what_a_parked_call_says_is_discarded(autojump_clock):
    receipts = []

    async def forked(ctx):
        async def talk():
            await trio.sleep(5)
            receipts.extend(
                [await ctx.info("parked"), await ctx.progress(1), await ctx.notify("notifications/x")]
            )

        async with trio.open_nursery() as nursery:
            nursery.start_soon(talk)
            await ctx.elicit("?", str, key="k")

    async with interviewed(forked) as it:
        result = (await it.ask(progress_token="t", log_level="debug").reply())["result"]
        await trio.sleep(10)
        assert [receipt.fate for receipt in receipts] == [PARKED] * 3
        again = it.ask(params=retry(result, {"k": accept("x")}), progress_token="t", log_level="debug")
        await again.reply()
        assert len(again.messages) == 1
        await it.assert_nothing_is_left()


@pytest.mark.parametrize("ending", ["returns", "raises", "asks"])
async def test_a_call_that_goes_on_while_it_is_parked_tells_the_retry(ending, autojump_clock):
    async def impatient(ctx):
        with trio.move_on_after(5):
            await ctx.elicit("?", str, key="k")
        if ending == "raises":
            raise ValueError
        if ending == "asks":
            return (await ctx.elicit("?", str, key="other")).data
        return "gave up"

    async with interviewed(impatient) as it:
        result = (await it.ask().reply())["result"]
        await trio.sleep(10)
        assert len(it.outcomes) == (ending != "asks")
        result = (await it.ask(params=retry(result, {"k": accept("late")})).reply())["result"]
        if ending == "asks":
            assert list(result["inputRequests"]) == ["other"]
            result = (await it.ask(params=retry(result, {"other": accept("gave up")})).reply())["result"]
        assert text(result) == ("Tool ask failed" if ending == "raises" else "gave up")
        await it.assert_nothing_is_left()


async def test_a_call_that_ended_while_it_was_parked_lapses_like_any_other(autojump_clock):
    async def impatient(ctx):
        with trio.move_on_after(5):
            await ctx.elicit("?", str, key="k")

    async with interviewed(impatient, limits={"suspended_timeout": 60}) as it:
        await it.ask().reply()
        await trio.sleep(61)
        await it.assert_nothing_is_left()


async def test_of_two_that_are_asked_one_may_be_given_up_and_the_other_is_answered(autojump_clock):
    got = []

    async def forked(ctx):
        async def impatient():
            with trio.move_on_after(5):
                await ctx.elicit("?", str, key="given up")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(impatient)
            got.append((await ctx.elicit("?", str, key="k")).data)
        return "done"

    async with interviewed(forked) as it:
        result = (await it.ask().reply())["result"]
        await trio.sleep(10)
        result = (await it.ask(params=retry(result, {"k": accept("x")})).reply())["result"]
        assert (text(result), got) == ("done", ["x"])
        await it.assert_nothing_is_left()


async def test_a_call_that_its_client_came_back_to_is_not_given_up_later(autojump_clock):
    async def slow(ctx):
        answer = await ctx.elicit("?", str, key="k")
        await trio.sleep(20)
        return answer.data

    async with interviewed(slow, limits={"suspended_timeout": 10}) as it:
        result = (await it.ask().reply())["result"]
        await trio.sleep(5)
        result = (await it.ask(params=retry(result, {"k": accept("x")})).reply())["result"]
        assert text(result) == "x"
        await it.assert_nothing_is_left()


async def test_a_tools_time_runs_while_the_client_thinks(autojump_clock):
    async with interviewed(shown(lambda ctx: ctx.elicit("?", str, key="k")), tool={"timeout": 30}) as it:
        result = (await it.ask().reply())["result"]
        await trio.sleep(31)
        result = (await it.ask(params=retry(result, {"k": accept("x")})).reply())["result"]
        assert result["isError"]
        await it.assert_nothing_is_left()


async def test_a_legacy_timeout_is_no_matter_in_the_modern_era(autojump_clock):
    async with interviewed(
        shown(lambda ctx: ctx.elicit("?", str, key="k", timeout=1)), limits={"input_timeout": 1}
    ) as it:
        result = (await it.ask().reply())["result"]
        await trio.sleep(300)
        result = (await it.ask(params=retry(result, {"k": accept("x")})).reply())["result"]
        assert text(result) == "AcceptedElicitation(data='x')"


async def test_a_client_that_goes_away_before_the_question_is_out_cancels_the_handler(autojump_clock):
    async def slow(ctx):
        await trio.sleep(5)
        await ctx.elicit("?", str)

    async with interviewed(slow) as it:
        call = it.ask()
        await trio.sleep(1)
        call.disconnect()
        await it.quiet()
        assert isinstance(it.outcomes[0], trio.Cancelled)
        await it.assert_nothing_is_left()


async def test_a_retry_whose_client_goes_away_cancels_the_handler(autojump_clock):
    async def slow(ctx):
        await ctx.elicit("?", str, key="k")
        await trio.sleep(5)

    async with interviewed(slow) as it:
        result = (await it.ask().reply())["result"]
        again = it.ask(params=retry(result, {"k": accept("x")}))
        await trio.sleep(1)
        again.disconnect()
        await it.quiet()
        assert isinstance(it.outcomes[0], trio.Cancelled)
        await it.assert_nothing_is_left()


READABLES = [
    ("prompts/get", {"name": "question"}),
    ("resources/read", {"uri": "ask://once"}),
    ("resources/read", {"uri": "ask://x/y"}),
]


@pytest.mark.parametrize(("method", "params"), READABLES)
async def test_prompts_and_resources_ask_too(method, params, autojump_clock):  # O-4, R-9
    async with interviewed(None) as it:

        @it.server.prompt
        async def question(ctx: Context) -> str:
            return (await ctx.elicit("?", str, key="k")).data

        @it.server.resource("ask://once")
        async def once(ctx: Context) -> str:
            return (await ctx.elicit("?", str, key="k")).data

        @it.server.resource("ask://{x}/y")
        async def template(x: str, ctx: Context) -> str:
            return (await ctx.elicit("?", str, key="k")).data

        result = (await it.ask(method=method, params=params).reply())["result"]
        assert list(result["inputRequests"]) == ["k"]
        assert not {"ttlMs", "cacheScope"} & result.keys()
        retried = it.ask(method=method, params={**params, **retry(result, {"k": accept("said")})})
        assert '"said"' in json.dumps((await retried.reply())["result"])
        await it.assert_nothing_is_left()


async def test_a_completion_may_not_ask(autojump_clock):  # V-1
    """V-1: only three methods may be answered with `input_required`."""
    errors = []
    async with interviewed(None) as it:

        @it.server.prompt
        def question(name: str) -> str:
            return name

        @it.server.completion("question", "name")
        async def complete(value: str, ctx: Context) -> list[str]:
            try:
                await ctx.list_roots()
            except InputUnavailableError as error:
                errors.append(error)
                raise
            return []

        ref = {"type": "ref/prompt", "name": "question"}
        params = {"ref": ref, "argument": {"name": "name", "value": "x"}}
        reply = await it.ask(method="completion/complete", params=params).reply()
        assert reply["error"]["code"] == -32603
        assert "may ask" in errors[0].message
        # What makes a retry elsewhere is nothing here.
        stray = {**params, "inputResponses": 5, "requestState": 5}
        assert (await it.ask(method="completion/complete", params=stray).reply())["error"]["code"] == -32603
        await it.assert_nothing_is_left()


async def test_a_client_in_process_goes_as_many_rounds_as_it_takes(autojump_clock):  # V-5, V-13
    async def three(ctx):
        return [(await ctx.elicit(f"{n}", int)).data for n in range(3)]

    async def answer(method, params):
        return accept(int(params["message"]))

    async with (
        interviewed(three) as it,
        it.bus.connect(revision=MODERN, capabilities=EVERYTHING, on_input_request=answer) as client,
    ):
        await client.call_tool("ask")
        assert (it.outcomes, it.runs) == ([[0, 1, 2]], 1)


async def test_no_request_and_no_cancelled_is_ever_sent_to_a_modern_client(autojump_clock):  # X-8, T-6, C-7
    async def impatient(ctx):
        with trio.move_on_after(1):
            await ctx.elicit("?", str, key="k")
        await trio.sleep(5)
        await ctx.info("later")

    async with interviewed(impatient) as it:
        call = it.ask(log_level="debug")
        result = (await call.reply())["result"]
        await trio.sleep(2)
        again = it.ask(params=retry(result, None), log_level="debug")
        await again.reply()
        assert [m.get("method") for m in call.messages + again.messages] == [
            None,
            "notifications/message",
            None,
        ]


async def test_sessions_have_no_way_to_speak_of_rounds(autojump_clock):
    """A legacy request with the fields of a retry is a request like every other."""
    async with interviewed(shown(lambda ctx: ctx.elicit("?", str, key="k"))) as it:
        session = await it.session()
        params = {**it.call, "requestState": "x", "inputResponses": {"k": accept("evil")}}
        call = session.request("tools/call", params)
        question = await call.message()
        await session.answer(question["id"], accept("good")).ended()
        assert text((await call.reply())["result"]) == "AcceptedElicitation(data='good')"


async def test_what_is_asked_in_the_turn_after_the_answers_goes_out_together(autojump_clock):
    async def forked(ctx):
        async def twice(number):
            await ctx.elicit("?", str, key=f"first {number}")
            await ctx.elicit("?", str, key=f"then {number}")

        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(twice, number)
        return "done"

    async with interviewed(forked) as it:
        result = (await it.ask().reply())["result"]
        for word in ("first", "then"):
            keys = {f"{word} {number}" for number in range(20)}
            assert result["inputRequests"].keys() == keys
            result = (await it.ask(params=retry(result, dict.fromkeys(keys, accept("x")))).reply())["result"]
        assert text(result) == "done"


async def test_a_retry_that_does_not_answer_is_asked_again_at_once(autojump_clock):  # V-10
    async with interviewed(lambda ctx: ctx.elicit("?", str, key="k")) as it:
        result = (await it.ask().reply())["result"]
        begun = trio.current_time()
        result = (await it.ask(params=retry(result, None)).reply())["result"]
        assert list(result["inputRequests"]) == ["k"]
        assert trio.current_time() - begun < 0.5


async def test_what_outlives_a_call_that_ended_while_it_was_parked_is_told_that_nobody_answers(
    autojump_clock,
):
    async with trio.open_nursery() as outliving:
        told = []

        async def outlive(ctx):
            with pytest.raises(InputUnavailableError, match="its request has ended") as refused:
                await ctx.elicit("?", str, key="k")
            told.append(refused.value)

        async def leaves(ctx):
            outliving.start_soon(outlive, ctx)
            await trio.sleep(5)
            return "done"

        async with interviewed(leaves) as it:
            result = (await it.ask().reply())["result"]
            assert list(result["inputRequests"]) == ["k"]
            await trio.sleep(10)
            assert text((await it.ask(params=retry(result, None)).reply())["result"]) == "done"
            await it.assert_nothing_is_left()
            assert len(told) == 1


@pytest.mark.eagerness
@pytest.mark.parametrize("end", [DuplexChannel.end, DuplexChannel.close])
async def test_who_asks_in_what_came_after_the_end_of_its_channel_is_told_so_at_once(end, autojump_clock):
    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": EVERYTHING,
    }
    params = {"name": "ask", "_meta": meta}
    call = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()

    async def stubborn(ctx):
        refused = pytest.raises(InputUnavailableError, match="its request has ended")
        with trio.CancelScope(shield=True), trio.fail_after(5), refused:
            await ctx.elicit("?", str)
        return "told"

    async with interviewed(stubborn) as it:
        with DuplexChannel(it.bus, None) as channel:
            end(channel)
            await it.quiet()
            with trio.CancelScope() as scope:
                handler = channel.take_now(call, scope)
                assert handler is not None
                await handler.finish()
        assert it.outcomes == ["told"]
        await it.assert_nothing_is_left()
