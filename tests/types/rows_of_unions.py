"""Rows for unions: of values, of containers, of classes with and without a discriminator."""

import dataclasses
import datetime as dt
import enum
import pathlib
import uuid
from typing import Annotated, Any, Literal, Optional, Union

import pydantic as p
import typing_extensions as te
from type_rows import Row


class Cat(p.BaseModel):
    kind: Literal["cat"]
    lives: int = 9


class Dog(p.BaseModel):
    kind: Literal["dog"]
    barks: bool = True


class Bird(p.BaseModel):
    kind: Literal["bird"] = "bird"
    wings: int = 2


class Named(p.BaseModel):
    name: str


class Numbered(p.BaseModel):
    number: int


@dataclasses.dataclass
class CatData:
    kind: Literal["cat"]
    lives: int = 9


@dataclasses.dataclass
class DogData:
    kind: Literal["dog"]
    barks: bool = True


class CatDict(te.TypedDict):
    kind: Literal["cat"]
    lives: int


class DogDict(te.TypedDict):
    kind: Literal["dog"]
    barks: bool


class Color(enum.Enum):
    RED = "red"


class Owner(p.BaseModel):
    pet: Cat | Dog = p.Field(discriminator="kind")
    others: list[Annotated[Cat | Dog, p.Field(discriminator="kind")]] = []


class Group(p.BaseModel):
    kind: Literal["group"]
    members: list["Member"]


Member = Annotated[Group | Cat, p.Field(discriminator="kind")]
Group.model_rebuild()


def tag_of(value: Any) -> str | None:
    """Return the tag of a pet by its fields."""
    if isinstance(value, dict):
        return "named" if "name" in value else "numbered"
    return "named" if isinstance(value, Named) else "numbered"


CAT, DOG = {"kind": "cat", "lives": 7}, {"kind": "dog", "barks": False}
PET = Annotated[Cat | Dog, p.Field(discriminator="kind")]
TAGGED = Annotated[
    Annotated[Named, p.Tag("named")] | Annotated[Numbered, p.Tag("numbered")], p.Discriminator(tag_of)
]

ROWS = [
    # Values
    Row("int | str", int | str, [1, "a", "5"], [None, [], 1.5]),
    Row("str | int", str | int, [1, "a"], [None, []]),
    Row("int | float", int | float, [1, 1.5], ["x", None]),
    Row("int | bool", int | bool, [1, True], ["x", None]),
    Row("float | int | None", float | int | None, [1, 1.5, None], ["x"]),
    Row("bool | str", bool | str, [True, "a"], [5]),
    Row("Optional[Union[int, str]]", Optional[Union[int, str]], [1, "a", None], [[]], default=None),  # noqa: UP007, UP045 -- older programs write it so
    Row("date | str", dt.date | str, ["2026-01-01", "x"], [None, []]),
    Row("date | datetime", dt.date | dt.datetime, ["2026-01-01", "2026-01-01T10:00:00Z"], ["x"]),
    Row("str | Path", str | pathlib.Path, ["a"], [5]),
    Row("Path | int", pathlib.Path | int, ["a", 5], [None, []]),
    Row("UUID | str", uuid.UUID | str, ["16fd2706-8baf-433b-82eb-8c7fada847da", "x"], [5]),
    Row("UUID | int", uuid.UUID | int, ["16fd2706-8baf-433b-82eb-8c7fada847da", 5], ["x"]),
    Row("HttpUrl | Path", p.HttpUrl | pathlib.Path, ["https://a.example/", "a/b"], [5]),
    Row("int in bounds | str", Annotated[int, p.Field(ge=1)] | str, [1, "a"], [0]),
    Row("bounded union of numbers", Annotated[int | float, p.Field(le=100)], [100, 1.5], [101, 100.5]),
    Row("bounded union with str and None", Annotated[int | None, p.Field(ge=1)], [1, None], [0], default=None),
    Row("str in lengths or None", Annotated[str | None, p.Field(max_length=3)], ["abc", None], ["abcd"], default=None),
    Row("float in bounds or None", Annotated[float, p.Field(ge=0, le=1)] | None, [0.5, None], [1.5], default=None),
    Row("left to right", Annotated[int | str, p.Field(union_mode="left_to_right")], [1, "a", "5"], [None]),
    # Containers
    Row("list[int] | list[str]", list[int] | list[str], [[1], ["a"]], [[None], "x"]),
    Row("list[int] | tuple[int, int]", list[int] | tuple[int, int], [[1], [1, 2]], [["x"]]),
    Row("str | list[str]", str | list[str], ["a", ["a"], '["a"]'], [5, [5]]),
    Row("list[str] | str", list[str] | str, ["a", ["a"]], [5]),
    Row("int | list[int]", int | list[int], [1, [1]], ["x", ["x"]]),
    Row("dict[str, Any] | str", dict[str, Any] | str, [{"a": 1}, "a"], [5]),
    Row("dict | list", dict | list, [{"a": 1}, [1]], [5, "x"]),
    Row("dict[str, int] | list[int] | None", dict[str, int] | list[int] | None, [{"a": 1}, [1], None], ["x"], default=None),
    Row("set[int] | str", set[int] | str, [[1], "a"], [5]),
    Row("list[int | str | None] | None", list[int | str | None] | None, [[1, "a", None], None], [5]),
    # Classes
    Row("models", Cat | Dog, [CAT, DOG], [{"kind": "cow"}, {}, "x"]),
    Row("models without a tag", Named | Numbered, [{"name": "a"}, {"number": 1}], [{}, {"number": "x"}]),
    Row("models | None = None", Cat | Dog | None, [CAT, None], [{}], default=None),
    Row("models with a discriminator", PET, [CAT, DOG], [{"kind": "cow"}, {}, {"kind": "cat", "lives": "x"}]),
    Row("models with a default tag", Annotated[Cat | Bird, p.Field(discriminator="kind")], [CAT, {"kind": "bird"}], [{"kind": "cow"}]),
    Row("models with a callable discriminator", TAGGED, [{"name": "a"}, {"number": 1}], [{"name": 1}]),
    Row("list of models with a discriminator", list[PET], [[CAT, DOG]], [[{"kind": "cow"}]]),
    Row("dict of models with a discriminator", dict[str, PET], [{"a": CAT}], [{"a": {}}]),
    Row("model with a union inside", Owner, [{"pet": CAT}, {"pet": DOG, "others": [CAT]}], [{"pet": {}}]),
    Row("recursive union", Member, [{"kind": "group", "members": [CAT, {"kind": "group", "members": []}]}], [{"kind": "group", "members": [DOG]}]),
    Row("list of models", list[Cat | Dog], [[CAT, DOG], []], [[{}]]),
    Row("model or str", Cat | str, [CAT, "x"], [5, {}]),
    Row("model or list of models", Cat | list[Cat], [CAT, [CAT]], [{}, [{}]]),
    Row("model or dict", Cat | dict[str, int], [CAT, {"a": 1}], [{"a": "x"}]),
    Row("model or int", Cat | int, [CAT, 5], ["x"]),
    Row("dataclasses", CatData | DogData, [CAT, DOG], [{"kind": "cow"}]),
    Row("dataclasses with a discriminator", Annotated[CatData | DogData, p.Field(discriminator="kind")], [CAT, DOG], [{"kind": "cow"}]),
    Row("dataclass or str", CatData | str, [CAT, "x"], [5]),
    Row("dict or dataclass", dict[str, int] | CatData, [{"a": 1}, CAT], [{"a": "x"}]),
    Row("TypedDicts", CatDict | DogDict, [CAT, DOG], [{"kind": "cow"}]),
    Row("TypedDicts with a discriminator", Annotated[CatDict | DogDict, p.Field(discriminator="kind")], [CAT, DOG], [{"kind": "cow"}]),
    Row("TypedDict or str", CatDict | str, [CAT, "x"], [5]),
    Row("TypedDict or list", CatDict | list[CatDict], [CAT, [CAT]], [{}]),
    Row("model or dataclass or TypedDict", Named | DogData | CatDict, [{"name": "a"}, DOG, CAT], [{}]),
    Row("Enum or date or int", Color | dt.date | int, ["red", "2026-01-01", 5], ["x"]),
    Row("list of unions by text", "list[int | str]", [[1, "a"]], [[None]]),
]  # fmt: skip
