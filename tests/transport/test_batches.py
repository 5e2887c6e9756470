"""Batches, which revision 2025-03-26 has: over HTTP one answer for all, on shared channels one message each."""

import json

import pytest
import trio
import trio.lowlevel
from channels import call, house, initialize, notification, request, sse, ws

from mcpbus import DELIVERED, Context
from mcpbus.protocol.jsonrpc import MAX_BATCH
from mcpbus.protocol.routes import Reason
from mcpbus.transports.lines import run_channel
from tests.at_home import ONE_BUDGET

B = "2025-03-26"
OTHERS = ["2024-11-05", "2025-06-18", "2025-11-25"]


def post(home, session, messages, **headers):
    """POST an array in a session."""
    fields = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    if session is not None:
        fields["mcp-session-id"] = session.id
    return home.probe.send("POST", json.dumps(messages).encode(), {**fields, **headers})


def by_id(recording):
    replies = [m for m in recording.messages if "method" not in m]
    return {m.get("id"): "result" if "result" in m else m["error"]["code"] for m in replies}


def methods(messages):
    return [m.get("method", m.get("id")) for m in messages]


# -- over HTTP -----------------------------------------------------------------------------------


async def test_quiet_requests_are_answered_in_one_json_array(autojump_clock):  # J-22, W-8
    async with house() as home:
        session = await home.probe.initialize(B)
        batch = [
            request(1, "ping"),
            call(2, "nap", {"seconds": 3}),
            notification("notifications/progress"),
            call(3, "nap", {"seconds": 1}),
            request("x", "tools/list"),
            request(4, "no/such"),
        ]
        answer = await post(home, session, batch).ended()
        assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
        assert isinstance(json.loads(answer.body), list)
        assert by_id(answer) == {1: "result", 2: "result", 3: "result", "x": "result", 4: -32601}
        await home.quiet()  # whoever answers hears a turn later that it is written
        assert home.bus.statistics().pending == {}
        assert home.bus.ledger.balance() == 0


@pytest.mark.parametrize("seconds", [0, 0.1])
async def test_a_batch_of_one_is_answered_with_an_array_of_one(seconds, autojump_clock):
    async with house() as home:
        session = await home.probe.initialize(B)
        answer = await post(home, session, [call(1, "nap", {"seconds": seconds})]).ended()
        assert [m["id"] for m in json.loads(answer.body)] == [1]


async def test_one_that_speaks_makes_it_a_stream_that_ends_with_the_last_reply(autojump_clock):  # J-28, W-10
    async with house() as home:
        session = await home.probe.initialize(B)
        batch = [
            call(1, "nap", {"seconds": 2}),
            call(2, "count", {"steps": 1}, token="t"),
            request(3, "ping"),
        ]
        answer = post(home, session, batch)
        await trio.sleep(1)
        assert answer.is_stream
        assert methods(answer.messages) == [3, "notifications/progress", "notifications/message", 2]
        assert not answer.over
        await answer.ended()
        assert (methods(answer.messages)[-1], answer.complete) == (1, True)
        assert answer.body.count(b"data: [") == 0
        await trio.lowlevel.checkpoint()
        await home.quiet()
        assert home.bus.statistics().actors == 1


async def test_held_back_replies_leave_with_the_first_thing_that_is_said(autojump_clock):
    async with house() as home:
        session = await home.probe.initialize(B)

        @home.bus.server.tool
        async def speak_late(ctx: Context) -> None:
            await trio.sleep(2)
            await ctx.info("late")
            await trio.sleep(2)

        answer = post(home, session, [request(1, "ping"), call(2, "speak_late")])
        await trio.sleep(1)
        assert answer.status is None
        await trio.sleep(2)
        assert methods(answer.messages) == [1, "notifications/message"]
        await answer.ended()
        assert methods(answer.messages) == [1, "notifications/message", 2]


async def test_a_keep_alive_makes_it_a_stream(autojump_clock):
    async with house(limits={"keep_alive": 15}) as home:
        session = await home.probe.initialize(B)
        batch = [call(1, "nap", {"seconds": 10}), call(2, "nap", {"seconds": 40}), request(3, "ping")]
        answer = post(home, session, batch)
        await trio.sleep(20)
        assert answer.status is None
        await trio.sleep(6)
        assert (answer.is_stream, methods(answer.messages)) == (True, [3, 1])
        await answer.ended()
        assert methods(answer.messages) == [3, 1, 2]
        assert home.bus.ledger.balance() == 0


@pytest.mark.parametrize("response", ["json", "sse"])
async def test_the_form_of_answers_can_be_fixed(response, autojump_clock):
    async with house(http={"response": response}, limits={"keep_alive": 2}) as home:
        session = await home.probe.initialize(B)
        batch = [call(1, "count", token="t"), call(2, "nap", {"seconds": 9}), request(3, "ping")]
        answer = await post(home, session, batch).ended()
        assert answer.is_stream == (response == "sse")
        assert by_id(answer) == {1: "result", 2: "result", 3: "result"}
        discarded = home.bus.statistics().discarded
        assert discarded == ({Reason.NO_STREAM: 4} if response == "json" else {})


@pytest.mark.parametrize(("accept", "streams"), [("application/json", False), ("text/event-stream", True)])
async def test_a_client_gets_the_form_that_it_accepts(accept, streams, autojump_clock):
    async with house() as home:
        session = await home.probe.initialize(B)
        answer = await post(home, session, [request(1, "ping"), call(2, "count")], accept=accept).ended()
        assert (answer.is_stream, by_id(answer)) == (streams, {1: "result", 2: "result"})


@pytest.mark.parametrize("speaks", [False, True])
async def test_a_cancelled_request_is_left_out_and_the_others_go_on(speaks, autojump_clock):  # C-10
    outcomes = []
    async with house(outcomes=outcomes) as home:
        session = await home.probe.initialize(B)
        batch = [call(1, "hang"), call(2, "nap", {"seconds": 5}), *([call(3, "count")] if speaks else [])]
        answer = post(home, session, batch)
        await trio.sleep(1)
        await session.notify("notifications/cancelled", {"requestId": 1}).ended()
        await trio.sleep(1)
        assert (outcomes, answer.over) == ([" ended"], False)
        await answer.ended()
        assert answer.is_stream == speaks
        assert by_id(answer) == {2: "result", **({3: "result"} if speaks else {})}


async def test_a_cancel_takes_back_nothing_of_what_the_others_said(autojump_clock):
    async with house() as home:
        session = await home.probe.initialize(B)
        naps = [call(n, "nap", {"seconds": n}) for n in (2, 4)]
        answer = post(home, session, [call(1, "hang"), *naps, call(3, "count")])
        await answer.message()
        answer.stall()  # the first nap's reply is being written, the second one's waits
        await trio.sleep(5)
        await session.notify("notifications/cancelled", {"requestId": 1}).ended()
        answer.resume()
        assert by_id(await answer.ended()) == {2: "result", 3: "result", 4: "result"}


@pytest.mark.parametrize("last", [1, 2])
async def test_a_cancel_of_the_last_one_ends_the_answer(last, autojump_clock):
    async with house() as home:
        session = await home.probe.initialize(B)
        start = trio.current_time()
        answer = post(home, session, [call(1, "hang"), call(2, "hang"), request(3, "ping")])
        await trio.sleep(1)
        for request_id in (3 - last, last):
            assert not answer.over
            await session.notify("notifications/cancelled", {"requestId": request_id}).ended()
        await home.quiet()
        await answer.ended()
        assert trio.current_time() < start + 2
        assert (answer.headers["content-type"], by_id(answer)) == ("application/json", {3: "result"})
        await home.quiet()
        assert home.bus.ledger.balance() == 0


async def test_when_all_are_cancelled_the_answer_is_empty(autojump_clock):
    async with house() as home:
        session = await home.probe.initialize(B)
        answer = post(home, session, [call(1, "hang"), call(2, "hang")])
        await home.quiet()
        for request_id in (1, 2):
            await session.notify("notifications/cancelled", {"requestId": request_id}).ended()
        await answer.ended()
        assert (answer.status, answer.is_stream, answer.messages) == (200, True, [])


async def test_a_session_that_is_deleted_ends_its_batch_without_a_word(autojump_clock):
    outcomes = []
    async with house(outcomes=outcomes) as home:
        session = await home.probe.initialize(B)
        answer = post(home, session, [call(1, "hang", {"key": "a"}), call(2, "hang", {"key": "b"})])
        await home.quiet()
        await session.delete().ended()
        assert ((await answer.ended()).status, answer.body) == (200, b"")
        await home.quiet()
        assert sorted(outcomes) == ["a ended", "b ended"]


async def test_a_batch_whose_only_request_it_cancels_is_answered_at_once(autojump_clock):
    async with house() as home:
        session = await home.probe.initialize(B)
        begun = trio.current_time()
        cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
        answer = await post(home, session, [call(1, "hang", {"key": "a"}), cancelled]).ended()
        assert (answer.status, answer.body) == (200, b"")
        assert trio.current_time() == begun


async def test_a_lost_connection_cancels_nothing_and_replies_are_discarded(autojump_clock):
    async with house() as home:
        session = await home.probe.initialize(B)
        answer = post(home, session, [call(1, "nap", {"seconds": 5}), request(2, "ping")])
        await trio.sleep(1)
        answer.disconnect()
        await trio.lowlevel.checkpoint()
        await home.quiet()
        assert home.bus.statistics().requests == 1
        await trio.sleep(10)
        assert home.bus.statistics().requests == 0
        assert home.bus.statistics().discarded == {Reason.LOST: 1, Reason.NO_STREAM: 1}


async def test_a_question_and_its_answer_may_come_in_batches(autojump_clock):
    async with house() as home:
        params = {
            "protocolVersion": B,
            "capabilities": {"roots": {}},
            "clientInfo": {"name": "t", "version": "1"},
        }
        opened = await home.probe.post(request(0, "initialize", params)).ended()

        class session:  # noqa: N801 - what `post` wants of one
            id = opened.headers["mcp-session-id"]

        assert (await post(home, session, [notification("notifications/initialized")]).ended()).status == 202
        answer = post(home, session, [call(1, "ask"), call(2, "ask")])
        questions = [await answer.message(), await answer.message()]
        assert {q["method"] for q in questions} == {"roots/list"}
        replies = [{"jsonrpc": "2.0", "id": q["id"], "result": {"roots": []}} for q in questions]
        accepted = await post(home, session, replies).ended()
        assert (accepted.status, accepted.body) == (202, b"")
        assert by_id(await answer.ended()) == {1: "result", 2: "result"}


async def test_what_is_no_message_is_answered_in_its_place(autojump_clock):
    async with house() as home:
        session = await home.probe.initialize(B)
        batch = [1, [], {"jsonrpc": "2.0", "id": 7}, request(1, "ping"), request(2, "ping", modern=True)]
        answer = await post(home, session, batch).ended()
        assert answer.status == 200
        replies = [(m.get("id"), m.get("error", {}).get("code")) for m in answer.messages]
        assert sorted(replies, key=str) == sorted(
            [(None, -32600), (None, -32600), (7, -32600), (1, None), (2, -32600)], key=str
        )


async def test_what_has_half_of_a_character_in_it_spoils_nothing_else(autojump_clock):
    async with house() as home:
        session = await home.probe.initialize(B)
        answer = await post(
            home, session, [request(1, "ping"), call(2, "\ud83d"), request(3, "ping")]
        ).ended()
        assert (answer.status, by_id(answer)) == (200, {1: "result", 2: -32700, 3: "result"})


async def test_a_batch_without_a_message_is_refused_with_an_error_for_each(autojump_clock):
    async with house() as home:
        session = await home.probe.initialize(B)
        before = home.bus.statistics().actors
        answer = await post(home, session, [1, "a", notification("notifications/progress")]).ended()
        assert (answer.status, by_id(answer), len(answer.messages)) == (400, {None: -32600}, 2)
        assert home.bus.statistics().actors == before


async def test_requests_that_are_refused_at_admission_are_answered_among_the_others(autojump_clock):
    async with house(limits={"max_requests_per_session": 2}) as home:
        session = await home.probe.initialize(B)
        naps = [call(n, "nap", {"seconds": 1}) for n in (1, 2, 3)]
        assert by_id(await post(home, session, naps).ended()) == {1: "result", 2: "result", 3: -32603}
        twins = [call(1, "nap", {"seconds": 1}), call(1, "nap", {"seconds": 1})]
        answer = await post(home, session, twins).ended()
        assert sorted(m["id"] for m in answer.messages) == [1, 1]
        assert {m["error"]["code"] for m in answer.messages if "error" in m} == {-32600}


async def test_a_drain_answers_all_of_a_batch(autojump_clock):
    async with house() as home:
        session = await home.probe.initialize(B)
        answer = post(home, session, [call(1, "nap", {"seconds": 3}), call(2, "hang"), request(3, "ping")])
        await home.quiet()
        await home.bus.drain(5)
        assert by_id(await answer.ended()) == {1: "result", 2: -32603, 3: "result"}


@pytest.mark.parametrize(
    ("batch", "code"),
    [
        ([], -32600),
        ([initialize(B)], -32600),
        ([request(1, "ping"), initialize(B)], -32600),
        ([request(n, "ping") for n in range(MAX_BATCH + 1)], -32600),
    ],
    ids=["empty", "initialize", "initialize beside others", "too long"],
)
@pytest.mark.parametrize("opened", [True, False])
async def test_a_batch_that_cannot_be_is_refused_as_a_whole(
    batch, code, opened, autojump_clock
):  # J-24, J-26, W-45
    async with house() as home:
        session = await home.probe.initialize(B) if opened else None
        before = home.bus.statistics()
        answer = await post(home, session, batch).ended()
        body = json.loads(answer.body)
        assert (answer.status, body["error"]["code"], "id" in body) == (400, code, False)
        after = home.bus.statistics()
        assert (after.actors, after.emitted) == (before.actors, before.emitted)


async def test_the_longest_batch_is_served(autojump_clock):
    async with house() as home:
        session = await home.probe.initialize(B)
        answer = await post(home, session, [request(n, "ping") for n in range(MAX_BATCH)]).ended()
        assert len(answer.messages) == MAX_BATCH


def large(number, size):
    """A batch of calls whose answers are as long as one says."""
    return [call(n, "swell", {"size": size}) for n in range(number)]


async def test_requests_are_served_some_at_a_time_and_all_are_answered(autojump_clock):
    async with house() as home:
        session = await home.probe.initialize(B)
        most = 0

        async def watch():
            nonlocal most
            while True:
                most = max(most, home.bus.statistics().requests)
                await trio.sleep(0.1)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            batch = [call(n, "nap", {"seconds": 1}) for n in range(100)]
            answer = await post(home, session, batch).ended()
            nursery.cancel_scope.cancel()
        assert by_id(answer) == dict.fromkeys(range(100), "result")
        assert most == 16
        assert answer.headers["content-type"] == "application/json"


async def test_what_is_no_request_does_not_wait_for_those_that_are(autojump_clock):
    async with house() as home:
        session = await home.probe.initialize(B)
        hangs = [call(n, "hang") for n in range(20)]
        cancels = [notification("notifications/cancelled", {"requestId": n}) for n in range(20)]
        answer = post(home, session, [*hangs, *cancels])
        await trio.sleep(1)
        # Those that had not begun could not be cancelled, and have begun in the place of the others.
        assert home.bus.statistics().requests == 4
        await post(home, session, cancels).ended()
        await answer.ended()
        assert by_id(answer) == {}


@ONE_BUDGET
@pytest.mark.parametrize("accept", ["application/json, text/event-stream", "application/json"])
async def test_replies_that_are_long_together_are_not_held_back_for_the_array(accept, autojump_clock):
    async with house(limits={"outbox_bytes": 10_000}) as home:
        session = await home.probe.initialize(B)
        answer = post(home, session, large(50, 1_000), accept=accept)
        answer.stall()
        await trio.sleep(1)
        # What the client does not take, and what is served at once: no more is made before that.
        assert home.bus.budget.held < 2 * 10_000 + 20 * 1_500
        answer.resume()
        await answer.ended()
        assert by_id(answer) == dict.fromkeys(range(50), "result")
        assert answer.is_stream == ("event-stream" in accept)
        if not answer.is_stream:
            assert answer.headers["content-type"] == "application/json"
            assert len(json.loads(answer.body)) == 50
        assert home.bus.ledger.balance() == 0


async def test_an_array_in_pieces_is_whole_also_when_its_last_requests_are_cancelled(autojump_clock):
    async with house(limits={"outbox_bytes": 5_000}) as home:
        session = await home.probe.initialize(B)
        answer = post(home, session, [*large(10, 1_000), call("h", "hang")], accept="application/json")
        await trio.sleep(1)
        await session.notify("notifications/cancelled", {"requestId": "h"}).ended()
        await answer.ended()
        assert sorted(message["id"] for message in json.loads(answer.body)) == list(range(10))


async def test_a_deleted_session_ends_the_answer_for_those_that_had_not_begun(autojump_clock):
    async with house() as home:
        session = await home.probe.initialize(B)
        answer = post(home, session, [call(n, "hang") for n in range(40)])
        await trio.sleep(1)
        await session.delete().ended()
        await answer.ended()
        assert answer.complete
        await trio.sleep(1)
        now = home.bus.statistics()
        assert (now.requests, now.sessions, now.actors) == (0, 0, 0)


async def test_requests_that_had_not_begun_when_their_client_left_run_like_the_others(autojump_clock):
    async with house() as home:
        session = await home.probe.initialize(B)
        answer = post(home, session, [call(n, "nap", {"seconds": 5}) for n in range(40)])
        await trio.sleep(1)
        answer.disconnect()
        await trio.sleep(1)
        assert home.bus.statistics().requests == 40
        await trio.sleep(5)
        now = home.bus.statistics()
        assert (now.requests, now.actors) == (0, now.sessions)


@pytest.mark.parametrize("revision", OTHERS)
async def test_other_revisions_have_none(revision, autojump_clock):
    async with house() as home:
        session = await home.probe.initialize(revision)
        answer = await post(home, session, [request(1, "ping")]).ended()
        assert (answer.status, json.loads(answer.body)["error"]["code"]) == (400, -32600)


async def test_a_modern_client_has_none(autojump_clock):
    async with house() as home:
        headers = {"mcp-protocol-version": "2026-07-28"}
        answer = await post(home, None, [request(1, "ping", modern=True)], **headers).ended()
        assert (answer.status, json.loads(answer.body)["error"]["code"]) == (400, -32600)


@pytest.mark.parametrize(("session_id", "status"), [(None, 400), ("nobody", 404)])
async def test_a_batch_needs_a_session(session_id, status, autojump_clock):
    async with house() as home:
        headers = {} if session_id is None else {"mcp-session-id": session_id}
        assert (await post(home, None, [request(1, "ping")], **headers).ended()).status == status


@pytest.mark.parametrize(("version", "served"), [(None, True), (B, True), ("2025-06-18", False)])
async def test_stateless_serving_takes_the_word_of_the_header_for_it(version, served, autojump_clock):
    async with house(http={"sessions": "stateless"}) as home:
        headers = {} if version is None else {"mcp-protocol-version": version}
        response = {"jsonrpc": "2.0", "id": 9, "result": {}}
        answer = await post(home, None, [call(1, "count"), request(2, "ping"), response], **headers).ended()
        assert by_id(answer) == ({1: "result", 2: "result"} if served else {None: -32600})


# -- on shared channels --------------------------------------------------------------------------

BATCH = [
    request(1, "ping"),
    call(2, "nap", {"seconds": 1}),
    notification("notifications/progress"),
    call(3, "count", {"steps": 1}, token="t"),
    {"jsonrpc": "2.0", "id": 4},
    request(5, "ping", modern=True),
    initialize(B, id=6),
]
ANSWERED = {1: None, 2: None, 3: None, 4: -32600, 5: -32600, 6: -32600}


def errors_by_id(messages):
    return {m["id"]: m.get("error", {}).get("code") for m in messages if "method" not in m}


async def test_on_a_websocket_each_reply_is_a_message_of_its_own(autojump_clock):
    async with house() as home, ws(home.app, B) as client:
        client.say(BATCH)
        await trio.sleep(2)
        assert errors_by_id(client.messages[1:]) == ANSWERED
        assert methods(client.messages)[-1] == 2
        client.say([notification("notifications/progress")])
        client.tell(text="[]")
        client.tell(text="[1]")
        await home.quiet()
        assert [m["error"]["code"] for m in client.messages if "id" not in m and "error" in m] == [-32600] * 2
        assert (await home.bus.tools_changed().settled(1)) == {DELIVERED: 1}


async def test_on_stdio_each_reply_is_a_line_of_its_own(autojump_clock):  # T-1, J-28
    lines = []

    async def write(data):
        lines.extend(data.splitlines())

    async with house() as home, trio.open_nursery() as nursery:
        sender, receiver = trio.open_memory_channel(10)
        nursery.start_soon(run_channel, home.bus, receiver, write)
        for message in (initialize(B), notification("notifications/initialized"), BATCH):
            await sender.send(json.dumps(message).encode() + b"\n")
        await trio.sleep(2)
        assert errors_by_id(json.loads(line) for line in lines[1:]) == ANSWERED
        sender.close()


async def test_over_http_sse_replies_are_events_and_errors_without_an_id_are_in_the_post(autojump_clock):
    async with house() as home, sse(home.probe, B) as client:
        await client.say(BATCH)
        await trio.sleep(2)
        assert errors_by_id(client.stream.messages[1:]) == ANSWERED
        refused = await client.post([1, 2, request(8, "ping")]).ended()
        assert refused.status == 400
        assert [error["error"]["code"] for error in json.loads(refused.body)] == [-32600, -32600]
        await home.quiet()
        assert client.stream.messages[-1]["id"] == 8


@pytest.mark.parametrize("revision", [None, *OTHERS])
async def test_on_a_channel_of_another_revision_there_are_none(revision, autojump_clock):
    async with house() as home, ws(home.app, revision) as client:
        answer = await client.ask([request(1, "ping")])
        if revision is not None:
            answer = client.messages[-1]
        assert (answer["error"]["code"], "id" in answer) == (-32600, False)
