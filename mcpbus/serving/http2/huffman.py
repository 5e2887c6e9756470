"""Expands text that a client compressed by the Huffman code for header fields (RFC 7541, section 5.2 and appendix B).

What is unique to a request comes so each time. hpack has a table that says what comes of half a byte, in each state that was reached; here
two steps are made one, for a whole byte, once they are needed: 8 MB when all were, for all connections together.
"""

from typing import Final

import hpack
from hpack.huffman_table import HUFFMAN_COMPLETE, HUFFMAN_EMIT_SYMBOL, HUFFMAN_FAIL, HUFFMAN_TABLE


class _HuffmanState(dict[int, tuple["_HuffmanState", bytes]]):
    """What comes of each byte in one state: the next state, and text.

    Args:
        number: Of the state in hpack's table.
    """

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __missing__(self, byte: int) -> tuple["_HuffmanState", bytes]:
        number, text = self.number, b""
        for half in (byte >> 4, byte & 0xF):
            number, flags, symbol = HUFFMAN_TABLE[16 * number + half]
            if flags & HUFFMAN_FAIL:
                raise hpack.HPACKDecodingError("a text is not in Huffman's code")
            if flags & HUFFMAN_EMIT_SYMBOL:
                text += bytes((symbol,))
        step = self[byte] = _STATES[number], text
        return step


_STATES: Final = [_HuffmanState(number) for number in range(len(HUFFMAN_TABLE) // 16)]
_COMPLETE: Final = frozenset(number for number, flags, _ in HUFFMAN_TABLE if flags & HUFFMAN_COMPLETE)


def expand(data: bytes) -> bytes:
    """Return the text that these bytes stand for.

    Raises:
        HPACKDecodingError: They stand for none.
    """
    state, texts = _STATES[0], []
    for byte in data:
        state, text = state[byte]
        texts.append(text)
    if state.number not in _COMPLETE:
        raise hpack.HPACKDecodingError("a text ends within a character")
    return b"".join(texts)
