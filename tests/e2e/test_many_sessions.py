"""Sessions that do the same things at the same time, under the same ids, and must not notice each other."""

from collections import Counter

import trio
from wire import call, message, serving

from mcpbus import Context, Server

SESSIONS = 30
IDS = (1, "1")


class Barrier:
    """Lets nobody go on before all have come."""

    def __init__(self, parties):
        self._missing = parties
        self._complete = trio.Event()

    async def wait(self):
        self._missing -= 1
        if self._missing == 0:
            self._complete.set()
        await self._complete.wait()


async def test_thirty_sessions_with_ids_that_look_alike():
    server = Server("many")
    all_running = Barrier(SESSIONS * len(IDS))

    @server.tool
    async def work(who: str, ctx: Context) -> str:
        await all_running.wait()
        for n in range(10):
            await ctx.progress(n + 1, 10, who)
            await ctx.info(who)
        return who

    transcripts = {}

    async def request(served, session, number, request_id):
        who = f"{number} {request_id!r}"
        peer = await served.peer()
        await peer.send(call("work", {"who": who}, id=request_id, token=request_id), session)
        status, headers = await peer.head()
        assert (status, headers["content-type"]) == (200, "text/event-stream")
        transcripts[who] = heard = []
        while (said := await peer.said()) is not None:
            heard.append(said)

    async def client(served, number):
        peer = await served.peer()
        session = await peer.open_session()
        await peer.send(None, session, verb="GET")
        await peer.head()
        async with trio.open_nursery() as nursery:
            for request_id in IDS:
                nursery.start_soon(request, served, session, number, request_id)
        # Only now: the GET stream must have carried nothing of all this.
        (session_object,) = (s for s in served.bus.sessions.values() if s.id == session["mcp-session-id"])
        session_object.log("info", number)
        said = await peer.said()
        assert said["params"]["data"] == number

    async with serving(server) as served:
        async with trio.open_nursery() as nursery:
            for number in range(SESSIONS):
                nursery.start_soon(client, served, number)
        assert served.bus.statistics().requests == 0

    assert len(transcripts) == SESSIONS * len(IDS)
    for number in range(SESSIONS):
        for request_id in IDS:
            who = f"{number} {request_id!r}"
            *said, reply = transcripts[who]
            assert reply["id"] == request_id
            assert type(reply["id"]) is type(request_id)
            assert reply["result"]["content"][0]["text"] == who
            progress = [one["params"] for one in said if one["method"] == "notifications/progress"]
            assert [one["progress"] for one in progress] == list(range(1, 11))
            assert Counter(type(one["progressToken"]) for one in progress) == {type(request_id): 10}
            assert {one["message"] for one in progress} == {who}
            logs = [one["params"]["data"] for one in said if one["method"] == "notifications/message"]
            assert logs == [who] * 10


async def test_an_id_in_flight_is_refused_in_its_own_session_only():
    server, release = Server("twice"), trio.Event()

    @server.tool
    async def wait(ctx: Context) -> str:
        await ctx.progress(1)
        await release.wait()
        return "first"

    async with serving(server) as served:
        first, again, other = [await served.peer() for _ in range(3)]
        session = await first.open_session()
        await first.send(call("wait", id=7, token=0), session)
        await first.head()
        await first.said()
        duplicate = await again.exchange(message("ping", id=7), session)
        assert duplicate.status == 200  # a ping is answered at once and never in flight
        duplicate = await again.exchange(call("wait", id=7), session)
        assert duplicate.status == 400
        assert duplicate.json["error"]["code"] == -32600
        await other.send(call("wait", id=7, token=0), await other.open_session())
        await other.head()
        release.set()
        assert (await first.said())["result"]["content"][0]["text"] == "first"
        assert (await first.said()) is None
        await other.said()
        assert (await other.said())["id"] == 7
