"""What a function returns is the same JSON whoever writes it: what orjson writes, msgspec would have written."""

import dataclasses
import datetime as dt
import enum
import uuid
from collections import OrderedDict, namedtuple
from decimal import Decimal
from pathlib import PurePosixPath

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbus.features.content import encode_parts
from mcpbus.features.schemas import python_types
from mcpbus.protocol.json_faults import with_place
from mcpbus.protocol.messages import (
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
    WirePromptMessage,
)


class Colour(enum.Enum):
    RED = "red"


class Number(enum.IntEnum):
    ONE = 1


class Word(str):
    __slots__ = ()


class Count(int):
    pass


@dataclasses.dataclass
class Day:
    n: int
    _hidden: int = 0


class Week(pydantic.BaseModel):
    day: dt.date = pydantic.Field(alias="Day")


class Point(msgspec.Struct, omit_defaults=True):
    x: int = 0


Pair = namedtuple("Pair", "a b")  # noqa: PYI024 - as authors write it

deep: list = []
for _ in range(400):
    deep = [deep]

TEXT = st.text(st.characters(exclude_categories=()))
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    max_leaves=8,
)
OTHERS = [
    2**64,
    -(2**63) - 1,
    b"bytes",
    bytearray(b"bytes"),
    (1, "two"),
    {1},
    Colour.RED,
    Number.ONE,
    Word("word"),
    Count(1),
    Day(1),
    Week(Day="2026-01-02"),
    Point(),
    Pair(1, 2),
    OrderedDict(a=1),
    {1: "a key that is no text"},
    {Colour.RED: 1},
    {None: 1},
    uuid.UUID(int=5),
    Decimal("1.50"),
    dt.datetime(2026, 1, 2, 3, 4, 5, 6, dt.UTC),
    dt.datetime(2026, 1, 2),  # noqa: DTZ001 - a local time is sent as it is
    dt.date(2026, 1, 2),
    dt.time(1, 2, 3),
    dt.timedelta(days=1),
    PurePosixPath("/a"),
    msgspec.Raw(b"1"),
    msgspec.UNSET,
    deep,
    object(),
]
PIECES = [
    TextContent,
    lambda text: TextContent(text, meta={"of": 1}),
    lambda text: ImageContent(text, "image/png"),
    lambda text: AudioContent(text, "audio/wav"),
    lambda text: EmbeddedResource(TextResourceContents("a:b", text)),
    lambda text: EmbeddedResource(BlobResourceContents("a:b", text)),
    lambda text: TextResourceContents("a:b", text),
    lambda text: BlobResourceContents("a:b", text),
    lambda text: WirePromptMessage("user", TextContent(text)),
    lambda text: WirePromptMessage("user", EmbeddedResource(TextResourceContents("a:b", text))),
    lambda text: ResourceLink(text, "name"),
]


def outcome(encode, value):
    """Return the JSON of a value, or why it has none."""
    try:
        return encode(value)
    except (TypeError, ValueError) as error:
        return type(error), str(error)


def encode_typed(value):
    """Encode a value as msgspec does, and tell the place of what it refuses."""
    try:
        return python_types.encode_typed(value)
    except TypeError as error:
        raise with_place(error, value, python_types.encode_typed) from None


@given(TEXT)
def test_text_is_the_same_to_the_letter(text):
    assert outcome(python_types.encode, text) == outcome(encode_typed, text)


def test_each_character_is_the_same():
    text = "".join(chr(code) for code in range(0x11_0000) if not 0xD800 <= code < 0xE000)
    assert python_types.encode(text) == python_types.encode_typed(text)


@given(PLAIN)
def test_plain_data_is_the_same(value):
    found, expected = outcome(python_types.encode, value), outcome(encode_typed, value)
    if isinstance(expected, bytes):  # a large number may be 1e+30 to one, and 1e30 to the other
        found, expected = msgspec.json.decode(found), msgspec.json.decode(expected)
    assert found == expected


@pytest.mark.parametrize("value", OTHERS, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("inside", [lambda v: v, lambda v: [v], lambda v: {"k": ["first", v]}])
def test_what_is_more_than_plain_data_is_left_to_msgspec(value, inside):
    assert outcome(python_types.encode, inside(value)) == outcome(encode_typed, inside(value))


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ({1: "a", "1": "b"}, "the keys 1 and '1' are the same to JSON - at `$`"),
        ([{"a": ({"2.5": [], 2.5: []},)}], "the keys '2.5' and 2.5 are the same to JSON - at `$[0].a[0]`"),
    ],
)
def test_two_keys_that_are_the_same_to_json_are_refused(value, fault):
    assert outcome(python_types.encode, value) == (TypeError, fault)


@pytest.mark.parametrize("value", [{1: "a", 2: "b", "3": "c"}, {"a": [{1: 1e22, "b": None}, {1: "é"}]}])
def test_keys_that_are_no_texts_are_written_as_such(value):
    assert outcome(python_types.encode, value) == outcome(encode_typed, value)


@pytest.mark.parametrize("make", PIECES)
@pytest.mark.parametrize("text", ["short", "lo\ng" * 5_000, "löng" * 5_000, "\ud800" * 5_000])
def test_a_piece_of_content_is_the_same_however_long(make, text):
    pieces = [make(text), make("another")]
    assert outcome(encode_parts, pieces) == outcome(python_types.encode_typed, pieces)
