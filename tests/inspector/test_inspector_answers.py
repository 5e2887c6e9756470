"""The answers of the inspector: each path, within its bounds, with nothing secret in it."""

import json

import msgspec
import pytest
import trio

from mcpbus import Context, Limits, Proxy, Server
from mcpbus.inspector.answers import PATHS, Answers, BadQueryError
from mcpbus.inspector.serving import inspector_app
from mcpbus.testing import open_bus, open_probe
from mcpbus.watch import Watch

MARKUP = "<img src=x onerror=alert(1)>"


def server():
    made = Server("shop")

    @made.tool
    async def reserve(city: str, ctx: Context) -> str:
        await ctx.info("one moment")
        await trio.sleep(100)
        return city

    @made.tool
    async def ask(ctx: Context) -> str:
        return str(await ctx.elicit(MARKUP, str))

    return made


async def never(*_):
    await trio.sleep_forever()


async def test_each_path_shows_a_busy_bus_and_nothing_secret(autojump_clock):
    limits = Limits(max_requests_per_session=2)
    async with (
        open_bus(server(), watch=Watch(), limits=limits) as bus,
        open_probe(bus.asgi()) as probe,
        trio.open_nursery() as nursery,
        bus.connect(
            principal="alice-token", capabilities={"elicitation": {}}, on_input_request=never
        ) as client,
    ):
        session = await probe.initialize("2025-11-25")
        for _ in range(3):
            session.request("tools/call", {"name": "reserve", "arguments": {"city": "Lyon"}})
        listen = probe.request("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        await listen.message()
        nursery.start_soon(client.call_tool, "ask")
        await trio.sleep(1)
        bus.tools_changed()
        answers = Answers(bus, bus.watch)
        found = {path: json.loads(msgspec.json.encode(answers.answer(path, {}))) for path in PATHS}
        text = json.dumps(found)
        for secret in ("Lyon", "one moment", "alice-token", session.id):
            assert secret not in text
        assert found["/ledger"]["balance"] == 0
        assert [row["name"] for row in found["/requests"]["requests"]] == ["reserve", "reserve", "ask"]
        assert found["/requests"]["requests"][0]["stack"][-1]["function"]
        [suspended] = found["/suspended"]["suspended"]
        assert (suspended["state"], suspended["question"]) == ("suspended", MARKUP)
        by_id = {row["id"]: row for row in found["/sessions"]["sessions"]}
        assert by_id[session.id[:8]]["places"] == {"held": 1}
        assert by_id[session.id[:8]]["in_flight"] == 2
        [listening] = found["/listens"]["listens"]
        assert listening["lists"] == ["tools"]
        assert f"session {session.id[:8]}" in [row["of"] for row in found["/streams"]["streams"]]
        running = {row["name"]: row["running"] for row in found["/tools"]["tools"] if row["name"]}
        assert running["reserve"] == 2
        rows = {row["limit"]: row for row in found["/limits"]["limits"]}
        assert rows["max_requests_per_session"]["reached"] == 1
        assert found["/limits"]["last"][0]["limit"] == "max_requests_per_session"
        assert found["/tape"]["messages"][0]["method"] == "notifications/tools/list_changed"
        assert found["/all"]["live"]["requests"] != []
        number = found["/requests"]["requests"][0]["number"]
        one = json.loads(msgspec.json.encode(answers.answer(f"/requests/{number}", {})))
        assert [message["method"] for message in one["tape"]] == ["notifications/message"]
        nursery.cancel_scope.cancel()


async def test_lists_are_bounded_and_say_how_many_there_are_besides(autojump_clock):
    async with (
        open_bus(server(), watch=Watch()) as bus,
        trio.open_nursery() as nursery,
        bus.connect() as client,
    ):
        for _ in range(5):
            nursery.start_soon(client.call_tool, "reserve", {"city": "Lyon"})
        await trio.sleep(1)
        answers = Answers(bus, bus.watch)
        found = answers.answer("/requests", {"limit": "2"})
        assert (len(found["requests"]), found["more"]) == (2, 3)
        tape = answers.answer("/tape", {"limit": "2"})
        assert (len(tape["messages"]), tape["more"], tape["to"]) == (2, True, 5)
        since = answers.answer("/tape", {"since": "3"})
        assert [message.number for message in since["messages"]] == [5, 4]
        assert answers.answer("/requests", {"limit": "100000000"})["more"] == 0
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("/requests", {"limit": "x"}),
        ("/requests", {"limit": "-1"}),
        ("/requests", {"limit": "9" * 5000}),
        ("/tape", {"request": "²"}),
        ("/ledger", {"x": "1"}),
    ],
)
async def test_a_query_that_cannot_be_right_is_refused(path, query, autojump_clock):
    async with open_bus(server(), watch=Watch()) as bus:
        with pytest.raises(BadQueryError):
            Answers(bus, bus.watch).answer(path, query)


@pytest.mark.parametrize(
    "path", ["/nothing", "/requests/", "/requests/x", "/requests/1", "/requests/²", "//"]
)
async def test_what_is_not_there_is_said_so(path, autojump_clock):
    async with open_bus(server(), watch=Watch()) as bus:
        assert Answers(bus, bus.watch).answer(path, {}) is None


async def test_over_http_it_is_json_that_nobody_stores(autojump_clock):
    async with open_bus(server(), watch=Watch()) as bus:
        app = inspector_app(Answers(bus, bus.watch), {"127.0.0.1:1"}, "t")
        sent = []

        async def send(event):
            sent.append(event)

        async def ask(path, query=b"", token=b"Bearer t"):
            sent.clear()
            fields = [(b"host", b"127.0.0.1:1"), (b"authorization", token)]
            scope = {"type": "http", "method": "GET", "path": path, "headers": fields, "query_string": query}
            await app(scope, None, send)
            return sent[0]["status"], dict(sent[0]["headers"]), json.loads(sent[1]["body"])

        status, fields, body = await ask("/ledger")
        assert (status, body["balance"], body["version"]) == (200, 0, 1)
        assert fields[b"cache-control"] == b"no-store"
        assert fields[b"content-security-policy"].startswith(b"default-src 'none'")
        assert b"access-control-allow-origin" not in fields
        assert (await ask("/ledger", token=b"Bearer u"))[0] == 401
        assert (await ask("/tape", b"since=x"))[0] == 400
        assert (await ask("/x"))[0] == 404


async def test_the_connections_of_proxies_are_shown(autojump_clock):
    async with open_bus(server()) as below:
        above = Server("above")
        above.mount(Proxy(below.connect, name="below"))
        async with open_bus(above, watch=Watch()) as bus, trio.open_nursery() as nursery:
            client = await nursery.start(_connected, bus)
            nursery.start_soon(client.call_tool, "reserve", {"city": "Lyon"})
            await trio.sleep(1)
            [upstream] = Answers(bus, bus.watch).answer("/upstreams", {})["upstreams"]
            assert (upstream["name"], upstream["waiting"], upstream["failure"]) == ("below", 0, None)
            assert upstream["open"] >= upstream["in_use"] == 1
            nursery.cancel_scope.cancel()


async def _connected(bus, task_status):
    async with bus.connect() as client:
        task_status.started(client)
        await trio.sleep_forever()
