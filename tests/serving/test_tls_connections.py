"""Connections over TLS on real sockets: how they begin and end, who may make them, and clients that are slow."""

import os
import socket
import ssl
from contextlib import suppress

import h2.events
import pytest
import trio
import trio.lowlevel
import trio.testing
from certificates import Authority, MemoryClient, client_context, server_context
from houses import call, make_server
from lanes import Endpoint, post
from peers import Http2, get, hello, receive_all, receive_until, respond, serving, until
from test_tls import CERTIFICATE, FILES, connect

from mcpbus import Server
from mcpbus.core.shares import NoRoomError, Shares
from mcpbus.protocol.http.messages import HttpResponse
from mcpbus.serving import CannotListenError, ServeOptions, ServerCounters
from mcpbus.serving.listeners import make_ssl_context
from mcpbus.serving.tls_session import RECORD_BYTES
from mcpbus.serving.tls_stream import TlsStream
from mcpbus.serving.turn_lines import FIRST_TURNS, TurnLine

VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
each_version = pytest.mark.parametrize("version", VERSIONS.values(), ids=VERSIONS)
REQUEST = b"GET / HTTP/1.1\r\nhost: test\r\n\r\n"
LAST = b"GET / HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n"


async def over(served, client):
    """Complete the handshake of a client in memory over a socket, which is returned."""
    stream = await served.connect()
    said = client.step()
    while said or client.tls.version() is None or client.tls.cipher() is None:
        if said:
            await stream.send_all(said)
        if _is_complete(client):
            break
        said = client.step(await stream.receive_some())
    return stream


async def answer_over(served, client):
    """Make a request over a connection of its own, and return all of the answer."""
    stream = await over(served, client)
    await stream.send_all(client.say(LAST))
    return client.hear(await receive_all(stream))


def _is_complete(client):
    try:
        client.tls.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


# -- how a connection begins -------------------------------------------------------------------------


@each_version
async def test_a_handshake_in_single_bytes_is_one_handshake(version):
    async with serving(hello, **FILES) as served:
        stream, client = await served.connect(), MemoryClient(client_context(CERTIFICATE, version))
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        said = client.step()
        while said:
            for byte in range(len(said)):
                await stream.send_all(said[byte : byte + 1])
                await trio.lowlevel.checkpoint()
            said = b"" if _is_complete(client) else client.step(await stream.receive_some())
        for byte in client.say(LAST):
            await stream.send_all(bytes([byte]))
        assert b"ok" in client.hear(await receive_all(stream))


async def test_a_request_in_the_packet_that_ends_the_handshake_is_served():
    async with serving(hello, **FILES) as served:
        stream, client = await served.connect(), MemoryClient(client_context(CERTIFICATE, VERSIONS["1.3"]))
        await stream.send_all(client.step())
        last = b""
        while not last:
            last = client.step(await stream.receive_some())
        await stream.send_all(last + client.say(REQUEST + LAST))
        assert client.hear(await receive_all(stream)).count(b"ok") == 2


async def test_http2_in_the_packet_that_ends_the_handshake_is_served():
    context = client_context(CERTIFICATE, VERSIONS["1.3"])
    context.set_alpn_protocols(["h2"])
    async with serving(hello, **FILES) as served:
        stream, client = await served.connect(), MemoryClient(context)
        await stream.send_all(client.step())
        last = b""
        while not last:
            last = client.step(await stream.receive_some())
        await stream.send_all(last + client.say(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"))
        heard = b""
        while b"\0\0\0\4\1\0\0\0\0" not in heard:  # our settings are acknowledged
            heard += client.hear(await stream.receive_some())


async def test_a_client_that_offers_no_protocol_speaks_http1():
    async with serving(hello, **FILES) as served:
        client = MemoryClient(client_context(CERTIFICATE))
        assert b"ok" in await answer_over(served, client)


@pytest.mark.parametrize("said", [b"\x80\0\0\x01garbage" * 10, b"\0" * 600, bytes(range(256)) * 3])
async def test_garbage_instead_of_a_handshake_is_answered_with_an_alert_at_most(said):
    counters = ServerCounters()
    async with serving(hello, counters=counters, **FILES) as served:
        stream = await served.connect()
        await stream.send_all(said)
        answer = await receive_all(stream)
        assert answer[:1] in {b"", b"\x15"}
        assert len(answer) <= 7
        assert b"ok" in await get(await connect(served, "http/1.1"))
    assert counters.failed == 0


async def test_a_connection_that_sends_nothing_has_no_session_yet():
    """Ten thousand of them cost a task each, and not what OpenSSL keeps for a connection."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        stream = TlsStream(
            trio.SocketStream(trio.socket.from_stdlib_socket(ours)), 10, server_context(CERTIFICATE)
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stream.shake_hands, TurnLine(FIRST_TURNS))
            await trio.testing.wait_all_tasks_blocked()
            assert not hasattr(stream, "_session")
            nursery.cancel_scope.cancel()


async def test_a_session_is_resumed_with_a_ticket():
    context = client_context(CERTIFICATE)
    async with serving(hello, **FILES) as served:
        session = None
        for number in range(2):
            client = MemoryClient(context, session)
            assert b"ok" in await answer_over(served, client)
            assert client.tls.session_reused == bool(number)
            session = client.tls.session


async def test_handshakes_count_as_connections_and_make_room():
    count, counters = 3, ServerCounters()
    async with serving(hello, counters=counters, max_connections=count, **FILES) as served:
        waiting = [await served.connect() for _ in range(count + 2)]
        await until(lambda: counters.accepted == count + 2)
        assert counters.open == count
        assert counters.displaced == 2
        for stream in waiting[:2]:
            with suppress(trio.BrokenResourceError):  # it was reset
                assert await receive_all(stream) == b""


async def test_a_client_for_whom_there_is_no_room_costs_no_handshake(monkeypatch):
    counters, begun = ServerCounters(), []
    monkeypatch.setattr("mcpbus.serving.tls_stream.TlsSession", begun.append)
    full = NoRoomError(past_share=False)
    monkeypatch.setattr(Shares, "make_room", lambda *_: _raise(full))
    async with serving(hello, counters=counters, **FILES) as served:
        stream = await served.connect()
        await stream.send_all(MemoryClient(client_context(CERTIFICATE)).step())
        with suppress(trio.BrokenResourceError):  # what it has sent is unread
            assert await receive_all(stream) == b""
        await until(lambda: counters.turned_away == 1)
    assert begun == []


def _raise(error):
    raise error


# -- who may make one --------------------------------------------------------------------------------


@each_version
async def test_with_ca_certs_a_client_needs_a_certificate_of_that_authority(version, tmp_path):
    trusted = Authority(tmp_path, "trusted")
    context = client_context(CERTIFICATE, version, trusted.issue("agent"))
    async with serving(hello, ca_certs=trusted.file, **FILES) as served:
        client = MemoryClient(context)
        assert b"ok" in await answer_over(served, client)


@each_version
@pytest.mark.parametrize(
    ("issuer", "alert"), [(None, "CERTIFICATE_REQUIRED|HANDSHAKE_FAILURE"), ("stranger", "UNKNOWN_CA")]
)
async def test_with_ca_certs_a_client_without_such_a_certificate_is_refused(issuer, alert, version, tmp_path):
    trusted = Authority(tmp_path, "trusted")
    certificate = None if issuer is None else Authority(tmp_path, issuer).issue("agent")
    counters, asked = ServerCounters(), []

    async def app(scope, receive, send):
        if scope["type"] == "lifespan":
            raise NotImplementedError
        asked.append(scope)

    async with serving(app, counters=counters, ca_certs=trusted.file, **FILES) as served:
        client = MemoryClient(client_context(CERTIFICATE, version, certificate))
        with pytest.raises(ssl.SSLError, match=alert):
            await answer_over(served, client)
    assert asked == []
    assert counters.failed == 0


def test_ca_certs_need_a_certificate_of_our_own():
    with pytest.raises(
        ValueError, match="ca_certs verifies clients over TLS, which needs certfile and keyfile"
    ):
        ServeOptions(ca_certs="authorities.pem")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot read the certificates of authorities .*authorities.pem: No such file"),
        (b"hello", "there is no certificate of an authority in .*authorities.pem: write it in PEM"),
    ],
)
def test_authorities_that_cannot_be_used_are_named(content, said, tmp_path):
    file = tmp_path / "authorities.pem"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(CannotListenError, match=said):
        make_ssl_context(ServeOptions(ca_certs=str(file), **FILES))


# -- how a connection ends ---------------------------------------------------------------------------


@each_version
async def test_the_server_announces_its_end(version):
    async with serving(hello, **FILES) as served:
        client = MemoryClient(client_context(CERTIFICATE, version))
        assert b"ok" in await answer_over(served, client)
        assert _has_announced_end(client)


def _has_announced_end(client):
    """Whether the server has sent close_notify, and not only closed its socket."""
    client.incoming.write_eof()
    try:
        return client.tls.read(10) == b""
    except ssl.SSLZeroReturnError:
        return True
    except ssl.SSLEOFError:
        return False


class Breaks(Endpoint):
    """Begins an answer whose end is that of the connection, and fails."""

    async def __call__(self, scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"a part", "more_body": True})
        raise RuntimeError("on purpose")


async def test_an_answer_that_is_not_whole_does_not_end_like_a_whole_one():
    """In HTTP/1.0 the end of the connection is that of the answer; without close_notify a client notices that it was cut."""
    async with serving(Breaks(), **FILES) as served:
        client = MemoryClient(client_context(CERTIFICATE))
        stream = await over(served, client)
        await stream.send_all(client.say(b"GET /elsewhere HTTP/1.0\r\n\r\n"))
        assert client.hear(await receive_all(stream)).endswith(b"a part")
        assert not _has_announced_end(client)


@pytest.mark.parametrize("how", ["announced", "cut", "a record cut", "a wrong record"])
@pytest.mark.parametrize("framing", [b"content-length: 100", b"transfer-encoding: chunked"])
async def test_a_body_that_ends_early_is_not_served(how, framing):
    app, counters = Endpoint(), ServerCounters()
    async with serving(app, counters=counters, **FILES) as served:
        client = MemoryClient(client_context(CERTIFICATE))
        stream = await over(served, client)
        head = b"POST /echo HTTP/1.1\r\nhost: test\r\n%b\r\n\r\n" % framing
        await stream.send_all(client.say(head + b"5\r\nhello\r\n"))
        rest = client.say(b"0\r\n\r\n")
        end = {
            "announced": client.end(),
            "cut": b"",
            "a record cut": rest[:-1],
            "a wrong record": rest[:-1] + bytes([rest[-1] ^ 1]),
        }
        await stream.send_all(end[how])
        await stream.send_eof()
        await receive_all(stream)
        await until(lambda: counters.open == 0)
    assert app.bodies == []
    assert counters.failed == 0


async def test_a_client_that_announces_its_end_behind_its_request_is_answered_and_closed():
    async with serving(hello, **FILES) as served:
        client = MemoryClient(client_context(CERTIFICATE))
        stream = await over(served, client)
        await stream.send_all(client.say(REQUEST) + client.end())  # and the socket stays open
        heard = client.hear(await receive_all(stream))
    assert b"ok" in heard


async def test_the_call_of_a_client_that_announces_its_end_is_cancelled():
    server, running, cancelled = Server("waits", version="1"), trio.Event(), trio.Event()

    @server.tool
    async def wait() -> str:
        running.set()
        try:
            await trio.sleep_forever()
        finally:
            cancelled.set()
        return "unreached"

    async with server.open(drain_timeout=0) as bus, serving(bus.asgi(), **FILES) as served:
        client = MemoryClient(client_context(CERTIFICATE))
        stream = await over(served, client)
        await stream.send_all(client.say(call("wait")))
        await running.wait()
        await stream.send_all(client.end())  # and the socket stays open
        await cancelled.wait()


async def test_a_wrong_record_ends_its_connection_alone_with_an_alert():
    counters = ServerCounters()
    async with serving(hello, counters=counters, **FILES) as served:
        client = MemoryClient(client_context(CERTIFICATE))
        stream = await over(served, client)
        await stream.send_all(b"\x17\x03\x03\x00\x20" + bytes(32))
        with pytest.raises(ssl.SSLError, match="BAD_RECORD_MAC"):
            client.hear(await receive_all(stream))
        assert b"ok" in await get(await connect(served, "http/1.1"))
    assert counters.failed == 0


@pytest.mark.parametrize("protocol", ["http/1.1", "h2"])
async def test_a_shutdown_lets_requests_end_and_announces_the_end(protocol):
    server = make_server()
    async with server.open() as bus, serving(bus.asgi(), **FILES) as served:
        stream = await connect(served, protocol)
        served.shutdown.set()
        while await stream.receive_some():
            pass
        with trio.fail_after(30):
            await served.ended.wait()


# -- clients that are slow ---------------------------------------------------------------------------


class Pair:
    """A `TlsStream` of the server, and its client, over a pair of sockets with small buffers."""

    def __init__(self, seconds=10.0, buffer=4096):
        ours, theirs = socket.socketpair()
        for sock in (ours, theirs):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer)
        theirs.setblocking(False)
        self.theirs = theirs
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(ours))
        self.stream = TlsStream(stream, seconds, server_context(CERTIFICATE))
        self.client = MemoryClient(client_context(CERTIFICATE))

    async def shake_hands(self):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.stream.shake_hands, TurnLine(FIRST_TURNS))
            while not _is_complete(self.client):
                self.theirs.sendall(self.client.step())
                await trio.testing.wait_all_tasks_blocked(0.01)
                self.hear()
            self.theirs.sendall(self.client.step())
        return self

    def hear(self, most=1_000_000):
        """Read what has come, and return its text."""
        try:
            data = self.theirs.recv(most)
        except BlockingIOError:
            data = b""
        return self.client.hear(data)


@pytest.mark.parametrize("size", [1, 16_384, 16_385, 65_536, 300_000])
@pytest.mark.parametrize("slice_", [1_000, 16_384, 50_000, 10**6])
async def test_what_the_client_takes_in_parts_arrives_whole_and_in_order(size, slice_):
    """Whatever `send_now` has not taken is offered again, in slices of any size, some of it encrypted already."""
    pair, text = await Pair().shake_hands(), os.urandom(size) * 3
    heard, at = b"", 0
    while at < len(text):
        taken = pair.stream.send_now(text[at : at + slice_])
        assert 0 <= taken <= slice_
        at += taken
        waiting = sum(len(record) for record, _ in pair.stream._records)
        assert waiting <= 4 * (RECORD_BYTES + 64)
        heard += pair.hear(5_000)
    assert heard + pair.hear() == text
    assert not pair.stream._records
    pair.stream.close()
    pair.theirs.close()


async def test_text_counts_as_taken_only_with_its_whole_record():
    pair = await Pair(buffer=60_000).shake_hands()
    text = bytes(1_000_000)
    taken = pair.stream.send_now(text)
    assert 0 < taken < len(text)
    assert taken % RECORD_BYTES == 0
    assert len(pair.hear()) >= taken
    pair.stream.close()
    pair.theirs.close()


async def test_a_client_that_takes_nothing_is_given_up_in_time(autojump_clock):
    pair = await Pair(seconds=30).shake_hands()
    begun = trio.current_time()
    with pytest.raises(trio.BrokenResourceError, match="accepted nothing for 30 s"):
        await pair.stream.send_all(bytes(1_000_000))
    assert trio.current_time() - begun == pytest.approx(30)
    assert pair.stream.stalled
    pair.theirs.close()


async def test_a_stream_with_records_that_wait_announces_no_end():
    pair = await Pair().shake_hands()
    assert pair.stream.send_now(bytes(200_000)) < 200_000
    pair.stream.close()
    pair.hear()
    assert not _has_announced_end(pair.client)
    pair.theirs.close()


async def test_a_large_answer_reaches_a_client_that_reads_slowly():
    class Big(Endpoint):
        def respond_big(self, body):
            return HttpResponse(200, [], bytes(2_000_000))

    async with serving(Big(), **FILES) as served:
        stream = await connect(served, "http/1.1")
        await stream.send_all(post(path="/big"))
        head = await receive_until(stream, b"\r\n\r\n")
        size = len(head.partition(b"\r\n\r\n")[2])
        while size < 2_000_000:
            await trio.sleep(0.001)
            size += len(await stream.receive_some(100_000))
        assert size == 2_000_000


async def test_a_large_answer_over_http2_reaches_its_client():
    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(1_000_000)})

    async with serving(app, **FILES) as served:
        peer = await Http2(await connect(served, "h2")).start()
        stream_id = await peer.request()
        await peer.until_stream(stream_id, h2.events.StreamEnded)
        assert len(peer.bodies[stream_id]) == 1_000_000


@pytest.mark.parametrize("protocol", ["http/1.1", "h2"])
async def test_a_large_body_is_taken_whole(protocol):
    heard = []

    async def app(scope, receive, send):
        assert scope["scheme"] == "https"
        more, size = True, 0
        while more:
            message = await receive()
            size, more = size + len(message["body"]), message["more_body"]
        heard.append(size)
        await respond(send)

    async with serving(app, **FILES) as served:
        stream = await connect(served, protocol)
        if protocol == "h2":
            peer = await Http2(stream).start()
            stream_id = await peer.request("POST", end=False)
            await peer.send_data(stream_id, b"x" * 50_000, end=True)
            await peer.until_stream(stream_id, h2.events.StreamEnded)
        else:
            await stream.send_all(post(b"x" * 50_000))
            await receive_until(stream, b"\r\n\r\n")
    assert heard == [50_000]


async def test_the_end_of_sending_is_announced_while_the_client_may_still_send():
    pair = await Pair().shake_hands()
    pair.stream.end_sending()
    assert pair.hear() == b""
    assert pair.client.tls.read(10) == b""  # close_notify, and no end of the socket alone
    pair.theirs.sendall(pair.client.say(b"the rest"))
    assert pair.stream.receive_now() == b"the rest"
    pair.stream.close()
    pair.theirs.close()
