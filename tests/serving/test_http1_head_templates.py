"""Heads that come often are cut by templates: as each would be without one, and there is not much that clients can do with it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from outcomes import outcome

from mcpbus.serving.http1 import head_cache
from mcpbus.serving.http1.head import read_head
from mcpbus.serving.http1.head_cache import (
    LONGEST_NAMES,
    MOST_AS_LONG,
    MOST_COUNTED,
    MOST_LINES,
    OFTEN,
    HeadCut,
    HeadTemplate,
    HeadTemplates,
    Http1HeadCache,
)

LIMIT = 8192


def head(*fields, line=b"POST /mcp HTTP/1.1"):
    return b"\r\n".join([line, *fields, b"", b""])


def learn(templates, data, times=OFTEN):
    """Let a head come so often, and tell whether there is a template for it then."""
    for _ in range(times):
        templates.learn(data, HeadCut(data))
    return templates.cut(data) is not None


KINDS = {
    "a proxy's": [b"Host: a", b"Accept: */*", b"X-Request-Id: 1", b"Content-Length: 3", b"Via: b", b"Via: c"],
    "without a body": [b"Host: a", b"User-Agent: b", b"Mcp-Session-Id: c"],
    "in chunks": [b"host:a", b"x:", b"transfer-encoding: chunked"],
    "that differs in its length alone": [b"Host: a", b"content-length:3"],
    "with what is looked at at its end": [b"X:\t1 ", b"CONTENT-LENGTH: 03", b"HOST: a", b"Connection: close"],
    "with a name of all kinds of characters": [b"Host: a", b"!#$%&'*+.^_`|~: b"],
}


@pytest.mark.parametrize("fields", KINDS.values(), ids=KINDS)
def test_a_template_cuts_what_came_often_as_it_would_be_cut_without(fields):
    templates, data = HeadTemplates(), head(*fields)
    assert learn(templates, data)
    cut = HeadCut(data)
    assert templates.cut(data) == (cut.plain, cut.digits[0] if cut.digits else None)


PIECES = [
    *(b"\r", b"\n", b"\r\n", b"\r\n ", b":", b" ", b"\t", b"\0", b"\x7f", b"\xff", b",", b"5", b""),
    *(b"\r\nContent-Length: 3", b"\r\ncontent-length : 4", b"\r\nTransfer-Encoding: chunked", b"\r\nX: y"),
    *(b"\r\nHost: a", b"\r\nAccept: a", b"\r\nConnection: close", b"\r\nExpect: 100-continue", b"\r\nHos"),
]
CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["byte", "case", "insert", "replace", "delete", "repeat", "move"]),
        st.integers(0, 2**16),
        st.integers(0, 2**16),
        st.sampled_from(PIECES),
    ),
    max_size=4,
)


def change(data, kind, at, by, piece):
    """Return a head in which something is otherwise, at any place."""
    place, lines = at % len(data), data[:-4].split(b"\r\n")
    line = lines[at % len(lines)]
    if kind == "repeat":
        return head(*lines[1:], line, line=lines[0])
    if kind == "move":
        lines.insert(by % len(lines), lines.pop(at % len(lines)))
        return head(*lines[1:], line=lines[0])
    if kind == "replace":
        return data.replace(line, piece, 1)
    instead, length = {
        "byte": (bytes([by % 256]), 1),
        "case": (data[place : place + 1].swapcase(), 1),
        "insert": (piece, 0),
        "delete": (b"", by % 8),
    }[kind]
    return data[:place] + instead + data[place + length :]


@given(st.sampled_from([*KINDS.values()]), CHANGES)
def test_any_head_is_read_as_it_would_be_anew_whatever_there_are_templates_for(fields, changes):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(head_cache, "OFTEN", 1)  # what it becomes is learnt as well
        heads, data = Http1HeadCache(LIMIT), head(*fields)
        heads.read(data)
        for each in changes:
            data = change(data, *each)
            if data.find(b"\r\n\r\n") != len(data) - 4 or data[:1] in {b"\r", b""}:
                return  # it is two, or none
            anew = outcome(lambda data=data: read_head(data, LIMIT))
            assert [outcome(lambda data=data: heads.read_anew(data)) for _ in range(3)] == [anew] * 3


def test_no_byte_at_any_place_is_read_otherwise_because_there_is_a_template():
    heads = Http1HeadCache(LIMIT)
    data = head(b"Host: a", b"X: b", b"Accept: */*", b"Content-Length: 3")
    for number in range(OFTEN):
        heads.read_anew(data.replace(b"b", b"%d" % number))
    for place in range(len(data) - 4):
        for byte in b"\0\x01\t\n\x0b\r\x1f !,:;0aA~\x7f\x80\xff":
            other = data[:place] + bytes([byte]) + data[place + 1 :]
            assert outcome(lambda: heads.read_anew(other)) == outcome(lambda: read_head(other, LIMIT)), other  # noqa: B023


def test_the_templates_serve_heads_that_differ_in_all_that_they_say():
    heads = Http1HeadCache(LIMIT)
    read = [
        heads.read(head(b"Host: %d" % (n % 2), b"X: %d" % n, b"Content-Length: %d" % n))
        for n in range(OFTEN + 4)
    ]
    assert [each.judged.headers["x"] for each in read] == [str(n) for n in range(OFTEN + 4)]
    assert [each.judged.headers["host"] for each in read[-4:]] == ["0", "1", "0", "1"]
    assert [each.length for each in read[-4:]] == [*range(OFTEN, OFTEN + 4)]
    assert read[0].plain is read[-2].plain
    assert heads.read(head(b"Host: 0", b"X: 1", b"Transfer-Encoding: chunked")).length is None


def test_what_came_less_often_has_no_template():
    templates, data = HeadTemplates(), head(b"Host: a", b"X: b")
    assert not learn(templates, data, OFTEN - 1)
    assert not learn(templates, head(b"Host: a", b"Y: b"), 1)
    assert learn(templates, data, 1)


def test_what_came_is_forgotten_when_there_is_too_much_else():
    templates, data = HeadTemplates(), head(b"Host: a", b"X: b")
    learn(templates, data, OFTEN - 1)
    for number in range(MOST_COUNTED - 1):
        learn(templates, head(b"Host: a", b"X%d: b" % number), 1)
    assert learn(templates, data, 1)
    other = head(b"Host: a", b"Y: b")
    learn(templates, other, OFTEN - 1)
    for number in range(MOST_COUNTED):
        learn(templates, head(b"Host: a", b"Y%d: b" % number), 1)
    assert not learn(templates, other, 1)


def test_of_too_many_for_heads_of_as_many_lines_the_one_is_forgotten_that_was_not_used_for_longest():
    templates = HeadTemplates()
    kinds = [head(b"Host: a", b"X%d: b" % number) for number in range(MOST_AS_LONG + 2)]
    longer = head(b"Host: a", b"X: b", b"Y: c")
    for data in (longer, *kinds[:MOST_AS_LONG]):
        assert learn(templates, data)
    templates.cut(kinds[0])
    for data in kinds[MOST_AS_LONG:]:
        assert learn(templates, data)
    gone = [data for data in (longer, *kinds) if templates.cut(data) is None]
    assert gone == kinds[1:3]


@pytest.mark.parametrize(
    ("fields", "has_one"),
    [
        ([b"X%d: a" % number for number in range(MOST_LINES - 3)], True),
        ([b"X%d: a" % number for number in range(MOST_LINES - 2)], False),
        ([b"X" * (LONGEST_NAMES - 4) + b": a"], True),
        ([b"X" * (LONGEST_NAMES - 3) + b": a"], False),
    ],
    ids=["as many lines as may be", "too many lines", "names as long as may be", "names that are too long"],
)
def test_there_are_templates_for_heads_of_few_lines_and_short_names(fields, has_one):
    assert learn(HeadTemplates(), head(b"Host: a", *fields)) is has_one


@pytest.fixture
def compiled(monkeypatch):
    """The names of the fields for which there was a template."""
    names = []
    monkeypatch.setattr(head_cache, "OFTEN", 8)
    monkeypatch.setattr(
        head_cache, "HeadTemplate", lambda given: names.append(tuple(given)) or HeadTemplate(given)
    )
    return names


def test_a_length_that_is_told_in_an_unusual_way_has_no_template_that_it_would_not_match(compiled):
    heads = Http1HeadCache(LIMIT)
    for number in range(OFTEN):
        heads.read(head(b"Host: a", b"X: %d" % number, b"Content-Length: 3 "))
    assert compiled == []


def test_ever_other_kinds_of_heads_do_not_put_out_the_template_of_one_that_comes_among_them(compiled):
    heads, kinds = Http1HeadCache(LIMIT), 5 * MOST_AS_LONG
    for number in range(8 * kinds):
        heads.read(head(b"Host: a", b"X: %d" % number))
        heads.read(head(b"Host: a", b"X%d: %d" % (number // 8, number)))
    assert compiled.count((b"Host", b"X")) == 1
    assert len(compiled) == kinds + 1
