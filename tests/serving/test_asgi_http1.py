"""Applications of others, called through ASGI for requests of HTTP/1.1: on connections in memory, as the lane has them."""

import logging

import pytest
import trio
from lanes import get, open_lane, post
from trio.testing import wait_all_tasks_blocked

DISCONNECT = {"type": "http.disconnect"}


def start(status=200, *headers):
    return {"type": "http.response.start", "status": status, "headers": list(headers)}


def body(data=b"", *, more=False):
    return {"type": "http.response.body", "body": data, "more_body": more}


def answers(*messages):
    """An application that says this to everybody."""

    async def app(scope, receive, send):
        app.scope = scope
        for message in messages:
            await send(message)

    return app


async def ask(app, request, *, bodiless=False):
    async with open_lane(app=app) as house:
        client = await house.connect()
        await client.say(request)
        return await client.answer(bodiless=bodiless)


# -- what the application is told --------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["/a%20b/c/?q=%20&r", "http://localhost/a%20b/c/?q=%20&r"])
async def test_the_scope_tells_the_application_what_the_head_said(target, autojump_clock):
    app = answers(start(), body())
    lines = b"X-One: a", b"x-two: b", b"x-ONE: c"
    await ask(app, get(target, *lines))
    assert app.scope == {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "scheme": "http",
        "method": "GET",
        "path": "/a b/c/",
        "raw_path": b"/a%20b/c/",
        "query_string": b"q=%20&r",
        "root_path": "",
        "headers": [(b"host", b"localhost"), (b"x-one", b"a"), (b"x-two", b"b"), (b"x-one", b"c")],
        "client": None,
        "server": None,
        "state": {},
        "extensions": {},
    }


async def test_a_target_without_a_path(autojump_clock):
    app = answers(start(), body())
    await ask(app, get("http://localhost?q"))
    assert (app.scope["raw_path"], app.scope["query_string"]) == (b"/", b"q")


class Reads:
    """An application that takes so many messages, and then answers."""

    def __init__(self, count):
        self._count = count
        self.got = []
        self.go_on = trio.Event()
        self.go_on.set()

    async def __call__(self, scope, receive, send):
        await self.go_on.wait()
        for _ in range(self._count):
            self.got.append(await receive())
        await send(start())
        await send(body(b"done"))


def request(data=b"", *, more=False):
    return {"type": "http.request", "body": data, "more_body": more}


async def test_a_body_in_pieces(autojump_clock):
    app = Reads(3)
    async with open_lane(app=app) as house:
        client = await house.connect()
        await client.say(post(b"one two three")[:-10])
        for piece in (b" two", b" three"):
            await wait_all_tasks_blocked()
            await client.say(piece)
        assert (await client.answer())[2] == b"done"
    assert app.got == [request(b"one", more=True), request(b" two", more=True), request(b" three")]


async def test_no_body_is_a_message_too(autojump_clock):
    app = Reads(1)
    await ask(app, get("/"))
    assert app.got == [request()]


async def test_a_client_that_waits_for_100_continue_is_told_when_the_body_is_wanted(autojump_clock):
    app = Reads(1)
    app.go_on = trio.Event()
    async with open_lane(app=app) as house:
        client = await house.connect()
        await client.say(post(b"x", b"expect: 100-continue")[:-1])
        await wait_all_tasks_blocked()
        assert client.data == b""
        app.go_on.set()
        assert (await client.answer())[0] == 100
        await client.say(b"x")
        assert (await client.answer())[2] == b"done"
    assert app.got == [request(b"x")]


async def test_100_continue_is_never_said_within_an_answer(autojump_clock):
    async def app(scope, receive, send):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            await trio.lowlevel.checkpoint()
            await send(start())
            await send(body(b"one", more=True))
            await send(body(b"two"))
            nursery.cancel_scope.cancel()

    async with open_lane(app=app) as house:
        for _ in range(16):  # who is first is up to trio
            client = await house.connect()
            await client.say(post(b"x", b"expect: 100-continue")[:-1])
            status, _ = await client.head()
            assert status == 200 or (await client.head())[0] == 200
            assert await client.all() == b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"


async def test_who_listens_after_the_answer_does_not_take_the_next_requests_body(autojump_clock):
    listeners, got = [], []

    async def app(scope, receive, send):
        listeners.append(receive)
        got.extend([await listen() for listen in listeners[-2:]] if scope["method"] == "POST" else ())
        await send(start())
        await send(body())

    async with open_lane(app=app) as house:
        client = await house.connect()
        for said in (get("/"), post(b"mine")):
            await client.say(said)
            assert (await client.answer())[0] == 200
    assert got == [DISCONNECT, request(b"mine")]


async def test_a_client_that_leaves_does_not_take_its_request_with_it(autojump_clock):
    app = Reads(3)
    async with open_lane(app=app) as house:
        client = await house.connect()
        await client.say(post(b"body"))
        await client.leave()
        await client.over.wait()
    assert app.got == [request(b"body"), DISCONNECT, DISCONNECT]


class Impatient:
    """An application that gives up a long write after a second, and then says its end."""

    async def __call__(self, scope, receive, send):
        await send(start())
        with trio.move_on_after(1):
            await send(body(b"a" * 100_000, more=True))
        await send(body(b"b"))


async def test_a_write_is_not_cancelled_in_its_middle(autojump_clock):
    """The client would take what follows for the rest of it."""
    async with open_lane(app=Impatient()) as house:
        client = await house.connect()
        client.wire.room = 50_000
        await client.say(get())
        await trio.sleep(5)
        client.wire.make_room()
        assert (await client.answer())[::2] == (200, b"a" * 100_000 + b"b")


async def test_a_cut_body_ends_in_a_disconnect(autojump_clock):
    app = Reads(2)
    async with open_lane(app=app) as house:
        client = await house.connect()
        await client.say(post(b"body")[:-2])
        await client.leave()
        await client.over.wait()
    assert app.got == [request(b"bo", more=True), DISCONNECT]


async def test_what_is_no_body_is_refused(autojump_clock):
    app = Reads(1)
    assert (await ask(app, post(None, b"transfer-encoding: chunked") + b"nonsense\r\n"))[0] == 400
    assert app.got == [DISCONNECT]


async def test_what_is_no_body_cuts_an_answer_that_has_begun(autojump_clock):
    async def app(scope, receive, send):
        await send(start())
        await send(body(b"begun", more=True))
        app.got = await receive()
        await send(body(b"never", more=False))

    async with open_lane(app=app) as house:
        client = await house.connect()
        await client.say(post(None, b"transfer-encoding: chunked") + b"nonsense\r\n")
        await client.head()
        assert await client.all() == b"5\r\nbegun\r\n"
    assert app.got == DISCONNECT


async def test_once_the_answer_is_out_whoever_listens_is_told_so_and_the_connection_goes_on(autojump_clock):
    got = []

    async def app(scope, receive, send):
        await receive()
        async with trio.open_nursery() as nursery:

            async def listen():
                got.append(await receive())

            nursery.start_soon(listen)
            await wait_all_tasks_blocked()
            await send(start())
            await send(body(b"done"))
        got.append(await receive())

    async with open_lane(app=app) as house:
        client = await house.connect()
        for _ in range(2):
            await client.say(get("/"))
            assert (await client.answer())[2] == b"done"
        await wait_all_tasks_blocked()
    assert got == [DISCONNECT] * 4


# -- what the client is told -------------------------------------------------------------------------------------------


FRAMED = {
    "chunks": ((start(), body(b"one", more=True), body(b"two")), b"onetwo", {"transfer-encoding": "chunked"}),
    "a length": (
        (start(200, (b"Content-Length", b"6")), body(b"one", more=True), body(b"two")),
        b"onetwo",
        {"content-length": "6"},
    ),
    "nothing": ((start(204), body()), b"", {}),
}


@pytest.mark.parametrize(("said", "expected", "fields"), FRAMED.values(), ids=FRAMED)
async def test_how_a_body_is_framed(said, expected, fields, autojump_clock):
    async with open_lane(app=answers(*said)) as house:
        client = await house.connect()
        for _ in range(2):
            await client.say(get("/"))
            _, told, data = await client.answer()
            assert (data, {name: told[name] for name in told if name != "date"}) == (expected, fields)


async def test_head_has_no_body(autojump_clock):
    app = answers(start(200, (b"content-length", b"4")), body(b"body"))
    async with open_lane(app=app) as house:
        client = await house.connect()
        await client.say(post(None, verb="HEAD") + get("/"))
        assert (await client.answer(bodiless=True))[1]["content-length"] == "4"
        assert (await client.answer())[2] == b"body"


async def test_a_client_of_http_1_0_reads_to_the_end_of_the_connection(autojump_clock):
    app = answers(start(), body(b"one", more=True), body(b"two"))
    assert (await ask(app, get("/", version="1.0")))[2] == b"onetwo"


async def test_what_is_the_servers_to_say_the_application_does_not(autojump_clock):
    mine = [(b"Date", b"then"), (b"Transfer-Encoding", b"gzip"), (b"Connection", b"upgrade"), (b"X", b"y")]
    async with open_lane(app=answers(start(200, *mine), body())) as house:
        client = await house.connect()
        await client.say(get("/"))
        lines = (await client.until(b"\r\n\r\n")).lower().split(b"\r\n")
    names = [line.partition(b":")[0] for line in lines[1:]]
    assert names == [b"x", b"transfer-encoding", b"date"]
    assert b"then" not in lines[-1]


WRONG = {
    "no answer": ((), 500),
    "no head": ((body(b"x"),), 500),
    "a field that cannot be": ((start(200, (b"x", b"a\r\nb")), body()), 500),
    "a length that is none": ((start(200, (b"content-length", b"x")), body()), 500),
    "a length with a sign": ((start(200, (b"content-length", b"+1")), body(b"x")), 500),
    "two lengths": ((start(200, (b"content-length", b"2"), (b"Content-Length", b"1")), body(b"x")), 500),
    "a body that is too long": ((start(200, (b"content-length", b"1")), body(b"xy")), 500),
    "a body that is too short": ((start(200, (b"content-length", b"9")), body(b"xy")), 500),
    "two heads": ((start(), start(), body()), 500),
    "a body that goes on too short": (
        (start(200, (b"content-length", b"9")), body(b"xy", more=True), body(b"z")),
        200,
    ),
}


@pytest.mark.parametrize(("said", "status"), WRONG.values(), ids=WRONG)
async def test_an_application_that_does_it_wrong_ends_its_own_connection(
    said, status, caplog, autojump_clock
):
    async with open_lane(app=answers(*said)) as house:
        client = await house.connect()
        await client.say(get("/"))
        assert (await client.head())[0] == status
        await client.all()
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "the application raised while it served GET /" in caplog.text


@pytest.mark.parametrize("length", [(), ((b"content-length", b"5"),)], ids=["chunks", "a length"])
async def test_an_application_may_say_another_head_in_place_of_one_that_cannot_be(length, autojump_clock):
    async def app(scope, receive, send):
        with pytest.raises(ValueError, match="header field"):
            await send(start(200, (b"x", b"a\r\nb")))
        with pytest.raises(RuntimeError, match="begins with"):
            await send(body(b"x", more=True))
        await send(start(400, *length))
        await send(body(b"sorry"))

    async with open_lane(app=app) as house:
        client = await house.connect()
        for _ in range(2):
            await client.say(get("/"))
            status, _, data = await client.answer()
            assert (status, data) == (400, b"sorry")


async def test_what_a_client_asks_for_is_one_line_in_the_log(caplog, autojump_clock):
    await ask(answers(), get("/a%0D%0AERROR%1b[2J"))
    (record,) = caplog.records
    assert record.getMessage() == "the application raised while it served GET '/a\\r\\nERROR\\x1b[2J'"


async def test_nobody_answers_twice(autojump_clock):
    app = answers(start(), body(b"one"), start(), body(b"two"))
    async with open_lane(app=app) as house:
        client = await house.connect()
        await client.say(get("/") + get("/"))
        assert [(await client.answer())[2] for _ in range(2)] == [b"one", b"one"]
        assert client.data == b""


async def test_a_loop_that_says_something_to_nobody_lets_others_run(autojump_clock):
    others = trio.Event()

    async def app(scope, receive, send):
        await send(start())
        while scope["path"] == "/loop" and not others.is_set():
            await send(body(b"x", more=True))
        await send(body())

    async with open_lane(app=app) as house:
        client, other = await house.connect(), await house.connect()
        await client.say(get("/loop"))
        await client.leave()
        await other.say(get("/"))
        assert (await other.answer())[0] == 200
        others.set()
        await client.over.wait()
