"""Calls that do not fit, and those that only fail."""

from typing import TypedDict, Unpack

import attrs
import msgspec
import pytest

from mcpbus.protocol.keywords import Explained, check_keywords, explained, explained_as


class Options(TypedDict, total=False):
    colour: str


@explained
def plain(first, second=2, *, third=3):
    return first, second, third


@explained
def wide(first, second, third):
    return first, second, third


@explained
def nothing():
    return ()


class Pen:
    @explained
    def draw(self, first):
        return first


class Tagged(msgspec.Struct, tag_field="kind", tag="a", metaclass=Explained):
    first: int


@explained_as("@draw")
def with_options(first, /, **options: Unpack[Options]):
    return first, options


@explained
def failing(first):
    raise TypeError("of its own") from ValueError("the cause")


@explained
@attrs.frozen
class Value:
    first: int
    _hidden: int = attrs.field(default=2, alias="_hidden")

    def __attrs_post_init__(self):
        if self.first < 0:
            raise TypeError("of its own") from ValueError("the cause")


class Struct(msgspec.Struct, metaclass=Explained):
    ELSEWHERE = {"second": lambda value: f"write first={value}"}

    first: int

    def __post_init__(self):
        if self.first < 0:
            raise TypeError("of its own") from ValueError("the cause")


MISFITS = {
    "plain() has no option 'thrid'; did you mean 'third'?": lambda: plain(1, thrid=3),
    "plain() has no option 'Third'; did you mean 'third'?": lambda: plain(1, Third=3),
    "plain() has no option 'x'; there are first, second, third": lambda: plain(1, x=3),
    "plain() needs 'first'": lambda: plain(second=1),
    "plain() takes first and second by position; give the rest by keyword: third=...": lambda: plain(1, 2, 3),
    "wide() takes first, second and third alone": lambda: wide(1, 2, 3, 4),
    "wide() needs 'first', 'second' and 'third'": wide,
    "wide() got multiple values for argument 'first'": lambda: wide(1, 2, 3, first=1),
    "nothing() takes nothing": lambda: nothing(1),
    "Pen.draw() needs 'first'": lambda: Pen().draw(),
    "Pen.draw() takes first alone": lambda: Pen().draw(1, 2),
    "draw() needs 'self' and 'first'": Pen.draw,
    "Tagged() has no option 'kind'; leave it out: the class says that": lambda: Tagged(1, kind="a"),
    "plain() got multiple values for argument 'first'": lambda: plain(1, first=1),
    "@draw takes first by position; give the rest by keyword: colour=...": lambda: with_options(1, 2),
    "@draw needs 'first'": lambda: with_options(colour="red"),
    "Value() has no option 'hidden'; there is first": lambda: Value(1, hidden=2),
    "Value() needs 'first'": Value,
    "Struct() has no option 'second'; write first=5": lambda: Struct(second=5),
    "Struct() has no option 'secnd'; did you mean 'second'? write first=5": lambda: Struct(secnd=5),
    "Struct() takes first alone": lambda: Struct(1, 2),
    "@x has no option 'a'; it takes none": lambda: check_keywords("@x", {"a": 1}, ()),
}


@pytest.mark.parametrize("sentence", MISFITS)
def test_a_call_that_does_not_fit_says_what_would(sentence):
    with pytest.raises(TypeError) as raised:
        MISFITS[sentence]()
    assert str(raised.value) == sentence
    assert raised.value.__suppress_context__ or raised.value.__context__ is None


@pytest.mark.parametrize("call", [lambda: failing(1), lambda: Value(-1), lambda: Struct(-1)])
def test_what_is_raised_within_is_left_alone(call):
    with pytest.raises(TypeError, match="of its own") as raised:
        call()
    assert isinstance(raised.value.__cause__, ValueError)


def test_a_call_that_fits_is_one():
    assert plain(1, third=4) == (1, 2, 4)
    assert with_options(1, colour="red") == (1, {"colour": "red"})
    assert Value(1) == Value(first=1)
    assert msgspec.json.decode(b'{"first":1}', type=Struct) == Struct(1)
