"""What a client says of servers that are none, that fail, or that say what nobody should: one sentence each."""

import json
import sys
from contextlib import asynccontextmanager, suppress
from functools import partial

import httpx2
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from mcpbus.client import http, http_responses, stdio
from mcpbus.client.errors import ClientError, MalformedAnswerError
from mcpbus.client.http import connect_http
from mcpbus.client.stdio import connect_process
from mcpbus.protocol.errors import ProtocolError
from mcpbus.protocol.revisions import REVISIONS, Era

OLD = "2025-11-25"


def answer(body=b"", kind="application/json", status="200 OK", **fields):
    """The bytes of an answer over HTTP, after which the connection is closed."""
    head = {"content-type": kind, "content-length": len(body), "connection": "close"}
    head |= {name.replace("_", "-"): value for name, value in fields.items()}
    lines = "".join(f"{name}: {value}\r\n" for name, value in head.items() if value is not None)
    return f"HTTP/1.1 {status}\r\n{lines}\r\n".encode() + body


def result(value, number=1, **fields):
    return answer(json.dumps({"jsonrpc": "2.0", "id": number, "result": value}).encode(), **fields)


def events(*texts):
    return answer("".join(texts).encode(), "text/event-stream", content_length=None)


HELLO = result({"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {}}, mcp_session_id="s1")
TAKEN = answer(status="202 Accepted")
NO_STREAM = answer(status="405 Method Not Allowed")
MODERN = {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {}}


@asynccontextmanager
async def speaking(*answers):
    """Give the URL of a server that says these, one after the other, and all that it was sent.

    What is a function says it itself, to the stream. A stream of what belongs to no request there is none, and who asks for it is not noted.
    """
    sent, left = [], list(answers)

    async def serve(stream):
        async with stream:
            data = b""
            async for piece in stream:
                data += piece
                head, _, body = data.partition(b"\r\n\r\n")
                lengths = [
                    int(line.split(b":")[1])
                    for line in head.split(b"\r\n")
                    if line.lower().startswith(b"content-length")
                ]
                if b"\r\n\r\n" in data and len(body) >= sum(lengths):
                    if data.startswith(b"GET") and b"last-event-id:" not in head.lower():
                        await stream.send_all(NO_STREAM)
                        return
                    sent.append(data.decode())
                    said = left.pop(0) if left else TAKEN
                    await (said(stream) if callable(said) else stream.send_all(said))
                    return

    async with trio.open_nursery() as nursery:
        [listener] = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        yield f"http://127.0.0.1:{listener.socket.getsockname()[1]}/mcp", sent
        nursery.cancel_scope.cancel()


async def outcome(connecting):
    """List the tools of a server; return them, or what went wrong."""
    try:
        with trio.fail_after(60):
            async with connecting as client:
                return await client.list_tools()
    except (ClientError, ProtocolError, BaseExceptionGroup) as error:
        while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        if not isinstance(error, ClientError | ProtocolError):
            raise
        return str(error)


async def list_tools(url, **options):
    return await outcome(connect_http(url, **options))


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (answer(b"<html>", "text/html"), "is no MCP: its content type is text/html"),
        (answer(b"<html>", "application/json"), "is no MCP: Parse error"),
        (answer(b'{"a": 1}'), "is no MCP: Invalid request"),
        (answer(b'{"jsonrpc": "2.0", "method": "hello"}'), "is no MCP: its content type is application/json"),
        (answer(kind="", status="204 No Content"), "is no MCP: its content type is nothing"),
        (answer(b"<html>", "text/html", "500 Internal Server Error"), "answered 500 Internal Server Error"),
        (answer(b"{}", status="503 Slow Down"), "answered 503 Slow Down"),
        (
            answer(status="307 Temporary Redirect", location="/other"),
            "answered 307 Temporary Redirect, and names /other",
        ),
        (answer(b"x", content_encoding="gzip"), "answers in gzip, which was not asked for"),
        (
            answer(
                b'{"jsonrpc": "2.0", "id": null, "error": {"code": -32000, "message": "Session not found"}}',
                status="404 Not Found",
            ),
            "Session not found",
        ),
        (answer(b'{"error": "no token"}', status="401 Unauthorized"), "answered 401 Unauthorized"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "failed"),
        (b"", "failed"),
        (answer(b"{", content_length=10), "failed"),
        (events("data: {}\n\n"), "is no MCP: Invalid request"),
        (events("data: hello\n\n"), "is no MCP: Parse error"),
        (events(": nothing\n\n"), "the stream ended before the answer came"),
        (result([]), "the server's result is none"),
        (
            result("\ud83d"),
            "/mcp answers is no MCP: Invalid request: a text has half of a surrogate pair",
        ),
    ],
)
async def test_what_is_no_answer_is_told_in_a_sentence(said, told):
    async with speaking(said) as (url, _):
        assert told in await list_tools(url, revision=OLD)


@pytest.mark.parametrize(
    ("tools", "told"),
    [
        ({}, "the server's answer to tools/list has no tools"),
        ({"tools": 5}, "the server's answer to tools/list has no tools"),
        ({"tools": ["a"]}, "the server's answer to tools/list has no tools"),
        ({"tools": [], "nextCursor": 5}, "failed"),
    ],
)
async def test_a_list_that_is_none_is_told(tools, told):
    async with speaking(HELLO, TAKEN, result(tools), b"") as (url, _):
        assert told in await list_tools(url, revision=OLD)


async def test_of_a_list_of_tools_whose_headers_are_looked_for_it_is_told_too():
    tools = {"resultType": "complete", "tools": ["a"]}
    async with speaking(result(MODERN), result(tools)) as (url, _):
        assert "the server's answer to tools/list has no tools" in await list_tools(url)


@pytest.mark.parametrize("method", ["read_resource", "get_prompt"])
async def test_a_result_without_what_was_asked_for_is_malformed(method):
    async with (
        speaking(HELLO, TAKEN, result({"other": []})) as (url, _),
        connect_http(url, revision=OLD) as client,
    ):
        with pytest.raises(MalformedAnswerError, match=r"has no (contents|messages)"):
            await getattr(client, method)("x")


async def test_an_answer_that_is_too_long_is_not_read(monkeypatch):
    monkeypatch.setattr(http_responses, "MOST_MESSAGE_BYTES", 1000)
    async with speaking(result({"much": "x" * 1000})) as (url, _):
        assert "more than 1,000 bytes" in await list_tools(url, revision=OLD)
    async with speaking(events("data: " + "x" * 2000)) as (url, _):
        assert "more than 1,000 bytes" in await list_tools(url, revision=OLD)


async def test_nobody_is_there():
    refused = await list_tools("http://127.0.0.1:9/mcp")
    assert refused.startswith("cannot connect to http://127.0.0.1:9/mcp: ")
    assert refused.endswith("Connection refused")
    assert "cannot connect" in await list_tools("http://127.0.0.99/mcp"), "a port need not be named"


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("", "'' is no URL of HTTP: write http://HOST:PORT/mcp or https://HOST/mcp"),
        ("ftp://127.0.0.1/mcp", "'ftp://127.0.0.1/mcp' is no URL of HTTP: "),
        ("ws://127.0.0.1:9/mcp", "'ws://127.0.0.1:9/mcp' is no URL of HTTP: "),
        ("127.0.0.1:9/mcp", "'127.0.0.1:9/mcp' is no URL"),
        ("localhost:9/mcp", "'localhost:9/mcp' is no URL of HTTP: "),
        ("//127.0.0.1:9/mcp", "'//127.0.0.1:9/mcp' is no URL of HTTP: "),
        ("http:///mcp", "'http:///mcp' names no host"),
        ("http:mcp", "'http:mcp' names no host"),
        ("http://a..b/mcp", "'http://a..b/mcp' names no host"),
        (f"http://{'a' * 64}/mcp", "names no host"),
        ("http://127.0.0.1:9/mcp ", "'http://127.0.0.1:9/mcp ' is no URL: there is white space in it"),
        ("http://my host/mcp", "'http://my host/mcp' is no URL: there is white space in it"),
        ("http://[::1/mcp", "'http://[::1/mcp' is no URL: "),
        ("http://127.0.0.1:9/\ud83d", " is no URL: "),
    ],
)
async def test_a_url_that_is_none_is_told_before_anything_is_sent(url, told, monkeypatch):
    async def send(*_, **__):
        pytest.fail("it was sent to")

    monkeypatch.setattr(httpx2.AsyncClient, "send", send)
    assert told in await list_tools(url)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("http://mia:s3cret@127.0.0.1:9/mcp", "cannot connect to http://127.0.0.1:9/mcp: "),
        ("ftp://mia:s3cret@127.0.0.1/mcp", "'...@127.0.0.1/mcp' is no URL of HTTP: "),
        ("mia:s3cret@127.0.0.1:9/mcp", "'...@127.0.0.1:9/mcp' is no URL of HTTP: "),
        ("http://mia:s3cret@/mcp", "'...@/mcp' names no host"),
        ("http://mia:s3cret@host:70000/mcp", "'...@host:70000/mcp' names no port"),
        ("http://mia:s3 cret@host/mcp", "'...@host/mcp' is no URL: there is white space in it"),
        ("http://mia:s3cret/@host/mcp", "'...@host/mcp' is no URL: something in it cannot be read"),
        ("http://mia:s3cret@again@host:x/mcp", "'...@host:x/mcp' is no URL: something in it cannot be read"),
    ],
)
async def test_no_password_in_a_url_is_told(url, told):
    said = await list_tools(url)
    assert said.startswith(told)
    assert "mia" not in said
    assert "s3" not in said


async def test_a_password_in_a_url_is_sent_and_not_logged(caplog):
    caplog.set_level("DEBUG")
    async with speaking(answer(status="403 Forbidden")) as (url, sent):
        private = url.replace("http://", "http://ann:s3%40cret@")
        assert await list_tools(private) == (
            f"{url} answered 403 Forbidden: give credentials in a header field, such as 'Authorization: Bearer TOKEN'"
        )
    assert sent
    for request in sent:
        assert "authorization: basic yw5uonmzqgnyzxq=\r\n" in request.lower()
    assert "s3" not in caplog.text


async def test_why_there_is_no_tls_is_told():
    async def refuse(stream):
        async with stream:
            with suppress(trio.BrokenResourceError):
                await stream.send_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                while await stream.receive_some():  # what is left unread would reset the connection
                    pass

    async with trio.open_nursery() as nursery:
        [listener] = await nursery.start(partial(trio.serve_tcp, refuse, 0, host="127.0.0.1"))
        url = f"https://127.0.0.1:{listener.socket.getsockname()[1]}/mcp"
        assert "[SSL" in await list_tools(url)
        nursery.cancel_scope.cancel()


async def test_a_stream_that_the_server_left_is_come_back_to():  # W-14, W-24
    reply = json.dumps({"jsonrpc": "2.0", "id": 2, "result": {"tools": [{"name": "late"}]}})
    answers = HELLO, TAKEN, events("retry: 1\nid: e1\ndata:\n\n"), events(f"id: e2\ndata: {reply}\n\n")
    async with speaking(*answers) as (url, sent):
        assert await list_tools(url, revision=OLD) == [{"name": "late"}]
    *_, back, end = [request.lower() for request in sent]
    assert back.startswith("get ")
    assert "last-event-id: e1\r\n" in back
    assert "mcp-session-id: s1\r\n" in back
    assert end.startswith("delete ")


@pytest.mark.parametrize("revision", [name for name in REVISIONS if REVISIONS[name].era is Era.LEGACY])
async def test_a_stream_may_begin_with_an_id_alone_in_each_revision_of_which_all_that_follows_says_which(
    revision,
):  # W-13a, W-37
    hello = {"protocolVersion": revision, "capabilities": {}, "serverInfo": {}}
    reply = json.dumps({"jsonrpc": "2.0", "id": 2, "result": {"tools": []}})
    answers = [
        result(hello, mcp_session_id="s1"),
        TAKEN,
        events("retry: 1\nid: e1\ndata:\n\n"),
        events("id: e2\ndata: \n\n", f"data: {reply}\n\n"),
    ]
    async with speaking(*answers) as (url, sent):
        assert await list_tools(url, revision=revision) == []
    said = [request.lower().partition("mcp-protocol-version: ")[2].partition("\r\n")[0] for request in sent]
    assert said == ["", revision, revision, revision, revision]


async def test_an_event_without_an_id_leaves_the_place_where_it_was():
    silent = 'data: {"jsonrpc": "2.0", "method": "notifications/other"}\n\n'
    reply = json.dumps({"jsonrpc": "2.0", "id": 2, "result": {"tools": []}})
    answers = HELLO, TAKEN, events("retry: 1\nid: e1\ndata:\n\n", silent), events(f"data: {reply}\n\n")
    async with speaking(*answers) as (url, sent):
        assert await list_tools(url, revision=OLD) == []
    assert "last-event-id: e1\r\n" in sent[3].lower()


async def test_a_server_that_is_gone_is_not_come_back_to_for_ever():
    left = events("retry: 1\nid: e1\ndata:\n\n")
    async with speaking(HELLO, TAKEN, left, *[b""] * 100) as (url, sent):
        assert "the connection to" in await list_tools(url, revision=OLD)
    assert sum(request.startswith("GET") for request in sent) == 5


async def test_an_answer_that_takes_its_time_is_read_to_its_end(monkeypatch):
    monkeypatch.setattr(http_responses, "_LEAVE_SECONDS", -1)
    whole = result({"tools": [{"name": "late"}]})

    async def slowly(stream):
        await stream.send_all(whole[:-5])
        await wait_all_tasks_blocked(0.01)
        await stream.send_all(whole[-5:])

    async with speaking(HELLO, TAKEN, slowly) as (url, _):
        assert await list_tools(url, revision=OLD) == [{"name": "late"}]


async def test_a_stream_that_says_something_before_the_answer_is_read_to_its_end(monkeypatch):
    monkeypatch.setattr(http_responses, "_LEAVE_SECONDS", -1)
    reply = json.dumps({"jsonrpc": "2.0", "id": 2, "result": {"tools": [{"name": "late"}]}})

    async def slowly(stream):
        await stream.send_all(events('data: {"jsonrpc": "2.0", "method": "notifications/other"}\n\n'))
        await wait_all_tasks_blocked(0.01)
        await stream.send_all(f"data: {reply}\n\n".encode())

    async with speaking(HELLO, TAKEN, slowly) as (url, _):
        assert await list_tools(url, revision=OLD) == [{"name": "late"}]


async def test_a_stream_that_is_come_back_to_is_not_read_if_it_is_compressed():
    again = answer(b"x", "text/event-stream", content_encoding="gzip")
    async with speaking(HELLO, TAKEN, events("retry: 1\nid: e1\ndata:\n\n"), again) as (url, _):
        assert "answers in gzip, which was not asked for" in await list_tools(url, revision=OLD)


async def test_a_stream_that_is_cut_off_before_it_could_be_come_back_to_is_the_end_of_the_call():
    cut = answer(b": nothing\n\n", "text/event-stream", content_length=1000)
    async with speaking(HELLO, TAKEN, cut) as (url, _):
        assert "peer closed connection" in await list_tools(url, revision=OLD)


async def test_a_call_whose_question_cannot_be_answered_fails():
    async def ask(stream):
        await stream.send_all(events('data: {"jsonrpc": "2.0", "id": "q", "method": "ping"}\n\n'))
        await trio.sleep_forever()

    async with speaking(HELLO, TAKEN, ask, answer(status="500 Oops")) as (url, sent):
        assert "answered 500 Oops" in await list_tools(url, revision=OLD)
    assert '"id":"q","result":{}' in sent[3]


async def test_a_notification_that_is_not_accepted_fails_no_call():
    async with speaking(HELLO, answer(status="500 Oops"), result({"tools": []})) as (url, _):
        assert await list_tools(url, revision=OLD) == []


async def test_a_stream_that_says_nothing_new_is_not_come_back_to_for_ever():
    left = events("retry: 1\nid: e1\ndata:\n\n")
    async with speaking(HELLO, TAKEN, *[left] * 100) as (url, sent):
        assert "the stream ended before the answer came" in await list_tools(url, revision=OLD)
    assert sum(request.startswith("GET") for request in sent) == 5


@pytest.mark.parametrize(("said", "seconds"), [("", 1.0), ("retry: 700\n", 0.7), ("retry: 90000000\n", 30.0)])
async def test_a_stream_is_come_back_to_after_the_time_that_the_server_names(
    said, seconds, monkeypatch
):  # W-14
    waited = []

    async def wait(seconds):
        waited.append(seconds)
        await trio.lowlevel.checkpoint()

    monkeypatch.setattr(http.trio, "sleep", wait)
    reply = json.dumps({"jsonrpc": "2.0", "id": 2, "result": {"tools": []}})
    answers = HELLO, TAKEN, events(f"{said}id: e1\ndata:\n\n"), events(f"id: e2\ndata: {reply}\n\n")
    async with speaking(*answers) as (url, _):
        assert await list_tools(url, revision=OLD) == []
    assert waited == [seconds]


async def test_a_stream_that_says_something_new_each_time_is_come_back_to_for_as_long():
    news = 'data: {"jsonrpc": "2.0", "method": "notifications/other"}\n\n'
    reply = json.dumps({"jsonrpc": "2.0", "id": 2, "result": {"tools": []}})
    left = [events(f"retry: 1\nid: e{number}\n{news}") for number in range(8)]
    async with speaking(HELLO, TAKEN, *left, events(f"data: {reply}\n\n")) as (url, _):
        assert await list_tools(url, revision=OLD) == []


async def test_who_cancels_in_a_modern_revision_closes_the_answer_and_says_nothing():
    asked, closed = trio.Event(), trio.Event()

    async def hang(stream):
        asked.set()
        assert await stream.receive_some() == b""
        closed.set()

    done = result({"resultType": "complete", "tools": []}, 3)
    async with speaking(result(MODERN), hang, done) as (url, sent), connect_http(url) as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "t")
            await asked.wait()
            nursery.cancel_scope.cancel()
        await closed.wait()
        assert await client.list_tools() == []
    assert len(sent) == 3
    assert not any("notifications/" in request for request in sent)


async def test_a_tool_whose_headers_would_be_wrong_is_left_out(caplog):
    properties = {"a": {"type": "number", "x-mcp-header": "A"}}
    bad = {"name": "bad", "inputSchema": {"type": "object", "properties": properties}}
    tools = {"resultType": "complete", "tools": [bad, {"name": "good", "inputSchema": {}}]}
    async with speaking(result(MODERN), result(tools)) as (url, sent):
        assert [tool["name"] for tool in await list_tools(url)] == ["good"]
    assert "the tool 'bad' is left out: x-mcp-header" in caplog.text
    assert "mcp-method: tools/list\r\n" in sent[1].lower()


def refused(code, number):
    error = {"code": code, "message": "no such region"}
    return answer(
        json.dumps({"jsonrpc": "2.0", "id": number, "error": error}).encode(), status="400 Bad Request"
    )


async def call(url, **options):
    async with connect_http(url, **options) as client:
        with pytest.raises(ProtocolError, match="no such region") as caught:
            await client.call_tool("t")
    return caught.value.code


async def test_a_call_whose_headers_are_wrong_is_repeated_once_with_those_that_are_listed():
    properties = {"a": {"type": "string", "x-mcp-header": "A"}}
    tool = {"name": "t", "inputSchema": {"type": "object", "properties": properties}}
    tools = result({"resultType": "complete", "tools": [tool]}, number=3)
    done = result({"resultType": "complete", "content": []}, number=4)
    said = [result(MODERN), refused(-32020, 2), tools, done]
    async with speaking(*said) as (url, sent), connect_http(url) as client:
        assert (await client.call_tool("t", {"a": "x"}))["content"] == []
    assert ["mcp-param-a: x" in request.lower() for request in sent] == [False, False, False, True]


async def test_calls_whose_headers_are_wrong_at_once_are_repeated_after_one_list_for_all():
    properties = {"a": {"type": "string", "x-mcp-header": "A"}}
    tool = {"name": "t", "inputSchema": {"type": "object", "properties": properties}}
    calls, methods, all_there = 10, [], trio.Event()

    async def say(stream, sent):
        message = json.loads(sent[-1].partition("\r\n\r\n")[2])
        methods.append(message["method"])
        if message["method"] == "tools/list":
            said = {"result": {"resultType": "complete", "tools": [tool]}}
        elif "mcp-param-a: x" in sent[-1].lower():
            said = {"result": {"resultType": "complete", "content": []}}
        else:
            said = {"error": {"code": -32020, "message": "no such region"}}
            if methods.count("tools/call") == calls:
                all_there.set()
            await all_there.wait()
        await stream.send_all(answer(json.dumps({"jsonrpc": "2.0", "id": message["id"], **said}).encode()))

    said = [result(MODERN), *[lambda stream: say(stream, sent)] * 50]
    async with speaking(*said) as (url, sent), connect_http(url) as client, trio.open_nursery() as nursery:
        for _ in range(calls):
            nursery.start_soon(client.call_tool, "t", {"a": "x"})
    assert (methods.count("tools/list"), methods.count("tools/call")) == (1, 2 * calls)


@pytest.mark.parametrize("tools", [refused(-32601, 3), answer(b"", status="500 Oops")])
async def test_a_call_whose_headers_stay_wrong_is_an_error_whatever_is_listed(tools):
    async with speaking(result(MODERN), refused(-32020, 2), tools, refused(-32020, 4)) as (url, sent):
        assert await call(url) == -32020
    assert len(sent) == 4


@pytest.mark.parametrize(
    ("code", "first", "number", "options"),
    [(-32602, [result(MODERN)], 2, {}), (-32020, [HELLO, TAKEN], 2, {"revision": OLD})],
)
async def test_a_call_that_fails_for_anything_else_is_not_repeated(code, first, number, options):
    async with speaking(*first, refused(code, number)) as (url, sent):
        assert await call(url, **options) == code
    assert sum("tools/" in request for request in sent) == 1


async def test_the_headers_that_are_given_go_with_each_request():
    async with speaking(HELLO) as (url, sent):
        await list_tools(url, revision=OLD, headers={"Authorization": "Bearer secret"})
    assert len(sent) == 4
    assert all("authorization: bearer secret\r\n" in request.lower() for request in sent)


@pytest.mark.parametrize(
    ("program", "told"),
    [
        ("raise SystemExit(3)", "ended with status 3 before it answered"),
        ("import os; os.close(1); input(); input()", "closed its output before it answered"),
        ("input(); print('hello'); raise SystemExit(1)", "ended with status 1 before it answered"),
        ("while True: print('hello')", "speaks no MCP: what it prints are no messages"),
        ("while True: print('x' * 1000, end='')", "wrote a line of more than 100,000 bytes"),
    ],
)
async def test_a_child_that_is_no_server_is_told_in_a_sentence(program, told, monkeypatch):
    monkeypatch.setattr(stdio, "MOST_MESSAGE_BYTES", 100_000)
    monkeypatch.setattr(stdio, "_PROBE_SECONDS", 60)
    monkeypatch.setattr(stdio, "_END_SECONDS", 0.5)
    assert told in await outcome(connect_process([sys.executable, "-c", program]))


async def test_an_answer_that_is_not_taken_fails_the_request_in_which_was_asked_and_no_other():
    asked, refused = trio.Event(), trio.Event()

    async def ask(stream):
        await asked.wait()
        question = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        await stream.send_all(events(f"data: {json.dumps(question)}\n\n"))
        await trio.sleep_forever()

    async def be_slow(stream):
        asked.set()
        await refused.wait()
        await stream.send_all(result({"tools": []}, 3))

    too_large = answer(status="413 Content Too Large")
    with trio.fail_after(60):
        async with (
            speaking(HELLO, TAKEN, ask, be_slow, too_large, TAKEN) as (url, _),
            connect_http(url, revision=OLD) as client,
            trio.open_nursery() as nursery,
        ):

            async def fail():
                with pytest.raises(ClientError, match="413"):
                    await client.request("ping")
                refused.set()

            nursery.start_soon(fail)
            await wait_all_tasks_blocked(0.05)
            assert await client.list_tools() == []


@pytest.mark.parametrize("source", ["input()", "pass", "import time; print(1, flush=True); time.sleep(60)"])
async def test_whatever_becomes_of_a_program_its_pipes_are_closed(source, monkeypatch):
    """Not by the garbage collector, which may take its time."""
    started, original = [], trio.lowlevel.open_process

    async def open_process(*command, **options):
        started.append(await original(*command, **options))
        return started[-1]

    monkeypatch.setattr(trio.lowlevel, "open_process", open_process)
    monkeypatch.setattr(stdio, "_END_SECONDS", 0.1)
    with trio.move_on_after(1), suppress(ClientError):
        async with connect_process([sys.executable, "-c", source]):
            pass
    [child] = started
    assert child.returncode is not None
    with pytest.raises(trio.ClosedResourceError):
        await child.stdout.receive_some()
    with pytest.raises(trio.ClosedResourceError):
        await child.stdin.send_all(b"x")
