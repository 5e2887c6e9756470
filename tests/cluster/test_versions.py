"""Two versions side by side, as in a rolling deploy: what either leaves alone of the other, and that it refuses in words what it cannot."""

import attrs
import msgspec
import pytest
import trio
import trio.testing
from several import at, kill, open_buses, quiet
from test_forwarding import CHANGED, call, make, text
from test_held import SAID, said, say
from test_remote_sessions import UNREACHABLE

from mcpbus.cluster import link_handshake, messages
from mcpbus.cluster import messages as frames
from mcpbus.cluster.link_handshake import LinkReader, greet
from mcpbus.cluster.messages import FrameKind, OtherVersionError, encode
from mcpbus.cluster.session_records import SessionRecord, decode_record
from mcpbus.core.admission import ServerOverloaded
from mcpbus.core.outbound import ChangeEvent
from mcpbus.core.receipt import DELIVERED
from mcpbus.protocol.enums import LogLevel
from mcpbus.protocol.routes import MessageKind as Said
from mcpbus.testing import MemoryDirectory

NEWER = messages.VERSION + 1

WRITTEN = [
    (
        messages.decode_hello,
        messages.Hello("home0001", b"nonce", [b"key"]),
        b"\x94\xa8home0001\xc4\x05nonce\x91\xc4\x03key\x01",
    ),
    (
        messages.decode_open,
        messages.Open(b"head", "10.0.0.1", b"{}"),
        b"\x93\xc4\x04head\xa810.0.0.1\xc4\x02{}",
    ),
    (
        messages.decode_head,
        messages.ForwardedHead(0, "POST", "/mcp", "", "", [(b"accept", b"*/*")]),
        b"\x96\x00\xa4POST\xa4/mcp\xa0\xa0\x91\x92\xc4\x06accept\xc4\x03*/*",
    ),
    (
        messages.decode_answered,
        messages.WholeResponse(200, [(b"a", b"b")], b"{}"),
        b"\x93\xcc\xc8\x91\x92\xc4\x01a\xc4\x01b\xc4\x02{}",
    ),
    (messages.decode_started, messages.ResponseStarted([(b"a", b"b")]), b"\x91\x91\x92\xc4\x01a\xc4\x01b"),
    (messages.decode_said, messages.ResponsePiece(b"data: 1\n\n", True), b"\x92\xc4\tdata: 1\n\n\xc3"),
    (
        messages.decode_tell,
        messages.SendToSession(
            "sid", Said.SESSION_LOG.value, "notifications/message", b"{}", LogLevel.INFO, None
        ),
        b"\x97\xa3sid\xb5log outside a request\xb5notifications/message\xc4\x02{}\xa4info\xc0\xc0",
    ),
    (messages.decode_told, messages.SendFate("discarded", "lost"), b"\x92\xa9discarded\xa4lost"),
    (
        messages.decode_tell,
        messages.SendToSession(
            "sid", Said.SESSION_CUSTOM.value, "notifications/x", b"{}", None, None, (1, "2")
        ),
        b"\x97\xa3sid\xd9%custom notification outside a request\xafnotifications/x\xc4\x02{}\xc0\xc0\x92\x01\xa12",
    ),
    (messages.decode_changed, messages.Changed(None, "res://one", 3), b"\x93\xc0\xa9res://one\x03"),
    (
        messages.decode_fates,
        messages.Fates([("discarded", "lost", 2)], known=True),
        b"\x92\x91\x93\xa9discarded\xa4lost\x02\xc3",
    ),
    (
        decode_record,
        SessionRecord("STREAMABLE_HTTP", "2025-11-25", b"{}", b"{}", b"digest", None, ["res://one"]),
        b"\x97\xafSTREAMABLE_HTTP\xaa2025-11-25\xc4\x02{}\xc4\x02{}\xc4\x06digest\xc0\x91\xa9res://one",
    ),
]
"""What version 1 writes. Where this has to be changed, old processes and new ones do not understand each other: `messages.VERSION` is next."""


@pytest.mark.parametrize(("decode", "message", "written"), WRITTEN, ids=lambda case: type(case).__name__)
def test_what_this_version_has_written_is_read_by_every_other_process_of_it(decode, message, written):
    assert decode(written) == message
    assert encode(message) == written


@pytest.mark.parametrize(("decode", "message", "written"), WRITTEN, ids=lambda case: type(case).__name__)
def test_what_a_newer_process_adds_to_a_message_is_left_alone(decode, message, written):
    more = [*msgspec.msgpack.decode(written), {"newer": True}]
    assert decode(encode(more)) == message


async def test_a_kind_of_message_that_is_not_known_is_left_alone(autojump_clock):
    async with open_buses(make) as (buses, probes):
        session = at(await probes[0].initialize(), probes[1])
        begun, unsaid = call(session, "count", token=1), call(session, "hold")
        await begun.message()
        await quiet(buses)
        linked = [bus.node.link(other.node.home) for bus, other in (buses, buses[::-1])]
        assert len(linked[0]._channels) == 2
        for end in linked:
            for channel in (0, *end._channels):
                end.send(max(FrameKind) + 1, channel, b"\xff")
        await begun.ended()
        assert text(begun.messages[-1]) == "counted"
        await quiet(buses)
        assert unsaid.status is None
        assert not any(end.closed for end in linked)


async def test_what_is_told_of_a_kind_that_is_not_known_is_discarded(autojump_clock):
    async with open_buses(make) as (buses, probes):
        session = await probes[0].initialize()
        stream = await session.get().begun()
        found = await buses[1].find_session(session.id, None)
        receipts = [found.notify(SAID, {"number": 1})]
        tell = messages.SendToSession(session.id, "a newer kind", "notifications/newer", b"{}", None, None)
        receipts.append(buses[1].ledger.emit("notifications/newer"))
        found._teller._send(receipts[1], tell)
        receipts.append(found.notify(SAID, {"number": 2}))
        await quiet(buses)
        assert said(stream) == [1, 2]
        assert [receipt.fate for receipt in receipts] == [DELIVERED, UNREACHABLE, DELIVERED]


@pytest.mark.parametrize("what", [{"revision": "2099-01-01"}, {"level": "newer"}])
async def test_a_session_that_another_version_keeps_is_not_said_to_be_nobodys(what, autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make, directory=directory) as (buses, probes):
        session = await probes[0].initialize()
        kept = directory._kept[session.id]
        newer = encode(msgspec.structs.replace(decode_record(kept.record), **what))
        directory._kept[session.id] = attrs.evolve(kept, record=newer)
        with pytest.raises(ServerOverloaded, match="another version"):
            await buses[1].find_session(session.id, None)


async def test_a_list_that_is_not_known_has_changed_for_nobody(autojump_clock):
    async with open_buses(make) as (buses, probes):
        stream = await (await probes[0].initialize()).get().begun()
        await quiet(buses)
        link = buses[1].node.link(buses[0].node.home)
        newer = buses[1].node._tell_elsewhere(ChangeEvent("newer", ""))
        buses[1].tools_changed()
        assert await newer.settled() == {}
        assert [message["method"] for message in stream.messages] == [CHANGED]
        assert not link.closed


async def test_what_is_held_of_a_kind_that_is_not_known_is_left_for_others(autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make, 3, directory=directory) as (buses, probes):
        session = await probes[0].initialize()
        say(buses[0], 1, 2)
        await quiet(buses)
        kept = directory._kept[session.id]
        newer = msgspec.msgpack.decode(kept.held["1"].data)
        newer[0] = "NEWER"
        kept.held["1"] = attrs.evolve(kept.held["1"], data=encode(newer))
        await kill(buses[0], directory)
        stream = await at(session, probes[1]).get().begun()
        await quiet(buses)
        assert said(stream) == [2]
        assert [*directory._kept[session.id].held] == ["1"]


class NewerHello(messages.Hello, array_like=True, frozen=True):
    """What a newer process says of itself."""

    able: str = "more"


async def test_a_newer_process_that_says_more_of_itself_is_understood(autojump_clock, monkeypatch):
    ends, met = trio.testing.memory_stream_pair(), []
    made = iter([NewerHello, messages.Hello])

    async def one(end, home, dialled):
        met.append(await greet(end, LinkReader(end), [b"key"], home, dialled))

    monkeypatch.setattr(link_handshake, "Hello", lambda *said: next(made)(*said))  # noqa: PLW0108 - one after the other
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one, ends[0], "here", "there")
        nursery.start_soon(one, ends[1], "there", None)
    assert sorted(met) == ["here", "there"]


async def test_another_version_is_refused_in_words(autojump_clock):
    ours, theirs = trio.testing.memory_stream_pair()
    await theirs.send_all(
        frames.encode_frames(FrameKind.HELLO, 0, encode(messages.Hello("there", b"n", [], NEWER)))
    )
    with pytest.raises(OtherVersionError, match=f"process there speaks version {NEWER} over links, and this"):
        await greet(ours, LinkReader(ours), [b"key"], "here", "there")


async def test_sessions_of_another_version_are_refused_at_once_and_not_unknown(
    autojump_clock, monkeypatch, caplog
):
    directory = MemoryDirectory()
    async with open_buses(make, directory=directory) as (buses, probes):
        session = at(await probes[0].initialize(), probes[1])
        monkeypatch.setattr(link_handshake, "VERSION", NEWER)
        dial = directory.dial

        async def dial_another_version(home):
            stream, there = trio.testing.memory_stream_pair()
            await there.send_all(
                frames.encode_frames(FrameKind.HELLO, 0, encode(messages.Hello(home, b"n", [])))
            )
            return stream

        directory.dial = dial_another_version
        await directory.cut()
        begun = trio.current_time()
        refused = await session.request("ping").ended()
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert "another version" in refused.messages[0]["error"]["message"]
        assert trio.current_time() == begun
        assert f"speaks version 1 over links, and this one {NEWER}" in caplog.text
        monkeypatch.setattr(link_handshake, "VERSION", messages.VERSION)
        directory.dial = dial
        await quiet(buses)
        assert (await session.request("ping").ended()).status == 200
