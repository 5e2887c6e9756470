"""What a server of an older revision tells outside of requests, over HTTP: on a stream that a client opens if somebody wants to hear it."""

import json
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio
from click.testing import CliRunner
from test_bad_servers import NO_STREAM, TAKEN, answer, events, result
from test_clients_on_the_wire import over_http
from test_session_listens import OLDER, TOOLS, UPDATED, make_shelf

from mcpbus import Context, Server
from mcpbus.cli import main
from mcpbus.client import ClientError, DisconnectedError, connect_http, get_stream
from mcpbus.protocol.revisions import REVISIONS

OLD = "2025-11-25"
GONE = answer(status="404 Not Found")
FAILED = answer(status="503 Slow Down")
LEFT = events("retry: 1\nid: e1\ndata:\n\n")
HEAD = events()


def event(method, event_id=None, **members):
    """An event of a stream, as text."""
    said = json.dumps({"jsonrpc": "2.0", "method": method, **members})
    return (f"id: {event_id}\n" if event_id else "") + f"data: {said}\n\n"


def open_with(*texts):
    """A stream that begins with these events, and stays open."""

    async def say(stream):
        await stream.send_all(HEAD + "".join(texts).encode())
        await stream.receive_some()

    return say


class Streaming:
    """A server that answers each message, and each GET with the next that was given; all else stays silent.

    Attributes:
        url: Where it is.
        gets: The heads of the GETs, in small letters, as far as they came.
        posts: The messages that came, each with the session in which it was sent.
        ended: The sessions in which no message is known any more.
        open: How many streams are open.
    """

    def __init__(self, *streams):
        self.streams = list(streams)
        self.gets, self.posts, self.ended = [], [], set()
        self.url, self.open, self.sessions = "", 0, 0
        self.came = trio.lowlevel.ParkingLot()

    async def serve(self, stream):
        async with stream:
            data = b""
            async for piece in stream:
                data += piece
                head, parted, body = data.partition(b"\r\n\r\n")
                lines = head.decode().lower().split("\r\n")
                fields = dict(line.split(": ", 1) for line in lines[1:] if parted)
                if not parted or len(body) < int(fields.get("content-length", 0)):
                    continue
                if lines[0].startswith("get"):
                    await self.stream(stream, fields)
                else:
                    await stream.send_all(self.answer(json.loads(body) if body else {}, fields))
                return

    async def stream(self, stream, fields):
        self.gets.append(fields)
        self.came.unpark_all()
        said = self.streams.pop(0) if self.streams else open_with()
        self.open += 1
        try:
            await (said(stream) if callable(said) else stream.send_all(said))
        finally:
            self.open -= 1
            self.came.unpark_all()

    def answer(self, message, fields):
        session = fields.get("mcp-session-id")
        self.posts.append((message.get("method", "answer" if message else "delete"), session))
        self.came.unpark_all()
        if session in self.ended:
            return GONE
        if message.get("method") == "initialize":
            self.sessions += 1
            hello = {
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {"listChanged": True}},
            }
            return result(hello, message["id"], mcp_session_id=f"s{self.sessions}")
        return result({"tools": []}, message["id"]) if "id" in message and "method" in message else TAKEN

    async def until(self, happened):
        while not happened():
            await self.came.park()


@asynccontextmanager
async def serving(*streams):
    """A server that answers GETs so."""
    server = Streaming(*streams)
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            [listener] = await nursery.start(partial(trio.serve_tcp, server.serve, 0, host="127.0.0.1"))
            server.url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}/mcp"
            yield server
            await server.until(lambda: not server.open)
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def streaming(*streams, revision=OLD, **options):
    """A server that answers GETs so, and a client of it."""
    async with (
        serving(*streams) as server,
        connect_http(server.url, revision=revision, **options) as client,
    ):
        yield client, server


@pytest.fixture
def pauses(monkeypatch):
    """For how long was waited, without waiting."""
    waited = []

    async def wait(seconds):
        if seconds:  # else it is a checkpoint of somebody else's
            waited.append(seconds)
        await trio.lowlevel.checkpoint()

    monkeypatch.setattr(get_stream.trio, "sleep", wait)
    return waited


async def anybody(_method, _params):
    return {}


async def test_nobody_asks_for_a_stream_that_nobody_wants_to_hear():
    async with streaming() as (client, server):
        await client.list_tools()
        await client.call_tool("t", on_notification=lambda *_: None)
    assert [method for method, _ in server.posts] == [
        "initialize",
        "notifications/initialized",
        "tools/list",
        "tools/call",
        "delete",
    ]
    assert not server.gets


@pytest.mark.parametrize("revision", OLDER)
async def test_one_stream_is_asked_for_with_the_session_once_it_is_open_however_many_want_it(
    revision,
):  # W-17
    async with streaming(on_input_request=anybody, revision=revision) as (client, server):
        await server.until(lambda: server.gets)
        assert ("notifications/initialized", "s1") in server.posts
        await client.request("resources/subscribe", {"uri": "a"})
        async with client.listen(tools=True), client.listen(prompts=True):
            await client.list_tools()
        await client.list_tools()
    [fields] = server.gets
    assert (fields["accept"], fields["mcp-session-id"]) == ("text/event-stream", "s1")
    assert fields["mcp-protocol-version"] == revision
    assert "last-event-id" not in fields


@pytest.mark.parametrize("method", ["resources/subscribe", "logging/setLevel"])
async def test_who_asks_to_be_told_hears_it(method):
    said = open_with(event("notifications/message", params={"level": "info", "data": 1}))
    async with streaming(said) as (client, server):
        await client.request(method, {"uri": "a", "level": "info"})
        await server.until(lambda: server.gets)
        assert await client.next_notification() == ("notifications/message", {"level": "info", "data": 1})
    assert len(server.gets) == 1


async def test_what_is_told_there_is_a_notification_like_any_other():  # W-18
    async with streaming(open_with(event(TOOLS), event("notifications/other", params={"a": 1}))) as (
        client,
        _,
    ):
        assert await client.next_notification() == (TOOLS, {})
        assert await client.next_notification() == ("notifications/other", {"a": 1})


async def test_what_is_asked_there_is_answered_in_the_session():
    asked = []

    async def on_input_request(method, params):
        asked.append((method, params))
        return {"action": "decline"}

    question = event("elicitation/create", "e1", id="q1", params={"message": "Where?"})
    options = {"capabilities": {"elicitation": {}}, "on_input_request": on_input_request}
    async with streaming(open_with(question), **options) as (_, server):
        await server.until(lambda: ("answer", "s1") in server.posts)
    assert asked == [("elicitation/create", {"message": "Where?"})]


@pytest.mark.parametrize(
    "said", [NO_STREAM, GONE, answer(status="401 Unauthorized"), answer(b"<html>", "text/html")]
)
async def test_a_server_that_has_none_is_asked_once_and_all_else_goes_on(said):
    async with streaming(said) as (client, server):
        for _ in range(2):
            with pytest.raises(ClientError, match="the server tells nothing outside of requests: "):
                async with client.listen(tools=True):
                    pass
        assert await client.list_tools() == []
        with trio.move_on_after(0.01):
            await client.next_notification()
    assert len(server.gets) == 1
    assert server.sessions == 1


async def test_who_waits_for_notifications_waits_on_where_there_is_no_stream_and_a_new_session_may_have_one():
    heard = []

    async def take(client):
        heard.append((await client.next_notification())[0])

    async with streaming(NO_STREAM, open_with(event(TOOLS))) as (client, server):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(take, client)
            await server.until(lambda: server.gets)
            with pytest.raises(ClientError, match="405 Method Not Allowed"):
                async with client.listen(tools=True):
                    pass
            assert not heard
            nursery.cancel_scope.cancel()
        server.ended.add("s1")
        await client.list_tools()
        await take(client)
    assert heard == [TOOLS]
    assert [fields["mcp-session-id"] for fields in server.gets] == ["s1", "s2"]


async def test_the_first_request_of_a_session_waits_for_a_stream_that_questions_may_come_on():
    """Some servers discard a question for which no stream is open."""
    order = []

    async def late(stream):
        await trio.sleep(0.05)
        order.append("stream")
        await open_with()(stream)

    async with streaming(late, on_input_request=anybody) as (client, _):
        await client.list_tools()
        order.append("request")
    assert order == ["stream", "request"]


async def test_no_call_waits_for_ever_for_the_stream():
    async def never(stream):
        await stream.receive_some()

    async with streaming(never, on_input_request=anybody) as (client, server):
        await server.until(lambda: server.gets)
        assert await client.list_tools() == []


async def test_a_listen_does_not_wait_for_ever_for_a_stream_that_does_not_begin(monkeypatch):
    monkeypatch.setattr(get_stream, "_ANSWER_SECONDS", 0.01)
    begin = trio.Event()

    async def late(stream):
        await begin.wait()
        await stream.send_all(HEAD + event(TOOLS).encode())
        await stream.receive_some()

    async with streaming(late) as (client, _), client.listen(tools=True) as changes:
        begin.set()
        assert await anext(changes) == (TOOLS, {})


async def test_a_stream_that_ended_is_come_back_to_where_it_was(pauses):  # W-14, W-24
    first = events("retry: 700\n" + event(TOOLS, "e1"), event(UPDATED, "e2", params={"uri": "a"}))
    again = open_with(event(UPDATED, "e2", params={"uri": "a"}), event("notifications/other", "e3"))
    async with streaming(first, again) as (client, server):
        heard = [(await client.next_notification())[0] for _ in range(3)]
    assert heard == [TOOLS, UPDATED, "notifications/other"], "and what is repeated is told once"
    assert [fields.get("last-event-id") for fields in server.gets] == [None, "e2"]
    assert pauses == [0.7]


async def test_a_stream_that_breaks_is_come_back_to_without_an_id_too(pauses):
    cut = answer(event(TOOLS).encode(), "text/event-stream", content_length=1000)
    taken = answer(status="409 Conflict")
    async with streaming(cut, taken, FAILED, open_with(event(TOOLS))) as (client, server):
        assert [(await client.next_notification())[0] for _ in range(2)] == [TOOLS, TOOLS]
    assert [fields.get("last-event-id") for fields in server.gets] == [None] * 4
    assert pauses == [1, 2, 4]


async def test_a_stream_that_ends_at_once_is_not_come_back_to_for_ever(pauses):
    async with streaming(*[LEFT] * 6, open_with(event(TOOLS))) as (client, server):
        async with client.listen(tools=True) as changes:
            assert [change async for change in changes] == []
        assert len(server.gets) == 6
        assert len(pauses) == 5
        assert (await client.next_notification())[0] == TOOLS, "who asks again has another attempt made"


async def test_who_waits_for_notifications_is_told_that_the_stream_was_given_up(pauses):
    async with streaming(*[b""] * 6) as (client, server):
        with pytest.raises(DisconnectedError, match="the connection to"):
            await client.next_notification()
        assert len(server.gets) == 6
        await client.list_tools()  # which makes another attempt
        await server.until(lambda: len(server.gets) == 7)


async def test_a_stream_that_was_open_for_long_is_come_back_to_each_time(pauses, monkeypatch):
    monkeypatch.setattr(get_stream, "_LASTING_SECONDS", 0)
    async with streaming(*[LEFT] * 20, open_with(event(TOOLS))) as (client, server):
        assert (await client.next_notification())[0] == TOOLS
    assert len(server.gets) == 21


async def test_a_stream_that_is_silent_for_too_long_is_opened_anew(pauses, monkeypatch):
    monkeypatch.setattr(get_stream, "_SILENT_SECONDS", 0.01)
    async with streaming(open_with(), open_with(event(TOOLS))) as (client, _):
        assert (await client.next_notification())[0] == TOOLS


@pytest.mark.parametrize("refused", [GONE, answer(status="400 Bad Request")])
async def test_where_the_event_is_not_known_any_more_the_stream_is_opened_anew(refused, pauses):  # W-26
    async with streaming(LEFT, refused, open_with(event(TOOLS))) as (client, server):
        assert (await client.next_notification())[0] == TOOLS
    assert [fields.get("last-event-id") for fields in server.gets] == [None, "e1", None]
    assert server.sessions == 1


async def test_what_is_refused_after_it_was_open_is_told():
    async with streaming(LEFT, answer(status="401 Unauthorized")) as (client, server):
        async with client.listen(tools=True) as changes:
            assert [change async for change in changes] == []
        await client.list_tools()
        assert len(server.gets) == 2


async def test_a_session_that_ended_is_followed_by_another_one_and_its_stream():  # W-34
    async with streaming(LEFT, GONE, open_with(event(TOOLS))) as (client, server):
        server.ended.add("s1")
        with pytest.raises(DisconnectedError, match="the server ended the session"):
            await client.next_notification()
        assert (await client.next_notification())[0] == TOOLS
    assert [fields["mcp-session-id"] for fields in server.gets] == ["s1", "s1", "s2"]
    assert [session for method, session in server.posts if method == "delete"] == ["s2"]


async def test_a_listen_ends_with_its_session():
    async with streaming() as (client, server), client.listen(tools=True) as changes:
        server.ended.add("s1")
        await client.list_tools()
        assert [change async for change in changes] == []
        await server.until(lambda: len(server.gets) == 2)
        await server.until(lambda: server.open == 1)
    assert [fields["mcp-session-id"] for fields in server.gets] == ["s1", "s2"]


async def test_what_is_no_message_harms_nothing(caplog):
    noise = "data: hello\n\n", 'data: {"jsonrpc": "2.0", "method": "a", "params": 5}\n\n', ": nothing\n\n"
    async with streaming(open_with(*noise, event(TOOLS))) as (client, _):
        assert (await client.next_notification())[0] == TOOLS
    assert caplog.text.count("outside of requests is no MCP") == 2


async def test_the_stream_ends_with_the_client_before_its_session():
    async with streaming(on_input_request=anybody) as (_, server):
        await server.until(lambda: server.open)
    assert server.posts[-1] == ("delete", "s1")
    assert len(server.gets) == 1


@pytest.mark.parametrize("revision", REVISIONS)
async def test_changes_at_a_server_of_mcpbus_are_heard_in_each_revision(revision):
    server = make_shelf()
    with trio.fail_after(60):
        async with over_http(server, revision=revision) as client:
            async with client.listen(tools=True, uris=["shelf://a"]) as changes:
                server.resource_updated("shelf://a")
                server.tool(name="second")(lambda: "second")
                heard = [await anext(changes) for _ in range(2)]
            assert [(method, params.get("uri")) for method, params in heard] == [
                (UPDATED, "shelf://a"),
                (TOOLS, None),
            ]


async def test_a_log_line_of_the_session_is_not_one_of_the_call_that_runs():
    server, heard = Server("both"), []

    @server.tool
    async def both(ctx: Context) -> None:
        ctx.session.log("info", "of the session")
        await ctx.info("of the call")

    with trio.fail_after(60):
        async with over_http(server, revision=OLD) as client:
            await client.request("logging/setLevel", {"level": "info"})  # which opens the stream
            await client._hearing.opened()
            await client.call_tool("both", on_notification=lambda _, params: heard.append(params["data"]))
            assert (await client.next_notification())[1]["data"] == "of the session"
    assert heard == ["of the call"]


@pytest.mark.parametrize("revision", OLDER)
async def test_the_command_line_watches_there_too(revision):
    async def tell(stream):
        await stream.send_all(HEAD)
        await server.until(lambda: ("resources/subscribe", "s1") in server.posts)
        await stream.send_all(
            f"retry: 1\nid: e1\n{event(TOOLS)}{event(UPDATED, params={'uri': 'a'})}".encode()
        )

    async with serving(tell, answer(status="401 Unauthorized")) as server:
        command = ["watch", server.url, "a", "--revision", revision]
        result = await trio.to_thread.run_sync(CliRunner().invoke, main, command)
    assert [json.loads(line) for line in result.stdout.splitlines()] == [
        {"method": TOOLS, "params": {}},
        {"method": UPDATED, "params": {"uri": "a"}},
    ]
    assert result.stderr == "listening, until Ctrl-C\nError: the server tells no more changes\n"


async def test_the_command_line_says_that_a_server_has_no_such_stream():
    async with serving(NO_STREAM) as server:
        command = ["watch", server.url, "--revision", OLD]
        result = await trio.to_thread.run_sync(CliRunner().invoke, main, command)
    assert result.exit_code == 1
    assert "the server tells nothing outside of requests: " in result.stderr
    assert "405 Method Not Allowed" in result.stderr
