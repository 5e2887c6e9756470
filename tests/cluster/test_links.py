"""Links: who may have one, and what happens to requests when one is lost, or when who serves them has gone."""

import math
import random
import socket
from contextlib import asynccontextmanager, suppress

import pytest
import trio
import trio.testing
from several import at, kill, open_buses, quiet
from test_forwarding import call, make, text

from mcpbus.cluster import link, link_handshake, link_pool, node
from mcpbus.cluster.link_handshake import LinkReader, NonblockingStream, greet
from mcpbus.cluster.messages import FrameError, FrameKind, FrameReader, Hello, encode, encode_frames
from mcpbus.testing import MemoryDirectory, open_bus, open_probe

NO_UTF8 = b"\x92\xa1\xff\xc4\x01n"
"""An array of a string that is none, and of bytes."""
GONE = "whether it had an effect is not known"


async def both_greet(keys=([b"k"], [b"k"]), dialled="there"):
    """What becomes of a greeting at both ends: a home, or why not."""
    ends, outcomes = trio.testing.memory_stream_pair(), [None, None]

    async def one(number, home, whom):
        try:
            outcomes[number] = await greet(ends[number], LinkReader(ends[number]), keys[number], home, whom)
        except link.LOST as why:
            outcomes[number] = why
            await ends[number].aclose()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(one, 0, "here", dialled)
        nursery.start_soon(one, 1, "there", None)
    return outcomes


async def test_both_ends_of_a_link_know_who_is_at_the_other(autojump_clock):
    assert await both_greet() == ["there", "here"]


MANY = [b"%d" % number for number in range(link_handshake.MOST_KEYS)]


@pytest.mark.parametrize("keys", [([b"k", b"l"], [b"l", b"m"]), ([b"l"], [b"k", b"l"]), (MANY, [MANY[-1]])])
async def test_one_key_in_common_is_enough(keys, autojump_clock):
    assert await both_greet(keys) == ["there", "here"]


async def test_who_has_another_key_is_refused(autojump_clock):
    outcomes = await both_greet(keys=([b"k"], [b"l"]))
    assert all(isinstance(outcome, FrameError) for outcome in outcomes)


async def test_another_process_than_was_dialled_is_refused(autojump_clock):
    outcomes = await both_greet(dialled="elsewhere")
    assert "in the place of elsewhere" in str(outcomes[0])
    assert isinstance(outcomes[1], link.LOST)


async def test_what_one_end_has_said_is_no_proof_for_the_other(autojump_clock):
    ours, theirs = trio.testing.memory_stream_pair()

    async def mirror():
        async for data in theirs:
            await theirs.send_all(data)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(mirror)
        with pytest.raises(FrameError, match="does not have the key"):
            await greet(ours, LinkReader(ours), [b"k"], "here", "here")
        nursery.cancel_scope.cancel()


class Recorded(trio.abc.Stream):
    """A stream that notes what is sent over it."""

    def __init__(self, stream):
        self.stream, self.sent = stream, b""

    async def send_all(self, data):
        self.sent += data
        await self.stream.send_all(data)

    async def receive_some(self, max_bytes=None):
        return await self.stream.receive_some(max_bytes)

    async def wait_send_all_might_not_block(self):
        await self.stream.wait_send_all_might_not_block()

    async def aclose(self):
        await self.stream.aclose()


@pytest.mark.parametrize("recorded", [0, 1])
async def test_what_was_recorded_of_one_greeting_is_no_proof_in_another_one(recorded, autojump_clock):
    """Each end greets anew with what no greeting before had; else somebody who has seen one needs no key."""
    ends = [Recorded(stream) for stream in trio.testing.memory_stream_pair()]
    homes = ["here", "there"]
    async with trio.open_nursery() as nursery:
        for number, end in enumerate(ends):
            dialled = None if number else "there"
            nursery.start_soon(greet, end, LinkReader(end), [b"k"], homes[number], dialled)
    ours, theirs = trio.testing.memory_stream_pair()
    await theirs.send_all(ends[recorded].sent)
    with pytest.raises(FrameError, match="does not have the key"):
        await greet(ours, LinkReader(ours), [b"k"], homes[1 - recorded], "there" if recorded else None)


async def test_a_stranger_cannot_make_anything_be_kept_before_it_has_proved_itself(autojump_clock):
    ours, theirs = trio.testing.memory_stream_pair()
    taken = 0

    async def flood():
        nonlocal taken
        head = encode_frames(FrameKind.HELLO, 0, b"x" * 70_000)[4:9]  # which says that there is more
        more = (1024).to_bytes(4, "big") + head + b"x" * 1024
        with suppress(trio.BrokenResourceError):
            for _ in range(1_000):
                await theirs.send_all(more)
                taken += len(more)
                await trio.testing.wait_all_tasks_blocked()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(flood)
        with (
            trio.fail_after(60),
            pytest.raises(FrameError, match="more than 4096 bytes of messages have not come to their end"),
        ):
            await greet(ours, LinkReader(ours), [b"k"], "there", None)
        await ours.aclose()
        nursery.cancel_scope.cancel()
    assert taken < 10_000


@pytest.mark.parametrize("kind", [FrameKind.HELLO, FrameKind.PROOF])
async def test_a_greeting_has_no_long_message(kind, autojump_clock):
    ours, theirs = trio.testing.memory_stream_pair()
    if kind is FrameKind.PROOF:
        hello = encode(Hello("here", b"n" * 16, [*link_handshake._name_keys([b"k"])]))
        await theirs.send_all(encode_frames(FrameKind.HELLO, 0, hello))
    await theirs.send_all(encode_frames(kind, 0, b"x" * 5_000))
    with pytest.raises(FrameError, match="a frame of 5000 bytes is too long"):
        await greet(ours, LinkReader(ours), [b"k"], "there", None)


async def until_closed(stream):
    with suppress(trio.BrokenResourceError):
        while await stream.receive_some():
            pass


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n",
        random.Random(7).randbytes(100_000),
        encode_frames(FrameKind.PING, 0),
        encode_frames(FrameKind.HELLO, 0, encode(Hello("home", b"n" * 1000, []))),
        encode_frames(FrameKind.HELLO, 0, encode(Hello("home", b"n", [])))
        + encode_frames(FrameKind.PROOF, 0, b"x" * 32),
        encode_frames(FrameKind.HELLO, 0, b"\xff"),
        encode_frames(FrameKind.HELLO, 0, NO_UTF8),
        b"",
    ],
)
async def test_a_stranger_is_refused(said, autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make, directory=directory) as (buses, probes):
        stream = await directory.dial(buses[0].node.home)
        await stream.send_all(said)
        with trio.fail_after(6):
            await until_closed(stream)
        session = at(await probes[0].initialize(), probes[1])
        assert (await session.request("ping").ended()).status == 200


async def test_who_speaks_wrongly_loses_its_link_alone(autojump_clock):
    async with open_buses(make) as (buses, probes):
        session = at(await probes[0].initialize(), probes[1])
        lost = buses[1].node.link(buses[0].node.home)
        lost.send(FrameKind.CHANGED, 0, NO_UTF8)
        await quiet(buses)
        assert lost.closed
        assert (await session.request("ping").ended()).status == 200


async def test_who_is_dialled_and_speaks_wrongly_is_not_reached(autojump_clock):
    ours, theirs = trio.testing.memory_stream_pair()
    await theirs.send_all(encode_frames(FrameKind.HELLO, 0, NO_UTF8))
    with pytest.raises(link.LOST):
        await greet(ours, LinkReader(ours), [b"k"], "here", "there")


async def test_a_connection_that_is_closed_as_something_comes_is_closed(monkeypatch):
    here, there = socket.socketpair()
    stream = NonblockingStream(trio.SocketStream(trio.socket.from_stdlib_socket(here)))

    async def close_before_it_returns(_):
        await stream.close()

    monkeypatch.setattr(trio.lowlevel, "wait_readable", close_before_it_returns)
    with there, pytest.raises(trio.ClosedResourceError):
        await stream.receive()


async def test_strangers_are_few_at_once(autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make, directory=directory) as (buses, _):
        streams = [await directory.dial(buses[0].node.home) for _ in range(link_pool._MOST_STRANGERS)]
        await quiet(buses)
        more = await directory.dial(buses[0].node.home)
        with trio.fail_after(1):
            assert await more.receive_some() == b""
        with pytest.raises(trio.TooSlowError), trio.fail_after(1):
            await until_closed(streams[0])


async def test_a_link_that_is_lost_is_made_anew(autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make, directory=directory) as (_, probes):
        session = at(await probes[0].initialize(), probes[1])
        await directory.cut()
        assert text(await call(session, "echo", text="again").reply()) == "again"


async def test_nothing_is_kept_of_links_to_a_process_that_has_ended(autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make, 3, directory=directory) as (buses, _):
        known = buses[1].node.links.by_home
        assert buses[0].node.home in known
        await kill(buses[0], directory)
        assert [*known] == [buses[2].node.home]


async def test_a_call_that_was_lost_with_its_link_says_so(autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make, directory=directory) as (buses, probes):
        session = at(await probes[0].initialize(), probes[1])
        held, counting = call(session, "hold"), call(session, "count", token=1)
        await counting.message()
        await directory.cut()
        for lost, forms in ((held, "application/json"), (counting, "text/event-stream")):
            await lost.ended()
            assert lost.headers["content-type"] == forms
            assert GONE in lost.messages[-1]["error"]["message"]
            assert lost.messages[-1]["id"] in {1, 2}
        await quiet(buses)


class Told:
    """A channel that notes what it is told of the end of its link, and raises then."""

    def __init__(self, *failure):
        self.failure = failure
        self.kinds = []
        self.lost = 0

    def take(self, kind, payload):
        self.kinds.append(kind)
        self.fail()

    def lose(self):
        self.lost += 1
        self.fail()

    def fail(self):
        for each in self.failure:
            raise each


@asynccontextmanager
async def telling():
    """Two buses, their directory, and a link between them with channels of which two raise: all go on being told, and calls are served."""
    directory = MemoryDirectory()
    async with open_buses(make, directory=directory) as (buses, probes):
        session = at(await probes[0].initialize(), probes[1])
        assert text(await call(session, "echo", text="x").reply()) == "x"
        [one] = buses[1].node.links.by_home[buses[0].node.home]
        told = [Told(MemoryError()), Told(ValueError("no")), Told()]
        yield buses, directory, one, told
        await quiet(buses)
        assert [channel.lost for channel in told] == [1, 1, 1]
        assert text(await call(session, "echo", text="y").reply()) == "y"


async def test_all_are_told_of_a_lost_link_whatever_one_of_them_raises(autojump_clock, caplog):
    async with telling() as (_, directory, one, told):
        for channel in told:
            one.open(channel, b"")
        await directory.cut()
    assert caplog.text.count("was not told that the link to process") == 2


async def test_all_hear_that_nothing_was_done_for_them_whatever_one_of_them_raises(autojump_clock, caplog):
    async with telling() as (buses, _, one, told):
        other = buses[0].node.link(buses[1].node.home)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(other.close_gracefully)
            for channel in told:  # on their way as it leaves
                one.open(channel, b"")
    assert [channel.kinds for channel in told] == [[FrameKind.GOODBYE]] * 3
    assert caplog.text.count("was not told that the link to process") == 4  # two of its end, too


async def test_of_a_link_that_ends_in_order_nothing_is_lost(autojump_clock):
    ran = []
    async with open_buses(lambda: make(ran)) as (buses, probes), trio.open_nursery() as nursery:
        session = at(await probes[0].initialize(), probes[1])
        counting = call(session, "count", token=1)
        await trio.sleep(2.5)
        ended = buses[0].node.link(buses[1].node.home)
        nursery.start_soon(ended.close_gracefully)
        await trio.testing.wait_all_tasks_blocked()
        late = call(session, "echo", text="late")
        # What had come is answered first. What comes after that is for another link, or another process.
        await counting.ended()
        assert text(counting.messages[-1]) == "counted"
        assert text(await late.reply()) == "late"
        assert ran == [buses[0].server]
        assert ended.closed
        assert trio.current_time() < 3.5


async def test_who_does_not_know_a_goodbye_is_not_waited_for_long(autojump_clock, monkeypatch):
    async with open_buses(make) as (buses, _):
        monkeypatch.setattr(buses[1].node.link(buses[0].node.home), "_part", lambda taken: None)
        start = trio.current_time()
        await buses[0].node.link(buses[1].node.home).close_gracefully()
        assert trio.current_time() - start == 1.0


async def test_a_get_stream_goes_on_over_another_link(autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make, directory=directory) as (buses, probes):
        session = at(await probes[0].initialize(), probes[1])
        stream = await session.get().begun()
        (owned,) = buses[0].sessions.values()
        for number in range(7):  # more often than one request is asked anew
            await quiet(buses)
            await directory.cut()
            await quiet(buses)
            owned.notify("notifications/x", {"number": number})
        await quiet(buses)
        told = [
            message["params"]["number"] for message in stream.messages if message["method"].endswith("/x")
        ]
        assert told == list(range(7))
        await session.delete().ended()
        assert (await stream.ended()).complete


async def test_a_get_stream_goes_on_with_who_takes_its_session_over(autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make, 3, directory=directory) as (buses, probes):
        session = await probes[0].initialize()
        stream = await at(session, probes[1]).get().begun()
        await quiet(buses)
        await kill(buses[0], directory)
        assert len(buses[1].sessions) == 1
        buses[2].resource_updated("res://none")
        buses[2].tools_changed()
        assert (await stream.message())["method"] == "notifications/tools/list_changed"
        await kill(buses[1], directory)
        await quiet(buses)
        assert (await at(session, probes[2]).request("ping").ended()).status == 200


async def test_a_get_stream_that_nobody_can_go_on_with_is_cut(autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make, directory=directory) as (buses, probes):
        session = at(await probes[0].initialize(), probes[1])
        stream = await session.get().begun()
        resumed = session.get(last_event_id="unknown")
        assert (await resumed.ended()).status == 400
        await quiet(buses)
        buses[0].session_directory.records.drop(next(iter(buses[0].sessions.values())))
        await kill(buses[0], directory)
        await stream.wait_for(lambda: stream.aborted)


def cut_first(bus, directory):
    """Have all links be lost while a process serves what it is asked next; returns how often that was."""
    (endpoint,) = bus.node._endpoints
    respond, cuts = endpoint.respond_here, []

    async def cut(_):
        cuts.append(1)
        await directory.cut()
        await trio.sleep_forever()

    def cut_once(head, body, sink, **_):
        endpoint.respond_here = respond
        sink.respond_in_task(cut)

    endpoint.respond_here = cut_once
    return cuts


async def test_what_has_no_reply_is_said_again(autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make, directory=directory) as (buses, probes):
        session = at(await probes[0].initialize(), probes[1])
        cuts = cut_first(buses[0], directory)
        assert (await session.delete().ended()).status == 204
        assert cuts
        assert not buses[0].sessions


@pytest.mark.parametrize(
    ("method", "params", "again"),
    [
        ("ping", {}, True),
        ("tools/list", {}, True),
        ("tools/call", {"name": "echo", "arguments": {"text": "x"}}, False),
        ("prompts/get", {"name": "none"}, False),
    ],
)
async def test_what_has_no_effect_is_asked_again(method, params, again, autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make, directory=directory) as (buses, probes):
        session = at(await probes[0].initialize(), probes[1])
        cuts = cut_first(buses[0], directory)
        reply = await session.request(method, params).reply()
        assert (bool(cuts), "result" in reply) == (True, again)
        if not again:
            assert GONE in reply["error"]["message"]


async def test_sessions_of_which_nothing_is_kept_are_unknown(autojump_clock):
    directory = MemoryDirectory()
    async with open_bus(make(), cluster=directory.cluster()) as bus, open_probe(bus.asgi()) as probe:
        async with open_bus(make(), cluster=directory.cluster()) as other, open_probe(other.asgi()) as gone:
            session = at(await gone.initialize(), probe)
            held = call(session, "hold")
            await quiet([bus])
            await other.drain(0)
            await held.ended()
        directory._kept.clear()  # as after a while
        for ended in (session.request("ping"), session.get(), session.delete(), session.notify("x")):
            assert (await ended.ended()).status == 404


async def test_a_process_that_cannot_be_reached_may_be_there(autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make, directory=directory) as (buses, probes):
        session = at(await probes[0].initialize(), probes[1])
        directory.unreachable.add(buses[0].node.home)
        await directory.cut()
        refused = await session.request("ping").ended()
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")


async def test_a_process_that_is_about_to_end_is_found_to_have_ended(autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make, directory=directory) as (buses, probes):
        session = at(await probes[0].initialize(), probes[1])
        home = buses[0].node.home
        directory.unreachable.add(home)
        await directory.cut()
        asked = session.request("ping")
        await quiet(buses)
        del directory._living[home]
        directory.unreachable.discard(home)
        assert (await asked.ended()).status == 200
        assert len(buses[1].sessions) == 1


async def test_a_process_that_says_nothing_is_lost(autojump_clock, monkeypatch):
    directory = MemoryDirectory()
    async with open_buses(make, directory=directory) as (buses, probes):
        session = at(await probes[0].initialize(), probes[1])
        held = call(session, "hold")
        await quiet(buses)
        begun = trio.current_time()
        monkeypatch.setattr(link.Link, "send", lambda *_: None)
        assert GONE in (await held.ended()).messages[-1]["error"]["message"]
        assert trio.current_time() - begun <= 35


async def test_a_process_that_was_stopped_takes_nobody_for_lost(autojump_clock):
    """What the other end has said meanwhile waits to be read."""
    async with open_buses(make) as (buses, probes):
        session = at(await probes[0].initialize(), probes[1])
        held = call(session, "hold")
        await quiet(buses)
        (before,) = buses[1].node.links.by_home[buses[0].node.home]
        autojump_clock.jump(100)
        await trio.sleep(60)
        assert [before] == buses[1].node.links.by_home[buses[0].node.home]
        assert not held.over


async def test_where_nobody_can_be_seen_for_a_while_all_is_well_later(autojump_clock, caplog):
    directory = MemoryDirectory()
    async with open_buses(make, directory=directory) as (_, probes):
        homes, directory.homes = directory.homes, broken
        await trio.sleep(2 * node.LOOK_SECONDS)
        assert "it cannot be seen" in caplog.text
        directory.homes = homes
        await directory.cut()
        await trio.sleep(2 * node.LOOK_SECONDS)
        session = at(await probes[0].initialize(), probes[1])
        assert (await session.request("ping").ended()).status == 200


async def broken():
    raise OSError("the folder is gone")


async def test_a_quiet_link_lives(autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make, directory=directory) as (_, probes):
        session = at(await probes[0].initialize(), probes[1])
        held = call(session, "hold")
        await trio.sleep(960)
        assert text(await held.reply()) == "held"


async def test_changes_that_were_missed_are_made_good(autojump_clock):
    directory = MemoryDirectory()
    async with open_buses(make, directory=directory) as (buses, probes):
        wanted = {"toolsListChanged": True, "resourceSubscriptions": ["res://one"]}
        listen = probes[0].request("subscriptions/listen", {"notifications": wanted})
        await listen.message()
        homes = {bus.node.home for bus in buses}
        directory.unreachable |= homes
        await directory.cut()
        await quiet(buses)
        buses[1].resource_updated("res://one")
        directory.unreachable -= homes
        with trio.fail_after(2 * node.LOOK_SECONDS):
            told = [(await listen.message())["method"] for _ in range(2)]
        assert told == ["notifications/tools/list_changed", "notifications/resources/updated"]


@pytest.mark.parametrize("dialled", [False, True])
async def test_no_request_has_the_number_of_what_belongs_to_none(dialled):
    stream, _ = trio.testing.memory_stream_pair()
    one = link.Link(LinkReader(stream), "there", None, dialled=dialled, silence=30)
    one._last = link._CHANNELS - 2 + dialled
    assert one.open(None, b"") == (1 if dialled else 2)


class Opened:
    """A service that notes which channels the other end opens."""

    def __init__(self, nursery):
        self.start = nursery.start_soon
        self.channels = []

    def opened(self, link, channel, payload):
        self.channels.append(channel)
        link.enter(channel, Told())

    tell = asked = opened


@pytest.mark.parametrize("kind", [FrameKind.OPEN, FrameKind.TELL, FrameKind.ASK])
@pytest.mark.parametrize("dialled", [False, True])
@pytest.mark.parametrize("whose", ["ours, in use", "ours, not in use", "its own, in use", "of no channel"])
async def test_a_peer_that_opens_a_channel_that_is_not_its_own_to_open_loses_the_link(
    whose, dialled, kind, autojump_clock
):
    """Else the answer to our request would be that of its own, or be lost."""
    first, second = (2, 4) if dialled else (3, 5)  # of the peer
    here, there = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        service, ours = Opened(nursery), Told()
        one = link.Link(LinkReader(here), "there", service, dialled=dialled, silence=30)
        numbers = {
            "ours, in use": one.open(ours, b""),
            "ours, not in use": one.open(ours, b"") + 2,
            "its own, in use": first,
            "of no channel": 0,
        }
        for number in (first, second, numbers[whose]):
            await there.send_all(encode_frames(kind, number))
        with pytest.raises(BaseExceptionGroup) as raised, trio.fail_after(20):
            await one.run()
        nursery.cancel_scope.cancel()
    assert raised.group_contains(
        FrameError, match=f"channel {numbers[whose]} is not for the other end to open"
    )
    assert service.channels == [first, second]
    assert (ours.kinds, ours.lost) == ([], 2)


async def test_what_is_asked_in_one_turn_is_written_together_at_its_end():
    here, there = socket.socketpair()
    there.setblocking(False)
    stream = trio.SocketStream(trio.socket.from_stdlib_socket(here))
    one = link.Link(LinkReader(stream), "there", None, dialled=True, silence=30)
    due = []
    with here, there:
        for word in (b"a", b"b"):
            one.open(None, word, flush_last=due.append)
        with pytest.raises(BlockingIOError):
            there.recv(100)
        assert due == [one]
        one.write_now()
        assert there.recv(100) == encode_frames(FrameKind.OPEN, 3, b"a") + encode_frames(
            FrameKind.OPEN, 5, b"b"
        )
        one.open(None, b"c", flush_last=link.Link.write_now)  # by who knows of no turn
        assert there.recv(100) == encode_frames(FrameKind.OPEN, 7, b"c")


@pytest.mark.parametrize("send", ["send", "send_with_next", "open"])
async def test_what_the_other_end_does_not_take_ends_the_link(send, monkeypatch):
    """It would fill the memory of this process otherwise."""
    monkeypatch.setattr(link, "MOST_BYTES", 100_000)
    here, there = socket.socketpair()
    stream = trio.SocketStream(trio.socket.from_stdlib_socket(here))
    with here, there:
        one = link.Link(LinkReader(stream), "there", None, dialled=True, silence=30)
        one._lost.set()
        for number in range(5000):
            if send == "send":
                one.send(FrameKind.WRITTEN, number, bytes(100))
            elif send == "open":
                one.open(None, bytes(100))
            else:
                one.send_with_next(FrameKind.WRITTEN, number)
                one.send(FrameKind.WRITTEN, number, bytes(90))
            if one.closed:
                break
        assert one.closed
        assert 500 < number < 1500
        assert len(one._unwritten) <= 100_200


async def test_what_nobody_waits_for_is_written_once_though_nothing_follows(autojump_clock, nursery):
    here, there = socket.socketpair()
    there.setblocking(False)
    stream = trio.SocketStream(trio.socket.from_stdlib_socket(here))
    one = link.Link(LinkReader(stream), "there", None, dialled=True, silence=30)
    with here, there:
        nursery.start_soon(one._linger)
        await trio.testing.wait_all_tasks_blocked()
        for number in (1, 3):
            one.send_with_next(FrameKind.WRITTEN, number)
            await trio.sleep(1)
            assert there.recv(100) == encode_frames(FrameKind.WRITTEN, number)
            # A link with nothing to write wakes its process for nothing.
            assert trio.lowlevel.current_statistics().seconds_to_next_deadline == math.inf
        nursery.cancel_scope.cancel()


async def test_an_answer_that_is_there_does_not_wait_for_the_next_requests_computing(
    autojump_clock, monkeypatch
):
    now, written, before = [0.0], [], []

    def make_computing():
        server = make()

        @server.tool
        async def compute() -> str:
            frames = [frame for data in written for frame in FrameReader(2**20).read(data)]
            before.append(len({number for kind, number, _ in frames if kind == FrameKind.ANSWER}))
            now[0] += 0.01
            return "computed"

        return server

    monkeypatch.setattr(node, "perf_counter", lambda: now[0])
    async with open_buses(make_computing) as (_, probes):
        session = at(await probes[0].initialize(), probes[1])
        assert text(await call(session, "compute").reply()) == "computed"
        monkeypatch.setattr(NonblockingStream, "send_now", lambda _, data: written.append(bytes(data)) or 0)
        calls = [call(session, "compute") for _ in range(3)]
        assert [text(await each.reply()) for each in calls] == ["computed"] * 3
    assert before == [0, 0, 1, 2]


async def test_the_end_of_a_link_is_told_in_words(autojump_clock, caplog):
    caplog.set_level("INFO", "mcpbus")
    async with open_buses(make) as ((one, other), probes):
        session = await probes[0].initialize()
        assert text(await call(at(session, probes[1]), "echo", text="x").reply()) == "x"
        await one.drain(1)
        await quiet([one, other])
    assert f"the link to process {other.node.home} has ended: it has said goodbye" in caplog.messages
