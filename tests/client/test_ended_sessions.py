"""What a client over HTTP does once its server has ended the session: a new one is opened, and what was refused is repeated there (rule W-34)."""

import json
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio
from test_bad_servers import HELLO, TAKEN, answer, events, outcome, result, speaking
from trio.testing import wait_all_tasks_blocked
from wire_server import make_server

from mcpbus.client import http_connection, http_responses
from mcpbus.client.errors import DisconnectedError, SessionLostError, StatusError
from mcpbus.client.http import connect_http
from mcpbus.protocol.errors import ProtocolError

OLD = "2025-11-25"


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch):
    monkeypatch.setattr(http_connection, "_LEFT_SECONDS", 0.05)


GONE = answer(
    b'{"jsonrpc": "2.0", "id": null, "error": {"code": -32001, "message": "Session not found"}}',
    status="404 Not Found",
)
AGAIN = HELLO.replace(b"s1", b"s2")
TOOLS = result({"tools": [{"name": "late"}]})


def heard(sent):
    """What a server was sent: the method, or the verb, and the session."""
    lines = []
    for request in sent:
        head, _, body = request.partition("\r\n\r\n")
        fields = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:])
        method = json.loads(body).get("method", "answer") if body else head.split()[0]
        lines.append((method.rpartition("/")[2], fields.get("mcp-session-id")))
    return lines


class Noted:
    """An answer, and whether somebody has come for it."""

    def __init__(self, said):
        self.said = said
        self.asked = trio.Event()

    async def __call__(self, stream):
        self.asked.set()
        await stream.send_all(self.said)


@asynccontextmanager
async def connected(*answers, **options):
    """A client of a server that says these after the handshake, and what that was sent after it."""
    begun = Noted(TAKEN)
    with trio.fail_after(60):
        async with (
            speaking(HELLO, begun, *answers) as (url, sent),
            connect_http(url, revision=OLD, **options) as client,
        ):
            await begun.asked.wait()
            del sent[:]
            yield client, sent


async def never(stream):
    await trio.sleep_forever()


async def test_a_request_that_an_ended_session_refused_is_repeated_in_a_new_one():  # W-31, W-34
    async with connected(GONE, AGAIN, TAKEN, TOOLS, TOOLS) as (client, sent):
        assert await client.list_tools() == [{"name": "late"}]
        await client.list_tools()
    assert heard(sent) == [
        ("list", "s1"),
        ("initialize", None),
        ("initialized", "s2"),
        ("list", "s2"),
        ("list", "s2"),
        ("DELETE", "s2"),
    ]


def not_found(code=-32601, number=2, message="not here", **fields):
    said = {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": message}}
    return answer(json.dumps(said).encode(), status="404 Not Found", **fields)


@pytest.mark.parametrize(
    ("code", "method"), [(-32601, "tools/list"), (-32002, "resources/read"), (-32002, "resources/subscribe")]
)
async def test_that_a_method_or_a_resource_was_not_found_is_an_answer_whatever_its_status(code, method):
    async with connected(not_found(code), TOOLS) as (client, sent):
        with pytest.raises(ProtocolError, match="not here") as caught:
            await client.request(method, {"uri": "x://y"})
        assert caught.value.code == code
        assert await client.list_tools() == [{"name": "late"}]
    assert heard(sent) == [(method.partition("/")[2], "s1"), ("list", "s1"), ("DELETE", "s1")]


@pytest.mark.parametrize(
    "said",
    [
        not_found(-32000),  # as this server says it
        not_found(-32001),
        not_found(-32002),  # of a list there is no resource that could be missing
        not_found(-32600),
        not_found(number=None),
        not_found(number=99),
        answer(b'{"jsonrpc": "2.0", "id": 2, "result": {}}', status="404 Not Found"),
        answer(b'{"jsonrpc": "2.0", "id": 2, "error": ', status="404 Not Found"),
        answer(b"{", status="404 Not Found", content_length=10),
        answer(b"[" * 100_000, status="404 Not Found"),
        answer(b"x", status="404 Not Found", content_encoding="gzip"),
        answer(b"Not Found", "text/plain", "404 Not Found"),
        answer(status="404 Not Found"),
    ],
)
async def test_any_other_404_is_the_end_of_the_session(said):
    async with connected(said, AGAIN, TAKEN, TOOLS) as (client, sent):
        assert await client.list_tools() == [{"name": "late"}]
    assert heard(sent)[1:3] == [("initialize", None), ("initialized", "s2")]


async def test_a_404_that_is_too_long_is_the_end_of_the_session(monkeypatch):
    monkeypatch.setattr(http_responses, "MOST_MESSAGE_BYTES", 1000)
    async with connected(not_found(message="x" * 1000), AGAIN, TAKEN, TOOLS) as (client, _):
        assert await client.list_tools() == [{"name": "late"}]


async def test_a_404_whose_body_does_not_come_is_the_end_of_the_session(monkeypatch):
    monkeypatch.setattr(http_responses, "_ERROR_SECONDS", 0.01)

    async def stalled(stream):
        await stream.send_all(not_found(content_length=1000))
        await trio.sleep_forever()

    async with connected(stalled, AGAIN, TAKEN, TOOLS) as (client, _):
        assert await client.list_tools() == [{"name": "late"}]


@pytest.mark.parametrize("revision", ["2025-03-26", "2025-06-18", "2025-11-25"])
async def test_a_session_that_the_server_has_ended_is_followed_by_another(revision):
    with trio.fail_after(60):
        async with make_server().open() as bus, trio.open_nursery() as nursery:
            serve = partial(bus.serve, bind="127.0.0.1:0")
            [url] = await nursery.start(lambda task_status: serve(task_status=task_status))
            async with connect_http(url, revision=revision) as client:
                [first] = bus.sessions
                bus.sessions[first].close()
                told = []
                async with trio.open_nursery() as calls:
                    for _ in range(5):
                        calls.start_soon(
                            partial(
                                client.call_tool,
                                "forecast",
                                {"city": "oslo", "days": 1},
                                on_notification=lambda *message: told.append(message),
                            )
                        )
                [second] = bus.sessions
                assert second != first
                assert [method for method, _ in told].count("notifications/progress") == 5
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("refusals", [2, 10])
async def test_a_request_is_repeated_until_a_session_takes_it(refusals):
    """As where two replicas answer in random order."""
    async with connected(*[GONE, AGAIN, TAKEN] * refusals, TOOLS) as (client, sent):
        assert await client.list_tools() == [{"name": "late"}]
    assert [method for method, _ in heard(sent)].count("initialize") == refusals


async def test_a_request_that_each_session_refuses_fails_and_the_error_names_the_cause():
    async with connected(*[GONE, AGAIN, TAKEN] * 11) as (client, sent):
        with pytest.raises(SessionLostError, match=r"in 11 sessions .* several replicas"):
            await client.list_tools()
    assert [method for method, _ in heard(sent)].count("list") == 11


def refusal(status, text=None, *, number=None, code=-32000):
    said = {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": text}}
    return answer(json.dumps(said).encode(), status=status)


BAD = "400 Bad Request"


@pytest.mark.parametrize(
    "said",
    [
        refusal(BAD, "Bad Request: No valid session ID provided"),
        refusal(BAD, "Bad Request: Server not initialized"),
        refusal(BAD, "Bad Request: Missing session ID", number="server-error", code=-32600),
        refusal(BAD, "Session has been terminated"),
        refusal(BAD, "Session a1b2 is no longer valid: not found on this server"),
        refusal("409 Conflict", "Unknown session"),
        answer(b"Invalid session ID", "text/plain", BAD),
        answer(b"Invalid or missing session ID", "text/plain", BAD),
        answer(b"Unauthorized: Session not found", "text/plain", "401 Unauthorized"),
        answer(b"Unexpected message, expect initialize request", "text/plain", "422 Unprocessable Entity"),
        answer(status="410 Gone"),
    ],
)
async def test_a_session_that_another_status_ends_is_followed_by_a_new_one_too(said):
    async with connected(said, AGAIN, TAKEN, TOOLS) as (client, sent):
        assert (await client.call_tool("t"))["tools"] == [{"name": "late"}]
    assert heard(sent)[:4] == [("call", "s1"), ("initialize", None), ("initialized", "s2"), ("call", "s2")]


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (refusal(BAD, "the city is missing", code=-32602, number=2), ProtocolError),
        (refusal(BAD, "the city is missing"), ProtocolError),
        (refusal("403 Forbidden", "no"), StatusError),
        (answer(b"invalid arguments", "text/plain", BAD), StatusError),
        (answer(b"Unauthorized", "text/plain", "401 Unauthorized"), StatusError),
    ],
)
async def test_an_error_that_does_not_name_the_session_is_of_its_request(said, kind):
    async with connected(said, TOOLS) as (client, sent):
        with pytest.raises(kind):
            await client.call_tool("t")
        await client.list_tools()
    assert [method for method, _ in heard(sent)] == ["call", "list", "DELETE"]


async def test_a_call_that_may_have_run_is_not_repeated_though_its_error_is_that_of_a_lost_session():
    """A browser's session, say: a ping tells that the protocol's is still there."""
    own = refusal(BAD, "Session not found", number=2)
    pong = result({}, 3)
    async with connected(own, pong, TOOLS) as (client, sent):
        with pytest.raises(ProtocolError, match="Session not found"):
            await client.call_tool("t")
        await client.list_tools()
    assert [method for method, _ in heard(sent)] == ["call", "ping", "list", "DELETE"]


async def test_a_server_that_repeats_the_id_of_what_it_refuses_is_asked_whether_it_means_the_session():
    own = refusal(BAD, "Session not found", number=2)
    async with connected(own, GONE, AGAIN, TAKEN, result({}, 3), TOOLS) as (client, sent):
        assert (await client.call_tool("t"))["tools"] == [{"name": "late"}]
    assert [method for method, _ in heard(sent)][:5] == ["call", "ping", "initialize", "initialized", "ping"]


async def test_a_call_that_failed_with_its_server_is_not_repeated_and_the_session_is_opened_anew():
    broken = refusal("500 Internal Server Error", "session not found in store")
    async with connected(broken, GONE, AGAIN, TAKEN, result({}, 3), TOOLS) as (client, sent):
        with pytest.raises(ProtocolError, match="not found in store"):
            await client.call_tool("t")
        await client.list_tools()
    assert [method for method, _ in heard(sent)].count("call") == 1
    assert heard(sent)[-2] == ("list", "s2")


async def test_a_server_that_opens_no_new_session_in_time_fails_what_waits_for_it(monkeypatch):
    monkeypatch.setattr("mcpbus.client.session_id.OPEN_SECONDS", 0.05)
    async with connected(GONE, never) as (client, _):
        with pytest.raises(DisconnectedError, match="opens no new one: it did not answer within"):
            await client.list_tools()


@pytest.mark.parametrize("status", ["503 Slow Down", "404 Not Found"])
async def test_where_there_is_no_new_session_the_request_fails_and_the_next_one_tries_again(status):
    refused = answer(status=status)
    async with connected(GONE, refused, GONE, AGAIN, TAKEN, TOOLS) as (client, sent):
        with pytest.raises(DisconnectedError, match=f"opens no new one: .* answered {status}"):
            await client.list_tools()
        assert await client.list_tools() == [{"name": "late"}]
    assert heard(sent)[2] == ("list", "s1")


async def test_a_server_that_speaks_another_revision_since_is_left():
    other = AGAIN.replace(b"2025-11-25", b"2025-06-18")
    async with connected(GONE, other, TAKEN, TOOLS) as (client, _):
        with pytest.raises(DisconnectedError, match="no longer speaks 2025-11-25: it offers 2025-06-18"):
            await client.list_tools()
        with pytest.raises(DisconnectedError, match="no longer speaks"):
            await client.list_tools()


async def test_what_is_in_flight_fails_once_there_is_a_new_session():
    failed = []

    async def wait(client):
        with pytest.raises(DisconnectedError, match="ended the session before the answer came") as caught:
            await client.request("ping")
        failed.append(caught.value)

    async with connected(never, GONE, AGAIN, TAKEN, TOOLS) as (client, _), trio.open_nursery() as nursery:
        nursery.start_soon(wait, client)
        await wait_all_tasks_blocked()
        assert await client.list_tools() == [{"name": "late"}]
    assert failed


async def test_what_is_in_flight_is_answered_by_a_replica_that_still_knows_the_session(monkeypatch):
    monkeypatch.setattr(http_connection, "_LEFT_SECONDS", 60)
    renewed, outcomes = trio.Event(), []

    async def answer_late(stream):
        await renewed.wait()
        await stream.send_all(result({"tools": [{"name": "early"}]}, 2))

    async def list_early(client):
        outcomes.append(await client.list_tools())

    async with (
        connected(answer_late, GONE, AGAIN, TAKEN, result({"tools": []}, 3)) as (client, _),
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(list_early, client)
        await wait_all_tasks_blocked()
        assert await client.list_tools() == []
        renewed.set()
    assert outcomes == [[{"name": "early"}]]


async def test_what_was_asked_in_an_ended_session_is_answered_in_none():
    asked = trio.Event()

    async def ask(stream):
        question = '{"jsonrpc": "2.0", "id": 1, "method": "roots/list"}'
        await stream.send_all(events(f"data: {question}\n\n"))
        await trio.sleep_forever()

    async def think(method, params):
        asked.set()
        try:
            await trio.sleep_forever()
        finally:
            withdrawn.append(method)

    async def wait(client):
        with pytest.raises(DisconnectedError):
            await client.request("ping")

    withdrawn = []
    async with (
        connected(ask, GONE, AGAIN, TAKEN, TOOLS, on_input_request=think, capabilities={"roots": {}}) as (
            client,
            sent,
        ),
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(wait, client)
        await asked.wait()
        await client.list_tools()
        assert withdrawn == ["roots/list"]
    assert ("answer", "s2") not in heard(sent)


async def test_a_call_whose_answer_is_refused_fails_where_there_is_no_new_session_either():
    async def ask(stream):
        await stream.send_all(events('data: {"jsonrpc": "2.0", "id": 1, "method": "ping"}\n\n'))
        await trio.sleep_forever()

    full = answer(status="503 Slow Down")
    async with connected(ask, GONE, full, GONE, AGAIN, TAKEN, TOOLS) as (client, sent):
        with pytest.raises(DisconnectedError, match="ended the session before the answer came"):
            await client.request("ping")
        assert await client.list_tools() == [{"name": "late"}]
    assert [method for method, _ in heard(sent)][:3] == ["ping", "answer", "initialize"]


async def test_a_notification_that_is_refused_has_a_new_session_opened():
    renewed = Noted(TAKEN)
    async with connected(GONE, AGAIN, renewed, TOOLS) as (client, sent):
        await client.notify("notifications/roots/list_changed")
        await renewed.asked.wait()
        await client.list_tools()
    assert heard(sent) == [
        ("list_changed", "s1"),
        ("initialize", None),
        ("initialized", "s2"),
        ("list", "s2"),
        ("DELETE", "s2"),
    ]


async def test_a_session_that_ends_as_it_begins_is_not_opened_for_ever():
    async with connected(GONE, AGAIN, GONE, TOOLS) as (client, sent):
        await client.list_tools()
        assert [method for method, _ in heard(sent)].count("initialize") == 1


async def test_a_stream_of_an_ended_session_fails_and_has_a_new_one_opened():
    left = events("retry: 1\nid: e1\ndata:\n\n")
    renewed = Noted(TAKEN)
    async with connected(left, GONE, AGAIN, renewed, TOOLS) as (client, sent):
        with pytest.raises(StatusError, match="404"):
            await client.request("ping")
        await renewed.asked.wait()
        await client.list_tools()
    assert heard(sent)[1:4] == [("GET", "s1"), ("initialize", None), ("initialized", "s2")]


async def test_a_request_that_is_given_up_before_there_is_a_new_session_is_not_repeated():
    asked, renewed, open_it = trio.Event(), Noted(TAKEN), trio.Event()

    async def later(stream):
        asked.set()
        await open_it.wait()
        await stream.send_all(AGAIN)

    async with connected(GONE, later, renewed, TOOLS) as (client, sent), trio.open_nursery() as nursery:
        nursery.start_soon(client.request, "ping")
        await asked.wait()
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            open_it.set()
            await renewed.asked.wait()
            await client.list_tools()
    assert [method for method, _ in heard(sent)] == ["ping", "initialize", "initialized", "list", "DELETE"]


@pytest.mark.parametrize("opens", [True, False])
async def test_a_request_that_is_made_while_a_new_session_is_opened_waits_for_it(opens):
    asked, open_it, outcomes = trio.Event(), trio.Event(), []

    async def later(stream):
        asked.set()
        await open_it.wait()
        await stream.send_all(AGAIN if opens else answer(status="503 Slow Down"))

    async def list_tools(client):
        try:
            outcomes.append(await client.list_tools())
        except DisconnectedError as error:
            outcomes.append(str(error))

    async with connected(GONE, later, TAKEN, TOOLS, TOOLS) as (client, sent):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(list_tools, client)
            await asked.wait()
            nursery.start_soon(list_tools, client)
            await wait_all_tasks_blocked()
            open_it.set()
        if opens:
            assert outcomes == [[{"name": "late"}]] * 2
        else:
            assert [("opens no new one" in outcome) for outcome in outcomes] == [True, True]
    assert heard(sent).count(("list", "s1")) == 1


async def test_a_session_is_not_gone_because_its_first_answer_is_not_found():
    async with speaking(GONE) as (url, sent):
        assert "Session not found" in await outcome(connect_http(url, revision=OLD))
    assert len(sent) == 1


async def test_a_session_may_end_more_than_once():
    third = HELLO.replace(b"s1", b"s3")
    async with connected(GONE, AGAIN, TAKEN, TOOLS, GONE, third, TAKEN, TOOLS) as (client, sent):
        for _ in range(2):
            assert await client.list_tools() == [{"name": "late"}]
    assert heard(sent)[-2:] == [("list", "s3"), ("DELETE", "s3")]


async def test_who_hears_late_that_a_session_has_ended_opens_no_third_one():
    asked, go_on, refused = trio.Event(), trio.Event(), trio.Event()

    async def ping(stream):
        await stream.send_all(events('data: {"jsonrpc": "2.0", "id": "q", "method": "ping"}\n\n'))
        await trio.sleep_forever()

    async def late(stream):
        asked.set()
        await go_on.wait()
        await stream.send_all(GONE)
        refused.set()

    async with (
        connected(ping, late, GONE, AGAIN, TAKEN, TOOLS, TOOLS) as (client, sent),
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(_fail, client)
        await asked.wait()
        await client.list_tools()
        go_on.set()
        await refused.wait()
        await client.list_tools()
    assert [method for method, _ in heard(sent)].count("initialize") == 1


async def _fail(client):
    with pytest.raises(DisconnectedError):
        await client.request("ping")


async def test_who_says_again_that_it_is_initialized_loses_nothing():
    begun, go_on = trio.Event(), trio.Event()

    async def later(stream):
        begun.set()
        await go_on.wait()
        await stream.send_all(TOOLS)

    async with connected(later, TAKEN, result({})) as (client, _), trio.open_nursery() as nursery:
        nursery.start_soon(client.list_tools)
        await begun.wait()
        await client.notify("notifications/initialized")
        await client.request("ping")
        go_on.set()


async def test_a_program_may_cancel_what_was_never_asked():
    async with connected() as (client, sent):
        await client.notify("notifications/cancelled", {"requestId": 99})
    assert [method for method, _ in heard(sent)] == ["cancelled", "DELETE"]
