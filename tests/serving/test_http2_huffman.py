"""Text in Huffman's code is what hpack makes of it, and what it takes for none is none (RFC 7541, section 5.2)."""

import hpack
import pytest
from hpack.huffman import HuffmanEncoder
from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH
from hpack.huffman_table import decode_huffman
from hypothesis import given
from hypothesis import strategies as st

from mcpbus.serving.http2.hpack_decoder import expand

ENCODER = HuffmanEncoder(REQUEST_CODES, REQUEST_CODES_LENGTH)


@given(st.binary() | st.text(st.characters(max_codepoint=127)).map(str.encode))
def test_what_was_compressed_is_what_it_was(text):
    assert expand(ENCODER.encode(text)) == text


def outcome(decode, data):
    try:
        return decode(data)
    except hpack.HPACKDecodingError:
        return None


@given(st.binary(), st.binary(max_size=4))
def test_any_bytes_are_read_as_hpack_reads_them(text, more):
    compressed = ENCODER.encode(text)
    for data in (more, compressed + more, compressed[: len(more)], compressed[:-1] + more):
        assert outcome(expand, data) == outcome(decode_huffman, data)


@pytest.mark.parametrize("byte", range(256))
def test_every_byte_is_compressed_and_read(byte):
    text = bytes([byte])
    assert expand(ENCODER.encode(text)) == text


@pytest.mark.parametrize(
    "data",
    [b"\x1f\xff", b"\x18", b"\xff\xff\xff\xff", b"\xff\xff\xff\xfc", b"\xff", b"\x1f\xfe"],
    ids=[
        "too much padding",
        "zeros for padding",
        "an end of the text",
        "an end and padding",
        "padding alone",
        "half a code",
    ],
)
def test_what_stands_for_no_text_is_refused(data):
    with pytest.raises(hpack.HPACKDecodingError):
        expand(data)
