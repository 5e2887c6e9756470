"""What is typed, read by a schema."""

import re

import pytest

from mcpbus.cli.schemas import faults, label, parse_typed, read_arguments

SCHEMA = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "count": {"type": "integer", "minimum": 0},
        "share": {"type": "number"},
        "dry": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "where": {"$ref": "#/$defs/Where"},
        "unit": {"enum": ["c", "f", 1]},
        "either": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "both": {"type": ["integer", "string"]},
        "any": {},
    },
    "additionalProperties": False,
    "$defs": {"Where": {"type": "object", "properties": {"x": {"type": "integer"}}}},
}


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("text=5", "5"),
        ("text=", ""),
        ("text=a=b", "a=b"),
        ("text=a:=b", "a:=b"),
        ("text=null", "null"),
        ("count=5", 5),
        ("count=5.0", 5),
        ("share=0.5", 0.5),
        ("share=2", 2),
        ("dry=true", True),
        ("dry=False", False),
        ('tags=["a"]', ["a"]),
        ('where={"x": 1}', {"x": 1}),
        ("unit=f", "f"),
        ("unit=1", 1),
        ("either=7", 7),
        ("either=null", None),
        ("both=7", 7),
        ("both=seven", "seven"),
        ("any=7", "7"),
        ("any:=7", 7),
        ('text:="5"', "5"),
        ("tags:=[]", []),
    ],
)
def test_a_value_is_read_as_what_the_schema_allows(word, value):
    [(_, read)] = read_arguments([word], SCHEMA).items()
    assert (read, type(read)) == (value, type(value))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["count=many"], '"many" is not of type "integer" - at `count`'),
        (["count=1.5"], '"1.5" is not of type "integer"'),
        (["count=-1"], "-1 is less than the minimum of 0"),
        (["dry=maybe"], '"maybe" is not of type "boolean"'),
        (["tags=a,b"], '"a,b" is not of type "array"'),
        (["tags:=[1]"], '1 is not of type "string"'),
        (["unit=k"], '"k" is not one of'),
        (["colour=red"], "('colour' was unexpected)"),
        (["count:=many"], "count:=many is no JSON"),
        (["count"], "'count' is no argument: write key=value, or key:=json"),
        (["=5"], "'=5' is no argument"),
        (["city=\udcff"], "is not in UTF-8, as JSON is"),
        (['city:="\udcff"'], "is not in UTF-8, as JSON is"),
        ([":=5"], "':=5' is no argument"),
        (["count=1", "count:=2"], "count is given twice"),
        (["count=1", '{"count": 2}'], "count is given twice"),
        (['{"count": "many"}'], '"many" is not of type "integer"'),
        (["{count: 2}"], "{count: 2} is no JSON"),
    ],
)
def test_what_the_schema_does_not_allow_is_told(words, told):
    with pytest.raises(ValueError, match=re.escape(told)):
        read_arguments(words, SCHEMA)


def test_an_object_says_several_arguments_exactly():
    assert read_arguments(['{"count": 2, "dry": true}', "tags:=[]"], None) == {
        "count": 2,
        "dry": True,
        "tags": [],
    }


@pytest.mark.parametrize(
    "schema", [None, {"type": "nonsense"}, {"properties": 5}, {"$ref": "https://example.com"}]
)
def test_a_schema_that_cannot_be_used_is_no_hindrance(schema):
    assert read_arguments(["a=1", "b:=2"], schema) == {"a": "1", "b": 2}


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("text", "string"),
        ("tags", "array of string"),
        ("where", "object"),
        ("unit", '"c" | "f" | 1'),
        ("either", "integer or null"),
        ("both", "integer or string"),
        ("any", "any"),
    ],
)
def test_a_schema_in_a_few_words(name, told):
    assert label(SCHEMA["properties"][name], SCHEMA) == told


def test_a_schema_that_leads_in_a_circle_has_an_end():
    schema = {"properties": {"a": {"$ref": "#/properties/a"}}}
    assert label(schema["properties"]["a"], schema) == "any"
    assert read_arguments(["a=1"], schema) == {"a": "1"}


def repeated(times):
    """A schema of a few hundred bytes that stands for 2**times cases."""
    steps = {f"s{n}": {"allOf": [{"$ref": f"#/$defs/s{n + 1}"}] * 2} for n in range(times)}
    return {"$ref": "#/$defs/s0", "$defs": {**steps, f"s{times}": {"type": "string"}}}


ENDLESS = {
    "any of itself": {"anyOf": [{"$ref": "#"}] * 9},
    "all of itself": {"allOf": [{"$ref": "#"}] * 9},
    "each of many": {
        "$defs": {f"{n}": {"oneOf": [{"$ref": f"#/$defs/{m}"} for m in range(50)]} for n in range(50)}
    },
    "an array of itself": {"type": "array", "items": {"$ref": "#"}},
    "arrays of each other": {
        "type": "array",
        "items": {"$ref": "#/$defs/a"},
        "$defs": {"a": {"type": "array", "items": {"$ref": "#"}}},
    },
    "a reference to itself": {"$ref": "#"},
    "twice as many at each step": repeated(60),
    "what is left over": {"unevaluatedProperties": False, "allOf": [repeated(3)] * 40},
    "by another name": {"$anchor": "a", "$defs": {"b": {"$anchor": "c", "anyOf": [{"$ref": "#c"}] * 2}}},
    "very deep": {"$ref": "#/a" + "/a" * 10_000},
    "within a value": {"properties": {"a": {"allOf": [{"$ref": "#"}] * 9}}},
}


@pytest.mark.parametrize("name", ENDLESS)
def test_no_schema_takes_for_ever(name):
    schema = ENDLESS[name]
    parts = [schema, *schema.get("$defs", {}).values()]
    value = {"a": {}}
    for _ in range(100):
        value = {"a": value}
    for part in parts[:3]:
        assert len(label(part, schema)) < 200
        assert isinstance(parse_typed("1", part, schema), str | int)
        faults("1", part)
        faults(value, part)


def test_the_arrays_of_a_schema_have_an_end():
    assert label(ENDLESS["an array of itself"], ENDLESS["an array of itself"]) == "array of ..."
    schema = ENDLESS["arrays of each other"]
    assert label(schema, schema) == "array of array of ..."
    assert (
        label({"type": "array", "items": {"type": "array", "items": {"type": "null"}}}, {})
        == "array of array of null"
    )


def test_a_tree_is_held_against_its_schema():
    tree = {
        "type": "object",
        "properties": {"n": {"type": "integer"}, "in": {"type": "array", "items": {"$ref": "#"}}},
    }
    assert faults({"in": [{"in": [{"n": "x"}]}]}, tree) == '"x" is not of type "integer" - at `in.0.in.0.n`'
    assert faults("x", repeated(3)) is None
    assert faults(5, repeated(3)).startswith('5 is not of type "string"')
