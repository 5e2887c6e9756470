"""The comparison of schemas finds each keyword that is missing, and nothing else."""

import pytest
from schema_walk import missing_keywords

NODE = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}
SHORT = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Short"}}, "required": ["next"]}

SAME = {
    "itself": ({"type": "integer", "minimum": 1}, {"type": "integer", "minimum": 1}),
    "more": ({"type": "integer"}, {"type": "integer", "minimum": 1}),
    "a reference": (
        {"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"type": "string"}}},
        {"properties": {"a": {"type": "string"}}},
    ),
    "a definition that refers to itself": (
        {"$ref": "#/$defs/Node", "$defs": {"Node": NODE}},
        {"$ref": "#/$defs/Short", "$defs": {"Short": SHORT}},
    ),
    "a const": ({"const": 1}, {"enum": [1]}),
    "a type list": ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, {"type": ["null", "integer"]}),
    "alternatives in another order": (
        {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        {"oneOf": [{"type": "null"}, {"type": "integer"}]},
    ),
    "choices of several types": (
        {"enum": ["a", 1, None]},
        {"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "integer", "enum": [1]}, {"type": "null"}]},
    ),
    "a derived title": (
        {"properties": {"max_size": {"title": "Max Size"}}},
        {"properties": {"max_size": {}}},
    ),
    "a schema of anything": ({"additionalProperties": True}, {"additionalProperties": {}}),
}
DIFFERENT = {
    "a keyword": ({"minimum": 1}, {}, "/minimum is missing: 1"),
    "its content": ({"minimum": 1}, {"minimum": 2}, "/minimum: 1 is 2"),
    "true for 1": ({"const": 1}, {"const": True}, "/const: 1 is True"),
    "a field": ({"properties": {"a": {}}}, {"properties": {}}, "/properties/a is missing"),
    "the order of fields": (
        {"properties": {"a": {}, "b": {}}},
        {"properties": {"b": {}, "a": {}}},
        "/properties: the order is ['b', 'a']",
    ),
    "the order of choices": ({"enum": ["b", "a"]}, {"enum": ["a", "b"]}, "/enum: ['b', 'a'] is ['a', 'b']"),
    "a required field": ({"required": ["a"]}, {"required": []}, "/required: ['a'] is []"),
    "an alternative": (
        {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        {"anyOf": [{"type": "integer"}]},
        "/anyOf/1/type: 'string' is 'integer'",
    ),
    "a description in a definition": (
        {"items": {"$ref": "#/$defs/A"}, "$defs": {"A": {"description": "a"}}},
        {"items": {}},
        "/items/description is missing: 'a'",
    ),
    "a title of the author": (
        {"properties": {"n": {"title": "Number of things"}}},
        {"properties": {"n": {}}},
        "/properties/n/title is missing: 'Number of things'",
    ),
    "a tag": (
        {"discriminator": {"propertyName": "kind"}},
        {"discriminator": {"propertyName": "type"}},
        "/discriminator: {'propertyName': 'kind'} is {'propertyName': 'type'}",
    ),
    "a closed object": ({"additionalProperties": False}, {}, "/additionalProperties is missing: False"),
    "an open object": (
        {"additionalProperties": False},
        {"additionalProperties": True},
        "/additionalProperties: False is True",
    ),
}


@pytest.mark.parametrize("name", SAME)
def test_no_keyword_is_missing_in_another_spelling(name):
    theirs, ours = SAME[name]
    assert missing_keywords(theirs, ours) == []


@pytest.mark.parametrize("name", DIFFERENT)
def test_a_missing_keyword_is_found(name):
    theirs, ours, line = DIFFERENT[name]
    assert missing_keywords(theirs, ours) == [line]
