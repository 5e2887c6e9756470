"""How near an address is, in whatever way it is written."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbus.client.oauth.http import NetworkZone, nearness, reach_of

FAR, NETWORK, LINK, HERE = NetworkZone


@pytest.mark.parametrize(
    ("address", "near"),
    [
        ("93.184.216.34", FAR),
        ("2606:2800:220:1::1", FAR),
        ("10.0.0.1", NETWORK),
        ("172.16.0.1", NETWORK),
        ("172.31.255.255", NETWORK),
        ("172.32.0.1", FAR),
        ("192.168.1.1", NETWORK),
        ("100.64.0.1", NETWORK),
        ("fc00::1", NETWORK),
        ("fd12:3456::1", NETWORK),
        ("192.0.2.1", NETWORK),
        ("240.0.0.1", NETWORK),
        ("169.254.169.254", LINK),
        ("fe80::1", LINK),
        ("fe80::1%eth0", LINK),
        ("224.0.0.1", LINK),
        ("ff02::1", LINK),
        ("127.0.0.1", HERE),
        ("127.255.255.254", HERE),
        ("0.0.0.0", HERE),
        ("::1", HERE),
        ("::", HERE),
        # Addresses of IPv4 in clothes of IPv6.
        ("::ffff:127.0.0.1", HERE),
        ("::ffff:169.254.169.254", LINK),
        ("::ffff:10.0.0.1", NETWORK),
        ("::ffff:93.184.216.34", FAR),
        ("64:ff9b::7f00:1", HERE),
        ("64:ff9b::a9fe:a9fe", LINK),
        ("64:ff9b::5db8:d822", FAR),
        ("2002:7f00:1::", HERE),
        ("2002:a00:1::", NETWORK),
    ],
)
def test_how_near(address, near):
    assert nearness(address) is near


@pytest.mark.parametrize(
    "text", ["", "localhost", "example.com", "127.1", "2130706433", "0x7f.1", "127.0.0.01"]
)
def test_what_is_no_address_is_not_guessed_at(text):
    with pytest.raises(ValueError, match=r".*"):
        nearness(text)


@given(st.ip_addresses())
def test_what_is_anywhere_is_global(address):
    if nearness(str(address)) is FAR:
        assert address.is_global or address in ipaddress.ip_network("64:ff9b::/96") or address.sixtofour


@pytest.mark.parametrize(
    ("url", "peer", "near"),
    [
        ("https://mcp.example/mcp", "93.184.216.34", FAR),
        ("https://mcp.example/mcp", "10.1.2.3", NETWORK),
        ("http://localhost:8000/mcp", "127.0.0.1", HERE),
        # Where it is not known: by the name alone, if that tells.
        ("https://mcp.example/mcp", None, FAR),
        ("http://localhost:8000/mcp", None, HERE),
        ("http://[::1]:8000/mcp", None, HERE),
        ("http://192.168.1.1/mcp", None, NETWORK),
    ],
)
def test_how_near_a_server_is(url, peer, near, monkeypatch):
    monkeypatch.delenv("HTTPS_PROXY", raising=False)
    assert reach_of(url, peer) is near


def test_the_address_of_a_proxy_says_nothing_of_a_server(monkeypatch):
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:3128")
    monkeypatch.setenv("no_proxy", "inside.example")
    assert reach_of("https://mcp.example/mcp", "127.0.0.1") is FAR
    assert reach_of("https://inside.example/mcp", "10.0.0.1") is NETWORK
