"""TLS as bytes: a handshake, records and ends, however the bytes are cut."""

import ssl
from itertools import pairwise

import pytest
from certificates import Forger, MemoryClient, client_context, joined, server_context
from hypothesis import given, settings
from hypothesis import strategies as st
from test_tls import CERTIFICATE

from mcpbus.serving.tls_session import (
    MAX_CONTROL_BYTES,
    MAX_HANDSHAKE_BYTES,
    MAX_SILENT_BYTES,
    RECORD_BYTES,
    TlsError,
    TlsSession,
)

SERVER = server_context(CERTIFICATE)
VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
CLIENTS = {name: client_context(CERTIFICATE, version) for name, version in VERSIONS.items()}
each_version = pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)


def fed_until_refused(feed, parts, why):
    """Feed parts until one is refused for that reason, and return how many bytes that were."""
    fed = 0
    for part in parts:
        fed += len(part)
        try:
            feed(part)
        except TlsError as refused:
            assert why in str(refused)  # noqa: PT017 - how much was fed is what matters
            return fed
    raise AssertionError("nothing was refused")


def pieces(data, cuts):
    """The data, cut at these places."""
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[a:b] for a, b in pairwise(places)]


@each_version
def test_a_handshake_is_complete_however_it_is_cut(client):
    session, peer = TlsSession(SERVER), MemoryClient(client)
    said = peer.step()
    while said:
        for byte in range(len(said)):
            session.shake_hands(said[byte : byte + 1])
        said = peer.step(session.take_output())
    assert session.established
    assert session.decrypt(peer.say(b"hello")) == b"hello"
    assert peer.hear(session.encrypt(b"good day")) == b"good day"


def test_text_that_comes_with_the_end_of_the_handshake_is_there_after_it():
    session, peer = TlsSession(SERVER), MemoryClient(CLIENTS["1.3"])
    assert not session.shake_hands(peer.step())
    last = peer.step(session.take_output()) + peer.say(b"early")
    assert session.shake_hands(last)
    assert session.decrypt(b"") == b"early"


@settings(max_examples=60, deadline=None)
@given(
    texts=st.lists(st.binary(min_size=1, max_size=40_000), min_size=1, max_size=4),
    cuts=st.lists(st.integers(0, 200_000), max_size=12),
    version=st.sampled_from(sorted(VERSIONS)),
    end=st.sampled_from(["announced", "cut", "wrong"]),
)
def test_any_cut_of_the_bytes_gives_the_same(texts, cuts, version, end):
    session, peer = joined(SERVER, CLIENTS[version])
    data = b"".join(peer.say(text) for text in texts)
    if end == "announced":
        data += peer.end() + peer.say(b"")
    elif end == "wrong":
        data += b"\x17\x03\x03\x00\x20" + bytes(32)
    heard, faults = b"", 0
    for piece in pieces(data, cuts):
        try:
            heard += session.decrypt(piece)
        except TlsError:
            faults += 1
    assert heard == b"".join(texts)
    assert session.ended == (end == "announced")
    assert (session.fault is not None) == (end == "wrong")
    assert bool(session.take_output()) == (end == "wrong")  # the alert


@settings(max_examples=40, deadline=None)
@given(text=st.binary(min_size=1, max_size=RECORD_BYTES), version=st.sampled_from(sorted(VERSIONS)))
def test_what_is_encrypted_is_one_record_that_the_client_reads(text, version):
    session, peer = joined(SERVER, CLIENTS[version])
    record = session.encrypt(text)
    assert int.from_bytes(record[3:5], "big") == len(record) - 5
    assert peer.hear(record) == text


@each_version
def test_no_more_than_a_record_stays_in_the_session(client):
    session, peer = joined(SERVER, client)
    records = peer.say(bytes(1_000_000))
    heard = 0
    for start in range(0, len(records), 65_536):
        heard += len(session.decrypt(records[start : start + 65_536]))
        assert session._incoming.pending <= RECORD_BYTES + 512
    assert heard == 1_000_000


def test_garbage_instead_of_a_handshake_is_refused():
    session = TlsSession(SERVER)
    with pytest.raises(TlsError, match="http request"):
        session.shake_hands(b"GET / HTTP/1.1\r\n\r\n")
    assert session.end()[:1] in {b"", b"\x15"}  # an alert, and nothing else


def test_a_handshake_that_never_ends_is_refused_at_its_limit():
    """A hello may announce more than it needs; OpenSSL would keep twice as much as the limit."""
    session = TlsSession(SERVER)
    size = 0x01FFF0
    hello = b"\x01" + size.to_bytes(3, "big") + bytes(size)
    records = b"".join(
        b"\x16\x03\x01" + len(part).to_bytes(2, "big") + part
        for part in (hello[start : start + 16_000] for start in range(0, len(hello), 16_000))
    )
    parts = [records[start : start + 1000] for start in range(0, len(records), 1000)]
    assert fed_until_refused(session.shake_hands, parts, "bytes") <= MAX_HANDSHAKE_BYTES + 1000


@each_version
def test_an_end_of_the_server_is_announced_once_and_the_client_may_still_speak(client):
    session, peer = joined(SERVER, client)
    announced = session.end()
    assert announced
    peer.incoming.write(announced)
    assert peer.tls.read(10) == b""
    assert session.end() == b""
    peer.tls.write(b"after")
    assert session.decrypt(peer.outgoing.read()) == b"after"


@each_version
def test_text_after_an_announced_end_is_no_part_of_the_stream(client):
    session, peer = joined(SERVER, client)
    data = peer.say(b"all") + peer.end()
    assert session.decrypt(data) == b"all"
    assert session.ended
    assert session.decrypt(b"\x17\x03\x03\x00\x10" + bytes(16)) == b""
    assert session.fault is None


def test_a_failed_session_announces_no_end():
    session, _ = joined(SERVER, CLIENTS["1.3"])
    with pytest.raises(TlsError):
        session.decrypt(b"\x17\x03\x03\x00\x20" + bytes(32))
    session.take_output()
    assert session.end() == b""
    with pytest.raises(TlsError):
        session.decrypt(b"")


def test_renegotiation_is_off():
    assert SERVER.options & ssl.OP_NO_RENEGOTIATION
    assert SERVER.options & ssl.OP_NO_COMPRESSION


def forged(tmp_path):
    """A session, its client, and what makes more of the client's records."""
    context = client_context(CERTIFICATE, VERSIONS["1.3"])
    context.keylog_filename = str(tmp_path / "keys")
    session, peer = joined(SERVER, context)
    return session, peer, Forger(tmp_path / "keys")


@pytest.mark.parametrize("requested", [False, True])
def test_keys_are_updated_as_often_as_a_client_wants(requested, tmp_path):
    session, peer, forger = forged(tmp_path)
    for number in range(20):
        text = b"text %d" % number
        assert session.decrypt(forger.update_key(requested=requested) + forger.say(text)) == text
        answer = session.encrypt(b"answer")
        assert peer.hear(answer) == b"answer"
        assert (len(answer) > 40) == requested  # the server has a new key, too


def test_updates_of_keys_whose_answers_nobody_takes_have_a_limit(tmp_path):
    session, _, forger = forged(tmp_path)
    parts = (forger.update_key(requested=True) + forger.say(b"x") for _ in range(10_000))
    fed_until_refused(session.decrypt, parts, "answers by itself")
    assert MAX_CONTROL_BYTES < len(session.take_output()) < MAX_CONTROL_BYTES + 100


def test_updates_of_keys_without_any_text_have_a_limit(tmp_path):
    session, _, forger = forged(tmp_path)
    parts = (forger.update_key(requested=False) for _ in range(10_000))
    assert (
        MAX_SILENT_BYTES < fed_until_refused(session.decrypt, parts, "without text") < MAX_SILENT_BYTES + 100
    )
