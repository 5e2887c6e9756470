"""Forms: what a client is shown of a type or a schema, what is refused, and what comes back."""

import datetime as dt
import enum
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict

import attrs
import msgspec
import pydantic
import pytest

from mcpbus.asking import AcceptedElicitation, ChoiceTitles, Elicit, InvalidInputError
from mcpbus.features.input_requests.forms import make_form
from mcpbus.protocol.revisions import LATEST, REVISIONS


class Size(enum.Enum):
    """A docstring that no user is to see."""

    SMALL = "small"
    MEDIUM = "medium"
    LARGE = "large"


SIZES = ["small", "medium", "large"]

ONE_FIELD = [
    (str, {"type": "string"}, "x", "x"),
    (int, {"type": "integer"}, 3, 3),
    (int, {"type": "integer"}, 3.0, 3),
    (float, {"type": "number"}, 3, 3.0),
    (bool, {"type": "boolean"}, False, False),
    (Literal["b", "a"], {"type": "string", "enum": ["b", "a"]}, "a", "a"),
    (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}, "a", "a"),
    (Size, {"type": "string", "enum": SIZES}, "large", Size.LARGE),
    (
        list[Literal["b", "a"]],
        {"type": "array", "items": {"type": "string", "enum": ["b", "a"]}},
        ["a"],
        ["a"],
    ),
    (list[Size], {"type": "array", "items": {"type": "string", "enum": SIZES}}, ["small"], [Size.SMALL]),
    (dt.date, {"type": "string", "format": "date"}, "2026-07-28", dt.date(2026, 7, 28)),
    (
        dt.datetime,
        {"type": "string", "format": "date-time"},
        "2026-07-28T01:02:03Z",
        dt.datetime(2026, 7, 28, 1, 2, 3, tzinfo=dt.UTC),
    ),
    (
        Annotated[str, msgspec.Meta(min_length=1, max_length=3, title="T", description="D")],
        {"type": "string", "minLength": 1, "maxLength": 3, "title": "T", "description": "D"},
        "abc",
        "abc",
    ),
    (
        Annotated[str, msgspec.Meta(extra_json_schema={"format": "email"})],
        {"type": "string", "format": "email"},
        "a@b.example",
        "a@b.example",
    ),
    (
        Annotated[int, msgspec.Meta(ge=1, le=9)],
        {"type": "integer", "minimum": 1, "maximum": 9},
        9,
        9,
    ),
    (
        Annotated[list[Literal["a"]], msgspec.Meta(min_length=1, max_length=2)],
        {"type": "array", "items": {"type": "string", "enum": ["a"]}, "minItems": 1, "maxItems": 2},
        ["a", "a"],
        ["a", "a"],
    ),
]


@pytest.mark.parametrize(("kind", "schema", "given", "read"), ONE_FIELD)
def test_a_single_type_makes_a_form_with_one_property(kind, schema, given, read):
    form = make_form(kind)
    assert form.schema == {"type": "object", "properties": {"value": schema}, "required": ["value"]}
    got = form.read({"value": given})
    assert (type(got), got) == (type(read), read)


@pytest.mark.parametrize("kind", [kind for kind, *_ in ONE_FIELD])
@pytest.mark.parametrize("content", [{}, {"value": {}}, {"value": None}, {"other": "x"}, {"value": [5]}])
def test_content_that_a_form_does_not_ask_for_is_refused(kind, content):
    with pytest.raises(ValueError, match="value"):
        make_form(kind).read(content)


def by_hand(**properties):
    return {"type": "object", "properties": properties}


NAMED = ChoiceTitles({"small": "Small", "medium": "So-so", "large": "Large"})
SHOWN = [
    {"const": "small", "title": "Small"},
    {"const": "medium", "title": "So-so"},
    {"const": "large", "title": "Large"},
]


@pytest.mark.parametrize("library", [msgspec.Struct, attrs.frozen, dataclass, TypedDict, pydantic.BaseModel])
def test_choices_have_titles(library):
    fields = {
        "one": Annotated[Literal["large", "small"], NAMED],
        "member": Annotated[Size, NAMED],
        "some": Annotated[list[Size], NAMED],
        "any": list[Annotated[Literal["small"], NAMED]],
    }
    if library is TypedDict:
        kind = TypedDict("Kind", fields)
    elif isinstance(library, type):
        kind = type(library)("Kind", (library,), {"__annotations__": fields, "__module__": __name__})
    else:
        kind = library(type("Kind", (), {"__annotations__": fields}))
    form = make_form(kind)
    shown = {
        name: {k: v for k, v in s.items() if k != "title"} for name, s in form.schema["properties"].items()
    }
    assert shown == {
        "one": {"type": "string", "oneOf": [SHOWN[2], SHOWN[0]]},
        "member": {"type": "string", "oneOf": SHOWN},
        "some": {"type": "array", "items": {"anyOf": SHOWN}},
        "any": {"type": "array", "items": {"anyOf": SHOWN[:1]}},
    }
    content = {"one": "large", "member": "medium", "some": ["large"], "any": ["small"]}
    read = form.read(content)
    assert (read["member"] if isinstance(read, dict) else read.member) is Size.MEDIUM
    with pytest.raises(ValueError, match="member"):
        form.read({**content, "member": "So-so"})


def test_a_single_choice_has_titles_a_default_and_may_be_left_out():
    class Order(msgspec.Struct):
        size: Annotated[Size, NAMED] = Size.MEDIUM
        again: Annotated[Size | None, NAMED] = None

    form = make_form(Order)
    assert form.schema["properties"] == {
        "size": {"type": "string", "oneOf": SHOWN, "default": "medium"},
        "again": {"type": "string", "oneOf": SHOWN},
    }
    assert form.read({}) == Order()
    assert make_form(Annotated[Size, NAMED]).schema["properties"]["value"]["oneOf"] == SHOWN


FORMATS = [
    ("email", "a@b.example", "nonsense"),
    ("uri", "https://a.example/b", "no uri"),
    ("date", "2026-07-28", "2026-13-01"),
    ("date-time", "2026-07-28T01:02:03Z", "yesterday"),
]


@pytest.mark.parametrize(("name", "good", "bad"), FORMATS)
def test_formats_are_enforced(name, good, bad):
    by_type = Annotated[str, msgspec.Meta(extra_json_schema={"format": name})]
    for form in (make_form(by_type), make_form(by_hand(value={"type": "string", "format": name}))):
        form.read({"value": good})
        with pytest.raises(ValueError, match="value"):
            form.read({"value": bad})


class AsStruct(msgspec.Struct):
    """Not shown."""

    name: str
    size: Size = Size.MEDIUM
    nick: str | None = None


@dataclass
class AsDataclass:
    """Not shown."""

    name: str
    size: Size = Size.MEDIUM
    nick: str | None = None


@attrs.frozen
class AsAttrs:
    """Not shown."""

    name: str
    size: Size = Size.MEDIUM
    nick: str | None = None


class AsTypedDict(TypedDict):
    name: str
    size: NotRequired[Size]
    nick: NotRequired[str | None]


def _without_titles(schema):
    for described in schema["properties"].values():
        described.pop("title", None)


class AsModel(pydantic.BaseModel):
    """Not shown."""

    model_config = pydantic.ConfigDict(json_schema_extra=_without_titles)

    name: str
    size: Size = Size.MEDIUM
    nick: str | None = None


@pytest.mark.parametrize("kind", [AsStruct, AsDataclass, AsAttrs, AsModel, AsTypedDict])
def test_a_class_of_every_library_makes_the_same_form(kind):
    form = make_form(kind)
    size = {"type": "string", "enum": SIZES, "default": "medium"}
    if kind is AsTypedDict:
        del size["default"]
    assert form.schema == {
        "type": "object",
        "properties": {"name": {"type": "string"}, "size": size, "nick": {"type": "string"}},
        "required": ["name"],
    }
    read = form.read({"name": "Ann", "size": "large"})
    assert isinstance(read, dict if kind is AsTypedDict else kind)
    get = read.get if isinstance(read, dict) else lambda name: getattr(read, name)
    assert (get("name"), get("size"), get("nick")) == ("Ann", Size.LARGE, None)
    with pytest.raises(ValueError, match="size"):
        form.read({"name": "Ann", "size": "huge"})


class Person(msgspec.Struct, rename="camel"):
    """The suite's form of SEP-1034: a default of every kind."""

    first_name: str = "John Doe"
    age: int = 30
    score: float = 95.5
    status: Literal["active", "inactive", "pending"] = "active"
    verified: bool = True
    kinds: list[Literal["y", "x"]] = []
    since: dt.date = dt.date(2026, 7, 28)


def test_defaults_of_every_kind_are_shown_and_used():
    form = make_form(Person)
    defaults = {name: shown["default"] for name, shown in form.schema["properties"].items()}
    assert defaults == {
        "firstName": "John Doe",
        "age": 30,
        "score": 95.5,
        "status": "active",
        "verified": True,
        "kinds": [],
        "since": "2026-07-28",
    }
    assert "required" not in form.schema
    assert form.read({}) == Person()
    assert form.read({"firstName": "Ann"}) == Person(first_name="Ann")
    assert form.schema["properties"]["kinds"]["items"]["enum"] == ["y", "x"]


class Nullable(msgspec.Struct):
    text: str | None
    size: Size | None
    when: dt.datetime | None


def test_what_may_be_null_may_be_left_out():
    form = make_form(Nullable)
    assert form.schema == {
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "size": {"type": "string", "enum": SIZES},
            "when": {"type": "string", "format": "date-time"},
        },
    }
    assert form.read({}) == Nullable(None, None, None)
    assert form.read({"size": "small", "text": None}) == Nullable(None, Size.SMALL, None)
    assert make_form(str | None).read({}) is None


def titled(*choices):
    return [{"const": choice, "title": choice.title()} for choice in choices]


CHOICES = {
    "type": "object",
    "properties": {
        "plain": {"type": "string", "enum": ["b", "a"], "default": "b"},
        "titled": {"type": "string", "oneOf": titled("b", "a")},
        "legacy": {"type": "string", "enum": ["b", "a"], "enumNames": ["B", "A"]},
        "several": {
            "type": "array",
            "items": {"type": "string", "enum": ["b", "a"]},
            "minItems": 1,
            "maxItems": 2,
        },
        "severalTitled": {"type": "array", "items": {"anyOf": titled("b", "a")}, "default": ["a"]},
    },
    "required": ["plain"],
}


def test_a_schema_by_hand_is_shown_as_it_is_with_every_shape_of_choice():
    form = make_form(CHOICES)
    assert form.schema == CHOICES
    content = {"plain": "a", "titled": "b", "legacy": "a", "several": ["a", "b"], "severalTitled": []}
    assert form.read(content) == content


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ({}, '"plain" is a required property'),
        ({"plain": "c"}, "plain"),
        ({"plain": "a", "titled": "c"}, "titled"),
        ({"plain": "a", "legacy": 1}, "legacy"),
        ({"plain": "a", "several": []}, "several"),
        ({"plain": "a", "several": ["c"]}, "several.0"),
        ({"plain": "a", "severalTitled": ["a", "c"]}, "severalTitled.1"),
    ],
)
def test_a_schema_by_hand_is_enforced(content, fault):
    with pytest.raises(ValueError, match=fault):
        make_form(CHOICES).read(content)


class Nested(msgspec.Struct):
    inner: AsStruct


class Pair(NamedTuple):
    left: str


class WrongDefault(msgspec.Struct):
    size: Literal["a", "b"] = "c"


class Count(enum.IntEnum):
    ONE = 1


NOT_FLAT = "must be a string, number, boolean or choice"
REFUSED = [
    (Nested, f"property 'inner' of a form {NOT_FLAT}|property 'inner' of a form must"),
    (dict[str, int], NOT_FLAT),
    (Any, NOT_FLAT),
    (None, NOT_FLAT),
    (int | str, NOT_FLAT),
    (list[str], "a list must be one of choices"),
    (list[AsStruct], "a list must be one of choices"),
    (set[Literal["a"]], "cannot have uniqueItems"),
    (Literal[1, 2], r"choices are strings, not \(1, 2\)|choices are strings, not \[1, 2\]"),
    (Count, "choices are strings"),
    (bytes, "format is one of"),
    (Annotated[str, msgspec.Meta(pattern="x")], "cannot have pattern"),
    (Annotated[int, msgspec.Meta(gt=1)], "cannot have exclusiveMinimum"),
    (Pair, "property 'value' of a form cannot have"),
    (object, "must be a string, number, boolean or choice"),
    (5, "5 makes no form"),
    ({}, 'a form is {"type": "object"'),
    ({"type": "string"}, 'a form is {"type": "object"'),
    ({"type": "object"}, 'a form is {"type": "object"'),
    (by_hand(a="text"), "property 'a' of a form must be"),
    (by_hand(a={"type": "object", "properties": {}}), f"property 'a' of a form {NOT_FLAT}"),
    (by_hand(a={"type": ["string", "null"]}), f"property 'a' of a form {NOT_FLAT}"),
    (by_hand(a={"$ref": "#"}), f"property 'a' of a form {NOT_FLAT}"),
    (by_hand(a={"type": "string", "format": "uuid"}), "format is one of date, date-time, email, uri"),
    (by_hand(a={"type": "string", "pattern": "x"}), "property 'a' of a form cannot have pattern"),
    (by_hand(a={"type": "boolean", "enum": [True]}), "property 'a' of a form cannot have enum"),
    (by_hand(a={"type": "string", "enum": ["a", 1]}), "choices are strings"),
    (by_hand(a={"type": "array"}), "a list must be one of choices"),
    (by_hand(a={"type": "array", "items": {"type": "string"}}), "a list must be one of choices"),
    (by_hand(a={"type": "array", "items": {"enum": [1]}}), "choices are strings"),
    (by_hand(a={"type": "string", "oneOf": [{"const": "a"}]}), "a choice has a const and a title"),
    (by_hand(a={"type": "string", "oneOf": [{"const": 1, "title": "One"}]}), "choices are strings"),
    (
        by_hand(a={"type": "array", "items": {"anyOf": [{"type": "string"}]}}),
        "a choice has a const and a title",
    ),
    (list[int | str], "a choice has a const and a title"),
    (Annotated[str, msgspec.Meta(extra_json_schema={"oneOf": []})], "use mcpbus.ChoiceTitles"),
    (Annotated[Literal["a", "b"], ChoiceTitles({"a": "A"})], "choice 'b' has no title among 'a'"),
    (by_hand(a={"type": "string", "enum": ["a"], "default": "b"}), "a default .* is not one of its answers"),
    (by_hand(a={"type": "integer", "default": "1"}), "a default .* is not one of its answers"),
    (
        by_hand(a={"type": "string", "format": "date", "default": "x"}),
        "a default .* is not one of its answers",
    ),
    (WrongDefault, "a default .* is not one of its answers"),
    (by_hand(a={"type": "string", "minLength": "x"}), "the JSON Schema cannot be used"),
]


@pytest.mark.parametrize(("kind", "rule"), REFUSED)
def test_what_is_no_form_is_refused_with_the_rule(kind, rule):
    with pytest.raises(TypeError, match=rule):
        make_form(kind)
    with pytest.raises(TypeError, match=rule):
        Elicit("?", kind)


def test_an_accepted_form_without_content_is_an_empty_one():
    assert Elicit("?", Person).read({"action": "accept"}) == AcceptedElicitation(Person())
    with pytest.raises(InvalidInputError, match="value"):
        Elicit("?", str).read({"action": "accept"})


def test_what_is_sent_is_the_schema():
    params = Elicit("Which?", CHOICES).params(LATEST)
    assert params == {"message": "Which?", "requestedSchema": CHOICES}


def test_a_client_of_2025_06_18_reads_titles_and_defaults_as_it_knows_them():  # E-5, E-6
    form = {
        "type": "object",
        "properties": {
            "titled": {"type": "string", "oneOf": titled("b", "a"), "default": "b"},
            "plain": {"type": "string", "enum": ["b", "a"], "default": "b"},
            "text": {"type": "string", "title": "Text", "default": "x"},
            "number": {"type": "integer", "minimum": 0, "default": 1},
            "sure": {"type": "boolean", "default": True},
        },
        "required": ["plain"],
    }
    question = Elicit("Which?", form)
    shown = {
        "titled": {"type": "string", "enum": ["b", "a"], "enumNames": ["B", "A"]},
        "plain": {"type": "string", "enum": ["b", "a"]},
        "text": {"type": "string", "title": "Text"},
        "number": {"type": "integer", "minimum": 0},
        "sure": {"type": "boolean", "default": True},
    }
    assert question.params(REVISIONS["2025-06-18"])["requestedSchema"] == {**form, "properties": shown}
    assert question.params(REVISIONS["2025-11-25"])["requestedSchema"] == form
