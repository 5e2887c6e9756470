"""JSON that is large is decoded without the garbage collector, which would look through all that is there already, over and over.

It runs whenever so many containers have been made, and finds nothing: what a decoder makes refers to nothing before it. A million
lists take a third of a second to decode without it, and two and a half seconds with it.
"""

import gc
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

_T = TypeVar("_T")

LARGE_BYTES: Final = 16 * 1024
"""From how many bytes on that is worth it, and what a request brings is counted before it is looked at."""


_VALUE_BYTES: Final = 32
PART_BYTES: Final = 64
"""What a value of decoded JSON takes beside its text, roughly, in bytes; and a key of an object, an object or an array besides."""


def decode_without_gc(decode: Callable[[bytes | msgspec.Raw], _T], data: bytes | msgspec.Raw) -> _T:
    """Return what `decode` makes of JSON, whatever its size; raises what that does."""
    if len(data) < LARGE_BYTES or not gc.isenabled():
        return decode(data)
    gc.disable()
    try:
        return decode(data)
    finally:
        gc.enable()


def weigh(text: bytes | memoryview) -> int:
    """Return how many bytes some JSON takes in memory once it is decoded, roughly; its text, where that is more.

    Each value but the first of its container follows a comma, and an empty list of two bytes is an object of sixty.
    """
    data = bytes(text)
    parts = data.count(b"[") + data.count(b"{") + data.count(b":")
    return len(data) + _VALUE_BYTES * data.count(b",") + PART_BYTES * parts
