"""The mixture is the same for all servers, and what comes back of it is judged."""

import itertools
import re
import socket

import msgspec
import pytest

from benchmarks.answers import FIRST_NUMBER, Answer, WrongAnswer
from benchmarks.calls import MARK, Call
from benchmarks.dialect import BENCH, MODERN, Client, Dialect, uuid
from benchmarks.load import Asking, Question
from benchmarks.mixture import BLOCKS, CLIENTS, SESSIONS, TOOLS, mixture, tool_name
from benchmarks.plan import Plan
from benchmarks.runner import Runner
from benchmarks.scenarios.mix import Mix
from benchmarks.servers import OURS

DIALECT = Dialect(80, MODERN)
SESSION = Dialect(80, "2025-11-25", b"one")
NUMBER = FIRST_NUMBER + 7
CALLS = mixture()
BLOCK = len(CALLS) // BLOCKS
TELLING = Call(meta={"progressToken": uuid(FIRST_NUMBER)}, notifications=2)


def answer(*messages):
    body = b"".join(b"data: %b\n\n" % msgspec.json.encode(message) for message in messages)
    taken = Answer()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n" % len(body)
    assert taken.feed(head + body)
    return taken


def progress(token):
    return {"method": "notifications/progress", "params": {"progressToken": token, "message": "clock=1"}}


def reply(text, request_id=NUMBER):
    return {"id": request_id, "result": {"content": [{"type": "text", "text": text}]}}


def request_of(call, number=NUMBER, dialect=DIALECT):
    return (b"%d" % number).join(call.question(dialect).request)


def test_a_call_of_which_nothing_is_said_is_the_short_call():
    assert request_of(Call()) == DIALECT.echo(NUMBER)


def test_all_servers_get_the_same_calls():
    assert mixture() == CALLS
    assert mixture(seed=1) != CALLS


@pytest.mark.parametrize("number", range(BLOCKS))
def test_each_block_holds_the_same_shares(number):
    block = CALLS[number * BLOCK :][:BLOCK]
    kinds = sorted((call.tool, call.session is None) for call in block)
    assert kinds == sorted(itertools.product(map(tool_name, range(TOOLS)), (False, True)))
    sizes = sorted(len(call.text.encode()) for call in block)
    assert 98 <= sizes[0] < 110
    assert 49_990 < sizes[-1] <= 50_000
    assert 1_900 < sizes[BLOCK // 2] < 2_600


def test_the_order_of_the_sizes_is_no_order():
    sizes = [len(call.text) for call in CALLS[:BLOCK]]
    assert sum(one < other for one, other in itertools.pairwise(sizes)) in range(30, 70)


def test_all_clients_and_sessions_take_part():
    assert {call.client.name for call in CALLS} == {client.name for client in CLIENTS}
    assert {call.session for call in CALLS} == {None, *range(SESSIONS)}
    heads = {request_of(Call(), dialect=Dialect(80, MODERN, client=client)) for client in CLIENTS}
    assert len(heads) == len(CLIENTS) == 10


def test_every_request_has_ids_that_no_other_has():
    for call in CALLS[:BLOCK]:
        one, other = (request_of(call, number) for number in (NUMBER, NUMBER + 1))
        assert len(one) == len(other)
        for pattern in (
            rb"(?i)x-request-id: (\S+)",
            rb"(?i)\ntraceparent: (\S+)",
            rb'Token":"([^"]+)',
            rb'"id":([^,]+)',
        ):
            assert re.search(pattern, one)[1] != re.search(pattern, other)[1], pattern
        assert MARK.encode() not in one


def test_trace_contexts_and_uuids_have_their_form():
    for call in CALLS[:BLOCK]:
        assert re.fullmatch("00-[0-9a-f]{32}-[0-9a-f]{16}-01", call.meta["traceparent"])
        assert re.fullmatch("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", call.meta["progressToken"])


def test_a_call_is_made_in_its_session_by_who_opened_it():
    head, _, body = request_of(Call(), dialect=SESSION).partition(b"\r\n\r\n")
    assert b"\r\nMcp-Session-Id: one\r\nMCP-Protocol-Version: 2025-11-25" in head
    assert b"_meta" not in body
    lowercase = Dialect(80, "2025-11-25", b"one", Client(lowercase=True))
    assert b"\r\nmcp-session-id: one" in request_of(Call(), dialect=lowercase)


def test_the_answer_must_be_that_of_the_call():
    token = uuid(NUMBER)
    said = f"hello, world {NUMBER}"
    TELLING.check(BENCH, answer(progress(token), progress(token), reply(said)), NUMBER)
    uuids = Client(uuids=True)
    TELLING.check(uuids, answer(progress(token), progress(token), reply(said, token)), NUMBER)


@pytest.mark.parametrize(
    "messages",
    [
        (progress(uuid(NUMBER)), reply(f"hello, world {NUMBER}")),
        (progress(uuid(NUMBER)), progress(uuid(NUMBER + 1)), reply(f"hello, world {NUMBER}")),
        (progress(uuid(NUMBER)), progress(uuid(NUMBER)), reply(f"hello, world {NUMBER + 1}")),
        (progress(uuid(NUMBER)), progress(uuid(NUMBER)), reply(f"hello, world {NUMBER}", NUMBER + 1)),
    ],
    ids=[
        "one notification",
        "the token of another call",
        "the text of another call",
        "the id of another call",
    ],
)
def test_another_answer_fails_the_measurement(messages):
    with pytest.raises(WrongAnswer):
        TELLING.check(BENCH, answer(*messages), NUMBER)


def test_connections_share_the_questions_and_what_is_known_of_their_answers():
    judged = []
    questions = [
        Question(b"%s %d" % (name, FIRST_NUMBER), lambda *_, name=name: judged.append(name))
        for name in (b"a", b"b")
    ]
    shared = itertools.cycle(questions)
    pairs = [socket.socketpair() for _ in range(3)]
    conversations = [Asking(own, shared) for own, _ in pairs]
    asked = []
    for conversation, (_, its) in itertools.islice(
        itertools.cycle(zip(conversations, pairs, strict=True)), 6
    ):
        conversation.ask()
        asked.append(its.recv(100))
        its.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n" + asked[-1])
        assert conversation.answered()
    for own, its in pairs:
        own.close()
        its.close()
    assert [name for name, _ in map(bytes.split, asked)] == [b"a", b"b"] * 3
    assert judged == [b"a", b"b"]


def test_the_bus_answers_the_mixture():
    runs = Runner(Plan(quick=True), [peer for peer in OURS if peer.name == "mcpbus"], print)
    try:
        runs.run(Mix())
    finally:
        runs.close()
    assert runs.missing == []
    assert [row.server for row in runs.measured] == ["mcpbus"]
