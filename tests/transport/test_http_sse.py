"""HTTP+SSE of 2024-11-05: one stream that carries everything, and POSTs that are only accepted."""

import json
import re
from unittest.mock import Mock

import pytest
import trio
import trio.lowlevel
from channels import (
    CLAIM,
    authenticate,
    call,
    house,
    initialize,
    notification,
    request,
    sse,
)

from mcpbus import HttpOptions, ProtocolError
from mcpbus.protocol.http.headers import Headers
from mcpbus.protocol.http.messages import RequestHead
from mcpbus.protocol.principals import IN_PROCESS
from mcpbus.protocol.routes import Reason
from mcpbus.testing import open_probe

LEGACY = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]


def methods(stream):
    return [m.get("method", m.get("id")) for m in stream.messages]


# -- the two addresses ---------------------------------------------------------------------------


async def test_the_first_event_is_the_address_for_posts_with_an_unguessable_id(autojump_clock):  # H-1, H-2
    async with house() as home, sse(home.probe) as one, sse(home.probe) as other:
        assert one.stream.body.startswith(b"event: endpoint\ndata: /sse?session_id=")
        ids = [client.stream.endpoint.partition("=")[2] for client in (one, other)]
        assert ids[0] != ids[1]
        assert all(re.fullmatch(r"[A-Za-z0-9_.-]{32,}", session_id) for session_id in ids)
        assert one.stream.headers["content-type"] == "text/event-stream"


async def test_the_address_names_where_the_application_is_mounted(autojump_clock):
    async with house() as home:

        async def mounted(scope, receive, send):
            await home.app({**scope, "root_path": "/über", "path": "/über" + scope["path"]}, receive, send)

        async with open_probe(mounted) as probe, sse(probe) as client:
            assert client.stream.endpoint.startswith("/%C3%BCber/sse?session_id=")


async def test_the_address_names_what_a_proxy_takes_off(autojump_clock):
    async with house(http={"root_path": "/tools"}) as home, open_probe(home.app) as probe:
        stream = probe.send("GET", headers={"accept": "text/event-stream"}, target="/sse/")
        await home.quiet()
        assert stream.body.startswith(b"event: endpoint\ndata: /tools/sse?session_id=")


async def test_an_image_of_another_page_opens_no_session(autojump_clock):  # H-5
    async with house() as home:
        image = {"accept": "image/avif,*/*", "sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}
        answer = await home.probe.send("GET", headers=image, target="/sse").ended()
        assert (answer.status, home.bus.statistics().actors) == (403, 0)


@pytest.mark.parametrize("revision", LEGACY)
async def test_every_legacy_revision_may_be_negotiated(revision, autojump_clock):  # H-8
    async with house() as home, sse(home.probe, revision) as client:
        answer = await client.ask(call(1, "count", {"steps": 0}))
        assert (answer["id"], answer["result"]["content"][0]["text"]) == (1, "counted")
        (session,) = home.bus.sessions.values()
        assert session.revision.name == revision


async def test_messages_are_message_events_and_posts_are_answered_accepted(autojump_clock):  # H-4
    async with house() as home, sse(home.probe, "2024-11-05") as client:
        answer = await client.post(request(1, "ping")).ended()
        assert (answer.status, answer.body, answer.headers["content-type"]) == (
            202,
            b"Accepted",
            "text/plain",
        )
        await client.stream.message()
        assert client.stream.body.endswith(b'event: message\ndata: {"jsonrpc":"2.0","id":1,"result":{}}\n\n')


async def test_a_quiet_stream_is_kept_alive_by_comments(autojump_clock):
    async with house(limits={"keep_alive": 15}) as home, sse(home.probe, "2024-11-05") as client:
        await trio.sleep(46)
        assert client.stream.comments == 3
        assert not client.stream.over


# -- what goes where -----------------------------------------------------------------------------


async def test_everything_goes_on_the_one_stream_in_order(autojump_clock):  # H-3
    async with house() as home, sse(home.probe, "2025-11-25") as client:
        await client.say(request(1, "resources/subscribe", {"uri": "res://a"}))
        await client.say(call(2, "count", token="t"))
        await home.quiet()
        home.bus.resource_updated("res://a")
        home.bus.tools_changed()
        next(iter(home.bus.sessions.values())).log("info", "aside")
        await home.quiet()
        assert methods(client.stream) == [
            0,
            1,
            "notifications/progress",
            "notifications/message",
            "notifications/progress",
            "notifications/message",
            2,
            "notifications/resources/updated",
            "notifications/tools/list_changed",
            "notifications/message",
        ]


async def test_a_question_goes_on_the_stream_and_is_answered_by_a_post(autojump_clock):
    async with house() as home, sse(home.probe, "2025-06-18") as client:
        question = await client.ask(call(1, "ask"))
        assert question["method"] == "roots/list"
        roots = {"roots": [{"uri": "file:///a"}]}
        answer = await client.ask({"jsonrpc": "2.0", "id": question["id"], "result": roots})
        assert answer["result"]["content"][0]["text"] == "1"


async def test_a_modern_request_is_served_as_on_any_shared_channel(autojump_clock):
    async with house() as home, sse(home.probe, "2024-11-05") as client:
        await client.ask(call(1, "count", {"steps": 1}, token="t", modern=True))
        await home.quiet()
        assert methods(client.stream) == [0, "notifications/progress", 1]
        assert client.stream.messages[-1]["result"]["resultType"] == "complete"
        await client.say(
            request(2, "subscriptions/listen", {"notifications": {"toolsListChanged": True}, "_meta": CLAIM})
        )
        await home.quiet()
        home.bus.tools_changed()
        await home.quiet()
        # One copy for the session, one for the listen.
        assert methods(client.stream)[3:] == [
            "notifications/subscriptions/acknowledged",
            "notifications/tools/list_changed",
            "notifications/tools/list_changed",
        ]


async def test_a_cancel_silences_one_request(autojump_clock):
    outcomes = []
    async with house(outcomes=outcomes) as home, sse(home.probe, "2024-11-05") as client:
        await client.say(call(1, "hang", {"key": "one"}))
        await client.say(call(2, "hang", {"key": "two"}))
        await client.say(notification("notifications/cancelled", {"requestId": 1}))
        await home.quiet()
        assert (outcomes, methods(client.stream)) == (["one ended"], [0])


# -- the connection is the session ---------------------------------------------------------------


async def test_a_drop_ends_the_session_and_cancels_all(autojump_clock):  # H-6
    outcomes = []
    async with house(outcomes=outcomes) as home:
        async with sse(home.probe, "2024-11-05") as client:
            await client.say(call(1, "hang", {"key": "legacy"}))
            await client.say(call(2, "hang", {"key": "modern"}, modern=True))
            await home.quiet()
            assert len(home.bus.sessions) == 1
        await trio.lowlevel.checkpoint()
        await home.quiet()
        assert sorted(outcomes) == ["legacy ended", "modern ended"]
        await home.assert_nothing_is_left()
        assert (await client.post(request(3, "ping")).ended()).status == 404
        assert len(home.bus.tools_changed()) == 0


async def test_what_waited_for_a_client_that_went_is_discarded_with_its_session(autojump_clock):
    async with house() as home:
        async with sse(home.probe, "2024-11-05") as client:
            client.stream.stall()
            written = home.bus.tools_changed()
            await home.quiet()
            waiting = home.bus.resources_changed()
            await home.quiet()
        await trio.lowlevel.checkpoint()
        await home.quiet()
        assert [r.fate.reason for r in written] == [Reason.LOST]
        assert [r.fate.reason for r in waiting] == [Reason.SESSION_ENDED]
        await home.assert_nothing_is_left()


async def test_a_client_that_takes_nothing_loses_its_connection(autojump_clock):
    async with house(limits={"write_deadline": 30}) as home, sse(home.probe, "2024-11-05") as client:
        client.stream.stall()
        home.bus.tools_changed()
        await trio.sleep(29)
        assert len(home.bus.sessions) == 1
        await trio.sleep(2.5)  # the end of the response may take another second
        assert client.stream.aborted
        assert home.bus.statistics().limits_reached == {"write_deadline": 1}
        await home.assert_nothing_is_left()


async def test_a_client_that_asks_and_does_not_read_is_not_read_from(autojump_clock):
    limits = {"outbox_items": 4, "max_requests_per_session": 4}
    async with house(limits=limits) as home, sse(home.probe, "2024-11-05") as client:
        client.stream.stall()
        posts = []
        for n in range(30):  # one by one, so that each finds what the ones before it have left
            posts.append(client.post(request(n, "ping")))
            await home.quiet()
        await trio.sleep(1)
        # One answer is being written, eight wait, twice what the outbox holds, and one is too many: no further body is read.
        assert [post.over for post in posts] == [True] * 10 + [False] * 20
        client.stream.resume()
        for post in posts:
            assert (await post.ended()).status == 202
        await home.quiet()
        assert len(client.stream.messages) == 31


async def test_a_session_that_the_server_closes_is_answered_and_its_stream_completed(autojump_clock):
    async with house() as home, sse(home.probe, "2024-11-05") as client:
        await client.say(call(1, "hang"))
        next(iter(home.bus.sessions.values())).close()
        await client.stream.ended()
        assert client.stream.complete
        assert client.stream.messages[-1]["error"]["code"] == -32603
        assert (await client.post(request(2, "ping")).ended()).status == 404
        await home.assert_nothing_is_left()


async def test_a_drain_lets_requests_finish_and_ends_the_stream(autojump_clock):
    async with house(drain_timeout=5) as home, sse(home.probe, "2024-11-05") as client:
        await client.say(call(1, "nap", {"seconds": 3}))
        await client.say(call(2, "nap", {"seconds": 9}))
        await home.bus.drain(5)
        await client.stream.ended()
        assert client.stream.complete
        answers = {m["id"]: "result" in m for m in client.stream.messages}
        assert answers == {0: True, 1: True, 2: False}
        refused = await home.probe.send("GET", headers={"accept": "*/*"}, target="/sse").ended()
        assert refused.status == 503


async def test_connections_count_among_the_sessions(autojump_clock):
    async with (
        house(limits={"max_sessions": 2}) as home,
        sse(home.probe, "2025-11-25"),
        sse(home.probe, "2024-11-05"),
    ):
        await home.quiet()
        refused = await home.probe.send("GET", headers={"accept": "*/*"}, target="/sse").ended()
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        answer = await home.probe.post(initialize("2025-11-25")).ended()
        assert answer.status == 503


async def test_a_connection_that_did_not_finish_its_handshake_makes_room(autojump_clock):
    async with house(limits={"max_sessions": 1}) as home, sse(home.probe) as client:
        await client.ask(initialize("2024-11-05"))
        await home.probe.initialize()
        await client.stream.ended()
        assert client.stream.complete


# -- refusals ------------------------------------------------------------------------------------

REFUSED = [
    ("an unknown id", {"target": "/sse?session_id=nobody"}, 404, -32000),
    ("no id", {"target": "/sse"}, 405, None),
    ("another parameter", {"target": "/sse?x=1"}, 404, -32000),
    ("two ids", {"twice": True}, 404, -32000),
    ("another Content-Type", {"headers": {"content-type": "text/plain"}}, 415, -32600),
    ("a foreign Host", {"headers": {"host": "evil.example"}}, 403, -32600),
    ("a foreign Origin", {"headers": {"origin": "https://evil.example"}}, 403, -32600),
    ("a body that says it is too long", {"headers": {"content-length": "99999999"}}, 413, -32600),
    ("a body that is too long", {"body": b" " * (4 * 1024 * 1024 + 1)}, 413, -32600),
    ("no JSON", {"body": b"{"}, 400, -32700),
    ("no message", {"body": b'{"jsonrpc":"2.0"}'}, 400, -32600),
    ("an array", {"body": b"[]"}, 400, -32600),
]


@pytest.mark.parametrize(
    ("given", "status", "code"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
async def test_a_post_is_refused_in_its_own_answer_and_nothing_is_said_on_the_stream(
    given, status, code, autojump_clock
):  # H-7
    async with house() as home, sse(home.probe, "2024-11-05") as client:
        target = given.get("target", client.stream.endpoint)
        if "twice" in given:
            target += "&" + target.partition("?")[2]
        headers = {"content-type": "application/json", **given.get("headers", {})}
        before = home.bus.statistics()
        answer = await home.probe.send("POST", given.get("body", b"{}"), headers, target=target).ended()
        assert answer.status == status
        assert (json.loads(answer.body)["error"]["code"] if code else None) == code
        await home.quiet()
        assert methods(client.stream) == [0]
        after = home.bus.statistics()
        assert (after.actors, after.emitted) == (before.actors, before.emitted)


async def test_the_query_names_the_session_and_may_say_more(autojump_clock):
    async with house() as home, sse(home.probe, "2024-11-05") as client:
        path, _, query = client.stream.endpoint.partition("?")
        headers = {"content-type": "application/json"}
        ping = json.dumps(request(1, "ping")).encode()
        for said, status in [
            (f"{query}&x=1", 202),
            (query.replace("_", "%5F"), 202),
            (query.partition("=")[2], 404),
            (f"x={query}", 404),
            (f"{query}&{query}", 404),
        ]:
            answer = await home.probe.send("POST", ping, headers, target=f"{path}?{said}").ended()
            assert (said, answer.status) == (said, status)


async def test_an_error_that_names_its_request_is_said_on_the_stream(autojump_clock):
    async with house() as home, sse(home.probe, "2024-11-05") as client:
        answer = await client.ask({"jsonrpc": "2.0", "id": 7, "method": 1})
        assert (answer["id"], answer["error"]["code"]) == (7, -32600)
        answer = await client.ask(request(8, "nothing/like/it"))
        assert (answer["id"], answer["error"]["code"]) == (8, -32601)


@pytest.mark.parametrize(
    ("verb", "headers", "status"),
    [
        ("GET", {"accept": "application/json"}, 406),
        ("GET", {"host": "evil.example"}, 403),
        ("GET", {"origin": "https://evil.example"}, 403),
        ("PUT", {}, 405),
        ("DELETE", {}, 405),
        ("OPTIONS", {"origin": "http://localhost:3", "access-control-request-method": "POST"}, 204),
    ],
)
async def test_a_stream_is_refused_before_anything_is_allocated(verb, headers, status, autojump_clock):
    async with house() as home:
        answer = await home.probe.send(verb, headers=headers, target="/sse").ended()
        assert answer.status == status
        assert home.bus.statistics().actors == 0


async def test_before_initialize_only_ping_and_modern_requests_are_served(autojump_clock):  # L-12
    async with house() as home, sse(home.probe) as client:
        refused = (await client.ask(request(1, "tools/list" + "x" * 9_999)))["error"]
        assert (refused["code"], len(refused["message"]) < 300) == (-32600, True)
        assert (await client.ask(request(2, "ping")))["result"] == {}
        assert "result" in await client.ask(request(3, "server/discover", modern=True))


async def test_another_principals_post_finds_no_session(autojump_clock):
    async with house(authenticate=authenticate) as home:
        refused = await home.probe.send("GET", headers={"accept": "*/*"}, target="/sse").ended()
        assert (refused.status, refused.headers["www-authenticate"]) == (401, 'Bearer realm="house"')
        async with sse(home.probe, "2024-11-05", authorization="ada") as client:
            assert (await client.post(request(1, "ping")).ended()).status == 202
            await client.stream.message()
            assert (await client.post(request(2, "ping"), authorization="bob").ended()).status == 404
            assert (await client.post(request(3, "ping"), authorization="eve").ended()).status == 401
            assert methods(client.stream) == [0, 1]
            assert next(iter(home.bus.sessions.values())).principal == "ada"


async def test_its_session_is_none_of_streamable_http(autojump_clock):
    async with house() as home, sse(home.probe, "2025-11-25") as client:
        (session_id,) = home.bus.sessions
        headers = {"mcp-session-id": session_id, "mcp-protocol-version": "2025-11-25"}
        for answer in (
            home.probe.post(request(1, "ping"), headers),
            home.probe.send("GET", headers={"accept": "text/event-stream", **headers}),
            home.probe.send("DELETE", headers=headers),
        ):
            assert (await answer.ended()).status == 404
        streamable = await home.probe.initialize()
        target = f"/sse?session_id={streamable.id}"
        headers = {"content-type": "application/json"}
        assert (await home.probe.send("POST", b"{}", headers, target=target).ended()).status == 404
        assert (await client.ask(request(2, "ping")))["result"] == {}


# -- options -------------------------------------------------------------------------------------


@pytest.mark.parametrize("http", [{"http_sse": False}, {"sessions": "stateless"}, {"sse_path": "/events"}])
async def test_it_can_be_switched_off_moved_and_is_not_there_without_sessions(http, autojump_clock):  # H-9
    async with house(http=http) as home:
        assert (await home.probe.send("GET", headers={"accept": "*/*"}, target="/sse").ended()).status == 404
        moved = home.probe.send("GET", headers={"accept": "*/*"}, target=http.get("sse_path", "/sse"))
        await moved.begun()
        assert moved.status == (200 if "sse_path" in http else 404)


@pytest.mark.parametrize("sse_path", ["/mcp", "/health", "sse", "/sse?x"])
def test_a_path_that_cannot_be_is_refused(sse_path):
    with pytest.raises(ValueError, match="sse_path"):
        HttpOptions(sse_path=sse_path)


def test_an_endpoint_may_have_that_path_where_there_is_no_http_sse():
    assert HttpOptions(path="/sse", http_sse=False).path == "/sse"


async def test_a_refused_connection_leaves_nothing_on_a_bus_that_is_closing(autojump_clock):
    async with house() as home:
        await home.bus.drain(0)
        with pytest.raises(ProtocolError, match="shutting down"):
            async with home.bus.connect():
                pass
        assert home.bus.statistics().actors == 0


def http_sse_of(home):
    """What serves HTTP+SSE there."""
    return home.app.direct("/sse")._sse


async def test_nothing_is_kept_of_a_stream_that_has_ended(autojump_clock):
    async with house() as home:
        async with sse(home.probe):
            assert len(http_sse_of(home)._channels) == 1
        await home.assert_nothing_is_left()
        assert not http_sse_of(home)._channels


async def test_nor_of_one_that_could_not_be_begun(autojump_clock):
    head = RequestHead("GET", "/sse", Headers([(b"accept", b"text/event-stream")]))
    sink = Mock(peer=IN_PROCESS, **{"open.side_effect": MemoryError})
    async with house() as home:
        with pytest.raises(MemoryError):
            http_sse_of(home).respond(head, b"", None, sink)
        await home.assert_nothing_is_left()
        assert not http_sse_of(home)._channels


@pytest.mark.parametrize("shell", ["asgi", "http1"])
async def test_a_post_may_be_as_long_as_it_may_and_no_longer(shell, autojump_clock):
    ping = json.dumps(request(1, "ping")).encode().ljust(100)
    async with (
        house(http={"max_body_bytes": 100}) as home,
        open_probe(home.app, shell=shell) as probe,
        sse(probe) as client,
    ):
        assert (await client.post(ping).ended()).status == 202
        assert (await client.post(ping + b" ").ended()).status == 413


@pytest.mark.parametrize("shell", ["asgi", "http1"])
@pytest.mark.parametrize(
    ("said", "status"),
    [
        ({"authorization": "ada"}, None),
        ({"authorization": "bob"}, 404),
        ({"authorization": "eve"}, 401),
        ({}, 401),
        ({"authorization": "ada", "host": "evil.example"}, 403),
        ({"authorization": "ada", "origin": "http://evil.example"}, 403),
    ],
)
async def test_who_asks_is_judged_whichever_way_it_comes(said, status, shell, autojump_clock):
    async with (
        house(authenticate=authenticate) as home,
        open_probe(home.app, shell=shell) as probe,
        sse(probe, "2024-11-05", authorization="ada") as client,
    ):
        fields = {"content-type": "application/json", **said}
        body = json.dumps(request(1, "ping")).encode()
        asked = await probe.send("POST", body, fields, target=client.stream.endpoint).ended()
        assert asked.status == (status or 202)
        opened = probe.send("GET", headers={"accept": "text/event-stream", **said}, target="/sse")
        await opened.begun()
        assert opened.status == (200 if status in {None, 404} else status)
        assert len(http_sse_of(home)._channels) == (2 if opened.status == 200 else 1)


@pytest.mark.parametrize(
    ("size", "kind", "status"), [(100, b"json", 404), (101, b"json", 413), (1, b"xml", 415)]
)
async def test_a_post_whose_body_is_there_is_judged_by_itself_before_its_session_is(
    size, kind, status, autojump_clock
):
    headers = Headers([(b"content-type", b"application/" + kind)])
    head = RequestHead("POST", "/sse", headers, query="session_id=none")
    async with house(http={"max_body_bytes": 100}) as home:
        refused = http_sse_of(home).respond(head, b" " * size, None, Mock(peer=IN_PROCESS))
        assert refused.status == status


@pytest.mark.parametrize(
    ("verb", "said", "clear"),
    [
        ("POST", {}, True),
        ("POST", {b"content-type": b"text/plain"}, False),
        ("POST", {b"host": b"evil.example"}, False),
        ("GET", {}, False),
    ],
)
async def test_only_a_post_is_known_to_be_in_order_before_it_is_looked_at(verb, said, clear, autojump_clock):
    fields = {b"host": b"localhost", b"content-type": b"application/json", **said}
    async with house() as home:
        head = RequestHead(verb, "/sse", Headers([*fields.items()]), query="session_id=none")
        assert http_sse_of(home).clears(head) is clear
