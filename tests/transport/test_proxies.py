"""Whom a proxy forwards for: believed of known proxies, and of nobody else."""

import pytest
from channels import house
from hypothesis import given
from hypothesis import strategies as st

from mcpbus import HttpOptions
from mcpbus.protocol.http.headers import Headers
from mcpbus.protocol.http.proxies import Proxies
from mcpbus.protocol.principals import LOCAL, Peer
from mcpbus.testing import open_probe

PROXIES = Proxies(("127.0.0.1", "10.0.0.0/8", "fd00::/8"))
PROXY = Peer.at("10.0.0.1")


def read(*fields, peer=PROXY, proxies=PROXIES):
    headers = Headers([(name.encode(), value.encode("latin-1")) for name, value in fields])
    return str(proxies.client(peer, headers))


def old(*values):
    return [("x-forwarded-for", value) for value in values]


def new(*values):
    return [("forwarded", value) for value in values]


@pytest.mark.parametrize(
    ("fields", "client"),
    [
        (old("192.0.2.1"), "192.0.2.1"),
        (old("192.0.2.9, 192.0.2.1"), "192.0.2.1"),
        (old("192.0.2.1, 10.1.1.1,127.0.0.1"), "192.0.2.1"),
        (old("192.0.2.9", "192.0.2.1, 10.1.1.1"), "192.0.2.1"),
        (old("192.0.2.1:4711"), "192.0.2.1"),
        (old("2001:db8::1"), "2001:db8::/64"),
        (old("[2001:db8::1]:4711"), "2001:db8::/64"),
        (old("::ffff:192.0.2.1"), "192.0.2.1"),
        (old("what the client made up, 192.0.2.1"), "192.0.2.1"),
        (old("10.1.1.1, 10.2.2.2"), "10.1.1.1"),
        (new("for=192.0.2.1"), "192.0.2.1"),
        (new('For="[2001:db8:cafe::17]:4711"'), "2001:db8:cafe::/64"),
        (new("for=192.0.2.9, for=192.0.2.1;proto=http;by=203.0.113.43"), "192.0.2.1"),
        (new("proto=https; for=192.0.2.1"), "192.0.2.1"),
        (new('for="192.0.2.9, for=192.0.2.8";x=1', "for=192.0.2.1,for=10.1.1.1"), "192.0.2.1"),
    ],
)
def test_the_last_hop_that_is_no_known_proxy_is_the_client(fields, client):
    assert read(*fields) == client
    assert read(*fields) == client, "remembered"
    assert read(*fields, peer=Peer.at("192.0.2.77")) == "192.0.2.77", "of nobody else"
    assert read(*fields, peer=LOCAL) == str(LOCAL)
    assert read(*fields, peer=LOCAL, proxies=Proxies(("unix", "10.0.0.0/8", "127.0.0.1"))) == client


@pytest.mark.parametrize(
    "fields",
    [
        [],
        old(""),
        old("unknown"),
        old("192.0.2.1,"),
        old("192.0.2.1, 10.1.1.1, nonsense"),
        old("192.0.2.256"),
        old("1.2.3"),
        old("192.0.2.1, " + "10.1.1.1, " * 20 + "10.1.1.1"),
        new("for=_hidden"),
        new("for=unknown"),
        new("by=192.0.2.1"),
        new("for=192.0.2.1;for=192.0.2.2"),
        new('for="192.0.2.1'),
        new("for=192.0.2.1 192.0.2.2"),
        new("for=2001:db8::1") + old("192.0.2.1"),
        new("for=192.0.2.1") + old("192.0.2.1"),
    ],
)
def test_what_cannot_be_read_or_is_said_twice_is_the_proxys_own(fields):
    assert read(*fields) == "10.0.0.1"


@given(st.text(max_size=60), st.booleans())
def test_nothing_that_is_said_is_a_fault(text, modern):
    value = text.encode("utf-8", "replace").decode("latin-1")
    assert read(*(new(value) if modern else old(value)))


def test_what_is_long_is_read_soon_and_not_remembered():
    proxies = Proxies(("10.0.0.0/8",))
    assert read(*old("10.0.0.1," * 4000), proxies=proxies) == "10.0.0.1"
    assert read(*new('for="' * 6000), proxies=proxies) == "10.0.0.1"
    assert len(proxies._remembered) == 0


@pytest.mark.parametrize("wrong", [["10.0.0.0/33"], ["proxy"], ["*"], [""]])
def test_a_proxy_is_an_address_or_a_network(wrong):
    with pytest.raises(ValueError, match="trusted_proxies"):
        HttpOptions(trusted_proxies=wrong)


def test_one_name_is_no_list():
    with pytest.raises(
        TypeError, match=r"trusted_proxies is a list of texts: write trusted_proxies=\['10.0.0.1'\]"
    ):
        HttpOptions(trusted_proxies="10.0.0.1")


@pytest.mark.parametrize("shell", ["asgi", "http1", "http2"])
@pytest.mark.parametrize(("trusted", "owners"), [(["127.0.0.1"], 2), ([], 1)])
async def test_clients_behind_a_known_proxy_are_owners_of_their_own(shell, trusted, owners, autojump_clock):
    async with house() as home, open_probe(home.bus.asgi(trusted_proxies=trusted), shell=shell) as probe:
        for client in ("192.0.2.1", "192.0.2.1", "192.0.2.2"):
            await probe.initialize(headers={"x-forwarded-for": client})
        sse = {"accept": "text/event-stream", "x-forwarded-for": "192.0.2.1"}
        await probe.send("GET", headers=sse, target="/sse").begun()
        assert (len(home.bus.session_directory.shares), home.bus.session_directory.shares.owners) == (
            4,
            owners,
        )
        assert home.bus.session_directory.shares.held_by(
            Peer.at("192.0.2.1" if trusted else "127.0.0.1")
        ) == (3 if trusted else 4)
