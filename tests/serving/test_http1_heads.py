"""What the lane takes for the head of a request, and what it refuses: each row as its bytes (RFC 9112).

Where llhttp alone would let something pass, our own look at the bytes does not; both are in this table, so that a new
version of llhttp which is more lenient fails here or changes nothing.
"""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from outcomes import outcome

from mcpbus.protocol.http.headers import Headers
from mcpbus.protocol.recurring_cache import LONGEST_RECALLED
from mcpbus.serving.head_limits import LONGEST_LINE, MOST_FIELDS
from mcpbus.serving.http1.head import PREFACE, read_head
from mcpbus.serving.http1.head_cache import Http1HeadCache
from mcpbus.serving.request_error import RequestError

LIMIT = 32 * 1024


def post(*lines, target=b"/mcp", verb=b"POST", version=b"HTTP/1.1", host=b"Host: localhost"):
    fields = [host, *lines] if host else lines
    return b"\r\n".join([b"%b %b %b" % (verb, target, version), *fields, b"", b""])


REFUSED = {
    # Which request is whose: the length of a body, told in two ways or in a wrong one.
    "two lengths": (post(b"Content-Length: 5", b"Content-Length: 6"), 400),
    "two equal lengths": (post(b"Content-Length: 5", b"Content-Length: 5"), 400),
    "a list of lengths": (post(b"Content-Length: 5, 5"), 400),
    "a length with a sign": (post(b"Content-Length: +5"), 400),
    "a negative length": (post(b"Content-Length: -5"), 400),
    "a length in hexadecimal": (post(b"Content-Length: 0x5"), 400),
    "a length with an underscore": (post(b"Content-Length: 1_0"), 400),
    "a length with a blank inside": (post(b"Content-Length: 1 0"), 400),
    "a length in other digits": (post(b"Content-Length: \xd9\xa5"), 400),
    "an empty length": (post(b"Content-Length:"), 400),
    "a length beyond counting": (post(b"Content-Length: " + b"9" * 30), 400),
    "a length beyond reason": (post(b"Content-Length: " + b"9" * 19), 400),
    "length and chunks": (post(b"Content-Length: 5", b"Transfer-Encoding: chunked"), 400),
    "chunks and length": (post(b"Transfer-Encoding: chunked", b"Content-Length: 5"), 400),
    "length and identity": (post(b"Transfer-Encoding: identity", b"Content-Length: 5"), 400),
    "identity": (post(b"Transfer-Encoding: identity"), 400),
    "an unknown coding": (post(b"Transfer-Encoding: xchunked"), 400),
    "compression": (post(b"Transfer-Encoding: gzip, chunked"), 400),
    "chunks not last": (post(b"Transfer-Encoding: chunked, gzip"), 400),
    "chunks twice in a list": (post(b"Transfer-Encoding: chunked, chunked"), 400),
    "chunks twice": (post(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"), 400),
    "an empty coding": (post(b"Transfer-Encoding:"), 400),
    "a coding in quotes": (post(b'Transfer-Encoding: "chunked"'), 400),
    "a coding with a parameter": (post(b"Transfer-Encoding: chunked;q=1"), 400),
    "a vertical tab before the coding": (post(b"Transfer-Encoding: \x0bchunked"), 400),
    "chunks in HTTP/1.0": (post(b"Transfer-Encoding: chunked", version=b"HTTP/1.0"), 400),
    # Where a line ends, and where a field's name does.
    "bare line feeds": (b"POST /mcp HTTP/1.1\nHost: localhost\n\n\r\n\r\n", 400),
    "one bare line feed": (b"POST /mcp HTTP/1.1\r\nHost: localhost\nX: y\r\n\r\n", 400),
    "a bare line feed in a value": (post(b"X: a\nContent-Length: 5"), 400),
    "a bare carriage return": (post(b"X: a\rContent-Length: 5"), 400),
    "a carriage return at the end of a value": (post(b"X: a\r"), 400),
    "a field over two lines": (post(b"X: a", b" b"), 400),
    "a field over two lines with a tab": (post(b"X: a", b"\tb"), 400),
    "a first field that begins with a blank": (post(host=b" Host: localhost"), 400),
    "a NUL in a value": (post(b"X: a\0b"), 400),
    "a NUL in a name": (post(b"X\0: a"), 400),
    "a control character in a value": (post(b"X: a\x01b"), 400),
    "a DEL in a value": (post(b"X: a\x7fb"), 400),
    "a blank before the colon": (post(b"Content-Length : 5"), 400),
    "a tab before the colon": (post(b"Content-Length\t: 5"), 400),
    "no colon": (post(b"Content-Length 5"), 400),
    "no name": (post(b": 5"), 400),
    "a name in quotes": (post(b'"X": 5'), 400),
    "a name in brackets": (post(b"X[]: 5"), 400),
    "a name outside of ASCII": (post("Ü: 5".encode()), 400),
    # The request line.
    "no target": (b"POST HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
    "two blanks": (b"POST  /mcp HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
    "a blank at its end": (b"POST /mcp HTTP/1.1 \r\nHost: localhost\r\n\r\n", 400),
    "a blank at its beginning": (b" POST /mcp HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
    "a tab for a blank": (b"POST\t/mcp HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
    "a blank in the target": (post(target=b"/m cp"), 400),
    "a target outside of ASCII": (post(target="/é".encode()), 400),
    "a fragment": (post(target=b"/mcp#here"), 400),
    "no version": (b"POST /mcp\r\nHost: localhost\r\n\r\n", 400),
    "another protocol": (post(version=b"ICY/1.1"), 400),
    "HTTP in small letters": (post(version=b"http/1.1"), 400),
    "HTTP/0.9": (post(version=b"HTTP/0.9"), 505),
    "HTTP/1.2": (post(version=b"HTTP/1.2"), 505),
    "HTTP/2.0": (post(version=b"HTTP/2.0"), 505),
    "HTTP/3.0": (post(version=b"HTTP/3.0"), 505),
    "HTTP/1.10": (post(version=b"HTTP/1.10"), 400),
    "HTTP/1": (post(version=b"HTTP/1"), 400),
    "an unknown method": (post(verb=b"FETCH"), 501),
    "a method in small letters": (post(verb=b"post"), 501),
    "the greeting of TLS": (b"\x16\x03\x01\x02\0\x01\0\r\n\r\n", 400),
    # The target and the host.
    "no host": (post(host=None), 400),
    "two hosts": (post(b"Host: localhost"), 400),
    "a relative target": (post(target=b"mcp"), 400),
    "an asterisk": (post(target=b"*"), 400),
    "another scheme": (post(target=b"ftp://localhost/mcp"), 400),
    "an address without a host": (post(target=b"http:///mcp"), 400),
    "an address of another host": (post(target=b"http://evil.example/mcp"), 400),
    "an address with a user": (post(target=b"http://me@localhost/mcp"), 400),
    "a host and a port": (post(target=b"localhost:8000"), 400),
    "a tunnel": (post(verb=b"CONNECT", target=b"localhost:8000"), 400),
    # The rest.
    "an expectation": (post(b"Expect: 200-maybe"), 417),
    "a long request line": (post(target=b"/" + b"a" * LONGEST_LINE), 414),
    "a long head": (post(b"X: " + b"a" * LIMIT), 431),
    "many fields": (post(*[b"X: a"] * MOST_FIELDS), 431),
}


@pytest.mark.parametrize(("data", "status"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_refused(data, status):
    with pytest.raises(RequestError) as refused:
        read_head(data, LIMIT)
    assert refused.value.status == status
    assert refused.value.text


LENGTHS = {
    "none": (post(), 0),
    "zero": (post(b"Content-Length: 0"), 0),
    "some": (post(b"Content-Length: 17"), 17),
    "leading zeros": (post(b"Content-Length: 0017"), 17),
    "blanks around it": (post(b"Content-Length: \t 17 \t"), 17),
    "no blank before it": (post(b"content-length:17"), 17),
    "large": (post(b"Content-Length: " + b"9" * 18), 10**18 - 1),
    "chunked": (post(b"Transfer-Encoding: chunked"), None),
    "chunked in capitals": (post(b"TRANSFER-ENCODING: CHUNKED"), None),
    "chunked and a blank": (post(b"Transfer-Encoding: chunked "), None),
}


@pytest.mark.parametrize(("data", "length"), LENGTHS.values(), ids=LENGTHS.keys())
def test_how_long_a_body_is(data, length):
    assert read_head(data, LIMIT).length == length


TARGETS = {
    "a path": (post(), "/mcp", ""),
    "a query": (post(target=b"/mcp?a=1&b=%20?"), "/mcp", "a=1&b=%20?"),
    "an escape": (post(target=b"/m%63p%2F%C3%A9"), "/mcp/é", ""),
    "an address": (post(target=b"http://localhost/mcp?x"), "/mcp", "x"),
    "an address in capitals": (post(target=b"HTTP://LOCALHOST/MCP"), "/MCP", ""),
    "an address without a path": (post(target=b"http://localhost"), "/", ""),
    "an address with a query alone": (post(target=b"http://localhost?x"), "/", "x"),
    "a path that looks like an address": (post(target=b"//localhost/mcp"), "//localhost/mcp", ""),
    "the server itself": (post(verb=b"OPTIONS", target=b"*"), "*", ""),
}


@pytest.mark.parametrize(("data", "path", "query"), TARGETS.values(), ids=TARGETS.keys())
def test_what_a_target_names(data, path, query):
    head = read_head(data, LIMIT)
    assert (head.judged.path, head.judged.query) == (path, query)


CONNECTIONS = {
    "by default": (post(), True),
    "that it closes": (post(b"Connection: close"), False),
    "among others": (post(b"Connection: foo ,CLOSE"), False),
    "in several fields": (post(b"Connection: foo", b"Connection: close"), False),
    "something else": (post(b"Connection: closed"), True),
    "HTTP/1.0": (post(version=b"HTTP/1.0"), False),
    "HTTP/1.0 without a host": (post(version=b"HTTP/1.0", host=None), False),
    "HTTP/1.0 that asks": (post(b"Connection: Keep-Alive", version=b"HTTP/1.0"), True),
}


@pytest.mark.parametrize(("data", "keeps"), CONNECTIONS.values(), ids=CONNECTIONS.keys())
def test_whether_another_request_may_follow(data, keeps):
    assert read_head(data, LIMIT).keeps is keeps


UPGRADE = (b"Connection: Upgrade", b"Upgrade: websocket")
LEAVES = {
    "a WebSocket": (post(*UPGRADE, verb=b"GET"), True),
    "among others": (post(b"Connection: keep-alive, upgrade", b"Upgrade: h2c, WebSocket", verb=b"GET"), True),
    "HTTP/2 with prior knowledge": (PREFACE, True),
    "HTTP/2 by upgrade": (post(b"Connection: upgrade, http2-settings", b"Upgrade: h2c", verb=b"GET"), False),
    "without the option": (post(UPGRADE[1], verb=b"GET"), False),
    "with another verb": (post(*UPGRADE), False),
    "in HTTP/1.0": (post(*UPGRADE, verb=b"GET", version=b"HTTP/1.0"), False),
}


@pytest.mark.parametrize(("data", "leaves"), LEAVES.values(), ids=LEAVES.keys())
def test_who_wants_another_protocol(data, leaves):
    assert read_head(data, LIMIT).leaves is leaves


def test_who_waits_for_a_word_before_the_body():
    assert read_head(post(b"Expect: 100-Continue"), LIMIT).expects
    assert not read_head(post(b"Expect: 100-continue", version=b"HTTP/1.0"), LIMIT).expects
    assert not read_head(post(), LIMIT).expects


def test_fields_are_as_they_came():
    head = read_head(post(b"X-Word:  caf\xc3\xa9 \t", b"x-word: b", b"Empty:"), LIMIT)
    assert head.judged.headers.all(b"x-word") == ["caf\u00c3\u00a9", "b"]
    assert head.judged.headers.all(b"empty") == [""]
    assert head.judged.verb == "POST"


@pytest.mark.parametrize("data", [row[0] for row in REFUSED.values()], ids=REFUSED)
def test_what_is_refused_is_refused_whatever_was_read_before(data):
    heads = Http1HeadCache(LIMIT)
    for known in (post(), post(b"Content-Length: 5"), post(b"Transfer-Encoding: chunked"), PREFACE):
        heads.read(known)
    with pytest.raises(RequestError) as anew:
        read_head(data, LIMIT)
    with pytest.raises(RequestError) as read:
        heads.read(data)
    assert (read.value.status, read.value.text) == (anew.value.status, anew.value.text)


PLAIN = [b"Host: a", b"Accept: */*", b"Content-Length: 3"]
APART = [
    [],
    [b"X-Request-Id: 1"],
    [b"X:"],
    [b"X: "],
    [b"X:\t a \t"],
    [b"X: a", b"Y: b", b"x: c"],
    [b"X: caf\xc3\xa9"],
    [b"X : a"],
    [b" X: a"],
    [b"X\xe4: a"],
    [b": a"],
    [b"X"],
    [b"X: a", b"\tb"],
    [b"X: a\nContent-Length: 5"],
    [b"X: a\x00"],
    [b"X: a\x7f"],
    [b"Host: b"],
    [b"Content-Length: 5"],
    [b"content-length: 3 "],
    [b"Content-Length: 0 "],
    [b"Content-Length:"],
    [b"X: a", b"Transfer-Encoding: identity"],
    [b"X: a", b"Connection: upgrade", b"Upgrade: websocket"],
    [b"X: a", b"Connection: close"],
    [b"X: a", b"Accept: text/plain"],
    [b"X: a", b"Origin: b"],
    [b"Mcp-Session-Id: a", b"Last-Event-Id: b"],
    [b"Authorization: Bearer abc"],
    [b"authorization: Bearer " + b"x" * 1000],
    [b"AUTHORIZATION: Bearer abc"],
    [b"Authorization:Bearer abc"],
    [b"Authorization:  Bearer abc"],
    [b"Authorization: Bearer abc "],
    [b"Authorization: "],
    [b"Authorization: \xe4"],
    [b"Authorization: a\tb"],
    [b"Authorization: a\x01b"],
    [b"Authorization: a", b" b"],
    [b"Authorization: a\rb"],
    [b"Authorization: a", b"Authorization: b"],
    [b"Authorization: a", b"AUTHORIZATION: b"],
    [b"Proxy-Authorization: a"],
    [b"Proxy-Authorization: a", b"Authorization: b"],
    [b"X: Authorization: a"],
    [b"X-Authorization: a"],
    [b"Authorization: a", b"Content-Length: 3"],
    [b"Authorization: a", b"Transfer-Encoding: chunked"],
    [b"Authorization: a", b"Connection: close"],
    [b"Authorization: a", b"Expect: 100-continue"],
    [b"Authorization: a", *(b"X: y" for _ in range(125))],
    [b"Authorization: a", *(b"X%d: y" % number for number in range(124))],
    [b"Authorization: a", *(b"X%d: y" % number for number in range(125))],
    [b"Authorization: a", *(b"X%d: y" % number for number in range(126))],
    [b"Authorization: a", b"X: " + b"y" * 1500],
    [b"Authorization: " + b"x" * 9000],
]


@pytest.mark.parametrize("fields", APART, ids=lambda fields: repr(fields[:2])[:60])
@pytest.mark.parametrize("at", [0, 1, 3])
@pytest.mark.parametrize("line", [b"POST /mcp?a=b HTTP/1.1", b"GET /mcp HTTP/1.1", b"PRI * HTTP/2.0"])
def test_a_head_is_read_as_it_would_be_anew_whatever_was_read_before(fields, at, line):
    lines = [line, *PLAIN[:at], *fields, *PLAIN[at:]] if line[:3] != b"PRI" else [line, *fields]
    data = b"".join(line + b"\r\n" for line in lines) + b"\r\n"
    heads = Http1HeadCache(8192)
    for known in ([line, *PLAIN], [line, *PLAIN[:2]]):
        with suppress(RequestError):
            heads.read(b"".join(line + b"\r\n" for line in known) + b"\r\n")

    anew = outcome(lambda: read_head(data, 8192))
    assert [outcome(lambda: heads.read(data)) for _ in range(2)] == [anew, anew]


LINES = st.builds(
    lambda name, change, colon, value: change(name) + colon + value,
    st.sampled_from(
        [b"Content-Length", b"Accept", b"Transfer-Encoding", b"X-Id", b"Content-Lengths", b"Hos", b""]
    ),
    st.sampled_from([bytes, bytes.lower, bytes.upper, bytes.swapcase]),
    st.sampled_from([b":", b": ", b":\t", b" :", b""]),
    st.sampled_from([b"", b" a ", b"5", b"05 ", b"chunked", b"\xe4", b"a\x00", b"a\rb", b"a\nb", b"a\r\n b"]),
)
USUAL = st.lists(
    st.sampled_from([b"X: a", b"y:b ", b"accept: */*", b"CONTENT-LENGTH: 3", b"Via:"]),
    max_size=3,
    unique=True,
)


@given(USUAL, LINES, USUAL)
def test_any_head_is_read_as_it_would_be_anew(before, line, after):
    heads = Http1HeadCache(8192)
    with suppress(RequestError):
        heads.read(post(*before))
    for host in (b"Host: a", None):
        data = post(*before, line, *after, host=host)
        if data.index(b"\r\n\r\n") == len(data) - 4:  # otherwise it is two
            anew = outcome(lambda data=data: read_head(data, 8192))
            assert [outcome(lambda data=data: heads.read(data)) for _ in range(2)] == [anew, anew]


PROXIED = [b"Host: a", b"Accept: */*", b"Content-Length: 3", b"X-Request-Id: 1", b"Mcp-Name: b", b"Via: c"]


@given(st.lists(st.tuples(st.sampled_from(["put", "insert", "repeat", "move"]), st.integers(0, 5), LINES)))
def test_variations_of_a_head_that_came_before_are_read_as_they_would_be_anew(changes):
    heads = Http1HeadCache(8192)
    lines, sent = [*PROXIED], [post(*PROXIED, host=None)]
    for change, place, line in changes:
        at = place % len(lines)
        match change:
            case "put":
                lines[at] = line
            case "insert":
                lines.insert(at, line)
            case "repeat":
                lines.append(lines[at])
            case "move":
                lines.append(lines.pop(at))
        sent.append(post(*lines, host=None))
    for data in sent * 3:  # a head is remembered from its second time on
        if data.index(b"\r\n\r\n") == len(data) - 4:  # otherwise it is two
            assert outcome(lambda data=data: heads.read(data)) == outcome(
                lambda data=data: read_head(data, 8192)
            )


def test_what_differs_in_what_nobody_looks_at_is_read_once():
    heads = Http1HeadCache(8192)
    read = [
        heads.read(
            b"GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %d\r\nX: %d\r\nContent-Length: %d\r\n\r\n"
            % (n, n, n)
        )
        for n in range(3)
    ]
    assert [head.judged.headers["authorization"] for head in read] == ["Bearer 0", "Bearer 1", "Bearer 2"]
    assert [head.length for head in read] == [0, 1, 2]
    assert read[0].plain is read[1].plain is read[2].plain
    assert list(read[0].plain.judged.headers) == ["host"]


def test_a_head_is_remembered_from_its_second_time_on_unless_it_is_long():
    heads = Http1HeadCache(LIMIT)
    unique, usual, long = post(b"X: 1"), post(), post(b"X: " + b"a" * LONGEST_RECALLED)
    read = [[heads.read(data) for data in (usual, long)] for _ in range(3)]
    heads.read(unique)
    assert list(heads.known) == [usual]
    assert read[1][0] is read[2][0] is heads.read(usual)


def test_a_mapping_of_fields_has_those_that_are_looked_at_late():
    def read():
        return Http1HeadCache(8192).read(post(b"X-Word: a", b"Y: b", b"x-word: c")).judged.headers

    assert list(read()) == ["host", "x-word", "y"]
    assert len(read()) == 3
    assert read().all("X-Word") == ["a", "c"]
    assert "y" in read()
    assert list(read().without(b"y")) == ["host", "x-word"]
    assert repr(read()) == "<Headers host, x-word, y>"
    assert read().get("z") is None
    assert dict(read()) == {"host": "localhost", "x-word": "a, c", "y": "b"}


class Late:
    """Fields that are looked at late, of which those in `found` are found alone."""

    def __init__(self, fields, found=()):
        self.fields = fields
        self.found = dict(found)
        self.asked = []

    def find(self, name):
        self.asked.append(name)
        return self.found.get(name)

    def all(self):
        self.asked.append("all")
        return self.fields


def test_fields_that_are_looked_at_late_are_all_there_for_whoever_asks_meanwhile():
    """Another thread, in whose place is here who asks in the middle of it."""

    class Asked(list):
        def __iter__(self):
            if not meanwhile:
                meanwhile.append("asks")
                meanwhile[0] = headers.all(b"x")
            return super().__iter__()

    meanwhile = []
    headers = Headers.of({}).plus(Late(Asked([(b"x", b"a"), (b"x", b"b")])))
    assert headers.all(b"x") == ["a", "b"]
    assert meanwhile == [["a", "b"]]
    assert headers.all(b"x") == ["a", "b"]


def test_fields_are_all_there_where_they_were_joined_while_one_was_looked_for():
    class Found(Late):
        def find(self, name):
            if name == b"x":
                headers.get(b"none")  # as another thread may
            return super().find(name)

    headers = Headers.of({b"a": b"1"}).plus(Found([(b"x", b"2"), (b"y", b"3")], {b"x": b"2"}))
    assert headers.get(b"x") == "2"
    assert dict(headers) == {"a": "1", "x": "2", "y": "3"}
    assert headers.get(b"y") == "3"


def test_fields_that_are_looked_at_late_are_joined_once_with_those_that_were_there_early():
    late = Late([(b"x", b"2")])
    early = Headers.of({b"a": b"1"})
    headers = early.plus(late)
    assert headers.all(b"a") == ["1"]
    assert late.asked == []
    assert [headers.get(name) for name in ("b", "x", "c")] == [None, "2", None]
    assert late.asked == [b"b", "all"]
    assert early.get("x") is None


def test_a_field_that_is_looked_at_late_is_looked_for_once_and_alone():
    late = Late([(b"x", b"2"), (b"x", b"3"), (b"y", b"4")], {b"x": (b"2", b"3"), b"y": b"4"})
    early = Headers.of({b"a": b"1"})
    headers = early.plus(late)
    assert [headers.raw(name) for name in (b"x", b"y", b"x", b"a")] == [
        (b"2", b"3"),
        b"4",
        (b"2", b"3"),
        b"1",
    ]
    assert late.asked == [b"x", b"y"]
    assert dict(headers) == {"a": "1", "x": "2, 3", "y": "4"}
    assert late.asked == [b"x", b"y", "all"]
    assert dict(early) == {"a": "1"}


def test_a_field_that_was_found_is_the_very_same_again_as_tokens_are_remembered_by():
    headers = Http1HeadCache(8192).read(post(b"Authorization: Bearer x")).judged.headers
    found = headers.raw(b"authorization")
    assert headers.raw(b"authorization") is found
    headers.get("none")
    assert headers.raw(b"authorization") is found


@pytest.mark.parametrize(
    "lines",
    [
        (b"X-Word: a", b"Y: b", b"x-word: c"),
        (b"MCP-Session-ID:\t a b \t", b"X: Mcp-Session-Id: 2"),
        (b"Content-Length: 12", b"X-Content-Length: 13", b"Y: content-length: 14"),
        (b"A-B: 1", b"A.B: 2", b"AxB: 3", b"B: 4", b"A: 5", b"A:"),
        (b"X: \xc3\xa9", b"y:"),
    ],
)
def test_a_field_that_is_found_alone_says_what_it_says_among_all(lines):
    data = post(*lines)
    whole = read_head(data, 8192).judged.headers
    for name in (*map(str.encode, whole), b"a", b"x", b"mcp-session-id", b"content-length", b"none"):
        assert Http1HeadCache(8192).read(data).judged.headers.raw(name) == whole.raw(name)
