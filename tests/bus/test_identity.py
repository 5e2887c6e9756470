"""Whose session it is, and which ids must be unique where."""

import pytest
from staging import CLAIM, staged, tool

from mcpbus import Context, UnauthorizedError


async def by_header(head):
    name = head.headers.get(b"authorization")
    if name is None:
        raise UnauthorizedError
    return {"name": name}


def as_(name):
    return {"authorization": name}


@pytest.mark.parametrize("verb", ["POST", "GET", "DELETE", "notification"])
@pytest.mark.parametrize("principal", ["mallory", None])
async def test_another_principals_session_is_as_if_it_were_not_there(
    verb, principal, autojump_clock
):  # W-44, A-13
    async with staged(authenticate=by_header) as stage:
        alice = await stage.probe.initialize(headers=as_("alice"))
        stage.bus.tools_changed()
        theirs = {"mcp-session-id": alice.id} | ({} if principal is None else as_(principal))
        if verb == "POST":
            answer = stage.probe.post({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, theirs)
        elif verb == "notification":
            answer = stage.probe.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, theirs)
        else:
            answer = stage.probe.send(verb, headers={"accept": "text/event-stream", **theirs})
        await answer.ended()
        assert answer.status == (401 if principal is None else 404)
        assert alice.id in stage.bus.sessions
        get = alice.get()
        await stage.quiet()
        assert len(get.messages) == 1


async def test_find_session_says_nothing_of_whether_the_session_exists(autojump_clock):
    async with staged(authenticate=by_header) as stage:
        alice = await stage.probe.initialize(headers=as_("alice"))
        assert stage.bus.session_directory.find(alice.id, {"name": "alice"}) is stage.bus.sessions[alice.id]
        assert stage.bus.session_directory.find(alice.id, {"name": "mallory"}) is None
        assert stage.bus.session_directory.find(alice.id, None) is None
        assert stage.bus.session_directory.find("no such id", {"name": "alice"}) is None


class Cross:
    """A principal that cannot be compared."""

    def __init__(self, name):
        self.name = name

    def __eq__(self, other):
        raise ValueError(f"{self.name} is not to be compared")

    __hash__ = None


async def test_a_principal_that_cannot_be_compared_has_nothing_that_is_anybodys(autojump_clock, caplog):
    async def authenticate(head):
        return Cross(head.headers["authorization"])

    async with staged(authenticate=authenticate) as stage:
        session = await stage.probe.initialize(headers=as_("alice"))
        theirs = {"mcp-session-id": session.id, **as_("alice")}
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        assert (await stage.probe.post(ping, theirs).ended()).status == 404
        stream = stage.probe.send(
            "GET", headers={"accept": "text/event-stream", **as_("alice")}, target="/sse"
        )
        await stage.quiet()
        posted = {"content-type": "application/json", **as_("alice")}
        answer = await stage.probe.send("POST", b"{}", posted, target=stream.endpoint).ended()
        assert answer.status == 404
        assert "define mcpbus_key in Cross" in caplog.text
        assert session.id in stage.bus.sessions


async def test_ids_are_unique_in_flight_within_one_session_by_type_and_value(autojump_clock):  # J-4, J-5
    async with staged() as stage:
        one, other = await stage.probe.initialize(), await stage.probe.initialize()
        posts = [
            one.request("tools/call", tool("a"), id=1),
            one.request("tools/call", tool("b"), id="1"),
            other.request("tools/call", tool("c"), id=1),
            stage.probe.request("tools/call", tool("d"), id=1),
            stage.probe.request("tools/call", tool("e"), id=1),
        ]
        await stage.quiet()
        twice = await one.request("tools/call", tool("f"), id=1).reply()
        assert (twice["error"]["code"], twice["id"]) == (-32600, 1)
        assert sorted(stage.calls) == ["a", "b", "c", "d", "e"]
        for call in stage.calls.values():
            call.finish()
        assert [(await post.reply())["id"] for post in posts] == [1, "1", 1, 1, 1]
        assert [(await post.reply())["result"]["content"][0]["text"][-1] for post in posts] == list("abcde")
        again = one.request("tools/call", tool("g"), id=1)
        (await stage.call("g")).finish()
        assert (await again.reply())["result"]


async def test_ids_are_unique_on_a_shared_channel_across_both_eras(autojump_clock):  # J-4, D-2
    async with staged() as stage, stage.wire("2025-11-25") as wire:
        await wire.say("tools/call", tool("legacy"), 1)
        await wire.say("tools/call", {**tool("modern"), "_meta": CLAIM}, "1")
        listen = {"notifications": {"toolsListChanged": True}, "_meta": CLAIM}
        await wire.say("subscriptions/listen", listen, 2)
        await stage.quiet()
        wire.got.clear()
        for request_id, params in ((1, {**tool("x"), "_meta": CLAIM}), ("1", tool("y")), (2, tool("z"))):
            await wire.say("tools/call", params, request_id)
        await wire.say("subscriptions/listen", listen, "1")
        await stage.quiet()
        assert [(m["id"], m["error"]["code"]) for m in wire.got] == [(n, -32600) for n in (1, "1", 2, "1")]
        assert sorted(stage.calls) == ["legacy", "modern"]
        wire.got.clear()
        for call in stage.calls.values():
            call.finish()
        await stage.quiet()
        assert {m["id"]: m["result"]["content"][0]["text"] for m in wire.got} == {
            1: "held legacy",
            "1": "held modern",
        }


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_what_a_handler_does_to_what_its_client_says_of_itself_is_its_own_affair(era, autojump_clock):
    async with staged() as stage:
        seen = []

        @stage.server.tool
        async def scribble(ctx: Context) -> None:
            client = ctx.client
            seen.append((client.info.get("name"), client.capabilities.get("roots")))
            client.info["name"] = "scribbled"
            client.capabilities["roots"] = {"listChanged": True}

        caller = stage.probe if era == "modern" else await stage.probe.initialize()
        for _ in range(2):
            await caller.request("tools/call", {"name": "scribble", "arguments": {}}).reply()
        assert len(seen) == 2
        assert seen[0] == seen[1]
