"""To whom things are counted."""

import attrs
import msgspec
import pytest

from mcpbus.protocol.principals import LOCAL, Peer, owner_of

HERE = Peer.at("192.0.2.1")


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
        ("testclient", str(LOCAL)),
        ("", str(LOCAL)),
        (None, str(LOCAL)),
    ],
)
def test_a_peer_is_an_address_or_the_network_that_a_household_is_given(host, name):
    assert str(Peer.at(host)) == name
    assert Peer.at(host) == Peer(name)


def test_all_addresses_of_one_ipv6_network_are_one_peer():
    assert Peer.at("2001:db8::1") == Peer.at("2001:db8::ffff:1")
    assert Peer.at("2001:db8::1") != Peer.at("2001:db8:0:1::1")


@attrs.frozen
class ByContent:
    name: str


@attrs.define
class Mutable:
    name: str


@attrs.define(eq=False)
class ByIdentity:
    name: str


class Opaque:
    pass


class Hashed(Opaque):
    """Says by its hash who it is, and no JSON is made of it."""

    def __init__(self, name):
        self.name = name

    def __eq__(self, other):
        return isinstance(other, Hashed) and other.name == self.name

    def __hash__(self):
        return hash(self.name)


class Raises:
    def __hash__(self):
        raise RuntimeError("not today")


@pytest.mark.parametrize(
    "kind",
    [str, ByContent, Hashed, Mutable, ByIdentity, lambda name: {"sub": name}, lambda name: (name, ["a"])],
)
def test_two_principals_with_the_same_content_are_one_owner_and_others_are_not(kind):
    alice = owner_of(kind("alice"), HERE)
    assert alice == owner_of(kind("alice"), Peer.at("192.0.2.2"))
    assert hash(alice) == hash(owner_of(kind("alice"), HERE))
    assert alice != owner_of(kind("bob"), HERE)
    assert alice != HERE


@pytest.mark.parametrize("principal", [None, Opaque(), Raises(), {"key": Opaque()}])
def test_where_nobody_can_be_told_apart_the_peer_is_the_owner(principal):
    assert owner_of(principal, HERE) is HERE


def test_a_principal_is_no_peer_whatever_it_is_called():
    assert owner_of("192.0.2.1", HERE) != HERE


def test_a_principal_that_is_told_apart_by_its_hash_is_its_own_owner():
    assert owner_of("alice", HERE) == "alice"


@pytest.mark.parametrize("kind", [Mutable, ByIdentity, msgspec.defstruct("Claims", ["name"], eq=False)])
def test_what_a_principal_holds_is_not_what_its_owner_is_called(kind):
    assert "secret" not in f"{owner_of(kind('secret'), HERE)}"
    assert kind.__name__ in f"{owner_of(kind('secret'), HERE)}"
