"""JSON that is large is decoded without the garbage collector, which is as it was afterwards."""

import gc

import msgspec
import pytest

from mcpbus.protocol.large import LARGE_BYTES, decode_large


@pytest.mark.parametrize(("size", "collects"), [(LARGE_BYTES - 1, True), (LARGE_BYTES, False)])
def test_nothing_is_collected_while_much_is_decoded(size, collects):
    def decode(data):
        assert gc.isenabled() == collects
        return data

    assert len(decode_large(decode, b" " * size)) == size
    assert gc.isenabled()


def test_the_collector_is_back_after_a_fault():
    with pytest.raises((msgspec.DecodeError, RecursionError)):
        decode_large(msgspec.json.decode, b"[" * LARGE_BYTES)
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off():
    gc.disable()
    try:
        decode_large(msgspec.json.decode, b" " * LARGE_BYTES + b"1")
        assert not gc.isenabled()
    finally:
        gc.enable()
