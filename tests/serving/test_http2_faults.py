"""What is wrong with one HTTP/2 request resets its stream; what is wrong with a connection ends that, and no other."""

import h2.events
import pytest
import trio
from h2.errors import ErrorCodes
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    HeadersFrame,
    PingFrame,
    WindowUpdateFrame,
)
from peers import Http2, get, head_of, receive_all, respond, serving

from mcpbus.serving import ServerCounters


async def answer_or_stream(scope, receive, send):
    """Answers once the whole request is there; /stream goes on until its client leaves."""
    assert scope["type"] == "http"
    if scope["path"] == "/stream":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while (await receive())["type"] != "http.disconnect":
            await send({"type": "http.response.body", "body": b"still there ", "more_body": True})
    else:
        while (message := await receive())["type"] == "http.request" and message["more_body"]:
            pass
        await respond(send)


def says(*fields, without=None):
    """A request with these fields in its head."""

    async def say(peer):
        head = [field for field in head_of() if field[0] != without]
        pseudo = [field for field in fields if field[0].startswith(":")]
        return await peer.request(headers=[*pseudo, *head, *(f for f in fields if f not in pseudo)])

    return say


def posts(body, *fields):
    async def say(peer):
        stream_id = await peer.request(headers=head_of("POST", "/", *fields), end=False)
        await peer.send_frames(DataFrame(stream_id, data=body, flags=["END_STREAM"]))
        return stream_id

    return say


def ends_with(flags, *fields):
    """A request with such trailers."""

    async def say(peer):
        stream_id = await peer.request("POST", end=False)
        block = peer.connection.encoder.encode(fields)
        await peer.send_frames(HeadersFrame(stream_id, data=block, flags=flags))
        return stream_id

    return say


async def overflow_a_window(peer):
    stream_id = await peer.request("POST", end=False)
    await peer.send_frames(WindowUpdateFrame(stream_id, window_increment=2**31 - 1))
    return stream_id


async def more_after_the_end(peer):
    stream_id = await peer.request(path="/stream")
    await peer.send_frames(DataFrame(stream_id, data=b"more"))
    return stream_id


# RFC 9113, section 8.1.1 and those it points to: "a stream error of type PROTOCOL_ERROR".
OF_ONE_STREAM = {
    "CONNECT with a :path": says((":method", "CONNECT"), without=":method"),
    "a :path outside ASCII": says((":path", "/é"), without=":path"),
    "a :method outside ASCII": says((":method", "GÉT"), without=":method"),
    "no :path": says(without=":path"),
    "two :paths": says((":path", "/again")),
    "a pseudo-header field that is none": says((":nonsense", "x")),
    "a field name in capitals": says(("X-Name", "x")),
    "a line break in a value": says(("x-name", "a\r\nb: c")),
    "a field of the connection": says(("connection", "close")),
    "TE of something else": says(("te", "gzip")),
    "a length that is no number": says(("content-length", "ten")),
    "two lengths that differ": says(("content-length", "1"), ("content-length", "2")),
    "a body longer than was said": posts(b"ab", ("content-length", "1")),
    "a body shorter than was said": posts(b"a", ("content-length", "2")),
    "a protocol to connect to": says((":protocol", "websocket")),
    "a blank around a value": says(("x-name", " x")),
    "no name of a field": says(("", "x")),
    "two lengths that are the same": says(("content-length", "0"), ("content-length", "0")),
    "a length without a body": says(("content-length", "1")),
    "trailers that are not the end": ends_with(["END_HEADERS"], ("x-name", "x")),
    "a pseudo-header field in trailers": ends_with(["END_HEADERS", "END_STREAM"], (":path", "/")),
}
# Sections 5.1 and 6.9.1, with codes of their own.
WITH_CODES = {
    "more after the end": (more_after_the_end, ErrorCodes.STREAM_CLOSED),
    "a window of a stream that is too large": (overflow_a_window, ErrorCodes.FLOW_CONTROL_ERROR),
}
STREAM_FAULTS = {name: (say, ErrorCodes.PROTOCOL_ERROR) for name, say in OF_ONE_STREAM.items()} | WITH_CODES


@pytest.mark.parametrize(("say", "code"), STREAM_FAULTS.values(), ids=STREAM_FAULTS.keys())
async def test_a_malformed_request_resets_its_stream_only(say, code):
    counters = ServerCounters()
    async with serving(answer_or_stream, counters=counters) as served:
        peer = await Http2(await served.connect(), lenient=True).start()
        neighbour = await peer.request("POST", "/stream", end=False)
        wrong = await say(peer)
        reset = await peer.until_stream(wrong, h2.events.StreamReset)
        assert reset.error_code == code
        assert not [
            event for event in peer.events[wrong] if isinstance(event, h2.events.ResponseReceived)
        ] or (say is more_after_the_end)
        # The same connection goes on: a request that was under way, and a new one.
        await peer.send_data(neighbour, b"are you there?")
        await peer.until_stream(neighbour, h2.events.DataReceived)
        later = await peer.request()
        await peer.until_stream(later, h2.events.StreamEnded)
        assert peer.bodies[later] == b"ok"
        assert counters.malformed == (code == ErrorCodes.PROTOCOL_ERROR)
        assert (counters.failed, counters.abusive) == (0, 0)


async def test_an_application_whose_request_turns_out_malformed_is_told():
    called, told = trio.Event(), trio.Event()

    async def app(scope, receive, send):
        assert scope["type"] == "http"
        called.set()
        while (await receive())["type"] != "http.disconnect":
            pass
        told.set()

    async with serving(app) as served:
        peer = await Http2(await served.connect(), lenient=True).start()
        stream_id = await peer.request(headers=head_of("POST", "/", ("content-length", "1")), end=False)
        await called.wait()
        await peer.send_frames(DataFrame(stream_id, data=b"ab"))
        await told.wait()


async def test_an_answer_that_its_application_leaves_unfinished_is_reset():
    async def app(scope, receive, send):
        assert scope["type"] == "http"
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})

    async with serving(app) as served:
        peer = await Http2(await served.connect()).start()
        with trio.fail_after(60):
            reset = await peer.until_stream(await peer.request(), h2.events.StreamReset)
        assert reset.error_code == ErrorCodes.INTERNAL_ERROR


def without(name, *more):
    return [field for field in head_of() if field[0] != name] + list(more)


REFUSED = {
    "a tunnel": ([(":method", "CONNECT"), (":authority", "elsewhere:443")], "501"),
    "no :authority and no host": (without(":authority"), "400"),
    "two hosts that differ": (head_of("GET", "/", ("host", "elsewhere")), "400"),
    "two hosts": (without(":authority", ("host", "test"), ("host", "test")), "400"),
    "a scheme that is not HTTP's": ([*head_of()[:2], (":scheme", "ftp"), (":authority", "test")], "400"),
    "everything as a path": (head_of("GET", "*"), "400"),
    "a target that is too long": (head_of("GET", "/" + 9000 * "x"), "414"),
    "an expectation that cannot be met": (head_of("GET", "/", ("expect", "miracles")), "417"),
    "too many fields": (head_of("GET", "/", *[(f"x-{n}", "x") for n in range(130)]), "431"),
    # So many are not judged one by one, though one of them is no field.
    "too many fields to look at": (head_of("GET", "/", *[("x", "x")] * 200, ("X", "x")), "431"),
    "a head that is too long": (head_of("GET", "/", *[(f"x-{n}", 1000 * "x") for n in range(33)]), "431"),
}


@pytest.mark.parametrize(("head", "status"), REFUSED.values(), ids=REFUSED.keys())
async def test_a_request_that_is_not_for_this_server_is_told_why(head, status):
    counters = ServerCounters()
    async with serving(answer_or_stream, counters=counters) as served:
        peer = await Http2(await served.connect(), lenient=True).start()
        stream_id = await peer.request(headers=head)
        await peer.until_stream(stream_id, h2.events.StreamEnded)
        assert peer.status(stream_id) == status
        later = await peer.request()
        await peer.until_stream(later, h2.events.StreamEnded)
        assert (counters.failed, counters.malformed) == (0, 0)


async def test_the_host_is_told_once_whichever_way_it_came():
    hosts = []

    async def app(scope, receive, send):
        hosts.append([value for name, value in scope["headers"] if name == b"host"])
        await respond(send)

    async with serving(app) as served:
        peer = await Http2(await served.connect(), lenient=True).start()
        for head in (
            head_of(),
            without(":authority", ("host", "test")),
            head_of("GET", "/", ("host", "test")),
        ):
            await peer.until_stream(await peer.request(headers=head), h2.events.StreamEnded)
    assert hosts == [[b"test"]] * 3


async def test_a_cookie_that_came_in_parts_is_put_together():
    async def app(scope, receive, send):
        cookies = [value for name, value in scope["headers"] if name == b"cookie"]
        await respond(send, b"|".join(cookies))

    async with serving(app) as served:
        peer = await Http2(await served.connect()).start()
        stream_id = await peer.request(headers=head_of("GET", "/", ("cookie", "a=1"), ("cookie", "b=2")))
        await peer.until_stream(stream_id, h2.events.StreamEnded)
        assert peer.bodies[stream_id] == b"a=1; b=2"


async def break_the_compression(peer):
    await peer.send_frames(HeadersFrame(1, data=b"\xff\xff\xff\xff\xff", flags=["END_HEADERS", "END_STREAM"]))


async def break_the_compression_in_trailers(peer):
    stream_id = await peer.request("POST", end=False)
    block = b"\xff\xff\xff\xff\xff"
    await peer.send_frames(HeadersFrame(stream_id, data=block, flags=["END_HEADERS", "END_STREAM"]))


async def interrupt_a_header_block(peer):
    await peer.send_frames(HeadersFrame(1, data=b"\x82"), PingFrame(0))


async def overfill_a_window(peer):
    stream_id = await peer.request("POST", "/deaf", end=False)
    await peer.send_frames(*[DataFrame(stream_id, data=bytes(16_384))] * 5)


def frames(*wrong):
    async def say(peer):
        await peer.send_frames(*wrong)

    return say


HEAD_OF_2 = HeadersFrame(2, data=b"\x82\x84\x86\x41\x01a", flags=["END_HEADERS", "END_STREAM"])

# What both sides must agree on is lost, or there is no stream that could be reset (sections 4.2, 4.3, 5.1, 5.1.1, 6.9).
CONNECTION_FAULTS = {
    "a header block that cannot be decoded": (break_the_compression, ErrorCodes.COMPRESSION_ERROR),
    "trailers that cannot be decoded": (break_the_compression_in_trailers, ErrorCodes.COMPRESSION_ERROR),
    "a header block that is interrupted": (interrupt_a_header_block, ErrorCodes.PROTOCOL_ERROR),
    "a stray continuation": (frames(ContinuationFrame(1, data=b"x")), ErrorCodes.PROTOCOL_ERROR),
    "a frame that is too long": (frames(DataFrame(1, data=bytes(16_385))), ErrorCodes.FRAME_SIZE_ERROR),
    "a stream of the server's": (frames(HEAD_OF_2), ErrorCodes.PROTOCOL_ERROR),
    "data for a stream that is not open": (frames(DataFrame(1, data=b"x")), ErrorCodes.PROTOCOL_ERROR),
    "more data than the window": (overfill_a_window, ErrorCodes.FLOW_CONTROL_ERROR),
    "a window of the connection that is too large": (
        frames(WindowUpdateFrame(0, window_increment=2**31 - 1)),
        ErrorCodes.FLOW_CONTROL_ERROR,
    ),
}


@pytest.mark.parametrize(("say", "code"), CONNECTION_FAULTS.values(), ids=CONNECTION_FAULTS.keys())
async def test_a_broken_connection_ends_itself_only(say, code, caplog):
    counters = ServerCounters()
    listen = trio.Event()

    async def app(scope, receive, send):
        if scope["path"] == "/deaf":
            await listen.wait()
        await answer_or_stream(scope, receive, send)

    async with serving(app, counters=counters) as served:
        bystander = await Http2(await served.connect()).start()
        stream_id = await bystander.request("POST", "/stream", end=False)

        culprit = await Http2(await served.connect(), lenient=True).start()
        await say(culprit)
        end = await culprit.until(lambda event: isinstance(event, h2.events.ConnectionTerminated))
        assert end.error_code == code
        await receive_all(culprit.stream)
        await culprit.stream.aclose()
        listen.set()

        await bystander.send_data(stream_id, b"are you there?")
        await bystander.until_stream(stream_id, h2.events.DataReceived)
        assert b"ok" in await get(await served.connect())
        assert (counters.failed, counters.malformed, counters.open) == (1, 0, 2)
    assert "was ended by" in caplog.text
