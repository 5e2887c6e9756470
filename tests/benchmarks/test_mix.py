"""The mixture is the same for all servers, and what comes back of it is judged."""

import itertools
import re
import select
import socket
from collections import deque
from contextlib import ExitStack

import msgspec
import pytest

from benchmarks.answers import FIRST_NUMBER, Answer, WrongAnswer
from benchmarks.calls import MARK, Call
from benchmarks.dialect import MODERN, Client, Dialect, uuid
from benchmarks.load import Asking, Question
from benchmarks.mixture import BLOCKS, CLIENTS, TOOLS, mixture, tool_name
from benchmarks.peers.peer import HOST, Wire
from benchmarks.plan import Plan
from benchmarks.process import Target
from benchmarks.runner import Runner
from benchmarks.scenarios.mix import Mix
from benchmarks.servers import OURS
from benchmarks.traffic import InSessions, InTwo, Reconnecting

TARGET = Target("mcpbus", 80, 0, MODERN, "2025-11-25", Wire.HTTP1, fixed=False)
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


def request_of(call, number=NUMBER):
    return (b"%d" % number).join(call.question(TARGET).request)


def test_a_call_of_which_nothing_is_said_is_the_short_call():
    assert request_of(Call()) == Dialect(80, MODERN).echo(NUMBER)


def test_all_servers_get_the_same_calls():
    assert mixture() == CALLS
    assert mixture(seed=1) != CALLS


@pytest.mark.parametrize("number", range(BLOCKS))
def test_each_block_holds_the_same_shares(number):
    block = CALLS[number * BLOCK :][:BLOCK]
    kinds = sorted((call.tool, call.pool is None) for call in block)
    assert kinds == sorted(itertools.product(map(tool_name, range(TOOLS)), (False, True)))
    sizes = sorted(len(call.text.encode()) for call in block)
    assert 98 <= sizes[0] < 110
    assert 49_990 < sizes[-1] <= 50_000
    assert 1_900 < sizes[BLOCK // 2] < 2_600


def test_the_order_of_the_sizes_is_no_order():
    sizes = [len(call.text) for call in CALLS[:BLOCK]]
    assert sum(one < other for one, other in itertools.pairwise(sizes)) in range(30, 70)


def test_all_clients_take_part_in_both_eras():
    assert {(call.client.name, call.pool is None) for call in CALLS} == {
        (client.name, is_modern) for client in CLIENTS for is_modern in (True, False)
    }
    heads = {request_of(Call(client=client)) for client in CLIENTS}
    assert len(heads) == len(CLIENTS) == 10


def test_a_session_is_that_of_the_client_who_asks():
    assert all(CLIENTS[call.pool] is call.client for call in CALLS if call.pool is not None)


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


def test_a_call_in_a_session_says_in_which_and_in_which_revision():
    head, _, body = request_of(Call(pool=0)).partition(b"\r\n\r\n")
    assert b"\r\nMcp-Session-Id: <session>\r\nMCP-Protocol-Version: 2025-11-25" in head
    assert b"_meta" not in body
    assert b"\r\nmcp-session-id: <session>" in request_of(Call(pool=0, client=Client(lowercase=True)))


def test_a_chunked_body_is_the_same_in_two_chunks():
    head, _, body = request_of(Call(chunked=True)).partition(b"\r\n\r\n")
    assert b"Transfer-Encoding: chunked" in head
    assert b"Content-Length" not in head
    size, first, other_size, second, *end = body.split(b"\r\n")
    assert (int(size, 16), int(other_size, 16), end) == (len(first), len(second), [b"0", b"", b""])
    assert request_of(Call()).endswith(b"\r\n\r\n" + first + second)


def test_the_answer_must_be_that_of_the_call():
    token = uuid(NUMBER)
    said = f"hello, world {NUMBER}"
    TELLING.check(answer(progress(token), progress(token), reply(said)), NUMBER)
    Call(client=Client(uuids=True)).check(answer(reply(said, token)), NUMBER)


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
        TELLING.check(answer(*messages), NUMBER)


@pytest.fixture
def pairs():
    with ExitStack() as stack:
        pairs = [[stack.enter_context(end) for end in socket.socketpair()] for _ in range(4)]
        for end in itertools.chain.from_iterable(pairs):
            end.settimeout(60)  # what is missing fails, and does not hang
        yield pairs


def answer_with(its, request):
    its.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(request), request))


def test_connections_share_the_questions_and_what_is_known_of_their_answers(pairs):
    judged = []
    questions = itertools.cycle(
        Question(b"%s %d" % (name, FIRST_NUMBER), lambda *_, name=name: judged.append(name))
        for name in (b"a", b"b")
    )
    conversations = Asking.over([own for own, _ in pairs], questions)
    asked = []
    for conversation, (_, its) in [*zip(conversations, pairs, strict=True)] * 2:
        conversation.ask()
        asked.append(its.recv(100))
        answer_with(its, asked[-1])
        assert conversation.answered()
    assert [name for name, _ in map(bytes.split, asked)] == [b"a", b"b"] * 4
    assert judged == [b"a", b"b"]


def test_no_two_calls_are_made_at_once_in_one_session(pairs):
    question = Question(b"in <session> %d" % FIRST_NUMBER, lambda *_: None, 0)
    pool = deque(b"%d" % number for number in range(len(pairs)))
    conversations = [InSessions(own, itertools.repeat(question), [pool]) for own, _ in pairs]
    for conversation in conversations:
        conversation.ask()
    asked = [its.recv(100) for _, its in pairs]
    assert [request.split()[1] for request in asked] == [b"0", b"1", b"2", b"3"]
    for number in (2, 0):
        answer_with(pairs[number][1], asked[number])
        assert conversations[number].answered()
    conversations[0].ask()
    assert pairs[0][1].recv(100).split()[1] == b"2"  # by another connection than before


def test_a_body_follows_when_another_call_was_answered(pairs):
    conversations = InTwo.over(
        [own for own, _ in pairs], itertools.repeat(Question(b"head\r\n\r\nbody", lambda *_: None))
    )
    for conversation in conversations:
        conversation.ask()
    whole, half = b"head\r\n\r\nbody", b"head\r\n\r\n"
    servers = [its for _, its in pairs]
    assert [its.recv(100) for its in servers] == [whole, whole, half, half]
    for answered, next_one in ((0, 2), (1, 3)):  # nobody asks again, as at the end of a load
        answer_with(servers[answered], b"")
        assert conversations[answered].answered()
        assert servers[next_one].recv(100) == b"body"


def test_each_call_has_a_connection_and_the_load_waits_for_that():
    with (
        socket.create_server((HOST, 0)) as listener,
        socket.create_connection(listener.getsockname()) as first,
    ):
        conversation = Reconnecting(first, itertools.repeat(Question(b"call", lambda *_: None)))
        awaited = conversation.fileno()
        listener.accept()[0].close()
        for _ in range(2):
            conversation.ask()
            with listener.accept()[0] as its:
                assert its.recv(100) == b"call"
                answer_with(its, b"")
                assert select.select([awaited], [], [], 60)[0]
                assert conversation.answered()
                assert not select.select([awaited], [], [], 0)[0]
        assert conversation.fileno() == awaited
        conversation.sock.close()


def test_the_bus_answers_the_mixture():
    runs = Runner(Plan(quick=True), [peer for peer in OURS if peer.name == "mcpbus"], print)
    try:
        runs.run(Mix())
    finally:
        runs.close()
    assert runs.missing == []
    assert [row.server for row in runs.measured] == ["mcpbus"]
