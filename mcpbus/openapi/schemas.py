"""Schemas of OpenAPI 3.0 and 3.1 as self-contained JSON Schemas of 2020-12.

Each ``$ref`` becomes one to ``$defs``, so that recursion stays. What 3.0 writes in its own way is rewritten: ``nullable``, exclusive bounds
that are booleans. A discriminator becomes a constant in each branch, since a validator knows no discriminators. Properties that are
read-only are left out of requests, and properties that are write-only are not required in responses.

A schema that is longer than its limit is loosened: the references that are farthest from its root admit any value, then what is deepest
within it. Whatever the API admits is admitted by the loosened schema.

Source: OpenAPI 3.0.4 and 3.1.1, "Schema Object" and "Discriminator Object".
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final, Literal, TypeAlias

import attrs

from mcpbus.openapi.document import ApiReferences, Located, OpenApiError, items_of
from mcpbus.openapi.loosening import MANY, NAMED, ONE, loosened, shortened, size_of

Direction: TypeAlias = Literal["request", "response"]

_MOST_NODES: Final = 100_000
"""How many objects and arrays one schema may have, with all that it refers to, before it is loosened."""
_DEEPEST: Final = 60
_UNSUPPORTED: Final = frozenset({"$dynamicRef", "$recursiveRef", "$id"})

_PLAIN: Final = frozenset(
    {
        *("type", "enum", "const", "title", "description", "default", "format", "pattern", "required"),
        *("multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "deprecated"),
        *("minLength", "maxLength", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties"),
        *("minContains", "maxContains", "dependentRequired", "contentEncoding", "contentMediaType"),
    }
)


@attrs.define
class _Reading:
    """One schema that is being read.

    Attributes:
        direction: Whether its values are sent or received.
        found: The definitions that it names, in order.
        nodes: How many objects it has had so far, with its definitions.
    """

    direction: Direction
    found: dict[str, None]
    nodes: int = 0


@attrs.frozen
class _Definition:
    schema: Any
    references: tuple[str, ...]
    size: int


class SchemaReader:
    """Reads the schemas of one document.

    Args:
        references: The document.
        legacy: Whether it is of OpenAPI 3.0.
        longest: The bytes of JSON that a schema may have, before it is loosened.
    """

    def __init__(self, references: ApiReferences, *, legacy: bool, longest: int) -> None:
        self._references = references
        self._legacy = legacy
        self._longest = longest
        self._names: dict[str, str] = {}
        self._parts: dict[str, Located] = {}
        self._definitions: dict[tuple[Direction, str], _Definition] = {}

    def read(
        self, direction: Direction, build: Callable[[Callable[[Located], Any]], dict[str, Any]]
    ) -> dict[str, Any]:
        """Return a JSON Schema.

        Args:
            direction: Whether values of it are sent or received.
            build: Returns the root; it is given a function that converts a schema of the document.

        Raises:
            OpenApiError: A schema cannot be read.
        """
        reading = _Reading(direction, {})
        root = build(lambda part: self._convert(part, reading, 0))
        if len(root) == 1 and "$ref" in root:  # clients look for the type at the root
            definition = self._definition(root["$ref"].removeprefix("#/$defs/"), reading)
            root, reading.found = {**definition.schema}, dict.fromkeys(definition.references)
        left = self._longest - size_of(root)
        if left < 0:
            return shortened(root, self._longest)
        kept: list[str] = []
        for level in self._levels(reading):
            left -= sum(self._definitions[direction, name].size for name in level)
            if left < 0:
                return self._assembled(direction, root, kept, partial(loosened, kept=frozenset(kept)))
            kept += level
        return self._assembled(direction, root, kept)

    def _assembled(
        self,
        direction: Direction,
        root: dict[str, Any],
        names: Iterable[str],
        change: Callable[[Any], Any] = lambda schema: schema,
    ) -> dict[str, Any]:
        kept = {name: change(self._definitions[direction, name].schema) for name in names}
        return {**change(root), "$defs": kept} if kept else {**change(root)}

    def _levels(self, reading: _Reading) -> Iterator[tuple[str, ...]]:
        """Yield the names of all definitions that are needed, by their distance from the root."""
        seen: set[str] = set()
        level = tuple(reading.found)
        while level:
            following: dict[str, None] = {}
            for name in level:
                following |= dict.fromkeys(self._definition(name, reading).references)
            yield level
            seen.update(level)
            level = tuple(name for name in following if name not in seen)

    def _definition(self, name: str, reading: _Reading) -> _Definition:
        known = self._definitions.get((reading.direction, name))
        if known is None:
            inner = _Reading(reading.direction, {}, reading.nodes)
            schema = self._convert(self._parts[name], inner, 0)
            reading.nodes = inner.nodes
            known = _Definition(schema, tuple(inner.found), size_of(schema) + len(name) + 6)
            self._definitions[reading.direction, name] = known
        return known

    def _convert(self, part: Located, reading: _Reading, depth: int) -> Any:
        if isinstance(part.value, bool):
            return part.value
        schema = part.mapping()
        reading.nodes += 1
        if reading.nodes > _MOST_NODES:
            raise OpenApiError(f"{part.place}: the schema has more than {_MOST_NODES} parts")
        if depth > _DEEPEST:
            raise OpenApiError(f"{part.place}: schemas are nested more than {_DEEPEST} levels deep")
        if unknown := _UNSUPPORTED & schema.keys():
            raise OpenApiError(f"{part.place}: the schema has {min(unknown)}, which is not supported")
        made: dict[str, Any] = {}
        if "$ref" in schema:
            name = self._name(self._references.resolve(schema["$ref"], part.base))
            reading.found[name] = None
            made["$ref"] = f"#/$defs/{name}"
            if self._legacy:
                return made
        made |= self._keywords(part, lambda inner: self._convert(inner, reading, depth + 1))
        self._apply_direction(part, made, reading.direction)
        self._apply_discriminator(part, made)
        return _modern(schema, made) if self._legacy else made

    @staticmethod
    def _keywords(part: Located, convert: Callable[[Located], Any]) -> dict[str, Any]:
        """Return the keywords of a schema that JSON Schema knows."""
        made: dict[str, Any] = {}
        for keyword in part.value:
            inner = part.get(keyword)
            if inner is None:
                if keyword in {"default", "const"}:
                    made[keyword] = None
            elif keyword in _PLAIN:
                made[keyword] = inner.value
            elif keyword in ONE:
                made[keyword] = convert(inner)
            elif keyword in MANY:
                made[keyword] = [convert(each) for each in items_of(inner)]
            elif keyword in NAMED and keyword != "$defs":  # those of a part are referred to by their paths
                made[keyword] = {name: convert(each) for name, each in _members(inner)}
        required = made.get("required", [])
        if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
            del made["required"]  # a boolean, say, as parameters have it
        return made

    def _apply_direction(self, part: Located, made: dict[str, Any], direction: Direction) -> None:
        """Leave out the properties that are not sent, and require none that is not received."""
        properties = part.get("properties")
        if properties is None:
            return
        flag = "readOnly" if direction == "request" else "writeOnly"
        marked = set()
        for name, each in _members(properties):
            schema = (
                self._references.follow(each).value if self._legacy or not _has(each, flag) else each.value
            )
            if isinstance(schema, dict) and schema.get(flag) is True:
                marked.add(name)
        if marked and direction == "request":
            made["properties"] = {
                name: each for name, each in made["properties"].items() if name not in marked
            }
        if marked and "required" in made:
            made["required"] = [name for name in made["required"] if name not in marked]

    def _apply_discriminator(self, part: Located, made: dict[str, Any]) -> None:
        """Hold each branch to the values of the discriminator that select it."""
        discriminator = part.get("discriminator")
        name = None if discriminator is None else discriminator.mapping().get("propertyName")
        keyword = next((each for each in ("oneOf", "anyOf") if each in made), None)
        if discriminator is None or not isinstance(name, str) or keyword is None:
            return
        selected: dict[str, list[str]] = {}
        mapping = discriminator.mapping().get("mapping")
        for value, target in mapping.items() if isinstance(mapping, dict) else ():
            if isinstance(target, str):
                reference = target if "/" in target or "#" in target or "." in target else None
                reference = reference or f"#/components/schemas/{target}"
                try:
                    resolved = self._references.resolve(reference, part.base)
                except OpenApiError:
                    continue
                selected.setdefault(self._name(resolved), []).append(value)
        branches = part.get(keyword)
        assert branches is not None  # noqa: S101 - it was converted
        held = []
        for branch, converted in zip(items_of(branches), made[keyword], strict=True):
            reference = branch.value.get("$ref") if isinstance(branch.value, dict) else None
            if reference is None:
                held.append(converted)
                continue
            target = self._references.resolve(reference, branch.base)
            values = selected.get(self._name(target)) or [target.address.rpartition("/")[2]]
            held.append(
                {
                    "allOf": [converted],
                    "properties": {name: {"enum": values}},
                    "required": [name],
                }
            )
        made[keyword] = held

    def _name(self, part: Located) -> str:
        """Return the name under ``$defs`` of a part that is referred to."""
        if part.address not in self._names:
            plain = re.sub(r"[^A-Za-z0-9_.-]", "_", part.address.rpartition("/")[2])[:60] or "schema"
            name, number = plain, 1
            while name in self._parts:
                number += 1
                name = f"{plain}_{number}"
            self._names[part.address] = name
            self._parts[name] = part
        return self._names[part.address]


def _has(part: Located, name: str) -> bool:
    return isinstance(part.value, dict) and name in part.value


def _members(part: Located) -> list[tuple[str, Located]]:
    return [
        (name, Located(each, part.base, f"{part.address}/{name}")) for name, each in part.mapping().items()
    ]


def _modern(schema: Mapping[str, Any], made: dict[str, Any]) -> dict[str, Any]:
    """Return a schema of 3.0 as 2020-12 has it."""
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(made.get(exclusive), bool) and made.pop(exclusive) and bound in made:
            made[exclusive] = made.pop(bound)
    if schema.get("nullable") is not True:
        return made
    kind = made.get("type")
    if isinstance(kind, str):
        made["type"] = [kind, "null"]
        if isinstance(made.get("enum"), list) and None not in made["enum"]:
            made["enum"] = [*made["enum"], None]
        if any(keyword in made for keyword in ("allOf", "anyOf", "oneOf")):
            made["type"] = kind
            return {"anyOf": [made, {"type": "null"}]}
        return made
    return {"anyOf": [made, {"type": "null"}]} if kind is None and made else made
