"""How issuers are asked: at which address, by which proxy, and for how long."""

import socket
import ssl
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cache, partial

import pytest
import trio
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from internet import Body, Internet, answer

from mcpbus.client import http_library
from mcpbus.client.oauth import http
from mcpbus.client.oauth.errors import IssuerUnavailableError, MetadataError
from mcpbus.client.oauth.http import NetworkZone, OAuthHttpClient, OAuthResponse

FAR = NetworkZone.ANYWHERE


@pytest.fixture
async def net():
    found = Internet()
    with found.instead_of_the_other_one():
        yield found


def saying(*answers):
    said = list(answers)

    async def serve(request):
        return said.pop(0)

    return serve


async def test_what_is_sent(net, autojump_clock):
    net.hosts["id.example"] = saying(*(answer(json={}) for _ in range(3)))
    web = OAuthHttpClient(FAR, ())
    await web.get("https://id.example:8443/a?b=c")
    await web.post_form("https://id.example/token", {"a": "b c", "d": "\xe9&"}, {"Authorization": "Basic x"})
    await web.post_json("https://id.example/register", {"a": ["b"]})
    got, form, registered = net.visits
    assert (got.verb, got.url, got.address) == ("GET", "https://id.example:8443/a?b=c", "93.184.216.34")
    assert got.headers["host"] == "id.example:8443"
    assert got.headers["accept"] == "application/json"
    assert got.headers["accept-encoding"] == "identity"
    assert got.headers["mcp-protocol-version"] == "2026-07-28"
    assert (form.verb, form.body) == ("POST", b"a=b+c&d=%C3%A9%26")
    assert form.headers["authorization"] == "Basic x"
    assert (registered.verb, registered.body) == ("POST", b'{"a":["b"]}')
    assert "authorization" not in registered.headers


@pytest.mark.parametrize(
    ("said", "got"),
    [
        (answer(json={"a": 1}), OAuthResponse(200, {"a": 1})),
        (answer(json=[1]), OAuthResponse(200)),
        (answer(body=b"<!doctype html>"), OAuthResponse(200)),
        (answer(404, json={"error": "x"}), OAuthResponse(404, {"error": "x"})),
        (answer(301, location="https://evil.example"), OAuthResponse(301, None, "https://evil.example")),
        (answer(200, location="https://evil.example"), OAuthResponse(200)),
    ],
)
async def test_what_is_answered(said, got, net, autojump_clock):
    net.hosts["id.example"] = saying(said)
    assert await OAuthHttpClient(FAR, ()).get("https://id.example/x") == got


async def test_an_answer_that_is_a_stream_of_events_is_not_waited_for(net, autojump_clock):
    """A server whose every GET is its stream would hold up a login for ten seconds at each place."""
    endless = Body(b":\n\n", seconds=1, endless=True)
    net.hosts["id.example"] = saying(answer(body=endless, content_type="Text/Event-Stream; charset=utf-8"))
    began = trio.current_time()
    with pytest.raises(
        IssuerUnavailableError, match=r"https://id\.example/x answers with a stream of events"
    ):
        await OAuthHttpClient(FAR, ()).get("https://id.example/x")
    assert trio.current_time() - began < 1


async def test_of_several_addresses_one_after_the_other_is_tried(net, autojump_clock):
    net.hosts["id.example"] = saying(answer(json={"a": 1}))
    net.addresses["id.example"] = ["93.184.216.1", "93.184.216.2", "93.184.216.3"]
    net.down = {"93.184.216.1", "93.184.216.2"}
    assert (await OAuthHttpClient(FAR, ()).get("https://id.example/x")).document == {"a": 1}
    assert [visit.address for visit in net.visits] == ["93.184.216.3"]


async def test_a_host_that_is_down_or_not_there_cannot_be_asked(net, autojump_clock):
    net.hosts["id.example"] = saying()
    net.down = {"id.example"}
    with pytest.raises(IssuerUnavailableError, match=r"cannot connect to https://id\.example/x"):
        await OAuthHttpClient(FAR, ()).get("https://id.example/x")
    with pytest.raises(IssuerUnavailableError, match=r"the host of https://nowhere\.example/x is not found"):
        await OAuthHttpClient(FAR, ()).get("https://nowhere.example/x")


@pytest.mark.parametrize(
    ("reach", "trusted", "address", "asked"),
    [
        (FAR, (), "93.184.216.34", True),
        (FAR, (), "10.0.0.1", False),
        (FAR, ("ID.example",), "10.0.0.1", True),
        (FAR, ("other.example",), "10.0.0.1", False),
        (NetworkZone.NETWORK, (), "10.0.0.1", True),
        (NetworkZone.NETWORK, (), "169.254.169.254", False),
        (NetworkZone.NETWORK, (), "127.0.0.1", False),
        (NetworkZone.LINK, (), "169.254.169.254", True),
        (NetworkZone.LINK, (), "127.0.0.1", False),
        (NetworkZone.HERE, (), "127.0.0.1", True),
    ],
)
async def test_who_may_be_asked(reach, trusted, address, asked, net):
    net.hosts["id.example"] = saying(answer(json={}))
    net.addresses["id.example"] = [address]
    web = OAuthHttpClient(reach, trusted)
    if asked:
        await web.get("https://id.example/x")
        assert [visit.address for visit in net.visits] == [address]
    else:
        with pytest.raises(MetadataError, match="issuer="):
            await web.get("https://id.example/x")
        assert net.visits == []


async def test_where_a_proxy_is_between_it_looks_up_names_and_we_do_not(net, autojump_clock, monkeypatch):
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    net.hosts["id.example"] = saying(answer(json={}))
    net.addresses["id.example"] = ["10.0.0.1"]
    await OAuthHttpClient(FAR, ()).get("https://id.example/x")
    # What is no name at all can be judged here.
    for url in ("https://10.0.0.1/x", "https://[fd00::1]/x", "https://localhost/x", "https://a.localhost/x"):
        with pytest.raises(MetadataError):
            await OAuthHttpClient(FAR, ()).get(url)
    assert len(net.visits) == 1


async def test_who_asks_may_leave(net, autojump_clock):
    net.hosts["id.example"] = saying(answer(json={}))
    net.slow["id.example"] = 5
    with trio.move_on_after(1) as scope:
        await OAuthHttpClient(FAR, ()).get("https://id.example/x")
    assert scope.cancelled_caught


@pytest.mark.parametrize(
    "url", ["https://id.example/\x00", "https://\u2028/x", "https://a..b/x", "https://" + "a" * 300]
)
async def test_what_is_no_address_cannot_be_asked(url, net, autojump_clock):
    with pytest.raises((IssuerUnavailableError, MetadataError)):
        await OAuthHttpClient(FAR, ()).get(url)


@pytest.fixture
def certificate(tmp_path):
    """One for id.example, and its key, in a file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "id.example")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("id.example")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = tmp_path / "id.pem"
    plain = serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    file.write_bytes(pem + made.public_bytes(serialization.Encoding.PEM))
    return file


class Here(trio.abc.HostnameResolver):
    """Finds everybody on this machine."""

    async def getaddrinfo(self, host, port, *_):
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    async def getnameinfo(self, sockaddr, flags):
        raise NotImplementedError


async def test_who_is_asked_at_an_address_shows_the_certificate_of_the_host(certificate, monkeypatch):
    monkeypatch.setattr(http, "_is_near", lambda address, reach: False)
    monkeypatch.setattr(
        http_library, "_certificates", cache(lambda: ssl.create_default_context(cafile=certificate))
    )
    trio.socket.set_custom_hostname_resolver(Here())
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    serving.load_cert_chain(certificate)
    asked = []

    async def serve(stream):
        with suppress(trio.BrokenResourceError):
            asked.append(await stream.receive_some())
            await stream.send_all(b'HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n{"a":1}')
            await stream.aclose()

    async with trio.open_nursery() as nursery:
        serve_tls = partial(trio.serve_ssl_over_tcp, serve, 0, serving, host="127.0.0.1")
        [listener] = await nursery.start(serve_tls)
        port = listener.transport_listener.socket.getsockname()[1]
        web = OAuthHttpClient(FAR, ())
        assert await web.get(f"https://id.example:{port}/x") == OAuthResponse(200, {"a": 1})
        with pytest.raises(IssuerUnavailableError, match="CERTIFICATE_VERIFY_FAILED"):
            await web.get(f"https://other.example:{port}/x")
        nursery.cancel_scope.cancel()
    [request] = asked
    assert f"\r\nHost: id.example:{port}\r\n".lower() in request.decode().lower()
