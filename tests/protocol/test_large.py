"""JSON that is large is decoded without the garbage collector, which is as it was afterwards."""

import gc
from typing import Literal

import msgspec
import pytest

from mcpbus.features.arguments import read_arguments
from mcpbus.features.signature import read_signature
from mcpbus.protocol.large import LARGE_BYTES, decode_without_gc
from mcpbus.protocol.meta import read_routing


@pytest.mark.parametrize(("size", "collects"), [(LARGE_BYTES - 1, True), (LARGE_BYTES, False)])
def test_nothing_is_collected_while_much_is_decoded(size, collects):
    def decode(data):
        assert gc.isenabled() == collects
        return data

    assert len(decode_without_gc(decode, b" " * size)) == size
    assert gc.isenabled()


def test_the_collector_is_back_after_a_fault():
    with pytest.raises((msgspec.DecodeError, RecursionError)):
        decode_without_gc(msgspec.json.decode, b"[" * LARGE_BYTES)
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off():
    gc.disable()
    try:
        decode_without_gc(msgspec.json.decode, b" " * LARGE_BYTES + b"1")
        assert not gc.isenabled()
    finally:
        gc.enable()


class Collections:
    """Counts how often the collector runs."""

    def __init__(self):
        self.count = 0

    def __call__(self, phase, _info):
        self.count += phase == "stop"


MANY = msgspec.Raw(b'{"inputResponses": [%b[]]}' % (b"[]," * 100_000))


def test_what_a_retry_brings_is_left_alone_until_somebody_asks_and_not_looked_through_then():
    collections = Collections()
    gc.callbacks.append(collections)
    try:
        routing = read_routing(MANY)
        assert routing.retry
        assert len(routing.retry.input_responses) == 100_001
        assert routing.retry.request_state is msgspec.UNSET
    finally:
        gc.callbacks.remove(collections)
    assert collections.count <= 1


def takes_lists(given: list[list[int]] | None = None) -> None:
    """A tool."""


def takes_text(given: str | None = None, mode: Literal["a", "b"] = "a", size: float = 0.5) -> None:
    """Another one."""


@pytest.mark.parametrize(
    ("function", "given", "holds_text_alone"),
    [(takes_lists, b"[%b[]]" % (b"[]," * 100_000), False), (takes_text, b'"%b"' % (b"x" * 100_000), True)],
)
def test_arguments_that_may_hold_much_are_not_looked_through(function, given, holds_text_alone, monkeypatch):
    sizes = []
    monkeypatch.setattr(
        "mcpbus.features.arguments.decode_without_gc",
        lambda decode, data: sizes.append(len(data)) or decode(data),
    )
    arguments = read_arguments(read_signature(function, "here"), None)
    data = b'{"given": %b}' % given
    assert arguments.decode(data)["given"] == msgspec.json.decode(given)
    assert sizes == ([] if holds_text_alone else [len(data)])
