"""Rows for classes: pydantic models, dataclasses, TypedDicts, attrs classes, Structs, and their fields."""

import dataclasses
import datetime as dt
import decimal
import enum
import uuid
from typing import Annotated, Any, ClassVar, Generic, Literal, Self, TypeVar

import annotated_types as at
import attrs
import msgspec
import pydantic as p
import pydantic.dataclasses
import typing_extensions as te
from pydantic.alias_generators import to_camel
from type_rows import Row

T = TypeVar("T")


class Item(p.BaseModel):
    name: str
    count: int = 1


class Bounded(p.BaseModel):
    n: Annotated[int, p.Field(ge=1, le=9, description="how many")]
    tags: list[Annotated[str, p.Field(max_length=3)]] = p.Field(default_factory=list, max_length=2)


class Described(p.BaseModel):
    """A thing with a text."""

    name: str = p.Field(description="its name", examples=["a"])
    when: dt.datetime | None = p.Field(None, title="When")


class Documented(p.BaseModel):
    model_config = p.ConfigDict(use_attribute_docstrings=True)

    name: str
    """The name of it."""


class Aliased(p.BaseModel):
    max_size: int = p.Field(alias="maxSize")
    old: str = p.Field("x", validation_alias=p.AliasChoices("old", "older"))


class Camel(p.BaseModel):
    model_config = p.ConfigDict(alias_generator=to_camel, validate_by_name=True, validate_by_alias=True)

    first_name: str
    last_name: str = ""


class Strict(p.BaseModel):
    model_config = p.ConfigDict(strict=True, extra="forbid")

    n: int
    s: str = ""


class Extra(p.BaseModel):
    model_config = p.ConfigDict(extra="allow")

    n: int


class TypedExtra(p.BaseModel):
    model_config = p.ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, int]


class Frozen(p.BaseModel):
    model_config = p.ConfigDict(frozen=True, str_strip_whitespace=True, str_max_length=5)

    s: str


class SchemaExtra(p.BaseModel):
    model_config = p.ConfigDict(json_schema_extra={"x-kind": "thing"}, title="A thing")

    n: int


class Validated(p.BaseModel):
    low: int
    high: int

    @p.field_validator("low")
    @classmethod
    def even(cls, value: int) -> int:
        if value % 2:
            raise ValueError("odd")
        return value

    @p.model_validator(mode="after")
    def ordered(self) -> Self:
        if self.low > self.high:
            raise ValueError("low is above high")
        return self


class Prepared(p.BaseModel):
    n: int

    @p.model_validator(mode="before")
    @classmethod
    def wrap(cls, data: Any) -> Any:
        return {"n": data} if isinstance(data, int) else data


class Computed(p.BaseModel):
    width: int
    height: int = 2

    @p.computed_field
    @property
    def area(self) -> int:
        return self.width * self.height


class Numbers(p.RootModel[list[int]]):
    pass


class Names(p.RootModel[dict[str, Item]]):
    """Items by name."""


class Box(p.BaseModel, Generic[T]):
    value: T
    label: str = ""


class Node(p.BaseModel):
    name: str
    children: list["Node"] = []


class Linked(p.BaseModel):
    value: int
    next: "Linked | None" = None


class Base(p.BaseModel):
    id: uuid.UUID


class Derived(Base):
    price: decimal.Decimal = decimal.Decimal("1.5")
    kind: ClassVar[str] = "derived"
    _secret: int = p.PrivateAttr(7)


class Outer(p.BaseModel):
    item: Item
    items: list[Item] = []
    by_name: dict[str, Item] = {}
    maybe: Item | None = None


@dataclasses.dataclass
class Data:
    name: str
    count: int = 1


@dataclasses.dataclass
class BoundedData:
    """A thing.

    Args:
        s: a name
    """

    n: Annotated[int, at.Ge(1)]
    s: str
    when: dt.datetime
    m: int = dataclasses.field(default=3, metadata={"description": "m is"})


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class KeywordData:
    tags: list[str] = dataclasses.field(default_factory=list)
    n: int = p.Field(2, ge=1, description="how many")


@dataclasses.dataclass
class CheckedData:
    n: int

    def __post_init__(self):
        if self.n < 5:
            raise ValueError("too small")


@dataclasses.dataclass
class Hidden:
    n: int
    made: int = dataclasses.field(init=False, default=9)


@dataclasses.dataclass
class TreeData:
    name: str
    children: list["TreeData"] = dataclasses.field(default_factory=list)


@pydantic.dataclasses.dataclass
class Even:
    n: int

    @p.field_validator("n")
    @classmethod
    def even(cls, value: int) -> int:
        if value % 2:
            raise ValueError("odd")
        return value


@pydantic.dataclasses.dataclass(config=p.ConfigDict(extra="forbid"))
class Configured:
    n: int = p.Field(gt=0)


class Movie(te.TypedDict):
    title: str
    year: int


class PartialMovie(te.TypedDict, total=False):
    title: te.Required[str]
    year: int


class OptionalMovie(te.TypedDict):
    title: str
    year: te.NotRequired[Annotated[int, p.Field(ge=1888, description="its year")]]


class Mixed(te.TypedDict):
    """What a thing has."""

    n: Annotated[int, p.Field(ge=1, le=9, description="how many")]
    s: Annotated[str, "a name"]
    when: dt.datetime
    choice: Literal["b", "a"]


class ReadOnlyMovie(te.TypedDict):
    title: te.ReadOnly[str]


@p.with_config(p.ConfigDict(extra="forbid"))
class ClosedMovie(te.TypedDict):
    title: str


class Verdict(te.TypedDict):
    reasoning: str
    answer: str


class Branch(te.TypedDict):
    name: str
    parts: "list[Branch]"


@attrs.define
class Attr:
    name: str
    count: int = 1


@attrs.define
class CheckedAttr:
    n: int = attrs.field(validator=attrs.validators.ge(5))


@attrs.define
class BoundedAttr:
    n: Annotated[int, at.Ge(1)]
    tags: list[str] = attrs.field(factory=list, metadata={"description": "its tags"})


@attrs.frozen(kw_only=True)
class ConvertedAttr:
    n: int = attrs.field(converter=int)
    _private: str = "x"
    aliased: int = attrs.field(default=0, alias="other")


@attrs.define
class OuterAttr:
    inner: BoundedAttr
    more: list[Attr] = attrs.field(factory=list)


class Struct(msgspec.Struct):
    name: str
    count: int = 1


class BoundedStruct(msgspec.Struct):
    n: Annotated[int, "how many", at.Ge(1)]


class MetaStruct(msgspec.Struct):
    n: Annotated[int, msgspec.Meta(ge=1, description="how many")]
    s: Annotated[str, msgspec.Meta(max_length=3, pattern="^a")] = "a"


class RenamedStruct(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    max_size: int
    tags: list[str] = []


class ArrayStruct(msgspec.Struct, array_like=True):
    x: int
    y: int = 0


class OuterStruct(msgspec.Struct):
    inner: BoundedStruct
    more: list[Struct] = []


class State(enum.Enum):
    OPEN = "open"
    CLOSED = "closed"


class Ticket(p.BaseModel):
    state: State = State.OPEN
    priority: Literal["low", "high"] = "low"
    due: p.FutureDate | None = None
    owner: p.SecretStr | None = None
    url: p.HttpUrl | None = None


ITEM = {"name": "a", "count": 2}
MOVIE = {"title": "a", "year": 2000}
MIXED = {"n": 1, "s": "", "when": "2026-01-01T00:00:00Z", "choice": "a"}
BOUNDED = {"n": 1, "s": "", "when": "2026-01-01T00:00:00Z"}
ID = "16fd2706-8baf-433b-82eb-8c7fada847da"

ROWS = [
    # pydantic models
    Row("model", Item, [ITEM, {"name": "a"}, '{"name": "a"}', {"name": "a", "x": 1}], [{}, {"name": 5}, "x", 5, None]),
    Row("model | None = None", Item | None, [ITEM, None], ["x", {}], default=None),
    Row("model with a default", Item, [ITEM], [{}], default=Item(name="b")),
    Row("list of models", list[Item], [[], [ITEM]], [[{}], ITEM]),
    Row("dict of models", dict[str, Item], [{"a": ITEM}], [{"a": {}}]),
    Row("dict of lists of models", dict[str, list[Item]], [{"a": [ITEM]}], [{"a": ITEM}]),
    Row("model with bounds", Bounded, [{"n": 1}, {"n": 9, "tags": ["abc"]}], [{"n": 0}, {"n": 10}, {"n": 1, "tags": ["abcd"]}, {"n": 1, "tags": ["a", "b", "c"]}]),
    Row("model with descriptions", Described, [{"name": "a", "when": "2026-01-01T00:00:00Z"}], [{"name": "a", "when": "x"}]),
    Row("model with attribute docstrings", Documented, [{"name": "a"}], [{}]),
    Row("model with aliases", Aliased, [{"maxSize": 1}, {"maxSize": 1, "older": "y"}], [{"max_size": 1}]),
    Row("model with generated aliases", Camel, [{"firstName": "a"}, {"first_name": "a"}], [{}]),
    Row("model that is strict", Strict, [{"n": 1}], [{"n": 1, "x": 2}, {"n": "x"}]),
    Row("model with extra fields", Extra, [{"n": 1, "x": [2]}], [{}]),
    Row("model with typed extra fields", TypedExtra, [{"a": 1}], [{"a": "x"}]),
    Row("model that is frozen", Frozen, [{"s": " a "}], [{"s": "abcdef"}]),
    Row("model with a schema extra", SchemaExtra, [{"n": 1}], [{}]),
    Row("model with validators", Validated, [{"low": 2, "high": 3}], [{"low": 1, "high": 3}, {"low": 4, "high": 3}]),
    Row("model with a before validator", Prepared, [{"n": 1}, 5], [{"n": "x"}]),
    Row("model with a computed field", Computed, [{"width": 3}], [{}]),
    Row("root model", Numbers, [[1, 2]], [["x"], {}]),
    Row("root model of a dict", Names, [{"a": ITEM}], [{"a": {}}]),
    Row("generic model", Box[int], [{"value": 1}], [{"value": "x"}]),
    Row("generic model of a model", Box[Item], [{"value": ITEM}], [{"value": {}}]),
    Row("two generic models", tuple[Box[int], Box[str]], [[{"value": 1}, {"value": "a"}]], [[{"value": "a"}, {"value": "a"}]]),
    Row("recursive model", Node, [{"name": "a", "children": [{"name": "b"}]}], [{"name": "a", "children": [{}]}]),
    Row("recursive model | None", Node | None, [{"name": "a"}, None], [{}], default=None),
    Row("list of recursive models", list[Node], [[{"name": "a", "children": [{"name": "b"}]}]], [[{"name": "a", "children": [{}]}]]),
    Row("linked model", Linked, [{"value": 1, "next": {"value": 2, "next": None}}], [{"value": 1, "next": {}}]),
    Row("derived model", Derived, [{"id": ID}, {"id": ID, "price": "2.5"}], [{"id": "x"}, {}]),
    Row("nested models", Outer, [{"item": ITEM, "items": [ITEM], "by_name": {"x": ITEM}, "maybe": None}], [{"item": {}}, {"item": ITEM, "items": [{}]}]),
    Row("model with many kinds of fields", Ticket, [{}, {"state": "closed", "due": "2999-01-01", "owner": "x", "url": "https://a.example/"}], [{"state": "x"}, {"due": "2020-01-01"}, {"url": "x"}]),
    Row("model with a description", Annotated[Item, p.Field(description="a thing")], [ITEM], [{}]),
    # Dataclasses
    Row("dataclass", Data, [ITEM, {"name": "a"}], [{}, {"name": 5}, "x"]),
    Row("dataclass | None = None", Data | None, [ITEM, None], [{}], default=None),
    Row("list of dataclasses", list[Data], [[ITEM]], [[{}]]),
    Row("dataclass with bounds", BoundedData, [BOUNDED, {**BOUNDED, "m": 4}], [{**BOUNDED, "n": -5}, {**BOUNDED, "when": "x"}]),
    Row("dataclass with keywords", KeywordData, [{}, {"n": 1, "tags": ["a"]}], [{"n": 0}]),
    Row("dataclass that checks", CheckedData, [{"n": 5}], [{"n": 1}]),
    Row("dataclass with a field that is not set", Hidden, [{"n": 1}], [{}]),
    Row("recursive dataclass", TreeData, [{"name": "a", "children": [{"name": "b"}]}], [{"name": "a", "children": [{}]}]),
    Row("pydantic dataclass", Even, [{"n": 2}], [{"n": 3}, {}]),
    Row("pydantic dataclass with a config", Configured, [{"n": 1}], [{"n": 0}, {"n": 1, "x": 2}]),
    Row("list of pydantic dataclasses", list[Even], [[{"n": 2}]], [[{"n": 3}]]),
    # TypedDicts
    Row("TypedDict", Movie, [MOVIE], [{}, {"title": "a"}, {"title": 5, "year": 1}, "x"]),
    Row("TypedDict that is partial", PartialMovie, [{"title": "a"}, MOVIE], [{"year": 1}]),
    Row("TypedDict with NotRequired", OptionalMovie, [{"title": "a"}, MOVIE], [{"title": "a", "year": 1}]),
    Row("TypedDict with bounds", Mixed, [MIXED], [{**MIXED, "n": -5}, {**MIXED, "when": "x"}, {**MIXED, "choice": "c"}]),
    Row("TypedDict with ReadOnly", ReadOnlyMovie, [{"title": "a"}], [{}]),
    Row("TypedDict that is closed", ClosedMovie, [{"title": "a"}], [{"title": "a", "x": 1}]),
    Row("TypedDict in an order", Verdict, [{"reasoning": "a", "answer": "b"}], [{"reasoning": "a"}]),
    Row("TypedDict | None = None", Movie | None, [MOVIE, None], [{}], default=None),
    Row("list of TypedDicts", list[Movie], [[MOVIE]], [[{}]]),
    Row("recursive TypedDict", Branch, [{"name": "a", "parts": [{"name": "b", "parts": []}]}], [{"name": "a", "parts": [{}]}]),
    # attrs classes
    Row("attrs class", Attr, [ITEM, {"name": "a"}], [{}, {"name": 5}, "x"]),
    Row("attrs class | None = None", Attr | None, [ITEM, None], [{}], default=None),
    Row("list of attrs classes", list[Attr], [[ITEM]], [[{}]]),
    Row("attrs class with a validator", CheckedAttr, [{"n": 5}], [{"n": 1}]),
    Row("attrs class with bounds", BoundedAttr, [{"n": 1, "tags": ["a"]}], [{"n": -5}]),
    Row("attrs class with converters and aliases", ConvertedAttr, [{"n": 1}, {"n": 1, "private": "y", "other": 2}], [{}]),
    Row("attrs class in an attrs class", OuterAttr, [{"inner": {"n": 1}, "more": [ITEM]}], [{"inner": {"n": 0}}]),
    # msgspec Structs
    Row("Struct", Struct, [ITEM, {"name": "a"}], [{}, {"name": 5}, "x"]),
    Row("Struct | None = None", Struct | None, [ITEM, None], [{}], default=None),
    Row("list of Structs", list[Struct], [[ITEM]], [[{}]]),
    Row("Struct with bounds", BoundedStruct, [{"n": 1}], [{"n": -5}]),
    Row("Struct with msgspec.Meta", MetaStruct, [{"n": 1}, {"n": 1, "s": "abc"}], [{"n": 0}, {"n": 1, "s": "abcd"}, {"n": 1, "s": "b"}]),
    Row("Struct with renamed fields", RenamedStruct, [{"maxSize": 1, "tags": ["a"]}], [{"max_size": 1}, {"maxSize": 1, "x": 1}]),
    Row("Struct like an array", ArrayStruct, [[1, 2], [1]], [["x"]]),
    Row("Struct in a Struct", OuterStruct, [{"inner": {"n": 1}, "more": [ITEM]}], [{"inner": {"n": 0}}]),
]  # fmt: skip
