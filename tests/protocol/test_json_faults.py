"""What JSON cannot hold, and where it is."""

import dataclasses
import re
from typing import Any, ClassVar

import attrs
import msgspec
import pytest

from mcpbus.features.schemas import python_types
from mcpbus.protocol.json_faults import find_non_finite, with_place
from mcpbus.protocol.jsonrpc import encode_notification


class Lock: ...


@dataclasses.dataclass
class Plain:
    shared: ClassVar[Any] = Lock()
    of: Any


@attrs.frozen
class Attrs:
    of: Any


class Struct(msgspec.Struct):
    of: Any


NO_FORM = "what is of type Lock has no JSON form; make it a text, number, list, dict or dataclass - at `{}`"


class Text(str):
    __slots__ = ()

    def __str__(self):
        return "how it is shown"


class Whole(int): ...


class Fraction(float): ...


def test_a_text_or_number_of_a_class_of_its_own_is_what_it_is():  # as those of NumPy and of templates are
    value = [Text("a"), Whole(1), {"b": Fraction(0.5)}, Text("c" * 2_000)]
    assert python_types.encode(value) == b'["a",1,{"b":0.5},"%b"]' % (b"c" * 2_000)
    assert python_types.encode(Text("a")) == b'"a"'
    assert encode_notification("n", {"a": Text("b")}).endswith(b'"params":{"a":"b"}}')


MISPLACED = {
    "$": Lock(),
    "$.a[1]": {"a": [1, Lock()], "b": Lock()},
    "$[0].of": (Plain(Lock()),),
    "$.of[0]": Attrs([Lock()]),
    "$.of.a": Struct({"a": Lock()}),
}


@pytest.mark.parametrize("place", MISPLACED)
def test_the_place_is_named_of_what_has_no_json_form(place):
    with pytest.raises(TypeError) as raised:
        python_types.encode(MISPLACED[place])
    assert str(raised.value) == NO_FORM.format(place)


def test_so_is_that_of_a_key_which_is_none():
    with pytest.raises(TypeError, match=r"a key is a text or a number, unlike \(1, 2\) - at `\$.a`"):
        python_types.encode({"b": {1: 2}, "a": {"x": 1, (1, 2): 3}})


def test_what_fails_for_another_reason_is_not_the_place():
    def encode(value):
        if value == "odd":
            raise ValueError(value)
        raise TypeError("no form")

    assert str(with_place(TypeError("no form"), ["odd", 2], encode)) == "no form - at `$[1]`"


def test_what_comes_back_to_itself_does_not_hide_the_place():
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(TypeError) as raised:
        python_types.encode({"a": Lock(), "b": circle})
    assert str(raised.value) == NO_FORM.format("$.a")


def test_params_are_called_so():
    with pytest.raises(TypeError) as raised:
        encode_notification("notifications/x", {"a": [Lock()]})
    assert str(raised.value) == NO_FORM.format("params.a[0]")


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (float("nan"), "nan; .* at `\\$`"),
        ({"a": [1.0, float("inf")]}, "inf; .* at `\\$.a\\[1\\]`"),
        (Struct(of=float("-inf")), "-inf; .* at `\\$.of`"),
    ],
)
def test_a_number_is_found_that_json_does_not_have(value, place):
    assert re.search(place, find_non_finite(value) or "")


def test_none_is_found_where_all_are_finite_even_in_a_circle():
    circle: dict[str, Any] = {"a": 1.5}
    circle["b"] = circle
    assert find_non_finite(circle) is None
