"""How pydantic reads what clients give, and what mcpbus adds: classes of other libraries, texts of models, sentences, limits."""

import datetime as dt
import enum
import json
import time
import tracemalloc
from dataclasses import InitVar, dataclass, field
from pathlib import PurePosixPath
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    TypedDict,
    TypeVar,
    Union,
)

import annotated_types as at
import attrs
import msgspec
import pytest
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    StrictInt,
    condecimal,
    confloat,
    conint,
)
from typing_extensions import TypeAliasType

from mcpbus import Context, RegistrationError, Server
from mcpbus.features.arguments import InvalidArgumentsError
from mcpbus.features.schemas.listing import CHANGES, normalize
from mcpbus.features.tool import tool
from mcpbus.testing import open_client

T = TypeVar("T")


def arguments_of(annotation: Any, *default: Any):
    def function(value: Any) -> None: ...

    function.__annotations__ = {"value": annotation}
    if default:
        function.__defaults__ = default
    return tool(function).arguments


def read(annotation: Any, value: Any, *, strict: bool = False) -> Any:
    arguments = arguments_of(annotation)
    arguments = arguments.strictly() if strict else arguments
    return arguments.decode(json.dumps({"value": value}).encode())["value"]


def refusal(annotation: Any, value: Any) -> str:
    with pytest.raises(InvalidArgumentsError) as refused:
        read(annotation, value)
    return str(refused.value)


class Unit(enum.Enum):
    METRE = "m"
    MILE = "mi"


class Point(TypedDict):
    """A point.

    Attributes:
        y: Upwards.
    """

    x: Annotated[int, Field(ge=0), "To the right."]
    y: int
    name: NotRequired[Annotated[str, at.MinLen(2)]]


@dataclass
class Circle:
    """A circle.

    :param radius: From the middle.
    """

    middle: Point
    radius: Annotated[float, at.Gt(0)]
    scale: InitVar[int] = 1
    tags: list[str] = field(default_factory=list, metadata={"description": "Words."})

    def __post_init__(self, scale: int) -> None:
        self.radius *= scale


@attrs.define
class Square:
    """A square.

    Parameters
    ----------
    side
        Of each.
    """

    side: Annotated[int, at.Le(9)] = attrs.field(validator=attrs.validators.ge(1))
    _color: str = attrs.field(default="red", metadata={"description": "Inside."})
    corners: list[Point] = attrs.field(factory=list)


class Line(msgspec.Struct, tag="line", rename="camel", forbid_unknown_fields=True):
    start_at: Annotated[int, msgspec.Meta(ge=1, description="Where it starts.")]
    end_at: int | msgspec.UnsetType = msgspec.UNSET
    where: PurePosixPath = PurePosixPath("/x")
    next_line: "Line | None" = None


class Pair(msgspec.Struct, array_like=True):
    left: int
    right: Annotated[int, at.Gt(0)] = 1


class Size(NamedTuple):
    width: Annotated[int, at.Ge(1), "Across."]
    unit: Unit = Unit.METRE


class Page(msgspec.Struct, Generic[T]):
    items: list[T]


@attrs.define
class Box(Generic[T]):
    content: T


class Tree(TypedDict):
    children: "list[Tree]"


RECORDS = [
    (Point, {"x": 1, "y": -2}, {"x": 1, "y": -2}, {"x": -1, "y": 2}),
    (Point, {"x": 1, "y": 2, "name": "ab"}, {"x": 1, "y": 2, "name": "ab"}, {"x": 1, "y": 2, "name": "a"}),
    (
        Circle,
        {"middle": {"x": 1, "y": 2}, "radius": 2, "scale": 3},
        Circle({"x": 1, "y": 2}, 6.0),
        {"middle": {"x": -1, "y": 2}, "radius": 2},
    ),
    (Square, {"side": 3, "color": "blue"}, Square(3, "blue"), {"side": 0}),
    (Square, {"side": 3, "corners": [{"x": 0, "y": 0}]}, Square(3, "red", [{"x": 0, "y": 0}]), {"side": 10}),
    (Line, {"type": "line", "startAt": 2}, Line(2), {"type": "line", "startAt": 0}),
    (
        Line,
        {"type": "line", "startAt": 2, "endAt": 3, "nextLine": {"type": "line", "startAt": 4}},
        Line(2, 3, next_line=Line(4)),
        {"type": "line", "startAt": 2, "other": 1},
    ),
    (Line, {"type": "line", "startAt": 2}, Line(2), {"startAt": 2}),
    (Pair, [1, 2], Pair(1, 2), [1, 0]),
    (Pair, [1], Pair(1), []),
    (Size, [3, "mi"], Size(3, Unit.MILE), [0, "mi"]),
    (Size, [3], Size(3), [3, "cm"]),
    (Page[int], {"items": [1]}, Page([1]), {"items": ["a"]}),
    (Box[Point], {"content": {"x": 1, "y": 2}}, Box({"x": 1, "y": 2}), {"content": {"x": -1, "y": 2}}),
    (Tree, {"children": [{"children": []}]}, {"children": [{"children": []}]}, {"children": [{}]}),
]


@pytest.mark.parametrize(("kind", "given", "value", "bad"), RECORDS)
@pytest.mark.parametrize("inside", [False, True])
def test_classes_of_every_library_are_read_by_their_fields(kind, given, value, bad, inside):
    annotation = dict[str, kind] if inside else kind
    wrap = (lambda each: {"a": each}) if inside else (lambda each: each)
    assert read(annotation, wrap(given)) == wrap(value)
    refusal(annotation, wrap(bad))


@pytest.mark.parametrize("kind", [Circle, Square, Line, Point, Size])
def test_a_class_is_as_it_was_once_its_schema_is_built(kind):
    arguments_of(list[kind])
    assert not [name for name in vars(kind) if "pydantic" in name]


def test_fields_are_listed_with_their_descriptions_and_bounds():
    shown = arguments_of(Circle | Square | Line | Size).document["$defs"]
    assert shown["Point"]["description"] == "A point."
    assert shown["Point"]["properties"]["x"] == {
        "type": "integer",
        "description": "To the right.",
        "minimum": 0,
    }
    assert shown["Point"]["properties"]["y"]["description"] == "Upwards."
    assert shown["Circle"]["description"] == "A circle."
    assert shown["Circle"]["properties"]["radius"]["description"] == "From the middle."
    assert shown["Circle"]["properties"]["radius"]["exclusiveMinimum"] == 0
    assert shown["Circle"]["properties"]["tags"] == {
        "type": "array",
        "description": "Words.",
        "items": {"type": "string"},
        "default": [],
    }
    assert shown["Square"]["description"] == "A square."
    assert shown["Square"]["properties"]["side"] == {
        "type": "integer",
        "description": "Of each.",
        "maximum": 9,
    }
    assert shown["Square"]["properties"]["color"]["description"] == "Inside."
    assert shown["Line"]["properties"]["where"] == {"type": "string", "format": "path", "default": "/x"}
    assert shown["Line"]["additionalProperties"] is False
    assert shown["Size"]["prefixItems"][0]["description"] == "Across."
    assert (shown["Size"]["minItems"], shown["Size"]["maxItems"]) == (1, 2)


class Documented(BaseModel):
    """A model.

    Args:
        size: How large.
    """

    size: int
    name: Annotated[str, "A name."] = "x"


def test_a_model_has_the_descriptions_of_its_docstring_and_its_annotations():
    shown = arguments_of(Documented).document["$defs"]["Documented"]
    assert shown["description"] == "A model."
    assert {name: each["description"] for name, each in shown["properties"].items()} == {
        "size": "How large.",
        "name": "A name.",
    }


def test_choices_keep_their_order_though_python_takes_other_orders_for_the_same_type():
    for order in (("b", "a"), ("a", "b"), ("b", "a")):
        choice = Literal[order]
        shown = arguments_of(list[choice] | None).document["properties"]["value"]
        assert shown["anyOf"][0]["items"]["enum"] == list(order)


@pytest.mark.parametrize(
    ("annotation", "given", "value"),
    [
        (int, "5", 5),
        (int, "5.0", 5),
        (float, "1.5", 1.5),
        (bool, "false", False),
        (bool, "yes", True),
        (int | None, "null", None),
        (list[str], '["a"]', ["a"]),
        (list[int], ["1", "2"], [1, 2]),
        (list[int], '["1", 2]', [1, 2]),
        (dict[str, int] | None, '{"a": 1}', {"a": 1}),
        (dict[str, int] | None, "null", None),
        (Point, '{"x": "1", "y": 2}', {"x": 1, "y": 2}),
        (list[Square], '[{"side": 2}]', [Square(2)]),
        (Literal[1, 2], "2", 2),
        (str, "5", "5"),
        (str | None, "null", "null"),
        (int | str, "5", "5"),
        (list[int] | str, "[1]", "[1]"),
        (StrictInt | list[int], "[5]", [5]),
        (dt.date, "2026-07-28", dt.date(2026, 7, 28)),
    ],
)
def test_a_text_is_read_as_the_value_that_it_holds_where_the_schema_allows_no_text(annotation, given, value):
    found = read(annotation, given)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("annotation", "given"),
    [
        (int, "five"),
        (int, '"5"'),
        (int, "true"),
        (StrictInt, "5"),
        (Literal[1, 2], "true"),
        (bool, "2"),
        (list[int], "5"),
        (list[int], ["1", True]),
        (list[int], '["a"]'),
        (Point, "[]"),
        (int, True),
        (float, True),
        (bool, 1),
        (bool, 0.0),
        (str, 5),
        (str, None),
        (list[str], {"a": 1}),
    ],
)
def test_a_text_that_holds_no_such_value_and_other_values_are_refused(annotation, given):
    assert refusal(annotation, given).endswith(
        f"got {msgspec.json.encode(given).decode()}"
    ) or "`value" in refusal(annotation, given)


@pytest.mark.parametrize(
    ("annotation", "given"), [(int, "5"), (bool, "false"), (list[str], '["a"]'), (dt.datetime, 5)]
)
async def test_a_server_with_strict_arguments_takes_only_what_its_schema_allows(annotation, given):
    def function(value: Any) -> str:
        return "ran"

    function.__annotations__["value"] = annotation
    server = Server("strict", strict_arguments=True)
    server.add_tool(function, name="own")
    server.tool(name="plain")(function)
    async with open_client(server) as client:
        for name in ("own", "plain"):
            result = await client.call_tool(name, {"value": given})
            assert result["isError"]
            assert "argument `value`" in result["content"][0]["text"]


def test_a_whole_number_is_an_integer_under_strict_arguments_too():
    assert read(list[int], [5.0, 6], strict=True) == [5, 6]


def test_an_authors_own_validators_see_values_as_pydantic_gives_them():
    seen = []

    def note(value: Any) -> Any:
        seen.append(value)
        return value

    assert read(Annotated[int, BeforeValidator(note)], "5") == 5
    assert read(Annotated[list[int], AfterValidator(note)], ["1"]) == [1]
    assert seen == ["5", [1]]


class Loose(BaseModel):
    model_config = ConfigDict(coerce_numbers_to_str=True)

    name: str


def test_a_model_that_takes_numbers_for_texts_is_as_its_author_wrote_it():
    assert read(Loose, {"name": 5}) == Loose(name="5")


@pytest.mark.parametrize(
    ("annotation", "given", "told"),
    [
        (int, "x", 'argument `value`: Input should be a valid integer, got "x"'),
        (Point, {"x": 1}, "missing required argument `value.y`"),
        (Unit, "cm", "argument `value`: Input should be 'm' or 'mi', got \"cm\""),
        (
            int | list[int],
            {},
            "argument `value`: Input should be a valid integer or: Input should be a valid list, got {}",
        ),
        (list[int], [1, "x", "y"], 'argument `value.1`: Input should be a valid integer, got "x"'),
        (str, ["x" * 200], f'argument `value`: Input should be a valid string, got ["{"x" * 78}…'),
        (Annotated[int | str, Field(ge=1)], "x", "argument `value`: Unable to apply constraint"),
    ],
)
def test_a_refusal_names_the_place_the_rule_and_the_value(annotation, given, told):
    assert refusal(annotation, given).startswith(
        told.removeprefix("argument `value`: ") if "Unable" in told else told
    )


def test_a_refusal_tells_five_places_at_most():
    wrong = {name: [] for name in "abcdef"}
    told = refusal(TypedDict("Six", dict.fromkeys(wrong, int)), wrong)
    assert told.count("argument") == 5
    assert told.endswith("; and more")


def inside(path: str) -> str:
    if ".." in path:
        raise ValueError("leaves the folder")
    return path


def broken(_value: str) -> str:
    raise KeyError("a secret of the server")


async def test_the_text_of_a_validator_goes_to_the_client_and_that_of_a_bug_does_not(caplog):
    server = Server("checks")

    @server.tool
    def read_file(path: Annotated[str, AfterValidator(inside)]) -> str:
        return path

    @server.tool
    def fails(path: Annotated[str, AfterValidator(broken)]) -> str:
        return path

    @server.resource("docs:///{path}")
    def document(path: Annotated[str, AfterValidator(broken)]) -> str:
        return path

    @server.prompt
    def ask(path: Annotated[str, AfterValidator(broken)]) -> str:
        return path

    async with open_client(server) as client:
        refused = await client.call_tool("read_file", {"path": "../x"})
        assert refused["content"][0]["text"].endswith('argument `path`: leaves the folder, got "../x"')
        failed = await client.call_tool("fails", {"path": "x"})
        assert failed["content"][0]["text"] == "Tool fails failed"
        for call in (client.read_resource("docs:///x"), client.get_prompt("ask", {"path": "x"})):
            with pytest.raises(Exception) as error:  # noqa: PT011 - its text is the point
                await call
            assert "secret" not in str(error.value)
    assert "a secret of the server" in caplog.text


@pytest.mark.parametrize(
    "value",
    [["x"] * 100_000, {str(each): "x" for each in range(50_000)}, [[["x"]]] * 50_000],
    ids=["list", "dict", "lists"],
)
def test_a_large_value_that_is_wrong_throughout_takes_little_memory_and_time(value):
    arguments = arguments_of(list[int] | dict[str, int])
    data = msgspec.json.encode({"value": value})
    arguments.strictly()
    tracemalloc.start()
    try:
        started = time.process_time()
        with pytest.raises(InvalidArgumentsError):
            arguments.decode(data)
        assert time.process_time() - started < 3
        assert tracemalloc.get_traced_memory()[1] < 100 * len(data)
    finally:
        tracemalloc.stop()


def test_a_value_nested_too_deeply_is_refused():
    with pytest.raises(InvalidArgumentsError):
        arguments_of(list[Any]).decode(b'{"value":' + b"[" * 5_000 + b"]" * 5_000 + b"}")
    assert read(list[Any], [[[1]]]) == [[[1]]]


def test_a_pattern_may_look_around():
    pattern = Annotated[str, Field(pattern=r"^(?!\.)")]
    assert arguments_of(pattern).document["properties"]["value"] == {"type": "string", "pattern": r"^(?!\.)"}
    assert read(pattern, "a") == "a"
    refusal(Annotated[str, Field(pattern=r"^(?!\.)")], ".a")


UserId = NewType("UserId", int)


def test_a_new_type_is_the_type_that_it_is_of():
    assert read(UserId, "5") == 5
    refusal(UserId, True)


async def test_a_context_may_be_optional():
    server = Server("contexts")

    @server.tool
    async def who(ctx: Context | None = None) -> str:
        return type(ctx).__name__

    async with open_client(server) as client:
        assert (await client.call_tool("who"))["content"][0]["text"] == "Context"


class Priced(BaseModel):
    price: Annotated[float, PlainSerializer(lambda price: f"{price:.2f}", return_type=str)]


async def test_results_are_written_as_their_type_says():
    server = Server("results")

    @server.tool
    def model() -> Priced:
        return Priced(price=1.5)

    @server.tool
    def rounded() -> Annotated[
        float, PlainSerializer(lambda price: round(price, 1)), Field(description="In euros.")
    ]:
        return 1.234

    @server.tool
    def classes() -> list[Circle | Square]:
        return [Circle({"x": 1, "y": 2}, 2.0), Square(3)]

    @server.tool
    def waits() -> dt.timedelta:
        return dt.timedelta(hours=1)

    async with open_client(server) as client:
        listed = {each["name"]: each.get("outputSchema") for each in await client.list_tools()}
        assert listed["model"]["properties"]["price"] == {"type": "string"}
        assert listed["rounded"]["description"] == "In euros."
        results = {name: (await client.call_tool(name)).get("structuredContent") for name in listed}
    assert results == {
        "model": {"price": "1.50"},
        "rounded": 1.2,
        "classes": [
            {"middle": {"x": 1, "y": 2}, "radius": 2.0, "tags": []},
            {"side": 3, "color": "red", "corners": []},
        ],
        "waits": "PT1H",
    }


@pytest.mark.parametrize(
    ("schema", "normal"),
    [
        ({"const": "a"}, {"type": "string", "const": "a"}),
        ({"const": True}, {"type": "boolean", "const": True}),
        ({"enum": ["b", "a"]}, {"type": "string", "enum": ["b", "a"]}),
        ({"enum": [2, 1], "description": "d"}, {"type": "integer", "description": "d", "enum": [2, 1]}),
        (
            {"enum": ["x", 1, None]},
            {
                "anyOf": [
                    {"type": "string", "enum": ["x"]},
                    {"type": "integer", "enum": [1]},
                    {"type": "null"},
                ]
            },
        ),
        ({"type": "integer", "ge": 2, "lt": 9}, {"type": "integer", "minimum": 2, "exclusiveMaximum": 9}),
        ({"type": "array"}, {"type": "array", "items": {}}),
        ({"type": "array", "items": True}, {"type": "array", "items": {}}),
        (
            {"type": "array", "prefixItems": [{"type": "string"}, {"const": 1}]},
            {
                "type": "array",
                "prefixItems": [{"type": "string"}, {"type": "integer", "const": 1}],
                "items": {"anyOf": [{"type": "string"}, {"type": "integer", "const": 1}]},
            },
        ),
        (
            {"$ref": "#/$defs/A", "description": "d", "$defs": {"A": {"type": "object"}, "B": {}}},
            {"type": "object", "description": "d"},
        ),
        (
            {
                "$ref": "#/$defs/A",
                "$defs": {"A": {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}}},
            },
            {
                "type": "object",
                "properties": {"a": {"$ref": "#/$defs/A"}},
                "$defs": {"A": {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}}},
            },
        ),
        ({"properties": {"enum": {"enum": [1]}}}, {"properties": {"enum": {"type": "integer", "enum": [1]}}}),
        (
            {"default": {"enum": [1]}, "examples": [{"const": 1}]},
            {"default": {"enum": [1]}, "examples": [{"const": 1}]},
        ),
    ],
)
def test_a_schema_is_normalized(schema, normal):
    assert normalize(schema) == normal
    assert normalize(normal) == normal


def test_each_change_to_schemas_has_its_source():
    assert all(change.name and change.source for change in CHANGES)


@pytest.mark.parametrize(
    "annotation", [list[int], dict[str, list], tuple[int, str], Literal["a", 1], Circle | Square]
)
def test_a_schema_is_the_same_each_time(annotation):
    assert arguments_of(annotation).schema == arguments_of(annotation).schema


@pytest.mark.parametrize(
    ("annotation", "default", "listed"),
    [
        (dt.timedelta, dt.timedelta(hours=1), "PT1H"),
        (bytes, b"x", "x"),
        (set[str], {"c", "a", "d", "b"}, ["a", "b", "c", "d"]),
        (frozenset[int], frozenset({3, 1}), [1, 3]),
        (float, 0.5, 0.5),
    ],
)
def test_a_default_is_listed_as_a_client_would_send_it(annotation, default, listed):
    arguments = arguments_of(annotation, default)
    assert json.loads(bytes(arguments.schema))["properties"]["value"]["default"] == listed
    given = json.dumps({"value": listed}).encode()
    assert arguments.decode(given)["value"] == arguments.decode(b"{}")["value"] == default


def test_the_functions_of_pydantic_that_make_constraints_are_taken():
    for annotation in (conint(ge=2), confloat(ge=2), condecimal(ge=2)):
        assert read(annotation, 2) == 2
        assert "greater than or equal to 2" in refusal(annotation, 1)


def test_a_recursive_name_that_cannot_be_resolved_is_refused_with_the_class():
    class Lost(TypedDict):
        other: "Nowhere"  # noqa: F821

    with pytest.raises(RegistrationError, match="Lost: an annotation cannot be resolved"):
        arguments_of(Lost)


class Left(BaseModel):
    inner: "Left | Right | None" = None


class Right(BaseModel):
    inner: "Left | Right | None" = None
    size: int = 0


@dataclass
class Leaf:
    inner: "Leaf | Twig | None" = None


@dataclass
class Twig:
    inner: "list[Leaf | Twig] | None" = None
    size: int = 0


class Told(BaseModel):
    kind: Literal["told"] = "told"
    inner: "Annotated[Told | Other, Field(discriminator='kind')] | None" = None


class Other(BaseModel):
    kind: Literal["other"] = "other"
    inner: "Annotated[Told | Other, Field(discriminator='kind')] | None" = None


Nested = TypeAliasType("Nested", "dict[str, Nested] | list[Nested] | int")


def nested(depth, innermost):
    for _ in range(depth):
        innermost = {"inner": innermost}
    return innermost


@pytest.mark.parametrize(
    "annotation", [Left | Right, list[Leaf | Twig] | Leaf | Twig, dict[str, Left | Right]]
)
def test_a_recursive_union_without_a_discriminator_limits_the_depth_of_its_values(annotation):
    for depth in (20, 190):
        started = time.process_time()
        told = refusal(annotation, nested(depth, 5))
        assert time.process_time() - started < 1
        assert "nested at most" in told
    assert "nested at most" not in refusal(annotation, nested(4, 5))


def test_values_of_other_recursive_types_may_be_deep():
    assert read(Nested, nested(100, 1)) == nested(100, 1)
    assert read(Tree, {"children": []}) == {"children": []}
    deep: Any = {"kind": "other"}
    for _ in range(60):
        deep = {"kind": "told", "inner": deep}
    assert isinstance(read(Annotated[Told | Other, Field(discriminator="kind")], deep), Told)
    line: Any = {"type": "line", "startAt": 1}
    for _ in range(60):
        line = {"type": "line", "startAt": 1, "nextLine": line}
    assert isinstance(read(Line | Square, line), Line)


def test_a_recursive_name_outside_of_a_type_alias_is_refused_in_a_sentence():
    recursive = Union[dict[str, "Recursive"], int]  # noqa: F821, UP007
    with pytest.raises(RegistrationError) as refused:
        arguments_of(recursive)
    assert "pydantic.dev" not in str(refused.value)
