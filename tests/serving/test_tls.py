"""TLS between the socket and the connection changes nothing else: versions, ciphers, handshakes, stalls and the ends of connections."""

import datetime as dt
import re
import ssl
import warnings
from pathlib import Path
from urllib.parse import urlsplit

import h2.events
import pytest
import trio
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from houses import call
from peers import Http2, get, hello, receive_all, serving
from test_write_deadline import Flood

from mcpbus import Server
from mcpbus.serving import CannotListenError, ServeOptions, ServerCounters, serve

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


async def test_http1_is_served_over_tls():
    async with serving(hello, **FILES) as served:
        assert urlsplit(served.url).scheme == "https"
        assert b"ok" in await get(await connect(served, "http/1.1"))


async def test_http2_is_served_over_tls_to_who_offers_it():
    async with serving(hello, **FILES) as served:
        peer = await Http2(await connect(served, "h2", "http/1.1")).start()
        stream_id = await peer.request()
        await peer.until_stream(stream_id, h2.events.StreamEnded)
        assert peer.bodies[stream_id] == b"ok"


WEAK = {
    "TLS 1.1": (ssl.TLSVersion.TLSv1_1, "ALL:@SECLEVEL=0"),
    "no forward secrecy": (ssl.TLSVersion.TLSv1_2, "AES128-GCM-SHA256:AES256-GCM-SHA384"),
    "no AEAD": (ssl.TLSVersion.TLSv1_2, "ECDHE-ECDSA-AES256-SHA384:ECDHE-RSA-AES256-SHA384"),
    "SHA-1": (ssl.TLSVersion.TLSv1_2, "ECDHE-ECDSA-AES128-SHA:ECDHE-RSA-AES128-SHA:AES128-SHA"),
    "finite fields": (ssl.TLSVersion.TLSv1_2, "DHE-RSA-AES256-GCM-SHA384:DHE-RSA-CHACHA20-POLY1305"),
    "CCM": (ssl.TLSVersion.TLSv1_2, "ECDHE-ECDSA-AES128-CCM8:ECDHE-ECDSA-AES256-CCM"),
    "no encryption": (ssl.TLSVersion.TLSv1_2, "eNULL:@SECLEVEL=0"),
}
"""What a client offers alone: the newest version of TLS, and ciphers that HTTP/2 forbids, or that are no longer current."""
MODERN = {
    "TLS 1.2, AES": (ssl.TLSVersion.TLSv1_2, "ECDHE+AESGCM"),
    "TLS 1.2, ChaCha20": (ssl.TLSVersion.TLSv1_2, "ECDHE+CHACHA20"),
    "TLS 1.3": (ssl.TLSVersion.TLSv1_3, "ECDHE+AESGCM"),
}


REFUSALS = {
    "TLSV1_ALERT_PROTOCOL_VERSION",
    "SSLV3_ALERT_HANDSHAKE_FAILURE",
    "TLSV1_ALERT_INSUFFICIENT_SECURITY",
}


def of_key(kind, tmp_path):
    """Files with a key of that kind: which ciphers of TLS 1.2 there are depends on it."""
    if kind == "ECDSA":
        return FILES
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    day = dt.timedelta(days=1)
    made = x509.CertificateBuilder(
        name, name, key.public_key(), x509.random_serial_number(), now - day, now + day
    )
    file = tmp_path / "rsa.pem"
    encoded = made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    file.write_bytes(encoded + _encoded(key, serialization.NoEncryption()))
    return {"certfile": str(file), "keyfile": str(file)}


async def shake_hands(offered, files):
    """Offer this alone; return the version and the cipher that were agreed on, or None if the server refused with an alert."""
    version, ciphers = offered
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of TLS 1.1
        context.minimum_version = context.maximum_version = version
    context.set_ciphers(ciphers)
    async with serving(hello, **files) as served:
        below = await served.connect()
        stream = trio.SSLStream(below, context, server_hostname="localhost", https_compatible=True)
        try:
            await stream.do_handshake()
        except trio.BrokenResourceError as refused:
            if refused.__cause__.reason in REFUSALS:  # the alert that the server has sent
                return None
            raise
        return stream.version(), stream.cipher()[0]


@pytest.mark.parametrize("kind", ["ECDSA", "RSA"])
@pytest.mark.parametrize("weak", WEAK)
async def test_a_client_that_offers_weak_ciphers_alone_is_refused(weak, kind, tmp_path):
    assert await shake_hands(WEAK[weak], of_key(kind, tmp_path)) is None


@pytest.mark.parametrize("kind", ["ECDSA", "RSA"])
@pytest.mark.parametrize("modern", MODERN)
async def test_a_client_that_offers_modern_ciphers_is_served(modern, kind, tmp_path):
    version, cipher = await shake_hands(MODERN[modern], of_key(kind, tmp_path))
    assert version == ("TLSv1.3" if modern == "TLS 1.3" else "TLSv1.2")
    assert cipher.startswith("TLS_" if modern == "TLS 1.3" else f"ECDHE-{kind}-")


async def test_a_failed_handshake_harms_nobody():
    counters = ServerCounters()
    async with serving(hello, counters=counters, **FILES) as served:
        stream = await served.connect()
        await stream.send_all(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n")
        await receive_all(stream)
        assert b"ok" in await get(await connect(served, "http/1.1"))
    assert counters.failed == 0


PARTIAL_HANDSHAKES = pytest.mark.parametrize("said", [b"", b"\x16\x03\x01"])


@PARTIAL_HANDSHAKES
async def test_a_handshake_that_does_not_come_to_its_end_is_not_waited_for(said):
    async with serving(hello, tls_handshake_timeout=0.05, **FILES) as served:
        stream = await served.connect()
        await stream.send_all(said)
        assert await receive_all(stream) == b""


@PARTIAL_HANDSHAKES
async def test_nobody_waits_for_the_handshake_of_another(said):
    async with serving(hello, tls_handshake_timeout=3600, **FILES) as served:
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

    async with server.open(drain_timeout=0) as bus, serving(bus.asgi(), **FILES) as served:
        stream = await connect(served, "http/1.1")
        await stream.send_all(call("wait"))
        await running.wait()
        await stream.send_all(call("wait") * 200)
        await stream.transport_stream.aclose()
        await cancelled.wait()


async def test_a_client_that_stalls_over_tls_is_cut_off():
    app, counters = Flood(), ServerCounters()
    async with serving(app, counters=counters, write_deadline=0.2, **FILES) as served:
        stream = await connect(served, "http/1.1")
        await stream.send_all(b"GET /flood HTTP/1.1\r\nhost: test\r\n\r\n")
        await app.disconnected.wait()
        served.shutdown.set()
        await served.ended.wait()
    assert counters.stalled == 1


async def test_a_stall_over_tls_does_not_delay_the_shutdown():
    async with serving(Flood(), write_deadline=3600, drain_timeout=0.1, **FILES) as served:
        stream = await connect(served, "http/1.1")
        await stream.send_all(b"GET /flood HTTP/1.1\r\nhost: test\r\n\r\n")
        await stream.receive_some()
        served.shutdown.set()
        with trio.fail_after(30):
            await served.ended.wait()


def _encoded(key, encryption):
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)


def _key(encryption):
    return _encoded(ec.generate_private_key(ec.SECP256R1()), encryption)


BAD_FILES = {
    "no file": ({}, "cannot read the certificate cert.pem: No such file or directory"),
    "no key file": ({"cert.pem": True}, "cannot read the private key key.pem: No such file or directory"),
    "no certificate": (
        {"cert.pem": b"hello", "key.pem": True},
        "there is no certificate in cert.pem: it is to be in PEM, text with a line such as -----BEGIN CERTIFICATE-----",
    ),
    "a certificate in binary": (
        {"cert.pem": b"0\x82\0", "key.pem": True},
        "there is no certificate in cert.pem",
    ),
    "no key": ({"cert.pem": True, "key.pem": b"hello"}, "there is no private key in key.pem: it is to be in"),
    "another key": (
        {"cert.pem": True, "key.pem": _key(serialization.NoEncryption())},
        "the private key in key.pem is not that of the first certificate in cert.pem",
    ),
    "a key with a password": (
        {"cert.pem": True, "key.pem": _key(serialization.BestAvailableEncryption(b"secret"))},
        "the private key in key.pem is encrypted, and nobody can be asked for its password: write it to",
    ),
    "a broken certificate": (
        {"cert.pem": b"-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n", "key.pem": True},
        "cannot use the certificate in cert.pem with the private key in key.pem",
    ),
}


@pytest.mark.parametrize(("files", "said"), BAD_FILES.values(), ids=BAD_FILES)
def test_a_certificate_or_a_key_that_cannot_be_used_is_told_by_its_file(files, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, content in files.items():
        (tmp_path / name).write_bytes(Path(CERTIFICATE).read_bytes() if content is True else content)
    with pytest.raises(CannotListenError, match=f"^{re.escape(said)}"):
        trio.run(serve, hello, ServeOptions(bind="127.0.0.1:0", certfile="cert.pem", keyfile="key.pem"))
