"""Bodies in chunks: what of them is not the body is bounded."""

import pytest

from mcpbus.serving.http1.body import MOST_FRAMING, Chunked
from mcpbus.serving.request_error import RequestError


def chunks(number, size):
    return (b"%x\r\n%b\r\n" % (size, b"x" * size)) * number


def feed(body, data, step):
    """Give a body what comes of it in steps."""
    rest = b""
    for start in range(0, len(data), step):
        rest += data[start : start + step]
        rest = rest[body.take(rest, 0)[1] :]


@pytest.mark.parametrize("step", [1 << 16, 1 << 22])
def test_chunks_that_are_too_short_are_refused_however_they_come(step):
    data = chunks(MOST_FRAMING // 5 + 1, 1)
    with pytest.raises(RequestError, match="too short") as refused:
        feed(Chunked(), data, step)
    assert refused.value.status == 400


def test_four_megabytes_may_come_in_chunks_of_a_line():
    body, size = Chunked(), 32
    number = 4 * 1024 * 1024 // size
    piece, end = body.take(chunks(number, size) + b"0\r\n\r\n", 0)
    assert (len(piece), body.ended, end) == (number * size, True, number * (size + 6) + 5)
