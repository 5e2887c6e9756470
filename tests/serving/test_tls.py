"""TLS lies above the guarded socket, and changes nothing."""

import ssl
from pathlib import Path
from urllib.parse import urlsplit

import h2.events
import pytest
import trio
from houses import call
from peers import Http2, get, hello, receive_all, serving
from test_write_deadline import Flood

from mcpbus import Server
from mcpbus.serving import CannotListenError, Counters, ServeOptions, serve

CERTIFICATE = str(Path(__file__).with_name("localhost.pem"))
FILES = {"certfile": CERTIFICATE, "keyfile": CERTIFICATE}


async def connect(served, *protocols):
    context = ssl.create_default_context(cafile=CERTIFICATE)
    context.set_alpn_protocols(protocols)
    below = await served.connect(receive_buffer=4096)
    stream = trio.SSLStream(below, context, server_hostname="localhost", https_compatible=True)
    await stream.do_handshake()
    assert stream.selected_alpn_protocol() == protocols[0]
    return stream


async def test_http1_over_tls():
    async with serving(hello, **FILES) as served:
        assert urlsplit(served.url).scheme == "https"
        assert b"ok" in await get(await connect(served, "http/1.1"))


async def test_http2_over_tls():
    async with serving(hello, **FILES) as served:
        peer = await Http2(await connect(served, "h2", "http/1.1")).start()
        stream_id = await peer.request()
        await peer.until_stream(stream_id, h2.events.StreamEnded)
        assert peer.bodies[stream_id] == b"ok"


async def test_a_failed_handshake_harms_nobody():
    counters = Counters()
    async with serving(hello, counters=counters, **FILES) as served:
        stream = await served.connect()
        await stream.send_all(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n")
        await receive_all(stream)
        assert b"ok" in await get(await connect(served, "http/1.1"))
    assert counters.failed == 0


PARTIAL_HANDSHAKES = pytest.mark.parametrize("said", [b"", b"\x16\x03\x01"])


@PARTIAL_HANDSHAKES
async def test_a_handshake_that_does_not_come_to_its_end_is_not_waited_for(said):
    async with serving(hello, tls_handshake_seconds=0.05, **FILES) as served:
        stream = await served.connect()
        await stream.send_all(said)
        assert await receive_all(stream) == b""


@PARTIAL_HANDSHAKES
async def test_nobody_waits_for_the_handshake_of_another(said):
    async with serving(hello, tls_handshake_seconds=3600, **FILES) as served:
        stream = await served.connect()
        await stream.send_all(said)
        assert b"ok" in await get(await connect(served, "http/1.1"))


async def test_a_client_that_has_sent_much_ahead_is_missed_all_the_same():
    server, running, cancelled = Server("waits", version="1"), trio.Event(), trio.Event()

    @server.tool
    async def wait() -> str:
        running.set()
        try:
            await trio.sleep_forever()
        finally:
            cancelled.set()
        return "unreached"

    async with server.open(drain_seconds=0) as bus, serving(bus.asgi(), **FILES) as served:
        stream = await connect(served, "http/1.1")
        await stream.send_all(call("wait"))
        await running.wait()
        await stream.send_all(call("wait") * 200)
        await stream.transport_stream.aclose()
        await cancelled.wait()


async def test_a_client_that_stalls_over_tls_is_cut_off():
    app, counters = Flood(), Counters()
    async with serving(app, counters=counters, write_deadline_seconds=0.2, **FILES) as served:
        stream = await connect(served, "http/1.1")
        await stream.send_all(b"GET /flood HTTP/1.1\r\nhost: test\r\n\r\n")
        await app.disconnected.wait()
        served.shutdown.set()
        await served.ended.wait()
    assert counters.stalled == 1


async def test_a_stall_over_tls_does_not_delay_the_shutdown():
    async with serving(Flood(), write_deadline_seconds=3600, drain_seconds=0.1, **FILES) as served:
        stream = await connect(served, "http/1.1")
        await stream.send_all(b"GET /flood HTTP/1.1\r\nhost: test\r\n\r\n")
        await stream.receive_some()
        served.shutdown.set()
        with trio.fail_after(30):
            await served.ended.wait()


async def test_a_certificate_that_cannot_be_read_is_told(tmp_path):
    missing = str(tmp_path / "missing.pem")
    with pytest.raises(CannotListenError, match=r"certificate .*missing\.pem"):
        await serve(hello, ServeOptions(certfile=missing, keyfile=missing))
