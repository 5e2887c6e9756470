"""WebSocket: one connection that carries everything, as the binding in docs/websocket.md says."""

import json
from functools import partial

import channels
import pytest
import trio
from channels import (
    CLAIM,
    WsClient,
    authenticate,
    call,
    house,
    initialize,
    make_server,
    notification,
    request,
    sse,
)
from websocket_tunnels import tunnel_ws
from websocket_wires import wire_ws

from mcpbus.protocol.routes import Reason

LEGACY = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]

WAYS = {
    "ASGI": channels.ws,
    "turns": partial(wire_ws, turns=True),
    "tasks": partial(wire_ws, turns=False),
    "HTTP/2": tunnel_ws,
}
"""Under an ASGI server; over HTTP/1.1 of our own, in turns of the connection, and where it cannot be polled; on a stream of HTTP/2."""


@pytest.fixture(params=WAYS.values(), ids=WAYS)
def ws(request):
    return request.param


def methods(client):
    return [m.get("method", m.get("id")) for m in client.messages]


# -- the upgrade ---------------------------------------------------------------------------------


async def test_the_subprotocol_is_mcp(ws, autojump_clock):
    async with house() as home, ws(home.app, subprotocols=["other", "mcp"]) as client:
        assert (client.accepted, client.subprotocol) == (True, "mcp")


async def test_a_client_that_offers_no_subprotocol_is_served_without_one(ws, autojump_clock):
    async with house() as home, ws(home.app, "2025-11-25", subprotocols=[]) as client:
        assert (client.accepted, client.subprotocol) == (True, None)
        assert (await client.ask(call(1, "count", {"steps": 0})))["id"] == 1


REFUSED = [
    ("a foreign Host", {"host": "evil.example"}, 403),
    ("no Host", {"host": ""}, 403),
    ("a foreign Origin", {"origin": "https://evil.example"}, 403),
    ("another path", {"path": "/other"}, 404),
    ("the path of HTTP+SSE", {"path": "/sse"}, 404),
    ("another subprotocol", {"subprotocols": ["graphql-ws", "MCP"]}, 400),
]


@pytest.mark.parametrize(("given", "status"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
async def test_an_upgrade_is_refused_before_anything_is_allocated(given, status, ws, autojump_clock):
    async with house() as home, ws(home.app, **given) as client:
        await client.ended()
        assert not client.accepted
        assert client.status == status
        assert ((b"connection", b"close") in client.headers) is (ws is not tunnel_ws)
        assert client.body
        assert home.bus.statistics().actors == 0


async def test_an_asgi_server_that_cannot_refuse_in_http_closes(autojump_clock):
    async with house() as home, channels.ws(home.app, extensions=False, path="/other") as client:
        await client.ended()
        assert (client.accepted, client.close) == (False, 1008)
        assert home.bus.statistics().actors == 0


@pytest.mark.parametrize("origin", ["http://localhost:5173", "http://127.0.0.1", "https://app.example"])
async def test_pages_of_allowed_origins_may_connect(origin, ws, autojump_clock):
    http = {"allowed_origins": ["https://app.example"]}
    async with house(http=http) as home, ws(home.app, "2025-11-25", origin=origin) as client:
        assert client.accepted


async def test_who_connects_is_asked_at_the_upgrade(ws, autojump_clock):
    async with house(authenticate=authenticate) as home:
        async with ws(home.app) as client:
            await client.ended()
            assert client.status == 401
            assert (b"www-authenticate", b'Bearer realm="house"') in client.headers
        async with ws(home.app, "2025-11-25", authorization="ada"):
            assert next(iter(home.bus.sessions.values())).principal == "ada"


async def test_past_the_cap_an_upgrade_is_refused_with_503(ws, autojump_clock):
    async with (
        house(limits={"max_sessions": 2}) as home,
        ws(home.app, "2025-11-25"),
        sse(home.probe, "2024-11-05"),
        ws(home.app) as client,
    ):
        await client.ended()
        assert client.status == 503
        assert (b"retry-after", b"1") in client.headers


@pytest.mark.parametrize(
    ("http", "accepted"), [({"websocket": False}, False), ({"sessions": "stateless"}, True)]
)
async def test_it_can_be_switched_off_and_needs_no_sessions_over_http(http, accepted, ws, autojump_clock):
    async with house(http=http) as home, ws(home.app, "2025-11-25" if accepted else None) as client:
        assert client.accepted is accepted
        assert client.status == (None if accepted else 404)


# -- messages ------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", LEGACY)
async def test_every_legacy_revision_may_be_negotiated(revision, ws, autojump_clock):
    async with house() as home, ws(home.app, revision) as client:
        answer = await client.ask(call(1, "count", {"steps": 0}))
        assert answer["result"]["content"][0]["text"] == "counted"
        assert next(iter(home.bus.sessions.values())).revision.name == revision


async def test_each_message_is_a_frame_of_its_own_with_everything_in_order(ws, autojump_clock):
    async with house() as home, ws(home.app, "2025-11-25") as client:
        client.say(request(1, "resources/subscribe", {"uri": "res://a"}))
        client.say(call(2, "count", token="t"))
        await home.quiet()
        home.bus.resource_updated("res://a")
        home.bus.tools_changed()
        next(iter(home.bus.sessions.values())).log("info", "aside")
        await home.quiet()
        assert methods(client) == [
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
        assert all("\n" not in frame for frame in client.frames)


async def test_both_eras_share_one_socket(ws, autojump_clock):
    async with house() as home, ws(home.app) as client:
        answer = await client.ask(request("m", "server/discover", modern=True))
        assert "2026-07-28" in answer["result"]["supportedVersions"]
        listen = request(
            "l", "subscriptions/listen", {"notifications": {"toolsListChanged": True}, "_meta": CLAIM}
        )
        assert (await client.ask(listen))["method"] == "notifications/subscriptions/acknowledged"
        assert (await client.ask(initialize("2025-06-18")))["result"]["protocolVersion"] == "2025-06-18"
        client.say(notification("notifications/initialized"))
        assert (await client.ask(call(1, "count", {"steps": 0})))["id"] == 1
        assert (await client.ask(call("m", "count", {"steps": 0}, modern=True)))["id"] == "m"
        home.bus.tools_changed()
        await home.quiet()
        copies = client.messages[-2:]
        stamps = [
            m.get("params", {}).get("_meta", {}).get("io.modelcontextprotocol/subscriptionId") for m in copies
        ]
        assert set(stamps) == {"l", None}
        client.say(notification("notifications/cancelled", {"requestId": "l"}))
        await home.quiet()
        assert len(home.bus.tools_changed()) == 1


async def test_what_the_upgrade_request_says_is_no_metadata_of_a_request(ws, autojump_clock):
    headers = {"mcp-protocol-version": "2026-07-28", "mcp-session-id": "x", "mcp-method": "tools/list"}
    async with house() as home, ws(home.app, "2025-06-18", **headers) as client:
        assert (await client.ask(request(1, "ping")))["result"] == {}
        assert (await client.ask(call(2, "count", {"steps": 0}, modern=True)))["result"][
            "resultType"
        ] == "complete"


async def test_a_question_is_answered_on_the_same_socket(ws, autojump_clock):
    async with house() as home, ws(home.app, "2025-06-18") as client:
        question = await client.ask(call(1, "ask"))
        assert question["method"] == "roots/list"
        answer = await client.ask({"jsonrpc": "2.0", "id": question["id"], "result": {"roots": []}})
        assert answer["result"]["content"][0]["text"] == "0"


@pytest.mark.parametrize(
    ("text", "code"), [("{", -32700), ("", -32700), ("[]", -32600), ('{"jsonrpc":"2.0"}', -32600)]
)
async def test_what_is_no_message_is_answered_without_an_id(text, code, ws, autojump_clock):
    async with house() as home, ws(home.app) as client:
        client.tell(text=text)
        answer = await client.message()
        assert (answer["error"]["code"], "id" in answer) == (code, False)
        assert (await client.ask(request(1, "ping")))["result"] == {}


# -- the end -------------------------------------------------------------------------------------


async def test_a_drop_ends_the_session_and_cancels_all(ws, autojump_clock):
    outcomes = []
    async with house(outcomes=outcomes) as home:
        async with ws(home.app, "2025-11-25") as client:
            client.say(call(1, "hang", {"key": "legacy"}))
            client.say(call(2, "hang", {"key": "modern"}, modern=True))
            await home.quiet()
            assert len(home.bus.sessions) == 1
        await home.quiet()
        assert sorted(outcomes) == ["legacy ended", "modern ended"]
        assert client.close is None
        await home.assert_nothing_is_left()


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ({"bytes": b"{}"}, 1003),
        ({"bytes": b"{}", "text": None}, 1003),
        ({"text": "é" * (2 * 1024 * 1024 + 1)}, 1009),
    ],
)
async def test_a_frame_that_cannot_be_ends_the_connection_with_a_code(frame, code, ws, autojump_clock):
    outcomes = []
    async with house(outcomes=outcomes) as home:
        async with ws(home.app, "2025-11-25") as client:
            client.say(call(1, "hang"))
            await home.quiet()
            client.tell(**frame)
            await client.ended()
            assert client.close == code
        assert outcomes == [" ended"]
        await home.assert_nothing_is_left()


async def test_the_longest_message_is_served(ws, autojump_clock):
    async with house(http={"max_body_bytes": 200}) as home, ws(home.app) as client:
        message = json.dumps(request(1, "ping"))
        client.tell(text=message + " " * (200 - len(message)))
        assert (await client.message())["result"] == {}
        client.tell(text=message + " " * (201 - len(message)))
        assert (await client.ended()).close == 1009
        assert home.bus.statistics().limits_reached == {"max_body_bytes": 1}


async def test_a_session_that_the_server_closes_is_closed_normally_after_its_replies(ws, autojump_clock):
    async with house() as home, ws(home.app, "2025-11-25") as client:
        client.say(call(1, "hang"))
        await home.quiet()
        next(iter(home.bus.sessions.values())).close()
        await client.ended()
        assert client.messages[-1]["error"]["code"] == -32603
        assert client.close == 1000
        await home.assert_nothing_is_left()


async def test_a_drain_lets_requests_finish_and_says_that_the_server_goes_away(ws, autojump_clock):
    async with house() as home, ws(home.app, "2025-11-25") as client:
        client.say(call(1, "nap", {"seconds": 3}))
        client.say(call(2, "nap", {"seconds": 9}))
        await home.quiet()
        await home.bus.drain(5)
        await client.ended()
        assert {m["id"]: "result" in m for m in client.messages} == {0: True, 1: True, 2: False}
        assert client.close == 1001


async def test_a_client_that_takes_nothing_loses_its_connection(ws, autojump_clock):
    async with house(limits={"write_deadline": 30}) as home, ws(home.app, "2025-11-25") as client:
        client.stall()
        lost = home.bus.tools_changed()
        await home.quiet()
        waiting = home.bus.prompts_changed()
        await trio.sleep(31)
        await client.ended()
        assert [r.fate.reason for r in lost] == [Reason.LOST]
        assert [r.fate.reason for r in waiting] == [Reason.SESSION_ENDED]
        assert home.bus.statistics().limits_reached == {"write_deadline": 1}
        await home.assert_nothing_is_left()


async def test_a_client_that_asks_and_does_not_read_is_not_read_from(ws, autojump_clock):
    limits = {"outbox_items": 4, "max_requests_per_session": 4}
    async with house(limits=limits) as home, ws(home.app) as client:
        client.stall()
        for n in range(30):
            client.say(request(n, "ping"))
        await home.quiet()
        assert 8 < sum(home.bus.statistics().pending.values()) < 20
        client.resume()
        for n in range(30):
            assert (await client.message())["id"] == n


async def test_a_stalled_client_delays_no_other(ws, autojump_clock):
    async with house() as home, ws(home.app, "2025-11-25") as stalled, ws(home.app, "2025-11-25") as other:
        stalled.stall()
        home.bus.tools_changed()
        await other.message()
        start = trio.current_time()
        assert (await other.ask(call(1, "count", {"steps": 0})))["id"] == 1
        assert trio.current_time() == start


async def test_an_endpoint_that_is_not_open_closes(autojump_clock):
    app, client = make_server([]).asgi(), WsClient()
    await client.run(app, {"type": "websocket", "path": "/mcp", "headers": []})
    assert client.close == 1011
