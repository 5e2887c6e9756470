"""Legacy clients are asked on the stream of the request that asks, and answer in a POST of their own."""

from typing import Literal

import msgspec
import pytest
import trio
from interview import EVERYTHING, LEGACY, ROOTS, SAMPLED, accept, interviewed, text

from mcpbus import Audio
from mcpbus.asking import (
    Elicit,
    InputRefusedError,
    InputTimeoutError,
    InputUnavailableError,
    InvalidInputError,
    ListRoots,
    Sample,
    ToolUse,
)
from mcpbus.dispatch import dispatcher
from mcpbus.protocol.jsonrpc import JsonRpcResponse
from mcpbus.protocol.routes import Reason
from mcpbus.stores import MemoryEventStore

CANCELLED = "notifications/cancelled"

KINDS = [
    # how it is asked, the method, the answer, what the handler gets, and since which revision there is such a thing
    (lambda ctx: ctx.list_roots(), "roots/list", ROOTS, "[Root(uri='file:///x', name=None)]", "2024-11-05"),
    (lambda ctx: ctx.sample("Hi"), "sampling/createMessage", SAMPLED, "role='assistant'", "2024-11-05"),
    (
        lambda ctx: ctx.elicit("?", str),
        "elicitation/create",
        accept("x"),
        "AcceptedElicitation(data='x')",
        "2025-06-18",
    ),
    (
        lambda ctx: ctx.elicit_url("?", "https://a.example"),
        "elicitation/create",
        {"action": "accept"},
        "AcceptedElicitation(data=None)",
        "2025-11-25",
    ),
]


def shown(ask):
    async def script(ctx):
        return repr(await ask(ctx))

    return script


async def test_nothing_is_asked_before_the_client_has_sent_initialized(autojump_clock):  # L-8
    """Over HTTP a call may overtake it."""

    async def ask(ctx):
        return len(await ctx.ask_all({"a": ListRoots(), "b": ListRoots()}))

    async with interviewed(ask) as it:
        session = await it.session(initialized=False)
        calls = [session.request("tools/call", it.call) for _ in range(2)]
        await it.quiet()
        assert [call.messages for call in calls] == [[], []]
        await session.notify("notifications/initialized").ended()
        for call in calls:
            for _ in range(2):
                await session.answer((await call.message())["id"], ROOTS).ended()
            assert text((await call.reply())["result"]) == "2"
        await it.assert_nothing_is_left()


@pytest.mark.parametrize("revision", LEGACY)
@pytest.mark.parametrize(("ask", "method", "answer", "got", "since"), KINDS)
async def test_every_kind_is_asked_on_the_requests_own_stream_where_the_revision_has_it(
    *, ask, method, answer, got, since, revision, autojump_clock
):  # E-13, Z-5, W-9
    async with interviewed(shown(ask)) as it:
        session = await it.session(revision)
        get = await session.get().begun()
        call = session.request("tools/call", it.call)
        if revision < since:
            assert (await call.reply())["error"]["code"] == -32603
            assert len(call.messages) == 1
            assert isinstance(it.outcomes[0], InputUnavailableError)
        else:
            question = await call.message()
            assert question["method"] == method
            accepted = await session.answer(question["id"], answer).ended()
            assert (accepted.status, accepted.body) == (202, b"")
            assert got in text((await call.reply())["result"])
            assert (it.bus.statistics().emitted, it.runs) == (2 + 1, 1)
        assert get.messages == []
        get.disconnect()
        await it.assert_nothing_is_left()


@pytest.mark.parametrize(
    ("revision", "capabilities", "missing"),
    [
        ("2025-03-26", {}, "The client cannot be asked: revision 2025-03-26 has no elicitation by URL"),
        (
            "2025-06-18",
            {"elicitation": {}},
            "The client cannot be asked: revision 2025-06-18 has no elicitation by URL",
        ),
        ("2025-11-25", {"elicitation": {}}, "Missing required client capability: declare elicitation.url"),
        ("2025-11-25", {}, "Missing required client capability: declare elicitation.url"),
    ],
)
async def test_a_client_is_told_what_is_missing_and_not_what_it_declared(
    revision, capabilities, missing, autojump_clock
):
    async with interviewed(shown(lambda ctx: ctx.elicit_url("?", "https://a.example"))) as it:
        session = await it.session(revision, capabilities=capabilities)
        reply = await session.request("tools/call", it.call).reply()
        assert reply["error"]["message"] == missing
        await it.assert_nothing_is_left()


USED = [
    {"role": "assistant", "content": ToolUse("u", "t", {})},
    {"role": "user", "content": ToolUse("u", "t", {}).result("done")},
]


@pytest.mark.parametrize(
    ("revision", "capabilities", "ask", "why"),
    [
        (
            "2025-06-18",
            {"elicitation": {}},
            lambda ctx: ctx.elicit("?", list[Literal["a"]]),
            "lists in forms",
        ),
        ("2025-06-18", {"sampling": {"tools": {}}}, lambda ctx: ctx.sample(USED), "tools in sampling"),
        ("2024-11-05", {"sampling": {}}, lambda ctx: ctx.sample(Audio(b"wav")), "audio in sampling"),
        ("2025-11-25", {"sampling": {}}, lambda ctx: ctx.sample(USED), "declare sampling.tools"),
    ],
)
async def test_a_client_is_asked_nothing_that_its_revision_or_itself_has_no_words_for(
    *, revision, capabilities, ask, why, autojump_clock
):  # E-4, Y-2
    async with interviewed(shown(ask)) as it:
        session = await it.session(revision, capabilities=capabilities)
        call = await session.request("tools/call", it.call).ended()
        assert [message["error"]["message"].endswith(why) for message in call.messages] == [True]
        await it.assert_nothing_is_left()


@pytest.mark.parametrize(("ask", "method", "answer", "got", "since"), KINDS)
@pytest.mark.parametrize("capabilities", [{}, {"experimental": {}}])
async def test_a_client_that_declared_nothing_is_asked_nothing(
    *, ask, method, answer, got, since, capabilities, autojump_clock
):  # L-10, Y-1
    async with interviewed(shown(ask)) as it:
        session = await it.session(capabilities=capabilities)
        reply = await session.request("tools/call", it.call).reply()
        assert reply["error"]["message"].startswith("Missing required client capability")
        assert set(reply["error"]["data"]["requiredCapabilities"]) == {method.partition("/")[0]} or (
            method == "elicitation/create"
        )
        await it.assert_nothing_is_left()


@pytest.fixture
def numbered_from_one(monkeypatch):
    """Each session's questions have the ids 1, 2 and so on."""
    monkeypatch.setattr("mcpbus.core.sessions.session.secrets.randbits", lambda _: 0)


async def test_a_question_goes_out_while_the_handler_waits_and_comes_with_its_own_id(
    numbered_from_one, autojump_clock
):
    async with interviewed(shown(lambda ctx: ctx.list_roots())) as it:
        session = await it.session()
        # The client's request 1 and the server's request 1 are two things.
        call = session.request("tools/call", it.call, id=1)
        question = await call.message()
        assert question == {"jsonrpc": "2.0", "id": 1, "method": "roots/list", "params": {}}
        await session.answer(1, ROOTS).ended()
        assert (await call.reply())["id"] == 1
        await it.assert_nothing_is_left()


async def test_ids_of_questions_are_not_used_twice_in_a_session(autojump_clock):  # J-2
    async def twice(ctx):
        await ctx.list_roots()
        await ctx.list_roots()

    async with interviewed(twice) as it:
        session, ids = await it.session(), []
        for _ in range(2):
            call = session.request("tools/call", it.call)
            for _ in range(2):
                question = await call.message()
                ids.append(question["id"])
                await session.answer(question["id"], ROOTS).ended()
            await call.reply()
        assert len(set(ids)) == 4


async def test_questions_asked_together_go_out_together_and_are_answered_in_any_order(autojump_clock):
    async def several(ctx):
        answers = await ctx.ask_all({"a": Elicit("A", str), "r": ListRoots(), "s": Sample("S")})
        return [answers["a"].data, answers["s"].text, len(answers["r"])]

    async with interviewed(several) as it:
        session = await it.session()
        call = session.request("tools/call", it.call)
        asked = [await call.message() for _ in range(3)]
        assert [question["method"] for question in asked] == [
            "elicitation/create",
            "roots/list",
            "sampling/createMessage",
        ]
        for question, answer in zip(reversed(asked), [SAMPLED, ROOTS, accept("x")], strict=True):
            assert it.outcomes == []
            await session.answer(question["id"], answer).ended()
        await call.reply()
        assert it.outcomes == [["x", "yo", 1]]
        await it.assert_nothing_is_left()


@pytest.mark.parametrize("other", ["another session", "another id", "the id as a string", "afterwards"])
async def test_an_answer_that_nobody_waits_for_is_taken_and_does_nothing(other, autojump_clock):  # C-5
    async with interviewed(shown(lambda ctx: ctx.elicit("?", str))) as it:
        session, stranger = await it.session(), await it.session()
        call = session.request("tools/call", it.call)
        question = await call.message()
        if other == "another session":
            odd = stranger.answer(question["id"], accept("evil"))
        elif other == "another id":
            odd = session.answer(question["id"] + 1, accept("evil"))
        elif other == "the id as a string":
            odd = session.answer(str(question["id"]), accept("evil"))
        else:
            odd = session.answer(question["id"], accept("good"))
        assert (await odd.ended()).status == 202
        await it.quiet()
        assert call.complete is (other == "afterwards")
        answer = "good" if other != "afterwards" else "evil"
        assert (await session.answer(question["id"], accept(answer)).ended()).status == 202
        assert text((await call.reply())["result"]) == "AcceptedElicitation(data='good')"
        await it.assert_nothing_is_left()


async def test_the_ids_of_questions_go_on_from_anywhere(autojump_clock):
    """Whoever takes a session up asks nothing under an id that another one has used."""

    async def twice(ctx):
        await ctx.list_roots()
        return await ctx.list_roots()

    async with interviewed(twice) as it:
        asked = []
        for _ in range(3):
            session = await it.session()
            call = session.request("tools/call", it.call)
            for n in range(2):
                question = (await call.message()) if n == 0 else call.messages[-1]
                asked.append(question["id"])
                await session.answer(question["id"], ROOTS).ended()
                await it.quiet()
    assert all(0 < number < 2**31 for number in asked)
    assert [later - first for first, later in zip(asked[::2], asked[1::2], strict=True)] == [1, 1, 1]
    assert len(set(asked)) == 6


async def test_two_sessions_with_the_same_ids_of_questions_do_not_mix(
    numbered_from_one, autojump_clock
):  # J-6
    async with interviewed(shown(lambda ctx: ctx.elicit("?", str))) as it:
        sessions = [await it.session(), await it.session()]
        calls = [session.request("tools/call", it.call) for session in sessions]
        questions = [await call.message() for call in calls]
        assert questions[0]["id"] == questions[1]["id"]
        for n, session in enumerate(sessions):
            await session.answer(questions[n]["id"], accept(f"of {n}")).ended()
        assert [text((await call.reply())["result"]) for call in calls] == [
            "AcceptedElicitation(data='of 0')",
            "AcceptedElicitation(data='of 1')",
        ]


@pytest.mark.parametrize("answer", [{}, {"action": "accept"}, accept(5), {"action": "yes"}, accept("\ud83d")])
async def test_an_answer_of_the_wrong_form_is_an_error_and_the_rest_is_withdrawn(answer, autojump_clock):
    async def several(ctx):
        await ctx.ask_all({"a": Elicit("A", str), "b": ListRoots()})

    async with interviewed(several) as it:
        session = await it.session()
        call = session.request("tools/call", it.call, id=9)
        first, second = await call.message(), await call.message()
        await session.answer(first["id"], answer).ended()
        withdrawn = await call.message()
        assert (withdrawn["method"], withdrawn["params"]["requestId"]) == (CANCELLED, second["id"])
        assert (await call.message())["id"] == 9
        assert isinstance(it.outcomes[0], InvalidInputError)
        await it.assert_nothing_is_left()


async def test_a_client_may_answer_with_an_error_of_its_own(autojump_clock):
    async def sample(ctx):
        try:
            await ctx.sample("Hi")
        except InputRefusedError as error:
            return [error.code, error.message, error.data]

    async with interviewed(sample) as it:
        session = await it.session()
        call = session.request("tools/call", it.call)
        question = await call.message()
        error = {"code": -1, "message": "User rejected", "data": {"why": "no"}}
        message = {"jsonrpc": "2.0", "id": question["id"], "error": error}
        await it.probe.post(message, {"mcp-session-id": session.id}).ended()
        await call.reply()
        assert it.outcomes == [[-1, "User rejected", {"why": "no"}]]
        await it.assert_nothing_is_left()


@pytest.mark.parametrize(("seconds", "waited"), [(3, 3), (None, 20), (100, 20)])
async def test_a_question_without_an_answer_times_out_under_the_ceiling_and_is_withdrawn_before_the_reply(
    seconds, waited, autojump_clock
):  # L-14
    async with interviewed(
        shown(lambda ctx: ctx.list_roots(timeout=seconds)), limits={"input_timeout": 20}
    ) as it:
        session = await it.session()
        call = session.request("tools/call", it.call, id=5)
        began = trio.current_time()
        question = await call.message()
        withdrawn = await call.message()
        assert (withdrawn["method"], withdrawn["params"]["requestId"]) == (CANCELLED, question["id"])
        assert trio.current_time() - began == pytest.approx(waited, abs=0.1)
        reply = await call.message()
        assert reply["id"] == 5
        assert f"within {waited} s" in reply["error"]["message"]
        assert isinstance(it.outcomes[0], InputTimeoutError)
        reached = {} if seconds == waited else {"input_timeout": 1}
        assert it.bus.statistics().limits_reached == reached
        # Too late: taken, and nothing happens.
        assert (await session.answer(question["id"], ROOTS).ended()).status == 202
        await it.assert_nothing_is_left()


async def test_a_handler_that_gives_up_withdraws_its_question_and_goes_on(autojump_clock):
    async def impatient(ctx):
        with trio.move_on_after(2):
            await ctx.list_roots()
        await ctx.info("going on")
        return (await ctx.elicit("?", str)).data

    async with interviewed(impatient) as it:
        session = await it.session()
        call = session.request("tools/call", it.call)
        methods = [(await call.message())["method"] for _ in range(3)]
        assert methods == ["roots/list", CANCELLED, "notifications/message"]
        question = await call.message()
        await session.answer(question["id"], accept("x")).ended()
        assert text((await call.reply())["result"]) == "x"
        await it.assert_nothing_is_left()


async def test_a_handler_that_ends_while_a_part_of_it_asks_withdraws_the_question_before_its_reply(
    autojump_clock,
):
    async def hasty(ctx):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ctx.list_roots)
            await trio.sleep(1)
            raise RuntimeError

    async with interviewed(hasty) as it:
        session = await it.session()
        call = session.request("tools/call", it.call, id=7)
        await call.reply()
        assert [m.get("method", m.get("id")) for m in call.messages] == ["roots/list", CANCELLED, 7]
        await it.assert_nothing_is_left()


async def test_a_part_of_a_handler_that_gives_up_leaves_the_questions_of_the_others(autojump_clock):
    async def divided(ctx):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(impatient, ctx)
            return (await ctx.elicit("?", str)).data

    async def impatient(ctx):
        with trio.move_on_after(2):
            await ctx.list_roots()

    async with interviewed(divided) as it:
        session = await it.session()
        call = session.request("tools/call", it.call)
        asked = {
            question["method"]: question["id"] for question in [await call.message(), await call.message()]
        }
        withdrawn = await call.message()
        assert (withdrawn["method"], withdrawn["params"]["requestId"]) == (CANCELLED, asked["roots/list"])
        await session.answer(asked["elicitation/create"], accept("x")).ended()
        assert text((await call.reply())["result"]) == "x"
        assert len(call.messages) == 4
        await it.assert_nothing_is_left()


async def test_of_two_answers_that_come_at_once_the_first_is_taken(autojump_clock):
    async with interviewed(shown(lambda ctx: ctx.elicit("?", str))) as it:
        session = await it.session()
        call = session.request("tools/call", it.call)
        question = await call.message()

        def answer_twice():
            for value in ("first", "second"):
                result = msgspec.Raw(msgspec.json.encode(accept(value)))
                dispatcher.deliver_input_response(
                    JsonRpcResponse(question["id"], result), it.bus.sessions[session.id]
                )

        # While they are told, nothing is handled.
        it.bus.system.dispatcher.busy = True
        answer_twice()
        it.bus.system.dispatcher.drain()
        assert text((await call.reply())["result"]) == "AcceptedElicitation(data='first')"
        await it.assert_nothing_is_left()


REFUSING = [
    # the response form, how it is served, and how many messages were refused
    ("json", {}, 2),
    ("auto", {"sessions": "stateless"}, 0),
    ("json", {"sessions": "stateless"}, 0),
]


@pytest.mark.parametrize(("response", "http", "refused"), REFUSING)
async def test_where_no_stream_can_carry_a_question_it_is_refused_at_once(
    response, http, refused, autojump_clock
):  # W-49
    async def several(ctx):
        await ctx.ask_all({"a": ListRoots(), "b": ListRoots()})

    async with interviewed(several, response=response, http=http) as it:
        began = trio.current_time()
        if http:
            headers = {"mcp-protocol-version": "2025-11-25"}
            message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": it.call}
            reply = await it.probe.post(message, headers).reply()
        else:
            session = await it.session()
            # A GET stream is no way out: nothing that a request asks may move there.
            get = await session.get().begun()
            reply = await session.request("tools/call", it.call).reply()
            assert get.messages == []
            get.disconnect()
        assert reply["error"]["code"] == -32603
        assert isinstance(it.outcomes[0], InputUnavailableError)
        assert trio.current_time() - began < 1
        # The first refusal is that of all that was asked together.
        await it.assert_nothing_is_left(refused=min(refused, 1))


@pytest.mark.parametrize(("room", "refused"), [(1, 1), (0, 2)])
async def test_a_full_outbox_refuses_a_question_and_withdraws_what_was_asked_with_it(
    room, refused, autojump_clock
):
    async def crowded(ctx):
        await ctx.info("begun")
        await trio.sleep(1)
        # The first is being written for as long as the client is stalled; the others wait.
        for n in range(4 - room):
            await ctx.notify("notifications/x", {"n": n})
            await trio.sleep(0.1)
        try:
            await ctx.ask_all({"a": ListRoots(), "b": ListRoots()})
        except InputUnavailableError as error:
            return str(error)

    async with interviewed(crowded, limits={"outbox_items": 3}) as it:
        session = await it.session()
        call = session.request("tools/call", it.call, id=4)
        await call.message()
        call.stall()
        await trio.sleep(5)
        assert it.bus.sessions[session.id].questions == {}
        call.resume()
        assert Reason.OVERFLOW.value in text((await call.reply())["result"])
        sent = [m.get("method", m.get("id")) for m in call.messages]
        # What went out although the other was refused is withdrawn, and nothing else: of that its client has never heard.
        assert (sent.count("roots/list"), sent.count(CANCELLED), sent[-1]) == (room, room, 4)
        await it.assert_nothing_is_left(refused=refused)


@pytest.mark.parametrize("asks", ["before", "after"])
async def test_a_question_whose_stream_is_lost_is_refused_and_the_handler_goes_on(asks, autojump_clock):
    async def stubborn(ctx):
        await ctx.info("begun")
        if asks == "after":
            await trio.sleep(5)
        began = trio.current_time()
        try:
            await ctx.list_roots()
        except InputUnavailableError as error:
            return str(error), trio.current_time() - began

    async with interviewed(stubborn) as it:
        session = await it.session()
        call = session.request("tools/call", it.call)
        await call.message()
        await it.quiet()
        call.disconnect()
        await trio.sleep(10)
        [(why, waited)] = it.outcomes
        assert why.startswith("The client cannot be asked")
        assert waited < 1
        await it.assert_nothing_is_left(refused=1 if asks == "after" else 0)


async def test_a_question_on_a_stream_that_can_be_resumed_waits_for_the_client(autojump_clock):
    async with interviewed(
        shown(lambda ctx: ctx.elicit("?", str)), event_store=MemoryEventStore(), limits={"input_timeout": 60}
    ) as it:
        session = await it.session()
        call = session.request("tools/call", it.call, id=3)
        question = await call.message()
        call.disconnect()
        await it.quiet()
        assert it.outcomes == []
        resumed = session.get(call.event_ids[0])
        assert await resumed.message() == question
        await session.answer(question["id"], accept("x")).ended()
        assert text((await resumed.reply())["result"]) == "AcceptedElicitation(data='x')"
        await it.assert_nothing_is_left()


async def test_a_question_that_is_asked_while_nobody_reads_is_stored_and_answered_after_the_resume(
    autojump_clock,
):
    async def polled(ctx):
        await ctx.close_stream(retry=1)
        await trio.sleep(1)
        return (await ctx.elicit("?", str)).data

    async with interviewed(polled, event_store=MemoryEventStore()) as it:
        session = await it.session()
        call = await session.request("tools/call", it.call).ended()
        await trio.sleep(2)
        assert it.bus.statistics().stored == 1
        resumed = session.get(call.event_ids[-1])
        question = await resumed.message()
        await session.answer(question["id"], accept("x")).ended()
        assert text((await resumed.reply())["result"]) == "x"
        await it.assert_nothing_is_left()


@pytest.mark.parametrize("revision", LEGACY)
@pytest.mark.parametrize("event_store", [None, MemoryEventStore])
async def test_a_request_that_is_cancelled_withdraws_what_it_asked_and_is_not_answered(
    event_store, revision, autojump_clock
):  # C-11
    async with interviewed(
        shown(lambda ctx: ctx.ask_all({"a": ListRoots(), "b": Sample("S")})),
        event_store=event_store and event_store(),
    ) as it:
        session = await it.session(revision)
        call = session.request("tools/call", it.call, id=6)
        asked = [await call.message() for _ in range(2)]
        await session.notify(CANCELLED, {"requestId": 6}).ended()
        await call.ended()
        withdrawn = call.messages[2:]
        assert [message["method"] for message in withdrawn] == [CANCELLED] * 2
        assert [message["params"]["requestId"] for message in withdrawn] == [q["id"] for q in asked]
        assert (await session.answer(asked[0]["id"], ROOTS).ended()).status == 202
        await it.quiet()
        # The handler is cancelled; it does not hear of the questions before.
        assert isinstance(it.outcomes[0], trio.Cancelled)
        await it.assert_nothing_is_left()


@pytest.mark.parametrize("stalled_by", ["what was said before", "the question"])
async def test_only_a_question_that_the_client_could_see_is_withdrawn(stalled_by, autojump_clock):
    async def say_and_ask(ctx):
        if stalled_by == "what was said before":
            await ctx.info("said")
            await trio.sleep(1)
        await ctx.list_roots()

    async with interviewed(say_and_ask) as it:
        session = await it.session()
        call = session.request("tools/call", it.call, id=6)
        call.stall()
        await trio.sleep(2)
        await session.notify(CANCELLED, {"requestId": 6}).ended()
        call.resume()
        await call.ended()
        seen = [message["method"] for message in call.messages]
        if stalled_by == "the question":
            assert seen == ["roots/list", CANCELLED]
        else:
            assert seen == ["notifications/message"]
        await it.assert_nothing_is_left(refused=int(stalled_by != "the question"))


async def test_a_client_that_comes_back_to_a_cancelled_request_reads_what_was_withdrawn(autojump_clock):
    async def polled(ctx):
        await ctx.close_stream()
        await trio.sleep(1)
        await ctx.list_roots()

    async with interviewed(polled, event_store=MemoryEventStore()) as it:
        session = await it.session()
        call = await session.request("tools/call", it.call, id=6).ended()
        await trio.sleep(2)
        await session.notify(CANCELLED, {"requestId": 6}).ended()
        await it.assert_nothing_is_left()
        resumed = await session.get(call.event_ids[-1]).ended()
        assert [message["method"] for message in resumed.messages] == ["roots/list", CANCELLED]


@pytest.mark.parametrize("end", ["delete", "close"])
async def test_a_session_that_ends_takes_its_questions_with_it(end, autojump_clock):
    async with interviewed(shown(lambda ctx: ctx.list_roots())) as it:
        session = await it.session()
        call = session.request("tools/call", it.call, id=6)
        await call.message()
        if end == "delete":
            await session.delete().ended()
        else:
            it.bus.sessions[session.id].close()
        await call.ended()
        sent = [m.get("method", m.get("id")) for m in call.messages]
        # An end that the server chooses withdraws what was asked, and answers.
        assert sent == ["roots/list"] if end == "delete" else ["roots/list", CANCELLED, 6]
        await it.quiet()
        assert len(it.outcomes) == 1
        await it.assert_nothing_is_left()


@pytest.mark.parametrize("revision", LEGACY)
async def test_a_client_in_process_is_asked_and_answers(revision, autojump_clock):
    async def answer(method, params):
        assert method == "roots/list"
        return ROOTS

    async with (
        interviewed(shown(lambda ctx: ctx.list_roots())) as it,
        it.bus.connect(revision=revision, capabilities=EVERYTHING, on_input_request=answer) as client,
    ):
        assert "file:///x" in text(await client.call_tool("ask"))


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_asking_nothing_is_answered_at_once(revision, autojump_clock):
    async def nothing(ctx):
        return await ctx.ask_all({})

    async with (
        interviewed(nothing) as it,
        it.bus.connect(revision=revision, capabilities=EVERYTHING) as client,
    ):
        with trio.fail_after(1):
            await client.call_tool("ask")
        assert it.outcomes == [{}]


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_a_context_that_outlived_its_request_cannot_ask(revision, autojump_clock):
    leaked = []

    async def leak(ctx):
        leaked.append(ctx)

    async with (
        interviewed(leak) as it,
        it.bus.connect(revision=revision, capabilities=EVERYTHING) as client,
    ):
        await client.call_tool("ask")
        with trio.fail_after(1), pytest.raises(InputUnavailableError):
            await leaked[0].list_roots()


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_a_context_that_waits_when_its_handler_ends_is_told(revision, autojump_clock):
    caught, asking = [], trio.Event()

    async def leak(ctx):
        nursery.start_soon(ask, ctx)
        await asking.wait()

    async def ask(ctx):
        try:
            asking.set()
            await ctx.list_roots()
        except InputUnavailableError as error:
            caught.append(error)

    async def never(method, params):
        await trio.sleep_forever()

    async with (
        interviewed(leak, limits={"input_timeout": 10_000}) as it,
        it.bus.connect(revision=revision, capabilities=EVERYTHING, on_input_request=never) as client,
        trio.open_nursery() as nursery,
    ):
        await it.quiet()
        actors = it.bus.statistics().actors
        with trio.move_on_after(5):
            await client.call_tool("ask")
        # At once; or when the round has lapsed, where there was time for one.
        await trio.sleep(1 if revision == "2025-11-25" else 700)
        assert len(caught) == 1
        await it.quiet()
        assert it.bus.statistics().actors == actors


async def test_what_cannot_be_sent_is_the_authors_error_and_nobody_elses(autojump_clock):
    async def wrong(ctx):
        try:
            await ctx.sample([object()])
        except TypeError:
            return (await ctx.elicit("?", str)).data

    async with interviewed(wrong) as it:
        session = await it.session()
        call = session.request("tools/call", it.call)
        question = await call.message()
        await session.answer(question["id"], accept("x")).ended()
        assert text((await call.reply())["result"]) == "x"
        assert isinstance(it.outcomes[0], str)
        await it.assert_nothing_is_left()
