"""What goes wrong in one connection stays in it."""

import logging
from contextlib import suppress

import h2.events
import hyperframe.frame
import pytest
import trio
from peers import Http2, get, hello, receive_all, receive_until, respond, serving, until

from mcpbus.core.limit_monitor import RateLimitedLogger
from mcpbus.serving import ServerCounters
from mcpbus.serving.http2.request_table import Http2RequestTable

BROKEN_PREFACE = b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n"


async def refuse_or_stream(scope, receive, send):
    if scope["type"] == "websocket":
        await send({"type": "websocket.close"})
    elif scope["path"] == "/stream":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass
    else:
        await respond(send)


async def test_many_clients_that_send_what_is_malformed_fill_no_log(caplog):
    counters = ServerCounters()
    async with serving(refuse_or_stream, counters=counters) as served:
        for _ in range(30):
            culprit = await served.connect()
            await culprit.send_all(BROKEN_PREFACE)
            await receive_all(culprit)
    assert counters.failed == 30
    assert caplog.text.count("was ended by ConnectionFault") == 10


async def test_what_was_not_said_of_clients_is_counted_later(caplog, autojump_clock):
    complaints = RateLimitedLogger(logging.getLogger("mcpbus.serving"))
    complaints.warn("client %d was late", 0)
    for n in range(25):
        complaints.warn("client %d was rude", n)
    await trio.sleep(60)
    complaints.warn("client %d was rude", 25)
    complaints.warn("client %d was late", 25)
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        "client 0 was late",
        *(f"client {n} was rude" for n in range(10)),
        "client 25 was rude (and 15 times more since the last line about it)",
        "client 25 was late",
    ]


@pytest.mark.parametrize("wrong", ["what the client says", "what we make of it"])
async def test_an_exception_ends_its_own_connection_only(wrong, caplog, monkeypatch):
    counters = ServerCounters()
    async with serving(refuse_or_stream, counters=counters) as served:
        bystander = await served.connect()
        await bystander.send_all(b"GET /stream HTTP/1.1\r\nhost: test\r\n\r\n")
        await receive_until(bystander, b"first")

        culprit = await served.connect()
        if wrong == "what the client says":
            await culprit.send_all(BROKEN_PREFACE)
            reason = "ConnectionFault"
        else:
            monkeypatch.setattr(Http2RequestTable, "begin", lambda *_: 1 / 0)
            await (await Http2(culprit).start()).request()
            reason = "ZeroDivisionError"
        await receive_all(culprit)

        assert b"200" in await get(await served.connect())
        with trio.move_on_after(0) as no_end:
            await bystander.receive_some()
        assert no_end.cancelled_caught
        assert counters.failed == 1
        (record,) = [record for record in caplog.records if "was ended by" in record.message]
        assert reason in record.message
        assert record.levelno == logging.WARNING


async def test_a_client_that_broke_its_connection_may_not_send_for_ever():
    """It is read on for a while, so that it sees why; what it sends then is thrown away, and is bounded."""
    counters = ServerCounters()
    options = {"unread_body_bytes": 200_000, "unread_body_timeout": 3600}
    async with serving(hello, counters=counters, **options) as served:
        culprit = await served.connect()
        await culprit.send_all(BROKEN_PREFACE)
        await culprit.send_all(bytes(100_000))
        assert counters.open == 1
        with suppress(trio.BrokenResourceError):
            await culprit.send_all(bytes(10_000_000))
        with trio.fail_after(20):
            await receive_all(culprit)
            await until(lambda: not counters.open)


async def test_connections_one_after_the_other_displace_none():
    """Each that has ended makes its place free again, so that the limit counts those that are open."""
    counters = ServerCounters()
    async with serving(hello, counters=counters, max_connections=5) as served:
        for _ in range(20):
            stream = await served.connect()
            assert b"200" in await get(stream)
            await stream.aclose()
            await until(lambda: not counters.open)
        assert (counters.accepted, counters.displaced, counters.turned_away) == (20, 0, 0)


async def test_an_upgrade_to_http2_is_ignored():
    """It begins with the connection, or not at all."""
    upgrade = b"upgrade: h2c\r\nhttp2-settings: AAMAAABk\r\nconnection: upgrade, http2-settings\r\n"
    async with serving(hello) as served:
        stream = await served.connect()
        await stream.send_all(b"GET / HTTP/1.1\r\nhost: test\r\n" + upgrade + b"\r\n")
        assert (await receive_until(stream, b"0\r\n\r\n")).startswith(b"HTTP/1.1 200 ")


async def test_what_comes_after_the_end_of_a_request_is_no_failure():
    counters = ServerCounters()
    async with serving(hello, counters=counters) as served:
        peer = await Http2(await served.connect()).start()
        stream_id = await peer.request()
        late = hyperframe.frame.DataFrame(stream_id, data=b"after the end")
        await peer.stream.send_all(late.serialize())
        again = await peer.request()
        await peer.until_stream(again, h2.events.StreamEnded)
        assert peer.bodies[again] == b"ok"
        assert counters.failed == 0


async def test_a_client_that_vanishes_is_no_failure(caplog):
    counters = ServerCounters()
    async with serving(refuse_or_stream, counters=counters) as served:
        stream = await served.connect()
        await stream.send_all(b"GET /stream HTTP/1.1\r\nhost: test\r\n\r\n")
        await receive_until(stream, b"first")
        await stream.aclose()
        assert b"200" in await get(await served.connect())
    assert counters.failed == 0
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_an_application_that_raises_answers_500_and_is_logged(caplog):
    async def broken(scope, receive, send):
        if scope["type"] == "lifespan":
            raise NotImplementedError
        raise RuntimeError("a mistake of the application's")

    async with serving(broken) as served:
        stream = await served.connect()
        await stream.send_all(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n")
        assert b"HTTP/1.1 500" in await receive_all(stream)
    assert "a mistake of the application's" in caplog.text


async def test_an_application_that_raises_halfway_leaves_a_cut_response():
    async def halfway(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise RuntimeError

    async with serving(halfway) as served:
        stream = await served.connect()
        await stream.send_all(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n")
        response = await receive_all(stream)
        assert b"half" in response
        assert not response.endswith(b"0\r\n\r\n")


async def test_counters_follow_connections():
    counters = ServerCounters()
    async with serving(hello, counters=counters) as served:
        first, second = await served.connect(), await served.connect()
        await get(first)
        await get(second)
        assert (counters.accepted, counters.open) == (2, 2)
        served.shutdown.set()
        await served.ended.wait()
    assert (counters.accepted, counters.open, counters.failed, counters.stalled) == (2, 0, 0, 0)
