"""Requests that come to another process than the one that has what they are for: all is as if they had come there."""

import json

import pytest
import trio
from several import at, open_buses, quiet

from mcpbus import Context, Limits, Server
from mcpbus.tasks import TASKS, TaskSupport

CHANGED = "notifications/tools/list_changed"
UPDATED = "notifications/resources/updated"
SEARCH = "com.example/search"
FORM = {"type": "object", "properties": {"name": {"type": "string"}}}
ANSWER = {"action": "accept", "content": {"name": "Ada"}}


def make(where=None):
    """A server that notes in `where` what of it runs, and how it ends."""
    server = Server("several", capabilities=["tools", "resources"])
    ran = [] if where is None else where

    @server.tool
    async def echo(text: str) -> str:
        ran.append(server)
        return text

    @server.tool
    async def count(ctx: Context) -> str:
        for number in range(3):
            await ctx.progress(number)
            await trio.sleep(1)
        return "counted"

    @server.tool
    async def hold() -> str:
        try:
            await trio.sleep(1000)
        except trio.Cancelled:
            ran.append("cancelled")
            raise
        return "held"

    @server.tool
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("who?", FORM)
        ran.append("asked")
        return str(answer)

    @server.tool(task=TaskSupport())
    async def work() -> str:
        await trio.sleep(10)
        return "worked"

    @server.resource("res://one")
    async def one() -> str:
        return "1"

    return server


def searching():
    server = Server("several", extensions={SEARCH: {}})

    @server.on_request("com.example/search/find", extension=SEARCH)
    async def find(words: str, ctx: Context) -> dict[str, str]:
        await ctx.progress(1)
        return {"found": words}

    return server


def call(session, name, token=None, **arguments):
    return session.request("tools/call", {"name": name, "arguments": arguments}, progress_token=token)


def text(message):
    return message["result"]["content"][0]["text"]


@pytest.fixture(params=[0, 1], ids=["here", "there"])
def way(request):
    """At which process the second request comes: the one that has the session, or another one."""
    return request.param


async def test_a_request_of_an_extension_is_served_where_its_session_is(way, autojump_clock):
    async with open_buses(searching) as (_, probes):
        opened = await probes[0].initialize(capabilities={"extensions": {SEARCH: {}}})
        session, params = at(opened, probes[way]), {"words": "sea"}
        answered = await session.request("com.example/search/find", params, progress_token="t").ended()
        progress, answer = answered.messages
        assert (progress["params"]["progressToken"], answer["result"]) == ("t", {"found": "sea"})
        other = at(await probes[0].initialize(), probes[way])
        refused = await other.request("com.example/search/find", params).ended()
        assert refused.messages[0]["error"]["code"] == -32021


async def test_a_call_is_served_where_its_session_is(way, autojump_clock):
    ran = []
    async with open_buses(lambda: make(ran)) as (buses, probes):
        session = at(await probes[0].initialize(), probes[way])
        answered = await call(session, "echo", text="hello").ended()
        assert (answered.status, text(answered.messages[0])) == (200, "hello")
        assert answered.headers["content-type"] == "application/json"
        assert ran == [buses[0].server]
        assert [len(bus.sessions) for bus in buses] == [1, 0]


async def test_what_a_call_says_comes_as_it_is_said(way, autojump_clock):
    async with open_buses(make) as (_, probes):
        session = at(await probes[0].initialize(), probes[way])
        counting = call(session, "count", token="t")
        for number in range(3):
            assert (await counting.message())["params"]["progress"] == number
            assert trio.current_time() == pytest.approx(number, abs=0.5)
        assert text(await counting.message()) == "counted"
        assert (await counting.ended()).complete


async def test_an_answer_longer_than_a_frame_comes_whole(way, autojump_clock):
    async with open_buses(make) as (_, probes):
        session = at(await probes[0].initialize(), probes[way])
        long = "x" * 300_000
        assert text(await call(session, "echo", text=long).reply()) == long


async def test_a_get_at_another_process_takes_over(way, autojump_clock):
    async with open_buses(make, 3) as (buses, probes):
        session = await probes[0].initialize()
        old = await at(session, probes[way]).get().begun()
        new = await at(session, probes[2]).get().begun()
        await quiet(buses)
        assert old.complete or old.aborted
        (receipt,) = buses[0].tools_changed()
        assert (await new.message())["method"] == CHANGED
        assert str(await receipt.settled()) == "delivered"


async def test_a_question_is_answered_at_another_process(way, autojump_clock):
    async with open_buses(make) as (_, probes):
        session = await probes[0].initialize(capabilities={"elicitation": {}})
        asking = call(at(session, probes[1 - way]), "ask")
        question = await asking.message()
        answered = await at(session, probes[way]).answer(question["id"], ANSWER).ended()
        assert answered.status == 202
        assert "Ada" in text(await asking.message())


async def test_an_answer_that_cannot_be_read_is_told_whoever_asked_at_another_process(way, autojump_clock):
    async with open_buses(make) as (_, probes):
        session = await probes[0].initialize(capabilities={"elicitation": {}})
        asking = call(session, "ask")
        question = await asking.message()
        body = json.dumps({"jsonrpc": "2.0", "id": question["id"], "error": "no"}).encode()
        headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        answered = probes[way].send("POST", body, headers | {"mcp-session-id": session.id})
        assert (await answered.ended()).status == 400
        message = (await asking.message())["error"]["message"]
        assert message == ("The client's answer cannot be used: Expected `object`, got `str` - at `$.error`")


async def test_a_call_is_cancelled_at_another_process(way, autojump_clock):
    ran = []
    async with open_buses(lambda: make(ran)) as (buses, probes):
        session = await probes[0].initialize()
        held = call(session, "hold")
        await quiet(buses)
        await at(session, probes[way]).notify("notifications/cancelled", {"requestId": 1}).ended()
        await held.ended()
        await quiet(buses)
        assert ran == ["cancelled"]


async def test_a_client_that_leaves_another_process_has_left(way, autojump_clock):
    async with open_buses(make) as (buses, probes):
        session = at(await probes[0].initialize(), probes[way])
        stream = await session.get().begun()
        assert next(iter(buses[0].sessions.values())).listening
        stream.disconnect()
        await quiet(buses)
        assert not next(iter(buses[0].sessions.values())).listening


async def test_an_id_is_in_flight_wherever_it_came(way, autojump_clock):
    async with open_buses(make) as (buses, probes):
        session = await probes[0].initialize()
        at(session, probes[1]).request("tools/call", {"name": "hold", "arguments": {}}, id="same")
        await quiet(buses)
        again = at(session, probes[way]).request("tools/call", {"name": "hold", "arguments": {}}, id="same")
        assert (await again.reply())["error"]["code"] == -32600


async def test_a_session_is_deleted_from_another_process(way, autojump_clock):
    async with open_buses(make) as (buses, probes):
        session = await probes[0].initialize()
        stream = await at(session, probes[1]).get().begun()
        deleted = await at(session, probes[way]).delete().ended()
        assert deleted.status == 204
        await stream.ended()
        assert not buses[0].sessions
        for probe in probes:
            assert (await at(session, probe).request("ping").ended()).status == 404


async def test_http_sse_takes_posts_at_another_process(way, autojump_clock):
    async with open_buses(make) as (_, probes):
        stream = probes[0].send("GET", headers={"accept": "text/event-stream"}, target="/sse")
        while stream.endpoint is None:
            await stream.wait_for(lambda: stream.endpoint is not None)
        ping = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
        # Of a client that mirrors what it asks, as it does over Streamable HTTP, where that names no session.
        for mirrored in ({}, {"mcp-method": "tools/list", "mcp-protocol-version": "2026-07-28"}):
            fields = {"content-type": "application/json", **mirrored}
            posted = await probes[way].send("POST", ping, fields, target=stream.endpoint).ended()
            assert posted.status == 202
            assert (await stream.message())["id"] == 1


async def test_a_parked_call_goes_on_where_it_waits(way, autojump_clock):
    ran = []
    declared = {"elicitation": {}}
    async with open_buses(lambda: make(ran)) as (_, probes):
        params = {"name": "ask", "arguments": {}}
        asked = (await probes[0].request("tools/call", params, capabilities=declared).reply())["result"]
        (key,) = asked["inputRequests"]
        retry = {**params, "inputResponses": {key: ANSWER}, "requestState": asked["requestState"]}
        went_on = await probes[way].request("tools/call", retry, capabilities=declared).reply()
        assert "Ada" in text(went_on)
        again = await probes[1 - way].request("tools/call", retry, capabilities=declared).ended()
        assert again.messages[0]["error"]["code"] == -32602
        assert ran == ["asked"]


async def test_a_task_is_found_from_another_process(way, autojump_clock):
    declared = {"extensions": {TASKS: {}}}
    async with open_buses(make) as (_, probes):
        params = {"name": "work", "arguments": {}}
        begun = await probes[0].request("tools/call", params, capabilities=declared).reply()
        named = {"taskId": begun["result"]["taskId"]}
        listen = probes[way].request(
            "subscriptions/listen", {"notifications": {"taskIds": [named["taskId"]]}}, capabilities=declared
        )
        assert (await listen.message())["params"]["notifications"]["taskIds"] == [named["taskId"]]
        await trio.sleep(11)
        seen = await probes[way].request("tasks/get", named, capabilities=declared).reply()
        assert seen["result"]["status"] == "completed"
        statuses = [message["params"]["status"] for message in listen.messages[1:]]
        assert statuses[-1] == "completed"


async def test_a_modern_client_that_leaves_cancels_its_retry(way, autojump_clock):
    ran = []
    declared = {"elicitation": {}}

    def make_slow():
        server = make(ran)

        @server.tool
        async def slow(ctx: Context) -> str:
            await ctx.elicit("who?", FORM)
            try:
                await trio.sleep(1000)
            finally:
                ran.append("ended")

        return server

    async with open_buses(make_slow) as (buses, probes):
        params = {"name": "slow", "arguments": {}}
        asked = (await probes[0].request("tools/call", params, capabilities=declared).reply())["result"]
        (key,) = asked["inputRequests"]
        retry = {**params, "inputResponses": {key: ANSWER}, "requestState": asked["requestState"]}
        goes_on = probes[way].request("tools/call", retry, capabilities=declared)
        await quiet(buses)
        assert ran == []
        goes_on.disconnect()
        await quiet(buses)
        assert ran == ["ended"]


async def test_a_change_is_told_to_clients_of_all(autojump_clock):
    async with open_buses(make, 3) as (buses, probes):
        session = await probes[0].initialize()
        await session.request("resources/subscribe", {"uri": "res://one"}).ended()
        stream = await at(session, probes[1]).get().begun()
        wanted = {"toolsListChanged": True, "resourceSubscriptions": ["res://one"]}
        listen = probes[1].request("subscriptions/listen", {"notifications": wanted})
        await listen.message()
        buses[2].tools_changed()
        buses[2].resource_updated("res://one")
        for told in (stream, listen):
            assert [(await told.message())["method"] for _ in range(2)] == [CHANGED, UPDATED]
            await quiet(buses)
            with pytest.raises(trio.TooSlowError), trio.fail_after(5):
                await told.message()


async def test_a_tool_that_one_process_adds_changes_no_other_list(autojump_clock):
    async with open_buses(make) as (buses, probes):
        stream = await (await probes[0].initialize()).get().begun()
        buses[1].server.add_tool(make, name="more")
        with pytest.raises(trio.TooSlowError), trio.fail_after(5):
            await stream.message()
        buses[0].server.add_tool(make, name="more")
        assert (await stream.message())["method"] == CHANGED


async def test_a_stream_that_is_left_in_the_middle_is_cut_and_nothing_is_made_up(way, autojump_clock):
    async with open_buses(make) as (buses, probes):
        session = at(await probes[0].initialize(), probes[way])
        counting = call(session, "count", token=1)
        await counting.message()
        (slot,) = buses[0].admission
        slot.request.stream._writer.connection.cancel()
        await counting.wait_for(lambda: counting.aborted)
        assert len(counting.messages) == 1


async def test_what_is_wrong_is_refused_as_ever(autojump_clock):
    async with open_buses(make) as (_, probes):
        session = at(await probes[0].initialize(), probes[1])
        evil = session._probe.send("GET", headers={**session._headers, "host": "evil.example"})
        assert (await evil.ended()).status == 403
        session._headers["accept"] = "text/plain"
        assert (await session.request("ping").ended()).status == 406
        long = call(at(await probes[0].initialize(), probes[1]), "echo", text="x" * 5_000_000)
        assert (await long.ended()).status == 413


@pytest.mark.parametrize(
    "params", [b'{"requestState":"\xff"}', b'{"x":' + b"[" * 5000 + b"]" * 5000 + b',"requestState":""}']
)
async def test_what_cannot_be_read_is_refused_as_ever(params, autojump_clock):
    async with open_buses(make, 1) as (_, probes):
        body = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + params + b"}"
        fields = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        assert (await probes[0].send("POST", body, fields).ended()).status == 400


async def never(*_):
    await trio.sleep_forever()


async def test_a_request_for_which_there_is_no_memory_here_is_told_so(autojump_clock):
    async with open_buses(make, limits=Limits(memory_bytes=200_000)) as (buses, probes):
        session = at(await probes[0].initialize(), probes[1])
        buses[0].node._endpoints[0].serve_here = never
        refused = await call(session, "echo", text="x" * 150_000).ended()
        assert refused.status == 503
        assert b"Too much is kept in memory" in refused.body
        assert buses[1].statistics().held_bytes == 0


async def test_a_name_that_was_made_up_asks_nobody(autojump_clock):
    async with open_buses(make) as (buses, probes):
        session = at(await probes[0].initialize(), probes[1])
        home, _, rest = session.id.partition(".")
        asked = []
        buses[1].node.reach = asked.append
        for name in (f"{home}.{rest[:-1]}~", f"{home}.{rest[:-8]}AAAAAAAA", f"AAAAAAAA.{rest}", "x", home):
            session._headers["mcp-session-id"] = name
            assert (await session.request("ping").ended()).status == 404
        assert asked == []


async def test_who_is_asking_is_asked_where_the_session_is(autojump_clock):
    def make_private():
        server = make()

        async def authenticate(head):
            return head.headers.get("authorization")

        server.authenticate = authenticate
        return server

    async with open_buses(make_private) as (_, probes):
        session = at(await probes[0].initialize(headers={"authorization": "ada"}), probes[1])
        assert (await session.request("ping").ended()).status == 200
        session._headers["authorization"] = "eve"
        assert (await session.request("ping").ended()).status == 404


async def test_a_request_comes_whole_and_from_where_it_came(autojump_clock):
    async with open_buses(make) as (buses, probes):
        (endpoint,) = buses[0].node._endpoints
        respond, came = endpoint.respond_here, []

        def see(head, body, sink, **facts):
            came.append(sink)
            return respond(head, body, sink, **facts)

        endpoint.respond_here = see
        session = at(await probes[0].initialize(), probes[1])
        session._probe._path = "/mcp/?a=%20b"
        session._headers["x-twice"] = "one"
        assert (await session.request("ping").ended()).status == 200
        head = came[0].head
        assert (head.verb, head.path, head.query, head.root) == ("POST", "/mcp", "a=%20b", "")
        assert head.headers["x-twice"] == "one"
        assert str(came[0].peer) == "127.0.0.1"


async def test_an_application_that_raises_is_answered_500(autojump_clock, caplog):
    def make_broken():
        server = make()
        calls = []

        async def authenticate(_head):
            calls.append(1)
            if len(calls) > 2:
                raise ValueError("broken")

        server.authenticate = authenticate
        return server

    async with open_buses(make_broken) as (_, probes):
        session = at(await probes[0].initialize(), probes[1])
        assert (await session.request("ping").ended()).status == 500
        assert "the application raised while it served POST /mcp" in caplog.text


async def test_a_call_ends_in_a_drain(autojump_clock):
    async with open_buses(make) as (buses, probes):
        session = at(await probes[0].initialize(), probes[1])
        counting = call(session, "count")
        await quiet(buses)
        await buses[0].drain(5)
        assert text((await counting.ended()).messages[-1]) == "counted"


async def test_a_call_that_is_cancelled_once_its_client_is_known_is_the_only_one(autojump_clock):
    cancelled = []

    def make_asking():
        server = make()

        async def authenticate(_head):
            await trio.sleep(1)

        @server.tool
        async def wait(text: str) -> str:
            try:
                await trio.sleep(10)
            except trio.Cancelled:
                cancelled.append(text)
                raise
            return text

        server.authenticate = authenticate
        return server

    async with open_buses(make_asking) as (buses, probes):
        session = at(await probes[0].initialize(), probes[1])
        call(session, "wait", text="one")
        await quiet(buses)
        other = call(session, "wait", text="other")
        await trio.sleep(2)
        await session.notify("notifications/cancelled", {"requestId": 1}).ended()
        await quiet(buses)
        assert cancelled == ["one"]
        assert text((await other.ended()).messages[-1]) == "other"
