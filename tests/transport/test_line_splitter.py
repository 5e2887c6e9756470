"""Lines are the same, however a stream was cut on its way."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mcpbus.transports.lines import TOO_LONG, LineSplitter

MOST = 5


def split(*pieces, most=MOST):
    """What is made of pieces, and then of their end."""
    splitter = LineSplitter(most)
    return [line for piece in pieces for line in splitter.feed(piece)], splitter.end()


@pytest.mark.parametrize(
    ("pieces", "lines", "last"),
    [
        ([b"a\nb\n"], [b"a", b"b"], []),
        ([b"a\r\nb\r\n"], [b"a", b"b"], []),
        ([b"a\r", b"\nb"], [b"a"], [b"b"]),
        ([b"a", b"b", b"\n", b"c"], [b"ab"], [b"c"]),
        ([b"\n \n\r\n", b"a"], [], [b"a"]),
        ([b" a \n "], [b"a"], []),
        ([b"12345\n", b"123", b"45\n"], [b"12345", b"12345"], []),
        ([b"123456\na\n"], [TOO_LONG, b"a"], []),
        ([b"123", b"456", b"7\na\n"], [TOO_LONG, b"a"], []),
        ([b"123", b"456\n1"], [TOO_LONG], [b"1"]),
        ([b"123456", b"789", b"0"], [], [TOO_LONG]),
        ([b"123456\n", b"789", b"0"], [TOO_LONG], [b"7890"]),
        ([], [], []),
    ],
)
def test_lines_are_split_and_those_that_are_too_long_are_told(pieces, lines, last):
    assert split(*pieces) == (lines, last)


@given(
    st.lists(
        st.binary(max_size=12).map(lambda data: data.translate(bytes(b"ab \r\n1"[n % 6] for n in range(256))))
    )
)
@example([b"ab1ab", b"a", b"\n"])
def test_the_cuts_make_no_difference(pieces):
    cut, whole = split(*pieces), split(b"".join(pieces))
    assert cut == whole
    assert cut == split(*(bytes([byte]) for byte in b"".join(pieces)))


def test_no_more_is_kept_of_a_line_than_it_may_have():
    splitter = LineSplitter(MOST)
    for _ in range(100):
        splitter.feed(b"123")
        assert len(splitter._unfinished) <= MOST
