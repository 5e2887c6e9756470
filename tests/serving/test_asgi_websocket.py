"""Applications of others, called through ASGI for a WebSocket: on connections in memory, as the lane has them."""

import pytest
import trio
from lanes import get, open_lane
from rfc6455 import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, close, frame, frames
from trio.testing import wait_all_tasks_blocked

from mcpbus.serving.websocket import asgi

UPGRADE = (
    b"connection: upgrade",
    b"upgrade: websocket",
    b"sec-websocket-version: 13",
    b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
)
ACCEPT = {"type": "websocket.accept"}


class App:
    """An application that accepts, says this, and takes what comes to the end."""

    def __init__(self, *said, ends=False):
        self.said = said or (ACCEPT,)
        self.ends = ends
        self.got = []
        self.go_on = trio.Event()
        self.go_on.set()

    async def __call__(self, scope, receive, send):
        self.scope = scope
        assert (await receive()) == {"type": "websocket.connect"}
        for message in self.said:
            await send(message)
        await self.go_on.wait()
        while not self.ends and (message := await receive())["type"] != "websocket.disconnect":
            self.got.append(message.get("text", message.get("bytes")))
            await send({**message, "type": "websocket.send"})
        self.left = None if self.ends else message["code"]


async def upgraded(house, *lines, rest=b""):
    client = await house.connect()
    await client.say(get("/ws", *UPGRADE, *lines) + rest)
    return client


async def opened(house, *lines):
    client = await upgraded(house, *lines)
    status, fields = await client.head()
    assert (status, fields["upgrade"]) == (101, "websocket")
    assert fields["sec-websocket-accept"] == "s3pplmbitxaq9kygzzhzrbk+xoo="
    return client, fields


async def said(client):
    """The frames that come until the server closes the connection."""
    return frames(await client.all())


async def test_the_scope_tells_the_application_what_the_upgrade_said(autojump_clock):
    app = App({"type": "websocket.accept", "subprotocol": "b", "headers": [(b"X-One", b"1")]})
    async with open_lane(app=app) as house:
        _, fields = await opened(house, b"sec-websocket-protocol: a, b")
    assert (fields["sec-websocket-protocol"], fields["x-one"]) == ("b", "1")
    told = {name: app.scope[name] for name in ("type", "scheme", "http_version", "path", "subprotocols")}
    assert told == {
        "type": "websocket",
        "scheme": "ws",
        "http_version": "1.1",
        "path": "/ws",
        "subprotocols": ["a", "b"],
    }
    assert "method" not in app.scope


async def test_text_and_bytes_go_both_ways_whole(autojump_clock):
    app = App()
    async with open_lane(app=app) as house:
        client, _ = await opened(house)
        await client.say(frame(TEXT, "ø".encode()) + frame(BINARY, b"\xff") + frame(TEXT, b"in ", fin=False))
        await client.say(frame(PING, b"there?") + frame(CONTINUATION, b"two"))
        await wait_all_tasks_blocked()
        await client.say(frame(CLOSE, close(1001)))
        assert sorted(await said(client)) == sorted(
            [
                (TEXT, "ø".encode()),
                (BINARY, b"\xff"),
                (PONG, b"there?"),
                (TEXT, b"in two"),
                (CLOSE, close(1001)),
            ]
        )
    assert (app.got, app.left) == (["ø", b"\xff", "in two"], 1001)


async def test_the_application_closes_with_what_it_says(autojump_clock):
    app = App(ACCEPT, {"type": "websocket.close", "code": 4001, "reason": "enough"})
    async with open_lane(app=app) as house:
        client, _ = await opened(house)
        await wait_all_tasks_blocked()
        await client.say(frame(CLOSE, close(4001)))
        assert await said(client) == [(CLOSE, close(4001, b"enough"))]
    assert app.left == 4001


async def test_a_client_that_does_not_answer_a_close_is_not_waited_for(autojump_clock):
    async with open_lane(app=App(ACCEPT, ends=True)) as house:
        client, _ = await opened(house)
        assert await said(client) == [(CLOSE, close(1011))]
        assert 0 < trio.current_time() <= asgi.FAREWELL_SECONDS


async def test_a_client_that_leaves_without_a_word(autojump_clock):
    app = App()
    async with open_lane(app=app) as house:
        client, _ = await opened(house)
        await client.leave()
        await client.over.wait()
    assert app.left == 1006


REFUSED = {
    "with a close": (({"type": "websocket.close"},), 403, b""),
    "in HTTP": (
        (
            {"type": "websocket.http.response.start", "status": 418, "headers": [(b"x", b"y")]},
            {"type": "websocket.http.response.body", "body": b"no ", "more_body": True},
            {"type": "websocket.http.response.body", "body": b"tea"},
        ),
        418,
        b"no tea",
    ),
}


@pytest.mark.parametrize(("said", "status", "body"), REFUSED.values(), ids=REFUSED)
async def test_the_application_refuses(said, status, body, autojump_clock):
    async with open_lane(app=App(*said, ends=True)) as house:
        client = await upgraded(house)
        told, fields, data = await client.answer()
        assert (told, fields["connection"], data) == (status, "close", body)


WRONG = {
    "a field": {**ACCEPT, "headers": [(b"x", b"a\r\nb")]},
    "a subprotocol": {**ACCEPT, "subprotocol": "a\r\nb"},
    "a refusal": {"type": "websocket.http.response.start", "status": 418, "headers": [(b"x", b"a\nb")]},
}


@pytest.mark.parametrize("said", WRONG.values(), ids=WRONG)
async def test_what_cannot_be_said_in_http_is_a_failure(said, caplog, autojump_clock):
    async with open_lane(app=App(said)) as house:
        client = await upgraded(house)
        assert (await client.answer())[0] == 500
    assert "this cannot be a header field" in caplog.text


async def test_a_refusal_that_does_not_say_its_length_in_one_number_is_a_failure(caplog, autojump_clock):
    lengths = [(b"content-length", b"2"), (b"content-length", b"1")]
    said = {"type": "websocket.http.response.start", "status": 418, "headers": lengths}
    async with open_lane(app=App(said)) as house:
        client = await upgraded(house)
        assert (await client.answer())[0] == 500
    assert "Content-Length is not one number" in caplog.text


UNFINISHED = {
    "too short": ([{"type": "websocket.http.response.body", "body": b"no"}], "not as long as"),
    "too long": (
        [{"type": "websocket.http.response.body", "body": b"no tea", "more_body": True}],
        "not as long as",
    ),
    "missing": ([], ""),
}


@pytest.mark.parametrize(("rest", "said"), UNFINISHED.values(), ids=UNFINISHED)
async def test_a_refusal_whose_body_is_not_what_was_said_of_it_is_a_failure(
    rest, said, caplog, autojump_clock
):
    fields = [(b"content-length", b"3")]
    begun = {"type": "websocket.http.response.start", "status": 418, "headers": fields}
    async with open_lane(app=App(begun, *rest, ends=True)) as house:
        client = await upgraded(house)
        told, fields, _ = await client.answer()
        assert (told, fields["connection"]) == (500, "close")
        await client.ended()
    assert said in caplog.text


async def test_a_refusal_that_breaks_off_ends_the_connection(caplog, autojump_clock):
    fields = [(b"content-length", b"3")]
    begun = {"type": "websocket.http.response.start", "status": 418, "headers": fields}
    pieces = [
        {"type": "websocket.http.response.body", "body": b"n", "more_body": more} for more in (True, False)
    ]
    async with open_lane(app=App(begun, *pieces)) as house:
        client = await upgraded(house)
        said = await client.all()
    assert said.startswith(b"HTTP/1.1 418 ")
    assert said.endswith(b"\r\n\r\nn")
    assert "not as long as" in caplog.text


@pytest.mark.parametrize("early", [frame(PING, b"there?"), frame(CLOSE, close(1000)), b"no frame at all"])
async def test_what_comes_while_it_is_refused_is_not_answered(early, autojump_clock):
    app = App(
        {"type": "websocket.http.response.start", "status": 418, "headers": []},
        {"type": "websocket.http.response.body", "body": b"no ", "more_body": True},
        ends=True,
    )
    app.go_on = trio.Event()
    async with open_lane(app=app) as house:
        client = await upgraded(house)
        await wait_all_tasks_blocked()
        await client.say(early)
        await wait_all_tasks_blocked()
        app.go_on.set()
        assert (await client.all()).endswith(b"\r\n\r\nno ")


async def test_what_is_no_handshake_the_application_does_not_see(autojump_clock):
    app = App()
    async with open_lane(app=app) as house:
        client = await house.connect()
        await client.say(get("/", *UPGRADE[:2]))
        assert (await client.answer())[0] == 426
    assert not hasattr(app, "scope")


@pytest.mark.parametrize("together", [True, False])
async def test_a_client_that_speaks_before_it_is_answered_is_refused(together, autojump_clock):
    app = App(ends=False)
    app.said = ()
    async with open_lane(app=app) as house:
        client = await upgraded(house, rest=frame(TEXT, b"x") if together else b"")
        if not together:
            await wait_all_tasks_blocked()
            await client.say(frame(TEXT, b"x"))
        assert (await client.answer())[0] == 400
        await client.leave()
        await client.over.wait()
    assert app.left == 1006


@pytest.mark.parametrize(("accepts", "status"), [(False, 500), (True, 101)])
async def test_an_application_that_raises(accepts, status, caplog, autojump_clock):
    async def app(scope, receive, send):
        if accepts:
            await send(ACCEPT)
        raise RuntimeError("a mistake of the application's")

    async with open_lane(app=app) as house:
        client = await upgraded(house)
        assert (await client.head())[0] == status
        assert (await said(client) if accepts else await client.all()) == (
            [(CLOSE, close(1011))] if accepts else b""
        )
    assert "a mistake of the application's" in caplog.text


async def test_a_message_that_is_too_long(monkeypatch, autojump_clock):
    monkeypatch.setattr(asgi, "_MAX_BYTES", 10)
    app = App()
    async with open_lane(app=app) as house:
        client, _ = await opened(house)
        await client.say(frame(TEXT, b"x" * 11))
        await wait_all_tasks_blocked()
        await client.say(frame(CLOSE, close(1009)))
        ((opcode, payload),) = await said(client)
        assert (opcode, payload[:2]) == (CLOSE, close(1009))
    assert (app.got, app.left) == ([], 1009)


async def test_a_client_that_answers_no_ping_is_given_up(autojump_clock):
    app = App()
    async with open_lane(app=app, websocket_ping_interval=10) as house:
        client, _ = await opened(house)
        await trio.sleep(11)
        await client.say(frame(PONG))
        assert [opcode for opcode, _ in await said(client)][:3] == [PING] * 3
        assert 40 < trio.current_time() < 60
    assert app.left == 1006


def unread(client):
    """How many bytes the server has not read."""
    assert client.wire.readable
    return len(client.wire._data)


async def test_a_write_is_not_cancelled_in_its_middle(autojump_clock):
    """The client would take what follows for the rest of it."""
    full = trio.Event()

    async def app(scope, receive, send):
        await send(ACCEPT)
        await full.wait()
        with trio.move_on_after(1):
            await send({"type": "websocket.send", "text": "a" * 100_000})
        await send({"type": "websocket.send", "text": "b"})

    async with open_lane(app=app) as house:
        client, _ = await opened(house)
        client.wire.room = 50_000
        full.set()
        await trio.sleep(5)
        client.wire.make_room()
        texts = [data for opcode, data in await said(client) if opcode == TEXT]
        assert texts == [b"a" * 100_000, b"b"]


async def test_no_more_is_read_than_the_application_takes(autojump_clock):
    app = App()
    app.go_on = trio.Event()
    async with open_lane(app=app) as house:
        client, _ = await opened(house)
        for n in range(40):
            await client.say(frame(TEXT, b"%d" % n))
            await wait_all_tasks_blocked()
        assert len(app.got) == 0
        assert unread(client) > 100
        app.go_on.set()
        await client.say(frame(CLOSE, close(1000)))
        await said(client)
    assert app.got == [str(n) for n in range(40)]
