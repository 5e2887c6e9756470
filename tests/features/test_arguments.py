"""From a signature to a schema, and from JSON to arguments."""

import contextlib
import dataclasses
import datetime as dt
import enum
import functools
import inspect
import itertools
import math
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypedDict, TypeVar
from uuid import UUID

import annotated_types
import attrs
import msgspec
import pydantic
import pytest

from mcpbus import Depends, Server
from mcpbus.core.context import Context
from mcpbus.core.sync_context import SyncContext
from mcpbus.features.arguments import InvalidArgumentsError
from mcpbus.features.errors import RegistrationError
from mcpbus.features.tool import tool
from mcpbus.testing import open_client

KEYWORD = inspect.Parameter.KEYWORD_ONLY
T = TypeVar("T")


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(TypedDict):
    x: int
    y: int


@dataclasses.dataclass
class Node:
    value: int
    children: "list[Node]" = dataclasses.field(default_factory=list)


@attrs.define
class Box:
    width: float


class Span(msgspec.Struct):
    start: int
    end: int


class Address(pydantic.BaseModel):
    street: str


class Home(pydantic.BaseModel):
    name: str


class Person(pydantic.BaseModel):
    name: str = pydantic.Field(min_length=2)
    home: Address


DECIMAL = {"anyOf": [{"type": "number"}, {"type": "string"}]}


def made(annotation: Any, *default: Any) -> Any:
    def function(value: Any) -> None: ...

    function.__annotations__ = {"value": annotation}
    if default:
        function.__defaults__ = default
    return tool(function)


@pytest.mark.parametrize(
    ("annotation", "schema", "good", "value", "bad"),
    [
        (str, {"type": "string"}, '"a"', "a", "1"),
        (int, {"type": "integer"}, "3", 3, '"three"'),
        (float, {"type": "number"}, "3", 3.0, "true"),
        (bool, {"type": "boolean"}, "true", True, "1"),
        (list[int], {"type": "array", "items": {"type": "integer"}}, "[1]", [1], '["one"]'),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}, "null", None, '"a"'),
        (Literal["b", "a"], {"type": "string", "enum": ["b", "a"]}, '"b"', "b", '"c"'),
        (Colour, {"$ref": "#/$defs/Colour"}, '"red"', Colour.RED, '"green"'),
        (Point, {"$ref": "#/$defs/Point"}, '{"x":1,"y":2}', {"x": 1, "y": 2}, '{"x":1}'),
        (Node, {"$ref": "#/$defs/Node"}, '{"value":1}', Node(1), '{"value":1,"children":[{}]}'),
        (Box, {"$ref": "#/$defs/Box"}, '{"width":1.5}', Box(1.5), '{"width":null}'),
        (Span, {"$ref": "#/$defs/Span"}, '{"start":1,"end":2}', Span(1, 2), "[1,2]"),
        (Path, {"type": "string", "format": "path"}, '"a/b"', Path("a/b"), "1"),
        (list[Path], {"type": "array", "items": {"type": "string", "format": "path"}}, "[]", [], "[null]"),
        (
            Annotated[dt.datetime, msgspec.Meta(tz=True)],
            {"type": "string", "format": "date-time"},
            '"2026-07-28T12:00:00Z"',
            dt.datetime(2026, 7, 28, 12, tzinfo=dt.UTC),
            '"noon"',
        ),
        (
            dt.datetime,
            {"type": "string", "format": "date-time"},
            '"2026-07-28T12:00:00"',
            dt.datetime(2026, 7, 28, 12),  # noqa: DTZ001 - it is for one without
            '"noon"',
        ),
        (
            list[Annotated[dt.datetime, "When"]],
            {"type": "array", "items": {"type": "string", "format": "date-time", "description": "When"}},
            '["2026-07-28T12:00:00Z"]',
            [dt.datetime(2026, 7, 28, 12, tzinfo=dt.UTC)],
            '["noon"]',
        ),
        (
            Annotated[dt.datetime, msgspec.Meta(tz=False)],
            {"type": "string", "format": "date-time"},
            '"2026-07-28T12:00:00"',
            dt.datetime(2026, 7, 28, 12),  # noqa: DTZ001 - as above
            '"2026-07-28T12:00:00Z"',
        ),
        (dt.date, {"type": "string", "format": "date"}, '"2026-07-28"', dt.date(2026, 7, 28), '"28.7."'),
        (UUID, {"type": "string", "format": "uuid"}, f'"{UUID(int=7)}"', UUID(int=7), '"7"'),
        (Decimal, DECIMAL, '"1.10"', Decimal("1.10"), '"a"'),
        (Any, {}, '{"a":[1]}', {"a": [1]}, None),
        (Annotated[int, msgspec.Meta(ge=1)], {"type": "integer", "minimum": 1}, "1", 1, "0"),
        (Annotated[int, "How many"], {"type": "integer", "description": "How many"}, "1", 1, "true"),
        (
            Annotated[int, pydantic.Field(ge=1, description="Many")],
            {"type": "integer", "minimum": 1, "description": "Many"},
            "1",
            1,
            "0",
        ),
        (
            list[Annotated[str, pydantic.Field(max_length=2)]],
            {"type": "array", "items": {"type": "string", "maxLength": 2}},
            '["ab"]',
            ["ab"],
            '["abc"]',
        ),
    ],
)
def test_a_type_becomes_a_schema_and_a_decoder_that_agree(annotation, schema, good, value, bad):
    arguments = made(annotation).arguments
    assert arguments.document["properties"]["value"] == schema
    assert arguments.document["type"] == "object"
    assert arguments.decode(f'{{"value":{good}}}'.encode()) == {"value": value}
    if bad is not None:
        with pytest.raises(InvalidArgumentsError, match="`value"):
            arguments.decode(f'{{"value":{bad}}}'.encode())


async def described_by_defaults(
    name: str = pydantic.Field(min_length=2, description="Who"),
    many: Annotated[int, "How many"] = pydantic.Field(3, ge=1),
    tags: list[str] = pydantic.Field(default_factory=list),  # noqa: B008 - so its users write it
    note: str | None = pydantic.Field(None),
) -> None: ...


def test_a_field_of_pydantic_may_stand_where_the_default_does():
    arguments = tool(described_by_defaults).arguments
    assert arguments.document["required"] == ["name"]
    properties = arguments.document["properties"]
    assert properties["name"] == {"type": "string", "minLength": 2, "description": "Who"}
    assert properties["many"] == {"type": "integer", "minimum": 1, "description": "How many", "default": 3}
    assert (properties["tags"]["default"], properties["note"]["default"]) == ([], None)
    assert arguments.decode(b'{"name":"Ada"}') == {"name": "Ada", "many": 3, "tags": [], "note": None}
    for bad in (b'{"name":"A"}', b'{"name":"Ada","many":0}', b"{}"):
        with pytest.raises(InvalidArgumentsError):
            arguments.decode(bad)


@pytest.mark.parametrize(
    ("annotation", "field", "schema"),
    [
        (str, pydantic.Field(..., alias_priority=1), {"type": "string"}),
        (int, pydantic.Field(3, gt=0, deprecated=True), {"deprecated": True, "exclusiveMinimum": 0}),
        (
            int,
            pydantic.Field(json_schema_extra={"x-unit": "m"}, lt=9),
            {"x-unit": "m", "exclusiveMaximum": 9},
        ),
        (
            Annotated[str, pydantic.Field(description="Inner", max_length=3)],
            pydantic.Field("a", description="Outer"),
            {"description": "Outer", "maxLength": 3, "default": "a"},
        ),
        (
            str | None,
            pydantic.Field(None, max_length=3, description="Who"),
            {"description": "Who", "anyOf": [{"type": "string", "maxLength": 3}, {"type": "null"}]},
        ),
        (Annotated[int, pydantic.Field(default=3)], inspect.Parameter.empty, {"default": 3}),
        (Annotated[int, pydantic.Field(default=3)], 5, {"default": 5}),
    ],
)
def test_all_that_a_field_says_is_told(annotation, field, schema):
    async def described(value): ...

    described.__annotations__ = {"value": annotation}
    described.__signature__ = inspect.Signature([inspect.Parameter("value", KEYWORD, default=field)])
    document = tool(described).arguments.document
    told = document["properties"]["value"]
    assert told | schema == told
    assert ("default" in told) is ("value" not in document.get("required", ()))


async def test_who_asks_for_a_prompt_or_a_resource_without_an_argument_gets_the_default_of_its_field():
    server = Server("fields")

    @server.prompt
    async def greet(
        names: list[str] = pydantic.Field(default_factory=list),  # noqa: B008 - so its users write it
        end: str = pydantic.Field("!"),
    ) -> str:
        names.append("a")
        return f"{names}{end}"

    @server.resource("notes://{name}{?size}")
    async def note(name: str, size: Annotated[int, pydantic.Field(default=3)]) -> str:
        return f"{name} {size}"

    async with open_client(server) as client:
        for _ in range(2):
            assert (await client.get_prompt("greet"))[0]["content"]["text"] == "['a']!"
        assert (await client.read_resource("notes://a"))[0]["text"] == "a 3"


async def test_what_the_factory_of_a_field_makes_is_made_for_each_call_and_told_to_nobody():
    server, made = Server("factories"), itertools.count()

    @server.tool
    @server.prompt
    @server.resource("numbers://{end}{?number}")
    async def numbers(
        end: str,
        number: Annotated[int, pydantic.Field(ge=0, description="Which", default_factory=lambda: next(made))],
    ) -> str:
        return f"{number}{end}"

    schema = tool(numbers).arguments.document
    assert schema["required"] == ["end"]
    assert schema["properties"]["number"] == {"type": "integer", "minimum": 0, "description": "Which"}
    seen = []
    async with open_client(server) as client:
        for given in ({}, {}, {"number": 7}):
            result = await client.call_tool("numbers", {"end": "!", **given})
            seen.append(result["content"][0]["text"])
        seen.append((await client.get_prompt("numbers", {"end": "?"}))[0]["content"]["text"])
        seen.append((await client.read_resource("numbers://."))[0]["text"])
    assert seen == ["0!", "1!", "7!", "2?", "3."]


async def test_what_a_factory_raises_the_call_has_raised(caplog):
    server = Server("factories")

    @server.tool
    async def never(number: int = pydantic.Field(default_factory=lambda: 1 // 0)) -> int:
        return number

    async with open_client(server) as client:
        assert (await client.call_tool("never"))["isError"]
        assert (await client.call_tool("never", {"number": 1}))["content"][0]["text"] == "1"
    assert caplog.records[0].exc_info[0] is ZeroDivisionError


async def test_middleware_sees_what_was_given_and_nothing_in_the_place_of_the_rest():
    seen = []

    async def look(invocation, call_next):
        seen.append(invocation.arguments)
        return await call_next(invocation)

    server = Server("factories", middleware=[look])

    @server.tool
    async def add(a: int, b: int = pydantic.Field(default_factory=lambda: 2)) -> int:
        return a + b

    async with open_client(server) as client:
        assert (await client.call_tool("add", {"a": 1}))["content"][0]["text"] == "3"
    assert seen == [{"a": 1}]


def test_nobody_fills_a_field_of_what_is_depended_on():
    def connect(size: int = pydantic.Field(4)): ...
    async def act(connection: Annotated[object, Depends(connect)]): ...

    with pytest.raises(RegistrationError, match="nobody fills its parameter 'size'"):
        tool(act)


class Size(enum.IntEnum):
    ONE = 1


class Shape(msgspec.Struct, tag="shape", rename="camel"):
    corner_count: int


class Line(msgspec.Struct, tag="line"):
    length: float


@pytest.mark.parametrize(
    ("annotation", "given", "value"),
    [
        (int, "5.0", 5),
        (int, "5e2", 500),
        (int, "-0.0", 0),
        (int, "9007199254740991.0", 2**53 - 1),
        (int | None, "5.0", 5),
        (int | str, "5.0", 5),
        (Literal[1, 2], "2.0", 2),
        (Size, "1.0", Size.ONE),
        (Annotated[int, msgspec.Meta(ge=1)], "5.0", 5),
        (list[int], "[1,2.0,3.0]", [1, 2, 3]),
        (tuple[int, float], "[2.0,3.0]", (2, 3.0)),
        (dict[str, int], '{"a":5.0}', {"a": 5}),
        (dict[int, int], '{"1":5.0}', {1: 5}),
        (Point, '{"x":1.0,"y":2}', {"x": 1, "y": 2}),
        (Node, '{"value":1.0,"children":[{"value":2.0}]}', Node(1, [Node(2)])),
        (Shape | Line, '{"type":"shape","cornerCount":5.0}', Shape(5)),
        (list[Shape | Line], '[{"type":"line","length":5.0}]', [Line(5.0)]),
        (float, "5.0", 5.0),
        (int | float, "5.0", 5.0),
        (Any, "[5.0]", [5.0]),
    ],
)
def test_a_number_without_a_fraction_is_an_integer_however_it_is_written(annotation, given, value):
    found = made(annotation).arguments.decode(f'{{"value":{given}}}'.encode())["value"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("annotation", "given"),
    [
        (int, "5.5"),
        (int, "true"),
        (int, '"5.5"'),
        (int, "1e300"),
        (int, "1e400"),
        (int, "9007199254740993.0"),
        (int, "[" + "5.0," * 20_000 + "5.0]"),
        (Annotated[int, msgspec.Meta(ge=6)], "5.0"),
        (Literal[1, 2], "3.0"),
        (Size, "2.0"),
        (bool, "1.0"),
        (str, "5.0"),
        (list[int], "[5.0,5.5]"),
    ],
)
def test_any_other_number_is_none(annotation, given):
    with pytest.raises(InvalidArgumentsError):
        made(annotation).arguments.decode(f'{{"value":{given}}}'.encode())


def test_what_else_is_wrong_is_told_where_an_integer_has_a_point():
    with pytest.raises(InvalidArgumentsError, match='argument `b`: Input should be a valid integer, got "x"'):
        tool(add).arguments.decode(b'{"a":5.0,"b":"x"}')


def test_a_number_without_a_fraction_is_an_integer_under_a_schema_by_hand():
    schema = {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}}}

    def function(point: Point) -> None: ...

    arguments = tool(function, input_schema=schema).arguments
    assert arguments.decode(b'{"x":1.0,"y":2.0}') == {"point": {"x": 1, "y": 2}}


def test_pydantic_models_are_validated_by_pydantic_and_their_definitions_are_found_from_the_root():
    arguments = made(Person).arguments
    assert arguments.document["properties"]["value"] == {"$ref": "#/$defs/Person"}
    shown = arguments.document["$defs"]["Person"]
    assert shown["properties"]["home"] == {"$ref": "#/$defs/Address"}
    assert arguments.document["$defs"]["Address"]["properties"]["street"]["type"] == "string"
    good = arguments.decode(b'{"value":{"name":"Ada","home":{"street":"Main"}}}')
    assert good == {"value": Person(name="Ada", home=Address(street="Main"))}
    with pytest.raises(
        InvalidArgumentsError, match=r'`value\.name`: String should have at least 2 characters, got "A"'
    ) as refused:
        arguments.decode(b'{"value":{"name":"A","home":{"street":"Main"}}}')
    assert "pydantic.dev" not in str(refused.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (b"{}", "missing required argument `city` (string)"),
        (b'{"city":1}', "argument `city`: Input should be a valid string, got 1"),
        (b'{"city":"x","days":"a"}', 'argument `days`: Input should be a valid integer, got "a"'),
        (b'{"city":"x","dais":3}', "unknown argument `dais`; expected `city`, `days`, `spot`"),
        (b'{"city":"x","spot":{"x":1}}', "missing required argument `spot.y`"),
        (
            b'{"city":"x","spot":{"x":1,"y":[2]}}',
            "argument `spot.y`: Input should be a valid integer, got [2]",
        ),
    ],
)
def test_a_refusal_names_the_argument_and_what_was_expected(arguments, message):
    def forecast(city: str, days: int = 3, spot: Point | None = None) -> None: ...

    with pytest.raises(InvalidArgumentsError) as refused:
        tool(forecast).arguments.decode(arguments)
    assert str(refused.value) == message


def test_defaults_are_in_the_schema_and_one_call_never_sees_what_another_did_to_them():
    def function(tags: list[str] = ["a"], colour: Colour = Colour.RED) -> None: ...  # noqa: B006

    arguments = tool(function).arguments
    assert arguments.document["properties"]["tags"]["default"] == ["a"]
    assert arguments.document["properties"]["colour"]["default"] == "red"
    assert "required" not in arguments.document
    first = arguments.decode(b"{}")
    first["tags"].append("b")
    assert arguments.decode(b"{}") == {"tags": ["a"], "colour": Colour.RED}


class Word(str):
    __slots__ = ()


@pytest.mark.parametrize(
    ("annotation", "default", "told"),
    [
        (Path, Path("notes"), "notes"),
        (tuple[Path, ...], (Path("a"), Path("b")), ["a", "b"]),
        (Home, Home(name="Ann"), {"name": "Ann"}),
        (str, Word("said"), "said"),
        (dt.timedelta, dt.timedelta(seconds=3), "PT3S"),
    ],
)
def test_a_default_of_any_type_that_an_argument_may_have_is_told_and_given(annotation, default, told):
    arguments = made(annotation, default).arguments
    assert msgspec.json.decode(arguments.schema)["properties"]["value"]["default"] == told
    assert arguments.decode(b"{}") == {"value": default}


@pytest.mark.parametrize(
    ("annotation", "default"), [(float, math.inf), (float | None, -math.inf), (list[float], [1.0, math.inf])]
)
def test_clients_are_not_told_null_for_a_default_that_is_no_number_to_json(annotation, default):
    arguments = made(annotation, default).arguments
    assert "default" not in msgspec.json.decode(arguments.schema)["properties"]["value"]
    assert arguments.decode(b"{}") == {"value": default}


def test_one_call_never_sees_what_another_did_to_a_default_that_is_an_object():
    arguments = made(Node, Node("root")).arguments
    arguments.decode(b"{}")["value"].children.append(Node("leaf"))
    assert arguments.decode(b"{}") == {"value": Node("root")}


async def with_context(ctx: Context, a: int) -> None: ...
def plain_with_context(a: int, ctx: SyncContext) -> None: ...


@pytest.mark.parametrize("function", [with_context, plain_with_context])
def test_the_context_is_not_an_argument(function):
    assert list(tool(function).arguments.document["properties"]) == ["a"]


class Derived(Context):
    """Nobody makes one."""


async def takes_sync(ctx: SyncContext) -> None: ...
def takes_async(ctx: Context) -> None: ...
async def takes_derived(ctx: Derived) -> None: ...
async def takes_two(a: Context, b: Context) -> None: ...
def takes_any(*args: int) -> None: ...
def takes_named(**kwargs: int) -> None: ...
def takes_positional(a: int, /) -> None: ...
def takes_unresolved(a: "Nowhere") -> None: ...  # noqa: F821
def takes_lock(a: functools.partial) -> None: ...
def takes_impossible(a: Annotated[int, pydantic.Field(pattern="(")]) -> None: ...
def takes_inner_alias(a: list[Annotated[str, pydantic.Field(alias="from")]]) -> None: ...
def takes_inner_default(a: list[Annotated[str, pydantic.Field("x")]]) -> None: ...
def takes_function(a: dict[str, Annotated[str, len]]) -> None: ...
def takes_marker(a: list[Annotated[str, object()]]) -> None: ...
def takes_type(a: type[int]) -> None: ...
def takes_zone(a: Annotated[dt.datetime, annotated_types.Timezone("Europe/Oslo")]) -> None: ...
def takes_made(a: str = pydantic.Field(default_factory=str.title)) -> None: ...
async def generates(a: int) -> Any:
    yield a


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (takes_sync, "annotate Context"),
        (takes_async, "annotate SyncContext, or write async def"),
        (takes_derived, "parameter 'ctx': its type has no JSON form: pydantic cannot validate .*Derived"),
        (takes_two, "the context twice"),
        (takes_any, r"'\*args: int' cannot be given by name"),
        (takes_named, "cannot be given by name"),
        (takes_positional, "cannot be given by name"),
        (takes_unresolved, "Nowhere.*TYPE_CHECKING"),
        (takes_lock, "parameter 'a': its type has no JSON form"),
        (takes_impossible, "parameter 'a'"),
        (takes_made, "parameter 'a': the default_factory of a Field takes no arguments"),
        (takes_inner_alias, "parameter 'a': alias has an effect only on a parameter or field itself"),
        (takes_inner_default, "parameter 'a': a default has an effect only on a parameter or field itself"),
        (
            takes_function,
            r"parameter 'a': a bare function in Annotated has no effect; write AfterValidator\(len\)",
        ),
        (takes_marker, "parameter 'a': no validator enforces <object object"),
        (takes_type, "parameter 'a': no JSON value is a type"),
        (takes_zone, "parameter 'a': no validator enforces Timezone"),
        (generates, "generator"),
        (lambda: None, "tool '<lambda>': a name is"),
        (3, "it is not a function"),
    ],
)
def test_what_cannot_be_served_is_refused_at_registration(function, message):
    with pytest.raises(RegistrationError, match=message):
        tool(function)


@pytest.mark.parametrize("name", ["", "a b", "a/b", "ä", "x" * 65, "a\n"])
def test_a_name_that_some_client_would_refuse_is_refused(name):
    with pytest.raises(RegistrationError, match="a name is 1 to 64"):
        tool(with_context, name=name)


@pytest.mark.parametrize("timeout", [0, -1, float("nan")])
def test_a_timeout_is_a_time(timeout):
    with pytest.raises(RegistrationError, match="positive number of seconds"):
        tool(with_context, timeout=timeout)


class Adder:
    """Adds."""

    async def __call__(self, a: int) -> int:
        return a


def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def test_callable_objects_methods_and_partials_are_functions_too():
    assert tool(Adder()).arguments.document["required"] == ["a"]
    assert tool(functools.partial(add, 1), name="inc").arguments.document["required"] == ["b"]
    assert tool(functools.partial(add, 1)).name == "add"
    assert tool(functools.partial(add, 1)).description == "Add."
    assert tool(Adder()).function.signature.asynchronous


def test_a_refusal_does_not_grow_with_the_call():
    hand_written = tool(lambda arguments: None, name="t", input_schema={"type": "object", "maxProperties": 0})
    for arguments in (tool(add).arguments, hand_written.arguments):
        with pytest.raises(InvalidArgumentsError) as refused:
            arguments.decode(b'{"%b":1}' % (b"x" * 100_000))
        assert len(str(refused.value)) <= 1000


@pytest.mark.parametrize(
    "value", ["[" * 5000 + "]" * 5000, "1" + "0" * 400, "-1e400", '"\\ud800"', "1e999999"]
)
def test_hostile_values_are_admitted_or_refused_and_never_raise_anything_else(value):
    text = f'{{"value":{value}}}'.encode()
    hand_written = tool(
        lambda arguments: None,
        name="t",
        input_schema={"type": "object", "properties": {"value": {"maximum": 5}}},
    )
    for arguments in (made(Any).arguments, hand_written.arguments):
        with contextlib.suppress(InvalidArgumentsError):
            arguments.decode(text)


class Page(pydantic.BaseModel, Generic[T]):
    items: list[T]


class Branch(pydantic.BaseModel):
    twigs: list["Branch"] = []


def test_generic_and_recursive_models_have_definitions_that_resolve():
    import jsonschema_rs

    for model, good in ((Page[Address], {"items": [{"street": "a"}]}), (Branch, {"twigs": [{"twigs": []}]})):
        document = made(model).arguments.document
        jsonschema_rs.validator_for(document).validate({"value": good})
        assert not jsonschema_rs.validator_for(document).is_valid({"value": {"items": 1, "twigs": 1}})
