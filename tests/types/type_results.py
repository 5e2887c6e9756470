"""The table of return annotations, with a value that a function returns for each."""

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import pathlib
import uuid
from typing import Annotated, Any, Literal, NamedTuple

import attrs
import msgspec
import pydantic as p
import typing_extensions as te
from pydantic.alias_generators import to_camel


@attrs.frozen
class Result:
    """One return annotation with a value that a function returns.

    Attributes:
        annotation: The return annotation.
        value: The value that the function returns.
        structured: The same value as JSON.
    """

    annotation: Any
    value: Any
    structured: Any


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Weather(p.BaseModel):
    """The weather of a day."""

    day: dt.date
    degrees: Annotated[float, p.Field(ge=-100, description="in Celsius")]
    sky: Literal["sunny", "cloudy"] = "sunny"


class Camel(p.BaseModel):
    model_config = p.ConfigDict(alias_generator=to_camel, validate_by_name=True)

    first_name: str


class Computed(p.BaseModel):
    width: int

    @p.computed_field
    @property
    def area(self) -> int:
        return self.width**2


class Node(p.BaseModel):
    name: str
    children: list["Node"] = []


class Numbers(p.RootModel[list[int]]):
    pass


class Serialized(p.BaseModel):
    n: int

    @p.field_serializer("n")
    def as_text(self, value: int) -> str:
        return f"<{value}>"


@dataclasses.dataclass
class City:
    name: str
    people: Annotated[int, p.Field(ge=0, description="how many")] = 0


class Movie(te.TypedDict):
    title: Annotated[str, p.Field(description="its title")]
    year: te.NotRequired[int]


class Verdict(te.TypedDict):
    reasoning: str
    answer: str


class Point(NamedTuple):
    x: int
    y: int


@attrs.define
class Attr:
    name: str
    size: int = 1


class Struct(msgspec.Struct):
    name: str
    size: int = 1


DAY = dt.date(2026, 1, 1)
RAIN = {"day": "2026-01-01", "degrees": 4.5, "sky": "cloudy"}
ID = "16fd2706-8baf-433b-82eb-8c7fada847da"

RESULTS: dict[str, Result] = {
    "int": Result(int, 5, 5),
    "str": Result(str, "a", None),
    "float": Result(float, 1.5, 1.5),
    "bool": Result(bool, True, True),
    "int | None": Result(int | None, None, None),
    "described int": Result(Annotated[int, p.Field(description="how many", ge=0)], 5, 5),
    "described dict": Result(Annotated[dict[str, int], p.Field(description="settings")], {"a": 1}, {"a": 1}),
    "Literal": Result(Literal["yes", "no"], "no", "no"),
    "Enum": Result(Color, Color.RED, "red"),
    "date": Result(dt.date, DAY, "2026-01-01"),
    "datetime": Result(dt.datetime, dt.datetime(2026, 1, 1, tzinfo=dt.UTC), "2026-01-01T00:00:00Z"),
    "timedelta": Result(dt.timedelta, dt.timedelta(hours=1), "PT1H"),
    "UUID": Result(uuid.UUID, uuid.UUID(ID), ID),
    "Decimal": Result(decimal.Decimal, decimal.Decimal("1.50"), "1.50"),
    "Path": Result(pathlib.PurePosixPath, pathlib.PurePosixPath("a/b"), "a/b"),
    "HttpUrl": Result(p.HttpUrl, p.HttpUrl("https://a.example/"), "https://a.example/"),
    "list[int]": Result(list[int], [1, 2], [1, 2]),
    "list[dict]": Result(list[dict], [{"a": 1}], [{"a": 1}]),
    "list[Enum]": Result(list[Color], [Color.BLUE], ["blue"]),
    "tuple[int, str]": Result(tuple[int, str], (1, "a"), [1, "a"]),
    "set[int]": Result(set[int], {1}, [1]),
    "deque[int]": Result(collections.deque[int], collections.deque([1, 2]), [1, 2]),
    "dict": Result(dict, {"a": 1}, {"a": 1}),
    "dict[str, Any]": Result(dict[str, Any], {"a": [None]}, {"a": [None]}),
    "dict[str, date]": Result(dict[str, dt.date], {"a": DAY}, {"a": "2026-01-01"}),
    "dict[Enum, int]": Result(dict[Color, int], {Color.RED: 1}, {"red": 1}),
    "model": Result(Weather, Weather(day=DAY, degrees=4.5, sky="cloudy"), RAIN),
    "model | None": Result(Weather | None, Weather(day=DAY, degrees=4.5, sky="cloudy"), RAIN),
    "described model": Result(Annotated[Weather, p.Field(description="tomorrow")], Weather(day=DAY, degrees=4.5, sky="cloudy"), RAIN),
    "list of models": Result(list[Weather], [Weather(day=DAY, degrees=4.5, sky="cloudy")], [RAIN]),
    "dict of models": Result(dict[str, Weather], {"a": Weather(day=DAY, degrees=4.5, sky="cloudy")}, {"a": RAIN}),
    "model with aliases": Result(Camel, Camel(first_name="a"), {"firstName": "a"}),
    "model with a computed field": Result(Computed, Computed(width=3), {"width": 3, "area": 9}),
    "model with a serializer": Result(Serialized, Serialized(n=3), {"n": "<3>"}),
    "recursive model": Result(Node, Node(name="a", children=[Node(name="b")]), {"name": "a", "children": [{"name": "b", "children": []}]}),
    "root model": Result(Numbers, Numbers([1, 2]), [1, 2]),
    "union of models": Result(Camel | Computed, Computed(width=2), {"width": 2, "area": 4}),
    "model or str": Result(Camel | str, "a", "a"),
    "dataclass": Result(City, City("a", 2), {"name": "a", "people": 2}),
    "list of dataclasses": Result(list[City], [City("a")], [{"name": "a", "people": 0}]),
    "TypedDict": Result(Movie, {"title": "a"}, {"title": "a"}),
    "TypedDict in an order": Result(Verdict, {"reasoning": "b", "answer": "a"}, {"reasoning": "b", "answer": "a"}),
    "list of TypedDicts": Result(list[Movie], [{"title": "a", "year": 1}], [{"title": "a", "year": 1}]),
    "NamedTuple": Result(Point, Point(1, 2), [1, 2]),
    "attrs class": Result(Attr, Attr("a"), {"name": "a", "size": 1}),
    "Struct": Result(Struct, Struct("a"), {"name": "a", "size": 1}),
}  # fmt: skip


def tool_with(row: Result):
    """Return a new function with the row's return annotation, which returns the row's value."""

    async def tool():
        return row.value

    tool.__annotations__ = {"return": row.annotation}
    return tool
