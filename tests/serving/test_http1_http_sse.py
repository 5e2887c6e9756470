"""HTTP+SSE over HTTP/1.1: the stream needs no task, and the POSTs of a client that reads need none either."""

import re
from contextlib import asynccontextmanager

import msgspec
import pytest
import trio
from lanes import get, open_lane, post
from trio.testing import wait_all_tasks_blocked
from wires import Wire

from mcpbus import Context, Limits, Server
from tests.at_home import ACTORS

JSON = b"content-type: application/json"


class Client:
    """A client that has initialized its session.

    Attributes:
        stream: The connection of its stream.
        path: Where it POSTs.
    """

    def __init__(self, house, stream, path):
        self.house = house
        self.stream = stream
        self.path = path

    async def said(self):
        """The next message on the stream, or None for a comment."""
        size = int(await self.stream.until(b"\r\n"), 16)
        event = await self.stream.exactly(size)
        assert await self.stream.exactly(2) == b"\r\n"
        if event == b":\n\n":
            return None
        (data,) = re.findall(rb"^event: message\ndata: (.*)\n\n$", event)
        return msgspec.json.decode(data)

    def post(self, method, params=None, **id_):
        message = {"jsonrpc": "2.0", "method": method, "params": params or {}} | id_
        return post(msgspec.json.encode(message), JSON, path=self.path)

    def call(self, tool, number=1, **arguments):
        return self.post("tools/call", {"name": tool, "arguments": arguments}, id=number)


def make_server(ran):
    server = Server("sse", version="1")
    server.go_on = trio.Event()

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.tool
    async def chat(ctx: Context) -> str:
        await ctx.info("one")
        await ctx.info("two")
        return "said"

    @server.tool
    async def note(mark: int) -> str:
        ran.append(mark)
        return "x" * 1_000

    @server.tool
    async def wait() -> str:
        try:
            await server.go_on.wait()
        except trio.Cancelled:
            ran.append("cancelled")
            raise
        return "waited"

    return server


@asynccontextmanager
async def open_house(ran=None, *, limits=None):
    server = make_server([] if ran is None else ran)
    async with server.open(limits=limits) as bus, open_lane(app=bus.asgi()) as house:
        house.bus, house.server = bus, server
        yield house


async def connect(house):
    stream = await house.connect()
    await stream.say(get("/sse", b"accept: text/event-stream"))
    assert (await stream.head())[0] == 200
    size = int(await stream.until(b"\r\n"), 16)
    first = await stream.exactly(size + 2)
    client = Client(house, stream, re.findall(rb"^event: endpoint\ndata: (\S+)\n\n\r\n$", first)[0].decode())
    hello = {
        "protocolVersion": "2024-11-05",
        "capabilities": {},
        "clientInfo": {"name": "sse", "version": "1"},
    }
    poster = await house.connect()
    await poster.say(client.post("initialize", hello, id=0))
    assert (await poster.answer())[0] == 202
    assert (await client.said())["id"] == 0
    await poster.say(client.post("notifications/initialized"))
    assert (await poster.answer())[0] == 202
    return client, poster


def text(message):
    return message["result"]["content"][0]["text"]


@ACTORS
async def test_a_call_is_answered_in_the_turn_of_its_post_by_no_task_and_no_further_actor(autojump_clock):
    async with open_house() as house:
        client, poster = await connect(house)
        spawned, tasks = house.bus.system.statistics().spawned, house.bus.statistics().tasks
        assert poster.connection.work is client.stream.connection.work is None
        for number in range(3):
            await poster.say(client.call("echo", number, text="hi"))
            status, _, body = await poster.answer()
            assert (status, body) == (202, b"Accepted")
            assert text(await client.said()) == "hi"
            assert poster.connection.work is None
        assert house.bus.system.statistics().spawned == spawned
        assert house.bus.statistics().tasks == tasks


async def test_a_call_outlives_the_connection_of_its_post(autojump_clock):
    ran = []
    async with open_house(ran) as house:
        client, poster = await connect(house)
        await poster.say(client.call("wait"))
        assert (await poster.answer())[0] == 202
        await poster.leave()
        await wait_all_tasks_blocked()
        assert poster.over.is_set()
        house.server.go_on.set()
        assert text(await client.said()) == "waited"
        assert ran == []


async def test_a_call_is_cancelled_with_the_stream_and_the_connection_of_its_post_goes_on(autojump_clock):
    ran = []
    async with open_house(ran) as house:
        client, poster = await connect(house)
        await poster.say(client.call("wait"))
        assert (await poster.answer())[0] == 202
        await client.stream.leave()
        await wait_all_tasks_blocked()
        assert ran == ["cancelled"]
        await poster.say(client.call("echo", text="hi"))
        assert (await poster.answer())[0] == 404
        assert house.bus.statistics().actors == 0


async def test_what_a_handler_says_is_on_the_stream_in_order_and_comments_follow(autojump_clock):
    async with open_house(limits=Limits(keep_alive=15)) as house:
        client, poster = await connect(house)
        await poster.say(client.call("chat"))
        assert (await poster.answer())[0] == 202
        heard = []
        while not heard or "result" not in heard[-1]:
            size = int(await client.stream.until(b"\r\n"), 16)
            piece = await client.stream.exactly(size + 2)
            heard += [
                msgspec.json.decode(data)
                for data in re.findall(rb"^event: message\ndata: (.*)$", piece, re.MULTILINE)
            ]
        assert [message.get("method", "reply") for message in heard] == [
            *["notifications/message"] * 2,
            "reply",
        ]
        began = trio.current_time()
        assert await client.said() is None
        assert trio.current_time() - began == pytest.approx(15)


async def test_a_session_ends_while_a_post_waits_for_room(autojump_clock):
    limits = Limits(outbox_items=1, max_requests_per_session=1, write_deadline=30)
    async with open_house(limits=limits) as house:
        client, poster = await connect(house)
        client.stream.wire.room = 0
        posts = []
        for number in range(6):
            poster = await house.connect()
            await poster.say(client.call("echo", number, text="x"))
            await wait_all_tasks_blocked()
            posts.append(poster)
        await trio.sleep(29)
        waiting = [poster for poster in posts if poster.connection.work is not None]
        assert 0 < len(waiting) < 6
        await trio.sleep(2)
        for poster in posts:
            status = (await poster.answer())[0]
            assert status == (404 if poster in waiting else 202)
        assert house.bus.statistics().actors == 0


async def say_until_one_waits(house, client, size):
    """POST until that waits for room; return the connection of what does."""
    for _ in range(20):
        poster = await house.connect()
        await poster.say(client.call("echo", text="x" * size))
        with trio.move_on_after(0.01) as patience:
            await poster.answer()
        if patience.cancelled_caught:
            return poster
    raise AssertionError("there is room for ever")


def stall(stream):
    """Have a client take nothing; return what has it take more: so many bytes, or all of one write."""
    if isinstance(stream.wire, Wire):
        stream.wire.room = 0
        return stream.wire.make_room
    writes = trio.Semaphore(0)
    stream.wire.send_stream.send_all_hook = writes.acquire

    def make_room(size=None):
        for _ in range(1 if size else 1_000):
            writes.release()

    return make_room


@asynccontextmanager
async def crowded_house(*, ran=None):
    """A house, and a client that does not read what it is answered."""
    limits = Limits(outbox_items=1, max_requests_per_session=1)
    async with open_house(ran, limits=limits) as house:
        client, _ = await connect(house)
        client.make_room = stall(client.stream)
        yield house, client


async def test_who_leaves_while_its_post_waits_for_room_is_let_go(autojump_clock):
    async with crowded_house() as (house, client):
        posters = [await say_until_one_waits(house, client, 3000) for _ in range(2)]
        began, held = trio.current_time(), house.bus.budget.held
        await posters[0].leave()
        await wait_all_tasks_blocked()
        assert trio.current_time() == began
        assert posters[0].over.is_set()
        assert house.bus.budget.held < held - 3000
        client.make_room()
        assert (await posters[1].answer())[0] == 202


async def test_as_many_posts_go_on_as_there_is_room_for_those_first_that_came_first(autojump_clock):
    ran = []
    async with crowded_house(ran=ran) as (house, client):
        await say_until_one_waits(house, client, 100)
        posters = []
        for number in range(20):
            posters.append(await house.connect())
            await posters[-1].say(client.call("note", 100 + number, mark=number))
            await wait_all_tasks_blocked()
        assert ran == []
        await posters[3].leave()
        staying = [number for number in range(20) if number != 3]
        most = 0
        while len(ran) < len(staying):
            before = len(ran)
            client.make_room(2_000)
            await wait_all_tasks_blocked()
            most = max(most, len(ran) - before)
        assert ran == staying
        assert most < 8
        client.make_room()
        for number in staying:
            assert (await posters[number].answer())[0] == 202


async def test_who_comes_as_there_is_room_comes_behind_those_who_have_waited_for_it(autojump_clock):
    ran = []
    async with crowded_house(ran=ran) as (house, client):
        await say_until_one_waits(house, client, 100)
        posters = [await house.connect() for _ in range(9)]
        for number in range(8):
            await posters[number].say(client.call("note", 100 + number, mark=number))
            await wait_all_tasks_blocked()
        assert ran == []
        client.make_room()
        await posters[8].say(client.call("note", 108, mark=8))
        for poster in posters:
            assert (await poster.answer())[0] == 202
        assert ran == list(range(9))


async def test_what_waits_for_room_is_counted_and_refused_where_that_is_too_much(autojump_clock):
    async with crowded_house() as (house, client):
        poster, budget = await say_until_one_waits(house, client, 100), house.bus.budget
        held = budget.held
        long = await say_until_one_waits(house, client, 10_000)
        assert budget.held > held + 10_000
        budget.limit = budget.held
        budget.account("something else").hold(1)
        assert (await long.answer())[0] == 503
        assert budget.held < held + 1000
        client.make_room()
        assert (await poster.answer())[0] == 202
