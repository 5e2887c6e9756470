"""Frames as RFC 6455 has them, and as it has not: the cases of the Autobahn test suite for servers, by their numbers, and some more.

Each is sent frame by frame, byte by byte, and all at once. What differs then is only how many pings are answered.
"""

import pytest
from rfc6455 import BINARY, CLOSE, CONTINUATION, MASK, PING, PONG, TEXT, close, frame, frames
from wsproto.connection import Connection

from mcpbus.protocol.websocket import CloseCode
from mcpbus.serving.websocket.codec import WebSocketCodec

MAX = 100_000
PROTOCOL_ERROR = (CLOSE, close(1002, b"protocol error"))
INVALID_DATA = (CLOSE, close(1007, b"invalid data"))
BYE = (CLOSE, close(1000))
HELLO = "Hello-µ@ßöäüàá-UTF-8!!".encode()


def text(payload, **how):
    return frame(TEXT, payload, **how)


def first(payload, opcode=TEXT):
    return frame(opcode, payload, fin=False)


def more(payload):
    return frame(CONTINUATION, payload, fin=False)


def last(payload):
    return frame(CONTINUATION, payload)


def ping(payload=b""):
    return frame(PING, payload)


def end(*of):
    return frame(CLOSE, close(*of))


def pong(payload=b""):
    return PONG, payload


class Case:
    """What is sent; which messages that makes, and what is said to it."""

    def __init__(self, number, sent, messages=(), said=()):
        self.number = number
        self.sent = sent
        self.messages = list(messages)
        self.said = list(said)


MESSAGES = [
    *(
        Case(f"1.1.{n} a text of {size} bytes", [text(b"*" * size)], [b"*" * size])
        for n, size in enumerate([0, 125, 126, 127, 128, 65_535, 65_536], 1)
    ),
    Case("1.2.1 binary", [frame(BINARY, b"")], [], [(CLOSE, close(1003, b"unsupported data"))]),
    Case("1.2.2 binary", [frame(BINARY, b"\xfe" * 125)], [], [(CLOSE, close(1003, b"unsupported data"))]),
]
PINGS = [
    Case("2.1 an empty ping", [ping()], [], [pong()]),
    Case("2.2 a ping with a text", [ping(b"Hello, world!")], [], [pong(b"Hello, world!")]),
    Case("2.3 a ping that is no text", [ping(b"\0\xff\xfe")], [], [pong(b"\0\xff\xfe")]),
    Case("2.4 the longest ping", [ping(b"\xfe" * 125)], [], [pong(b"\xfe" * 125)]),
    Case("2.5 a ping that is too long", [ping(b"\xfe" * 126)], [], [PROTOCOL_ERROR]),
    Case("2.7 a pong that nobody asked for", [frame(PONG)]),
    Case("2.8 one with something in it", [frame(PONG, b"unsolicited")]),
    Case("2.9 one before a ping", [frame(PONG, b"unsolicited"), ping(b"!")], [], [pong(b"!")]),
    Case("2.10 ten pings", [ping(b"%d" % n) for n in range(10)], [], [pong(b"%d" % n) for n in range(10)]),
]
RESERVED = [
    *(
        Case(f"3.{rsv} reserved bits {rsv:03b}", [text(b"a"), text(b"b", rsv=rsv)], [b"a"], [PROTOCOL_ERROR])
        for rsv in range(1, 8)
    ),
    Case("3.6 in a ping", [frame(PING, rsv=6)], [], [PROTOCOL_ERROR]),
    Case("3.7 in a close", [frame(CLOSE, rsv=7)], [], [PROTOCOL_ERROR]),
    *(
        Case(f"4. opcode {opcode}", [text(b"a"), frame(opcode, b"b"), ping()], [b"a"], [PROTOCOL_ERROR])
        for opcode in [3, 4, 5, 6, 7, 11, 12, 13, 14, 15]
    ),
    Case("5.1 a ping in pieces", [frame(PING, b"a", fin=False), last(b"b")], [], [PROTOCOL_ERROR]),
    Case("5.2 a pong in pieces", [frame(PONG, b"a", fin=False), last(b"b")], [], [PROTOCOL_ERROR]),
    Case("nothing is masked", [text(b"a", masked=False)], [], [PROTOCOL_ERROR]),
    Case("a ping is not masked", [frame(PING, masked=False)], [], [PROTOCOL_ERROR]),
    Case("a length in more bytes than it takes", [b"\x81\xfe\x00\x7d"], [], [PROTOCOL_ERROR]),
    Case(
        "a length in eight bytes that fits into two", [b"\x81\xff" + bytes(7) + b"\x7d"], [], [PROTOCOL_ERROR]
    ),
    Case("a length of 64 bits", [b"\x81\xff" + b"\xff" * 8], [], [PROTOCOL_ERROR]),
]
FRAGMENTS = [
    Case("5.3 two pieces", [first(b"a"), last(b"b")], [b"ab"]),
    Case("5.6 a ping between", [first(b"a"), ping(b"p"), last(b"b")], [b"ab"], [pong(b"p")]),
    Case("5.9 the end of none", [last(b"a"), text(b"b")], [], [PROTOCOL_ERROR]),
    Case("5.12 the middle of none", [more(b"a"), text(b"b")], [], [PROTOCOL_ERROR]),
    Case(
        "5.15 one end too many", [first(b"a"), last(b"b"), more(b"c"), text(b"d")], [b"ab"], [PROTOCOL_ERROR]
    ),
    Case("5.18 another one before the end", [first(b"a"), text(b"b")], [], [PROTOCOL_ERROR]),
    Case("a binary one before the end", [first(b"a"), frame(BINARY, b"b")], [], [PROTOCOL_ERROR]),
    Case(
        "5.19 five pieces and pings",
        [first(b"a"), more(b"b"), ping(b"1"), more(b"c"), more(b"d"), ping(b"2"), last(b"e")],
        [b"abcde"],
        [pong(b"1"), pong(b"2")],
    ),
    Case("6.1.1 nothing", [text(b"")], [b""]),
    Case("6.1.2 nothing in three pieces", [first(b""), more(b""), last(b"")], [b""]),
    Case("6.1.3 nothing around something", [first(b""), more(b"middle"), last(b"")], [b"middle"]),
]
GOOD = [
    HELLO,
    b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5",
    b"\0",
    b"\xc2\x80",
    b"\xe0\xa0\x80",
    b"\xf0\x90\x80\x80",
    b"\x7f",
    b"\xdf\xbf",
    b"\xef\xbf\xbf",
    b"\xf4\x8f\xbf\xbf",
    b"\xed\x9f\xbf",
    b"\xee\x80\x80",
    b"\xef\xbf\xbd",
    b"\xef\xbf\xbe",
    b"\xf0\x9f\xbf\xbe",
]
BAD = [
    HELLO + b"\xed\xa0\x80edited",
    b"\xf4\x90\x80\x80",
    b"\xf8\x88\x80\x80\x80",
    b"\xfc\x84\x80\x80\x80\x80",
    b"\xf7\xbf\xbf\xbf",
    b"\x80",
    b"\xbf",
    b"\xc2 ",
    b"\xe0\xa0 ",
    b"\xce",
    b"\xf0\x90\x80",
    b"\xff",
    b"\xc0\xaf",
    b"\xe0\x80\xaf",
    b"\xf0\x80\x80\xaf",
    b"\xc1\xbf",
    b"\xe0\x9f\xbf",
    b"\xed\xa0\x80",
    b"\xed\xbf\xbf",
    b"\xed\xa0\x80\xed\xb0\x80",
]
UTF8 = [
    *(Case(f"6. UTF-8: {good!r}", [text(good)], [good]) for good in GOOD),
    *(
        Case(
            f"6.2.3 byte by byte: {good!r}",
            [first(good[:1]), *(more(good[n : n + 1]) for n in range(1, len(good))), last(b"")],
            [good],
        )
        for good in GOOD
    ),
    *(Case(f"6.3 not UTF-8: {bad!r}", [text(bad)], [], [INVALID_DATA]) for bad in BAD),
    Case("6.4.1 told before the end", [first(HELLO), more(b"\xf4\x90"), last(b"")], [], [INVALID_DATA]),
    Case(
        "6.4.2 told before the end", [first(b"\xce\xba\xe1\xbd\xb9\xf4"), more(b"\x90")], [], [INVALID_DATA]
    ),
]
CLOSES = [
    Case("7.1.1 a text and a close", [text(b"a"), end(1000)], [b"a"], [BYE]),
    Case("7.1.2 two closes", [end(1000), end(1000)], [], [BYE]),
    Case("7.1.3 a ping after it", [end(1000), ping()], [], [BYE]),
    Case("7.1.4 a text after it", [end(1000), text(b"a")], [], [BYE]),
    Case("7.1.5 before the end of a message", [first(b"a"), end(1000), last(b"b")], [], [BYE]),
    Case("7.3.1 a close of nothing", [end()], [], [(CLOSE, b"")]),
    Case("7.3.2 of one byte", [frame(CLOSE, b"a")], [], [PROTOCOL_ERROR]),
    Case("7.3.4 with a reason", [end(1000, b"Hello World!")], [], [(CLOSE, close(1000, b"Hello World!"))]),
    Case("7.3.5 with the longest", [end(1000, b"*" * 123)], [], [(CLOSE, close(1000, b"*" * 123))]),
    Case("7.3.6 with one that is too long", [end(1000, b"*" * 124)], [], [PROTOCOL_ERROR]),
    Case("7.5.1 with one that is not UTF-8", [end(1000, b"\xce\xba\xed\xa0\x80")], [], [INVALID_DATA]),
    *(
        Case(f"7.7 code {code}", [end(code)], [], [(CLOSE, close(code))])
        for code in [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999]
    ),
    *(
        Case(f"7.9 code {code}", [end(code)], [], [PROTOCOL_ERROR])
        for code in [0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65_535]
    ),
]
TOO_BIG = (CLOSE, close(1009, b"message too big"))
LIMITS = [
    Case("9.1 the longest message", [text(b"*" * MAX)], [b"*" * MAX]),
    Case("9.3 in pieces", [first(b"*" * 1000), *[more(b"*" * 1000)] * 98, last(b"*" * 1000)], [b"*" * MAX]),
    Case("one byte more", [text(b"*" * (MAX + 1))], [], [TOO_BIG]),
    Case("one byte more in pieces", [first(b"*" * MAX), more(b"*"), last(b"")], [], [TOO_BIG]),
    Case("in letters of two bytes", [text("é".encode() * (MAX // 2 + 1))], [], [TOO_BIG]),
    Case("two of the longest", [text(b"*" * MAX), text(b"+" * MAX)], [b"*" * MAX, b"+" * MAX]),
    Case(
        "12, 13 compressed, though nobody agreed",
        [text(b"\xf2H\xcd\xc9\xc9\x07\0", rsv=4)],
        [],
        [PROTOCOL_ERROR],
    ),
]
ALL = [*MESSAGES, *PINGS, *RESERVED, *FRAGMENTS, *UTF8, *CLOSES, *LIMITS]
cases = pytest.mark.parametrize("case", ALL, ids=[case.number for case in ALL])


class Player:
    """A connection, and what came of what was sent on it."""

    def __init__(self, max_bytes=MAX):
        self.now = 1000.0
        self.frames = WebSocketCodec(max_bytes, lambda: self.now)
        self.messages = []
        self._said = b""

    @property
    def said(self):
        return frames(self._said)

    def send(self, *pieces):
        for piece in pieces:
            self.frames.receive(piece)
            while (message := self.frames.next()) is not None:
                self.messages.append(message)
            self._said += self.frames.encode([])
        return self


@cases
def test_messages_that_come_frame_by_frame_are_read(case):
    player = Player().send(*case.sent)
    assert (player.messages, player.said) == (case.messages, case.said)


@pytest.mark.parametrize(
    "case",
    [case for case in ALL if sum(map(len, case.sent)) < 1000],
    ids=[case.number for case in ALL if sum(map(len, case.sent)) < 1000],
)
def test_messages_that_come_byte_by_byte_are_read_alike(case):
    player = Player().send(*(bytes([byte]) for sent in case.sent for byte in sent))
    assert (player.messages, player.said) == (case.messages, case.said)


@cases
def test_messages_that_come_all_at_once_are_read_alike_and_the_last_ping_is_answered(case):
    player = Player().send(b"".join(case.sent))
    pongs = [said for said in case.said if said[0] == PONG]
    assert player.messages == case.messages
    assert player.said == pongs[-1:] + [said for said in case.said if said[0] != PONG]


@pytest.mark.parametrize("most", [1, 10, 125, 126, 1000])
def test_a_text_of_exactly_the_limit_is_read_and_no_longer_one(most):
    whole, longer = Player(most).send(text(b"*" * most)), Player(most).send(text(b"*" * (most + 1)))
    assert (whole.messages, whole.said) == ([b"*" * most], [])
    assert (longer.messages, longer.said) == ([], [TOO_BIG])


def test_what_reads_the_unusual_is_kept_no_longer_than_it_takes():
    """A client that says nothing costs a sixth less, also once it has answered pings."""
    player = Player()
    assert player.frames._connection is None
    player.frames.ping()
    player.send(frame(PONG, b""), frame(PING, b"there?"))
    assert player.frames._connection is None
    player.send(frame(TEXT, b"unfin", fin=False))
    assert player.frames._connection is not None
    player.send(frame(CONTINUATION, b"ished"))
    assert (player.messages, player.frames._connection) == ([b"unfinished"], None)
    assert player.said == frames(b"\x89\x00" + b"\x8a\x06there?")


# -- the end -------------------------------------------------------------------------------------


def test_a_close_of_ours_is_answered_and_nothing_else_counts_meanwhile():
    player = Player()
    player.frames.close(CloseCode.GOING_AWAY)
    player.send(b"", text(b"late"), ping(), frame(BINARY, b"x"), first(b"later"))
    assert player.said == [(CLOSE, close(1001, b"going away"))]
    assert (player.messages, player.frames.heard, player.frames.unfinished) == ([], False, 0)
    player.send(end(1001))
    assert (player.frames.heard, player.frames.fault, len(player.said)) == (True, None, 1)


def test_nothing_is_said_after_a_close():
    player = Player().send(end(1000))
    player.frames.close(CloseCode.GOING_AWAY)
    player.frames.ping()
    assert player.frames.encode([b"late"]) == b""


def test_what_cannot_be_read_after_our_close_ends_it():
    player = Player()
    player.frames.close(CloseCode.NORMAL)
    player.send(b"", frame(11))
    assert (player.frames.heard, player.said) == (True, [(CLOSE, close(1000, b"normal"))])


def test_after_a_fault_nothing_is_read():
    player = Player().send(frame(3), text(b"a"), end(1000))
    assert player.frames.fault is CloseCode.PROTOCOL_ERROR
    assert (player.messages, player.frames.heard) == ([], False)


# -- what is said --------------------------------------------------------------------------------


def test_messages_are_said_whole_and_together():
    player = Player()
    long = b"*" * 70_000
    assert frames(player.frames.encode([b"a", HELLO, long])) == [(TEXT, b"a"), (TEXT, HELLO), (TEXT, long)]


def test_a_ping_of_ours_and_a_pong_go_out_before_messages():
    player = Player()
    player.frames.ping()
    assert player.frames.speaks
    player.frames.receive(ping(b"you?"))
    assert player.frames.next() is None
    assert frames(player.frames.encode([b"a"])) == [(PING, b""), (PONG, b"you?"), (TEXT, b"a")]
    assert not player.frames.speaks


# -- what brings nothing -------------------------------------------------------------------------

IDLE = {
    "pings": ping,
    "pongs": lambda: frame(PONG),
    "empty pieces": lambda: more(b""),
    "pieces of a byte": lambda: more(b"a"),
}


@pytest.mark.parametrize("make", IDLE.values(), ids=IDLE)
def test_frames_that_bring_nothing_may_come_a_hundred_a_second(make):
    player = Player().send(first(b"*" * 16))
    for _ in range(3):
        player.send(*[make()] * 100)
        player.now += 1
    assert player.frames.fault is None
    player.send(*[make()] * 101)
    assert player.frames.fault is CloseCode.POLICY_VIOLATION
    assert player.said[-1] == (CLOSE, close(1008, b"policy violation"))


def test_pieces_that_bring_something_may_come_in_any_number():
    player = Player().send(first(b"*" * 16), *[more(b"*" * 16)] * 1000, last(b""))
    assert len(player.messages[0]) == 16 * 1001


def test_what_is_unfinished_is_told_and_forgotten_at_the_end():
    player = Player().send(first(b"*" * 1000), more(b"*" * 1000))
    assert player.frames.unfinished == 2000
    assert Player().send(first(b"*" * 1000), last(b"*")).frames.unfinished == 0
    player.send(frame(3))
    assert player.frames.unfinished == 0


def test_a_frame_that_has_come_in_part_is_counted():
    assert Player().send(text(b"*" * 5000)[:3000]).frames.unfinished > 2900


# -- what is read at once ------------------------------------------------------------------------


@pytest.fixture
def read_by_wsproto(monkeypatch):
    """How often something was."""
    times = []
    receive = Connection.receive_data

    def count(self, data):
        times.extend([data] if data else [])  # it begins with nothing
        return receive(self, data)

    monkeypatch.setattr(Connection, "receive_data", count)
    return times


USUAL = [b"", b"a", HELLO, b"*" * 125, b"*" * 126, b"*" * 65_535]


def test_whole_texts_are_read_at_once(read_by_wsproto):
    player = Player().send(*map(text, USUAL))
    assert (player.messages, read_by_wsproto) == (USUAL, [])


BETWEEN = {
    "a ping": [ping(b"?")],
    "a text in pieces": [first(b"a"), ping(), more(b""), last(b"b")],
    "two texts at once": [text(b"a") + text(b"b")],
    "a frame in two parts": [text(b"abc")[:3], text(b"abc")[3:]],
    "half a head": [text(b"*" * 200)[:1], text(b"*" * 200)[1:3], text(b"*" * 200)[3:]],
    "a long text": [text(b"*" * 70_000)],
}


@pytest.mark.parametrize("pieces", BETWEEN.values(), ids=BETWEEN)
def test_after_something_else_they_are_again(pieces, read_by_wsproto):
    player = Player().send(text(b"before"), *pieces)
    before = len(read_by_wsproto)
    assert before == len(pieces)
    player.send(text(b"after"))
    assert (player.messages[0], player.messages[-1], len(read_by_wsproto)) == (b"before", b"after", before)


def test_within_a_message_a_text_is_a_fault_all_the_same(read_by_wsproto):
    player = Player().send(first(b"un"), text(b"a"))
    assert (player.frames.fault, player.messages) == (CloseCode.PROTOCOL_ERROR, [])


def test_what_a_frame_carries_may_look_like_one():
    inner = text(b"{}")
    unmasked = bytes(byte ^ MASK[n % 4] for n, byte in enumerate(inner))  # so that it is on the wire as it is
    outer = frame(BINARY, unmasked)
    assert outer.endswith(inner)
    frames_ = WebSocketCodec(MAX, lambda: 0.0, binary=True)
    messages = []
    for piece in (outer[: -len(inner)], inner):
        frames_.receive(piece)
        while (message := frames_.next()) is not None:
            messages.append((frames_.is_text, message))
    assert messages == [(False, unmasked)]
