"""Bytes in, requests out: however the bytes are cut, the same requests come, or the same fault."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbus.serving.head_limits import LONGEST_LINE
from mcpbus.serving.http1.head_cache import Http1HeadCache
from mcpbus.serving.http1.parser import Http1Parser
from mcpbus.serving.request_error import RequestError

LIMIT = 32 * 1024
HEAD = b"POST /%d HTTP/1.1\r\nHost: localhost\r\n"


def sized(body, number=1):
    return HEAD % number + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def chunked(*chunks, end=b"0\r\n\r\n", number=1):
    framed = b"".join(b"%X\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
    return HEAD % number + b"Transfer-Encoding: chunked\r\n\r\n" + framed + end


def read(pieces, limit=LIMIT):
    """What comes of the pieces: of each request its path and its body, at the end perhaps a fault, and what is left."""
    requests, found, body = Http1Parser(Http1HeadCache(limit)), [], None
    try:
        for piece in pieces:
            requests.receive(piece)
            while requests.waiting:
                if requests.body is None:
                    head = requests.next_head()
                    if head is None:
                        break
                    body = b""
                    found.append((head.judged.path, b"..." if head.length else b""))
                if requests.body is not None:
                    body += requests.take_body()
                    if requests.body is not None:
                        break
                    found[-1] = (found[-1][0], body)
    except RequestError as fault:
        return [*found, (fault.status, fault.text)]
    return found


def cut(data, places):
    edges = [0, *sorted(places), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


def test_requests_come_one_after_the_other():
    data = sized(b"hello", 1) + sized(b"", 2) + chunked(b"hel", b"lo", number=3) + b"\r\n" + sized(b"bye", 4)
    assert read([data]) == [("/1", b"hello"), ("/2", b""), ("/3", b"hello"), ("/4", b"bye")]


FAULTY = {
    "a chunk without a size": chunked(end=b"\r\n"),
    "a size that is no number": chunked(end=b"xyz\r\n"),
    "a size with a prefix": chunked(end=b"0x5\r\nhello\r\n"),
    "a size with a sign": chunked(end=b"+5\r\nhello\r\n"),
    "a negative size": chunked(end=b"-5\r\nhello\r\n"),
    "a size with a blank before it": chunked(end=b" 5\r\nhello\r\n"),
    "a size with a blank after it": chunked(end=b"5 \r\nhello\r\n"),
    "a size beyond counting": chunked(end=b"F" * 17 + b"\r\n"),
    "a size that never ends": chunked(end=b"0" * 600),
    "an extension that never ends": chunked(end=b"5;" + b"a" * 600),
    "a size that ends in a bare line feed": chunked(end=b"5\nhello\r\n"),
    "an extension with a bare carriage return": chunked(end=b"5;a\rb\r\nhello\r\n"),
    "an extension with a bare line feed": chunked(end=b"5;a\nb\r\nhello\r\n"),
    "a chunk that is too long": chunked(end=b"5\r\nhello!\r\n"),
    "a chunk that is too short": chunked(end=b"5\r\nhell\r\n0\r\n\r\n"),
    "a chunk that ends in a bare line feed": chunked(end=b"5\r\nhello\n0\r\n\r\n"),
    "a chunk that ends in a bare carriage return": chunked(end=b"5\r\nhello\r0\r\n\r\n"),
    "a trailer without a name": chunked(end=b"0\r\n: x\r\n\r\n"),
    "a trailer without a colon": chunked(end=b"0\r\nx\r\n\r\n"),
    "a trailer over two lines": chunked(end=b"0\r\nx: y\r\n z\r\n\r\n"),
    "a trailer with a bare line feed": chunked(end=b"0\r\nx: y\nz: z\r\n\r\n"),
    "a trailer with a NUL": chunked(end=b"0\r\nx: \0\r\n\r\n"),
    "a long trailer": chunked(end=b"0\r\nx: " + b"y" * 600),
    "many trailers": chunked(end=b"0\r\n" + b"x: y\r\n" * 50),
}


@pytest.mark.parametrize("data", FAULTY.values(), ids=FAULTY.keys())
def test_a_malformed_body_is_refused(data):
    *_, (status, text) = read([data])
    assert status == 400
    assert text


@pytest.mark.parametrize(
    "data",
    [
        chunked(b"hello"),
        chunked(b"h", b"ello"),
        chunked(b"hello", end=b"00;what=ever\r\n\r\n"),
        chunked(b"hello", end=b"0\r\nX-Trailer: ignored\r\nContent-Length: 7\r\n\r\n"),
    ],
)
def test_a_body_in_chunks(data):
    assert read([data + sized(b"next", 2)]) == [("/1", b"hello"), ("/2", b"next")]


TOO_LONG = {
    "a request line": (b"GET /" + b"a" * LONGEST_LINE, 414),
    "a head": (HEAD % 1 + b"X: y\r\n" * 6000, 431),
    "one field": (HEAD % 1 + b"X: " + b"y" * LIMIT, 431),
}


@pytest.mark.parametrize(("data", "status"), TOO_LONG.values(), ids=TOO_LONG.keys())
def test_what_is_too_long_is_refused_before_it_ends(data, status):
    for pieces in ([data], cut(data, range(0, len(data), 1000))):
        assert read(pieces)[-1][0] == status


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\nHost: localhost\n\n",
        b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03",
        b"GET / HTTP/1.1\r\nX: y\r\n z",
        b"\n",
        b"\rG",
    ],
)
def test_what_cannot_become_a_request_is_refused_at_once(data):
    assert [status for status, _ in read([data])] == [400]
    assert [status for status, _ in read(cut(data, range(len(data))))] == [400]


def test_what_has_not_come_yet_is_waited_for():
    data = sized(b"hello")
    for end in range(len(data)):
        assert read([data[:end]]) in ([], [("/1", b"...")])


def test_what_was_not_taken_can_be_handed_on():
    requests = Http1Parser(Http1HeadCache(LIMIT))
    requests.receive(sized(b"") + b"more")
    head = requests.next_head()
    assert head.raw + requests.take_rest() == sized(b"") + b"more"
    assert not requests.waiting


wholes = st.one_of(
    st.builds(sized, st.binary(max_size=40)),
    st.builds(lambda chunks: chunked(*chunks), st.lists(st.binary(min_size=1, max_size=20), max_size=4)),
    st.just(b"GET /get HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    st.just(b"\r\n"),
)
# What is refused is refused wherever the bytes were cut, for the same reason: also where several reasons are near.
oddities = st.one_of(
    st.sampled_from([data for data, _ in TOO_LONG.values()]),
    st.sampled_from(list(FAULTY.values())),
    st.sampled_from(
        [b"\n", b"\r", b"\0", b"\r\n ", b"\r\r\n", b"GET / HTTP/1.1\r\nX: \n\0\r\n\r\n", b"0\r\n\r\n"]
    ),
    st.binary(max_size=30),
)


@given(st.lists(wholes | oddities, max_size=6).map(b"".join), st.data())
def test_any_cutting_yields_the_same(data, draw):
    places = draw.draw(st.lists(st.integers(0, len(data)), max_size=12))
    whole = read([data])
    assert read(cut(data, places)) == whole
    if len(data) < 2000:
        assert read(cut(data, range(len(data)))) == whole


@given(
    st.lists(st.tuples(st.booleans(), st.lists(st.binary(min_size=1, max_size=50), max_size=3)), max_size=5),
    st.data(),
)
def test_every_body_arrives_whole_and_in_its_own_request(plan, draw):
    said = [
        chunked(*parts, number=number) if in_chunks else sized(b"".join(parts), number)
        for number, (in_chunks, parts) in enumerate(plan)
    ]
    data = b"".join(said)
    places = draw.draw(st.lists(st.integers(0, len(data)), max_size=20))
    assert read(cut(data, places)) == [(f"/{n}", b"".join(parts)) for n, (_, parts) in enumerate(plan)]


@pytest.mark.parametrize("limit", [1024, 2000, LONGEST_LINE, LONGEST_LINE + 1, LIMIT])
@pytest.mark.parametrize("size", [1000, LIMIT])
def test_a_head_is_as_long_as_it_may_be_and_no_longer_however_it_is_cut(limit, size):
    filler = limit - len(get_with(0))
    exact, longer = get_with(filler), get_with(filler + 1)
    for data, found in ((exact, [("/", b"")]), (longer, [(431, f"the head is longer than {limit} bytes")])):
        assert read([data[start : start + size] for start in range(0, len(data), size)], limit) == found


def get_with(filler):
    return b"GET / HTTP/1.1\r\nHost: localhost\r\nX: %b\r\n\r\n" % (b"y" * filler)
