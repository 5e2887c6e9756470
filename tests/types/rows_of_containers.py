"""Rows for containers: bare, with items, nested, with bounds, and the abstract ones."""

import collections
import datetime as dt
import typing as t
from collections.abc import (
    Collection,
    Iterable,
    Mapping,
    MutableMapping,
    MutableSequence,
    MutableSet,
    Sequence,
)
from collections.abc import Set as AbstractSet
from typing import Annotated, Any, Literal, NamedTuple
from uuid import UUID

import annotated_types as at
import pydantic as p
import typing_extensions as te
from type_rows import Row

Alias = te.TypeAliasType("Alias", list[int])
T = te.TypeVar("T")
Pair = te.TypeAliasType("Pair", tuple[T, T], type_params=(T,))
Tree = te.TypeAliasType("Tree", "dict[str, Tree] | int")


class Point(NamedTuple):
    x: int
    y: int = 0


class Bounded(NamedTuple):
    n: Annotated[int, at.Ge(1)]
    s: Annotated[str, p.Field(max_length=3, description="a short text")] = "a"


ROWS = [
    # Lists
    Row("list", list, [[], [1, "a", None]], ["x", 5, None, {}]),
    Row("list[Any]", list[Any], [[], [1, "a"]], ["x", None]),
    Row("list[int]", list[int], [[], [1, 2], "[1]"], [["x"], [None], "x", 5]),
    Row("list[str]", list[str], [["a"], '["a"]'], [[1], "x", None]),
    Row("list[dict]", list[dict], [[{}], [{"a": 1}]], [[1], ["x"]]),
    Row("list[dict[str, Any]]", list[dict[str, Any]], [[{"a": None}]], [[[]]]),
    Row("list[list[float]]", list[list[float]], [[[1.5], []]], [[1.5], [["x"]]]),
    Row("list[list]", list[list], [[[], [1]]], [[1]]),
    Row("list[int | str]", list[int | str], [[1, "a"]], [[None], [[]]]),
    Row("list[int | None]", list[int | None], [[1, None]], [["x"]]),
    Row("list[Literal]", list[Literal["b", "a"]], [["a", "b"]], [["c"]]),
    Row("list[date]", list[dt.date], [["2026-01-01"]], [["x"]]),
    Row("list with lengths", Annotated[list[int], p.Field(min_length=1, max_length=2)], [[1], [1, 2]], [[], [1, 2, 3]]),
    Row("list of bounded items", list[Annotated[int, p.Field(ge=1)]], [[1]], [[0]]),
    Row("list of described items", list[Annotated[str, p.Field(description="a tag", max_length=3)]], [["abc"]], [["abcd"]]),
    Row("conlist", p.conlist(int, min_length=1), [[1]], [[]]),
    Row("list = []", list[int], [[1]], ["x"], default=[]),
    Row("list | None = None", list[str] | None, [["a"], None], [[1], "x"], default=None),
    Row("list[dict] | None = None", list[dict] | None, [[{}], None], [[1]], default=None),
    Row("list with FailFast", Annotated[list[int], p.FailFast()], [[1]], [["x", "y"]]),
    Row("list with OnErrorOmit", list[p.OnErrorOmit[int]], [[1, "x", 2]], ["x"]),
    # Tuples
    Row("tuple", tuple, [[], [1, "a"]], ["x", None]),
    Row("tuple[int, int]", tuple[int, int], [[1, 2]], [[1], [1, 2, 3], ["x", 1]]),
    Row("tuple[int, ...]", tuple[int, ...], [[], [1, 2, 3]], [["x"]]),
    Row("tuple[()]", tuple[()], [[]], [[1]]),
    Row("tuple[str, int | None]", tuple[str, int | None], [["a", None]], [["a"]]),
    Row("tuple[float, float] | None", tuple[float, float] | None, [[1.5, 2], None], [[1]], default=None),
    Row("list[tuple[str, int]]", list[tuple[str, int]], [[["a", 1]]], [[["a"]]]),
    Row("NamedTuple", Point, [[1, 2], [1]], [["x", 1], [1, 2, 3]]),
    Row("NamedTuple with bounds", Bounded, [[1, "abc"]], [[0], [1, "abcd"]]),
    Row("list of NamedTuples", list[Point], [[[1, 2]]], [[["x"]]]),
    # Sets
    Row("set", set, [[], [1, "a"]], ["x", None]),
    Row("set[str]", set[str], [["a", "b"], ["a", "a"]], [[1]]),
    Row("frozenset[int]", frozenset[int], [[1, 2]], [["x"]]),
    Row("frozenset", frozenset, [[1]], ["x"]),
    Row("set with a default", set[str], [["a"]], [[1]], default={"c", "a", "d", "b"}),
    Row("conset", p.conset(int, max_length=2), [[1, 2]], [[1, 2, 3]]),
    Row("confrozenset", p.confrozenset(int, min_length=1), [[1]], [[]]),
    Row("set with lengths", Annotated[set[int], p.Field(min_length=2)], [[1, 2]], [[1]]),
    # Mappings
    Row("dict", dict, [{}, {"a": [1]}, '{"a": 1}'], ["x", [], None]),
    Row("dict[str, Any]", dict[str, Any], [{"a": None}], ["x", []]),
    Row("dict[str, int]", dict[str, int], [{}, {"a": 1}], [{"a": "x"}, []]),
    Row("dict[str, list]", dict[str, list], [{"a": []}], [{"a": 1}]),
    Row("dict[str, list[int]]", dict[str, list[int]], [{"a": [1]}], [{"a": ["x"]}]),
    Row("dict[int, str]", dict[int, str], [{"1": "a"}], [{"x": "a"}]),
    Row("dict[UUID, int]", dict[UUID, int], [{"16fd2706-8baf-433b-82eb-8c7fada847da": 1}], [{"x": 1}]),
    Row("dict[date, int]", dict[dt.date, int], [{"2026-01-01": 1}], [{"x": 1}]),
    Row("dict[Literal, int]", dict[Literal["b", "a"], int], [{"a": 1}], [{"c": 1}]),
    Row("dict of bounded keys", dict[Annotated[str, p.Field(pattern="^[a-z]+$")], int], [{"a": 1}], [{"A": 1}]),
    Row("dict with lengths", Annotated[dict[str, int], p.Field(min_length=1, max_length=2)], [{"a": 1}], [{}]),
    Row("dict of bounded values", dict[str, Annotated[int, at.Ge(0)]], [{"a": 0}], [{"a": -1}]),
    Row("dict[str, int] | None = None", dict[str, int] | None, [{"a": 1}, None, "null"], [[]], default=None),
    Row("dict[str, dict[str, list[int | None]]]", dict[str, dict[str, list[int | None]]], [{"a": {"b": [None, 1]}}], [{"a": {"b": ["x"]}}]),
    Row("OrderedDict", collections.OrderedDict[str, int], [{"b": 1, "a": 2}], [{"a": "x"}]),
    Row("defaultdict", collections.defaultdict[str, int], [{"a": 1}], [{"a": "x"}]),
    Row("defaultdict[str, list[int]]", collections.defaultdict[str, list[int]], [{"a": [1]}], [{"a": 1}]),
    Row("Counter", collections.Counter[str], [{"a": 2}], [{"a": "x"}]),
    Row("Mapping", Mapping[str, int], [{"a": 1}], [{"a": "x"}]),
    Row("Mapping bare", Mapping, [{"a": "x"}], [5]),
    Row("MutableMapping", MutableMapping[str, str], [{"a": "b"}], [{"a": 1}]),
    # Abstract containers
    Row("Iterable[int]", Iterable[int], [[1, 2]], [5, None]),
    Row("Collection[int]", Collection[int], [[1]], [["x"], 5]),
    Row("Sequence[str]", Sequence[str], [["a"]], [[1], "a"]),
    Row("Sequence[int]", Sequence[int], [[1]], [["x"]]),
    Row("Sequence bare", Sequence, [[1]], [5]),
    Row("MutableSequence", MutableSequence[int], [[1]], [["x"]]),
    Row("Set[int]", AbstractSet[int], [[1]], [["x"]]),
    Row("MutableSet", MutableSet[int], [[1]], [["x"]]),
    Row("deque[int]", collections.deque[int], [[1, 2]], [["x"]]),
    Row("deque with a length", Annotated[collections.deque[int], p.Field(max_length=2)], [[1]], [["x"]]),
    Row("t.List[t.Dict[str, t.Optional[int]]]", t.List[t.Dict[str, t.Optional[int]]], [[{"a": None}]], [[{"a": "x"}]]),  # noqa: UP006, UP045 -- older programs write these
    Row("t.Sequence[t.Tuple[int, str]]", t.Sequence[t.Tuple[int, str]], [[[1, "a"]]], [[["a", 1]]]),  # noqa: UP006
    # Aliases
    Row("TypeAliasType", Alias, [[1]], [["x"]]),
    Row("TypeAliasType with a parameter", Pair[int], [[1, 2]], [[1, "x"]]),
    Row("TypeAliasType that is recursive", Tree, [1, {"a": {"b": 2}}], [{"a": "x"}, "x"]),
    Row("list of an alias", list[Alias], [[[1]]], [[1]]),
    Row("alias or None", Alias | None, [[1], None], ["x"], default=None),
    # JSON
    Row("JsonValue", p.JsonValue, [None, 1, "a", [1, {"a": None}]], []),
    Row("list[JsonValue]", list[p.JsonValue], [[1, "a", None]], ["x"]),
    Row("dict[str, JsonValue]", dict[str, p.JsonValue], [{"a": [1]}], [[]]),
    Row("Json", p.Json, ["[1]", '{"a": 1}'], ["x", 5]),
    Row("Json[list[int]]", p.Json[list[int]], ["[1]"], ['["x"]', "x"]),
    Row("Annotated[list[int] | str]", Annotated[list[int] | str, p.Field(min_length=1)], [[1], "a"], [[], ""]),
    Row("Annotated twice", Annotated[Annotated[list[int], p.Field(min_length=1)], p.Field(max_length=2)], [[1]], [[], [1, 2, 3]]),
]  # fmt: skip
