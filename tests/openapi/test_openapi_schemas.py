"""Schemas of OpenAPI as JSON Schemas: what 3.0 writes otherwise, discriminators, directions, recursion, and what is too long."""

import jsonschema_rs
import pytest

from mcpbus.openapi.document import ApiReferences, Located, OpenApiError
from mcpbus.openapi.schemas import SchemaReader

PET = {
    "type": "object",
    "required": ["kind", "id", "secret"],
    "properties": {
        "kind": {"type": "string"},
        "id": {"type": "integer", "readOnly": True},
        "secret": {"type": "string", "writeOnly": True},
        "parent": {"$ref": "#/components/schemas/Pet"},
    },
}
CAT = {"type": "object", "properties": {"kind": {"type": "string"}, "lives": {"type": "integer"}}}
DOG = {"type": "object", "properties": {"kind": {"type": "string"}, "name": {"type": "string"}}}
SCHEMAS = {"Pet": PET, "Cat": CAT, "Dog": DOG}


def read(schema, *, legacy=False, direction="response", longest=32_768, schemas=SCHEMAS):
    root = {"components": {"schemas": schemas}}
    reader = SchemaReader(ApiReferences(root, "", pytest.fail), legacy=legacy, longest=longest)
    return reader.read(direction, lambda convert: convert(Located(schema, "", "#/x")))


def admits(schema, value):
    return jsonschema_rs.validator_for(schema).is_valid(value)


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "string", "nullable": True}, ["a", None], [5]),
        ({"type": "string", "nullable": True, "enum": ["a"]}, ["a", None], ["b"]),
        ({"nullable": True, "allOf": [{"$ref": "#/components/schemas/Cat"}]}, [None, {}], [5]),
        ({"type": "object", "nullable": True, "allOf": [{"required": ["a"]}]}, [None, {"a": 1}], [{}, 5]),
        ({"type": "integer", "minimum": 1, "exclusiveMinimum": True}, [2], [1]),
        ({"type": "integer", "minimum": 1, "exclusiveMinimum": False}, [1], [0]),
        ({"type": "integer", "maximum": 3, "exclusiveMaximum": True}, [2], [3]),
        ({"$ref": "#/components/schemas/Cat", "type": "string"}, [{}], ["a"]),
        ({"type": "string", "required": True}, ["a"], [5]),
        ({"required": [["a"], {}], "properties": {"a": {"readOnly": True}}}, [{}], []),
    ],
)
def test_what_only_3_0_has_is_rewritten(schema, good, bad):
    made = read(schema, legacy=True)
    for value in good:
        assert admits(made, value), value
    for value in bad:
        assert not admits(made, value), value


def test_3_1_has_keywords_beside_a_reference_and_lists_of_types():
    made = read({"$ref": "#/components/schemas/Cat", "required": ["lives"], "nullable": True})
    assert admits(made, {"lives": 1})
    assert not admits(made, {})
    assert not admits(made, None)
    assert admits(read({"type": ["string", "null"], "const": None}), None)


@pytest.mark.parametrize("mapping", [None, {"cat": "#/components/schemas/Cat", "dog": "Dog"}])
def test_a_discriminator_selects_one_branch(mapping):
    branches = [{"$ref": "#/components/schemas/Cat"}, {"$ref": "#/components/schemas/Dog"}]
    discriminator = (
        {"propertyName": "kind"} if mapping is None else {"propertyName": "kind", "mapping": mapping}
    )
    made = read({"oneOf": branches, "discriminator": discriminator})
    cat = "Cat" if mapping is None else "cat"
    assert admits(made, {"kind": cat, "lives": 9})
    assert not admits(made, {"kind": cat, "lives": "nine"})
    assert not admits(made, {"kind": "bird"})
    assert not admits(made, {"lives": 9})


def test_requests_lack_what_is_read_only_and_responses_need_nothing_write_only():
    sent, received = (read(PET, direction=direction) for direction in ("request", "response"))
    assert admits(sent, {"kind": "a", "secret": "s"})
    assert "id" not in sent["properties"]
    assert admits(received, {"kind": "a", "id": 5})
    assert not admits(received, {"kind": "a"})
    # The same definition has a form for each direction.
    assert "id" not in sent["$defs"]["Pet"]["properties"]


def test_recursion_remains():
    made = read({"$ref": "#/components/schemas/Pet"})
    assert made["type"] == "object"
    assert not admits(made, {"kind": "a", "id": 1, "parent": {"kind": 5, "id": 1}})


def test_definitions_of_one_name_in_different_places_are_kept_apart():
    schemas = {"A": {"x/y": {"type": "string"}, "z": {"x/y": {"type": "integer"}}}}
    first, second = "#/components/schemas/A/x~1y", "#/components/schemas/A/z/x~1y"
    made = read({"properties": {"a": {"$ref": first}, "b": {"$ref": second}}}, schemas=schemas)
    assert admits(made, {"a": "s", "b": 5})
    assert not admits(made, {"a": "s", "b": "s"})


def test_what_is_far_from_the_root_is_loosened_first():
    schemas = {
        f"N{number}": {
            "type": "object",
            "description": "x" * 100,
            "properties": {"next": {"$ref": f"#/components/schemas/N{number + 1}"}},
            "oneOf": [{"$ref": f"#/components/schemas/N{number + 1}"}, {"required": ["next"]}],
            "not": {"$ref": f"#/components/schemas/N{number + 1}"},
        }
        for number in range(50)
    } | {"N50": {"type": "string"}}
    made = read({"$ref": "#/components/schemas/N0"}, longest=2_000, schemas=schemas)
    assert list(made["$defs"]) == [f"N{number}" for number in range(1, len(made["$defs"]) + 1)]
    assert 3 < len(made["$defs"]) < 10
    assert admits(made, {"next": {"next": {}}})
    assert not admits(made, {"next": {"next": 5}})


def test_a_root_that_is_too_long_is_cut_where_it_is_deep():
    deep = {"type": "object", "properties": {"a": {"type": "object", "properties": {}}}}
    deep["properties"]["a"]["properties"] = {f"p{number}": {"type": "string"} for number in range(500)}
    made = read(deep, longest=300)
    assert admits(made, {"a": {"p1": 5}})
    assert not admits(made, {"a": 5})


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"$ref": "#/components/schemas/Nil"}, "names nothing"),
        ({"$ref": "#anchor"}, "names an anchor"),
        ({"$ref": 5}, "a \\$ref is a text"),
        ({"properties": []}, "is an object in OpenAPI"),
        ({"items": 5}, "is an object in OpenAPI"),
        ({"allOf": {}}, "is a list in OpenAPI"),
        ({"$dynamicRef": "#x"}, "has \\$dynamicRef, which is not supported"),
    ],
)
def test_what_is_no_schema_is_refused_by_its_place(schema, said):
    with pytest.raises(OpenApiError, match=said):
        read({"properties": {"a": schema}})


def test_depth_and_width_have_limits():
    deep = {}
    for _ in range(70):
        deep = {"items": deep}
    with pytest.raises(OpenApiError, match="nested more than 60 levels"):
        read(deep)
    with pytest.raises(OpenApiError, match="more than 100000 parts"):
        read({"properties": {str(number): {} for number in range(100_001)}})
