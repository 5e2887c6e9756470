"""Rows for generic classes, inheritance, tagged Structs, validators of attrs, and annotations in several layers."""

import collections
import dataclasses
import datetime as dt
import enum
import ipaddress
import pathlib
import zoneinfo
from collections.abc import Callable, Hashable, Sequence
from typing import Annotated, Any, Final, Generic, Literal, NamedTuple, Optional, TypeVar

import annotated_types as at
import attrs
import msgspec
import pydantic as p
import typing_extensions as te
from type_rows import Row

T = TypeVar("T")
Id = Annotated[int, p.Field(ge=1, description="an id")]


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Aliased(enum.Enum):
    FIRST = 1
    ALSO_FIRST = 1  # noqa: PIE796 -- the second name of a value
    SECOND = 2


class Ratio(float, enum.Enum):
    HALF = 0.5
    WHOLE = 1.5


@dataclasses.dataclass
class Pair(Generic[T]):
    first: T
    second: T


class Wrapped(te.TypedDict, Generic[T]):
    value: T
    more: te.NotRequired[list[T]]


@attrs.define
class Cell(Generic[T]):
    value: T


class Slot(msgspec.Struct, Generic[T]):
    value: T


class Base(te.TypedDict):
    id: Id


class Derived(Base, total=False):
    name: Annotated[str, p.Field(min_length=1)]


@dataclasses.dataclass
class Animal:
    name: str


@dataclasses.dataclass
class Horse(Animal):
    speed: Annotated[float, at.Gt(0)] = 1.5
    legs: Final[int] = 4


@dataclasses.dataclass
class Made:
    n: int
    extra: dataclasses.InitVar[int] = 1

    def __post_init__(self, extra: int):
        self.n += extra


@attrs.define
class Parent:
    id: Id


@attrs.define
class Child(Parent):
    size: str = attrs.field(default="s", validator=attrs.validators.in_(["s", "m"]))
    code: str = attrs.field(default="a1", validator=attrs.validators.matches_re("[a-z][0-9]"))
    when: dt.date | None = attrs.field(
        default=None, validator=attrs.validators.optional(attrs.validators.instance_of(dt.date))
    )


@attrs.define
class PostInit:
    low: int
    high: int

    def __attrs_post_init__(self):
        if self.low > self.high:
            raise ValueError("low is above high")


class Get(msgspec.Struct, tag="get"):
    key: str


class Put(msgspec.Struct, tag="put"):
    key: str
    value: int = 0


class Numbered(msgspec.Struct, tag_field="kind", tag=7):
    key: str


class Checked(msgspec.Struct):
    n: int

    def __post_init__(self):
        if self.n < 0:
            raise ValueError("is negative")


class Sparse(msgspec.Struct):
    n: int | msgspec.UnsetType = msgspec.UNSET
    tags: list[str] = msgspec.field(default_factory=list, name="labels")


class Kind(enum.StrEnum):
    A = "a"
    B = "b"


class ByEnumA(p.BaseModel):
    kind: Literal[Kind.A]
    x: int = 0


class ByEnumB(p.BaseModel):
    kind: Literal[Kind.B]
    y: int = 0


class Two(p.BaseModel):
    kind: Literal["c", "d"]


class Inner(p.BaseModel):
    step: Annotated[ByEnumA | ByEnumB, p.Field(discriminator="kind")]


class EnumValues(p.BaseModel):
    model_config = p.ConfigDict(use_enum_values=True)

    color: Color = Color.RED


class Wrap(p.BaseModel):
    n: int

    @p.model_validator(mode="wrap")
    @classmethod
    def check(cls, data: Any, handler: p.ModelWrapValidatorHandler["Wrap"]) -> "Wrap":
        made = handler(data)
        if made.n > 5:
            raise ValueError("too large")
        return made


class Numbers(p.BaseModel):
    model_config = p.ConfigDict(coerce_numbers_to_str=True, str_to_lower=True)

    s: str


class Schedule(p.BaseModel):
    days: set[Literal["mon", "tue"]] = p.Field(min_length=1)
    at: dt.time | None = p.Field(None, description="when")
    zone: zoneinfo.ZoneInfo = zoneinfo.ZoneInfo("UTC")
    limits: dict[Kind, tuple[Id, Id]] = {}


class Segment(NamedTuple):
    start: tuple[float, float]
    color: Color = Color.RED


PAIR = {"first": 1, "second": 2}

ROWS = [
    # Generic classes
    Row("generic dataclass", Pair[int], [PAIR], [{"first": 1, "second": "x"}]),
    Row("generic dataclass of a union", Pair[int | None], [{"first": 1, "second": None}], [{"first": "x", "second": None}]),
    Row("generic TypedDict", Wrapped[int], [{"value": 1, "more": [2]}], [{"value": "x"}, {"value": 1, "more": ["x"]}]),
    Row("generic attrs class", Cell[int], [{"value": 1}], [{"value": "x"}]),
    Row("generic Struct", Slot[int], [{"value": 1}], [{"value": "x"}]),
    Row("list of generic dataclasses", list[Pair[Color]], [[{"first": "red", "second": "blue"}]], [[{"first": "red", "second": "x"}]]),
    # Inheritance
    Row("derived TypedDict", Derived, [{"id": 1}, {"id": 1, "name": "a"}], [{}, {"id": 0}, {"id": 1, "name": ""}]),
    Row("derived dataclass", Horse, [{"name": "a"}, {"name": "a", "speed": 2}], [{"speed": 2}, {"name": "a", "speed": 0}]),
    Row("dataclass with InitVar", Made, [{"n": 1}, {"n": 1, "extra": 2}], [{}, {"n": 1, "extra": "x"}]),
    Row("derived attrs class", Child, [{"id": 1}, {"id": 1, "size": "m", "when": "2026-01-01"}], [{"id": 0}, {"id": 1, "size": "x"}, {"id": 1, "code": "11"}]),
    Row("attrs class that checks", PostInit, [{"low": 1, "high": 2}], [{"low": 3, "high": 2}]),
    # Structs
    Row("tagged Struct", Get, [{"type": "get", "key": "a"}], [{"type": "put", "key": "a"}, {"key": 5}]),
    Row("tagged Structs", Get | Put, [{"type": "get", "key": "a"}, {"type": "put", "key": "a", "value": 2}], [{"type": "x", "key": "a"}, {"key": "a"}]),
    Row("Struct with a number for a tag", Numbered, [{"kind": 7, "key": "a"}], [{"kind": 8, "key": "a"}]),
    Row("Struct that checks", Checked, [{"n": 1}], [{"n": -1}]),
    Row("Struct with UNSET", Sparse, [{}, {"n": 1, "labels": ["a"]}], [{"n": "x"}, {"labels": [1]}]),
    Row("Struct or str", Checked | str, [{"n": 1}, "a"], [5]),
    # Models
    Row("models with an enum for a tag", Annotated[ByEnumA | ByEnumB, p.Field(discriminator="kind")], [{"kind": "a"}, {"kind": "b", "y": 1}], [{"kind": "c"}, {"kind": "b", "y": "x"}]),
    Row("models with two values of a tag", Annotated[ByEnumA | Two, p.Field(discriminator="kind")], [{"kind": "a"}, {"kind": "d"}], [{"kind": "b"}]),
    Row("model with a discriminator inside", Inner, [{"step": {"kind": "a", "x": 1}}], [{"step": {"kind": "x"}}]),
    Row("model with values of enums", EnumValues, [{}, {"color": "blue"}], [{"color": "x"}]),
    Row("model with a wrap validator", Wrap, [{"n": 5}], [{"n": 6}]),
    Row("model that makes texts of numbers", Numbers, [{"s": "A"}], [{"s": [1]}]),
    Row("model of a schedule", Schedule, [{"days": ["mon"]}, {"days": ["mon", "tue"], "at": "10:00:00", "zone": "Europe/Oslo", "limits": {"a": [1, 2]}}], [{"days": []}, {"days": ["sun"]}, {"days": ["mon"], "zone": "x"}, {"days": ["mon"], "limits": {"a": [0, 2]}}]),
    Row("list of discriminated unions | None", list[Annotated[ByEnumA | ByEnumB, p.Field(discriminator="kind")]] | None, [[{"kind": "a"}], None], [[{"kind": "x"}]], default=None),
    Row("NamedTuple of a tuple", Segment, [[[1, 2], "blue"], [[0, 0.5]]], [[[1]], [[1, 2], "x"]]),
    # Enumerations
    Row("Enum with two names for a value", Aliased, [1, 2], [3]),
    Row("float and Enum", Ratio, [0.5, 1.5], [2, "x"]),
    Row("frozenset[Enum]", frozenset[Color], [["red"]], [["x"]]),
    Row("dict[Enum, list[Enum]]", dict[Color, list[Color]], [{"red": ["blue"]}], [{"red": ["x"]}, {"x": []}]),
    # Layers
    Row("NewType of a bounded int", te.NewType("Age", Id), [1], [0]),
    Row("bounds in an alias", Id, [1], [0]),
    Row("bounds inside and outside", Annotated[Optional[Id], p.Field(description="maybe")], [1, None], [0], default=None),  # noqa: UP045 -- older programs write it so
    Row("bounds of a tuple", Annotated[tuple[int, ...], at.Len(1, 2)], [[1], [1, 2]], [[], [1, 2, 3]]),
    Row("bounds of a dict and of its values", Annotated[dict[str, Id], p.Field(max_length=2)], [{"a": 1}], [{"a": 0}]),
    Row("bounds of a set in a list", list[Annotated[set[Id], p.Field(min_length=1)]], [[[1]]], [[[]], [[0]]]),
    Row("set of tuples", set[tuple[int, int]], [[[1, 2]]], [[[1]]]),
    Row("Sequence of dataclasses", Sequence[Pair[int]], [[PAIR]], [[{}]]),
    Row("deque of models", collections.deque[Two], [[{"kind": "c"}]], [[{"kind": "x"}]]),
    Row("described date | None", Annotated[dt.date | None, p.Field(description="when")], ["2026-01-01", None], ["x"], default=None),
    Row("described path", Annotated[pathlib.PurePosixPath, "where"], ["a"], [5]),
    Row("IP addresses", ipaddress.IPv4Address | ipaddress.IPv6Address, ["127.0.0.1", "::1"], ["x"]),
    Row("ZoneInfo", zoneinfo.ZoneInfo, ["Europe/Oslo"], ["Nowhere/Land", 5]),
    Row("Optional of a list of Optional", Optional[list[Optional[int]]], [[1, None], None], [["x"]]),  # noqa: UP045
    Row("text of an annotation", "int | None", [1, None], ["x"], default=None),
    # No types for JSON
    Row("range", range, [], [], refused="range"),
    Row("Callable", Callable[[int], str], [], [], refused="allable"),
    Row("type", type[int], [], [], refused="type"),
    Row("Hashable", Hashable, [1, "a"], [[1]]),
    Row("marker of another library", Annotated[int, object()], [], [], refused="no validator enforces"),
    Row("validator of attrs on a parameter", Annotated[int, attrs.validators.ge(5)], [], [], refused="validator"),
]  # fmt: skip
