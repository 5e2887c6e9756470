"""A comparison of two JSON Schemas: which keywords of the one are missing in the other.

The comparison walks both schemas at the same time and follows each ``$ref``. A keyword of theirs is missing if ours
does not have it at the same position with the same content. Six spellings count as the same:

- ``const: x`` and ``enum: [x]``
- ``anyOf`` of plain types and a list of types
- an ``enum`` of several types and ``anyOf`` with an ``enum`` for each type, as clients need that know one type
- ``anyOf`` and ``oneOf``, with the alternatives in any order
- the reference in a ``discriminator``'s mapping and any other reference
- a ``title`` that pydantic derives from a name, and no ``title``: clients show the name then
"""

import re
from collections.abc import Iterator
from typing import Any

SCHEMA = {"items", "additionalProperties", "propertyNames", "contains", "not", "contentSchema"}
"""Keywords that hold one schema."""
NAMED = {"properties", "patternProperties"}
"""Keywords that hold schemas by name."""
LISTS = {"prefixItems"}
"""Keywords that hold schemas by position."""
UNIONS = {"anyOf", "oneOf"}


def missing_keywords(theirs: Any, ours: Any) -> list[str]:
    """Return a line for each keyword of their schema that our schema does not have."""
    return list(_Walk(theirs, ours).missing(theirs, ours, "", "", frozenset()))


class _Walk:
    def __init__(self, theirs: Any, ours: Any) -> None:
        self._theirs, self._ours = theirs, ours

    def missing(self, theirs: Any, ours: Any, path: str, name: str, seen: frozenset[str]) -> Iterator[str]:
        if isinstance(theirs, dict) and "$ref" in theirs:
            key = f"{theirs['$ref']} {ours.get('$ref', path) if isinstance(ours, dict) else path}"
            if key in seen:
                return
            seen |= {key}
            name = theirs["$ref"].rpartition("/")[2]
        theirs, ours = resolved(theirs, self._theirs), resolved(ours, self._ours)
        if theirs in (True, {}):  # anything
            return
        if not isinstance(theirs, dict) or not isinstance(ours, dict):
            if theirs != ours:
                yield f"{path or 'root'}: {theirs!r} is {ours!r}"
            return
        for keyword, value in theirs.items():
            if keyword == "$defs" or (keyword == "title" and keyword not in ours and derived(value, name)):
                continue
            yield from self._keyword(keyword, value, ours, f"{path}/{keyword}", seen)

    def _keyword(
        self, keyword: str, theirs: Any, ours: dict[str, Any], path: str, seen: frozenset[str]
    ) -> Iterator[str]:
        if keyword in UNIONS:
            yield from self._union(theirs, ours, path, seen)
        elif keyword == "discriminator":
            yield from _discriminator(theirs, ours.get(keyword), path)
        elif keyword not in (spelled := _spelled(ours)):
            yield f"{path} is missing: {theirs!r}"
        elif keyword in SCHEMA and theirs is not False:
            yield from self.missing(theirs, ours[keyword], path, "", seen)
        elif keyword in LISTS:
            for i, (their, our) in enumerate(zip(theirs, ours[keyword], strict=True)):
                yield from self.missing(their, our, f"{path}/{i}", "", seen)
        elif keyword in NAMED:
            yield from self._named(theirs, ours[keyword], path, seen)
        elif not _same(keyword, theirs, spelled[keyword]):
            yield f"{path}: {theirs!r} is {spelled[keyword]!r}"

    def _named(
        self, theirs: dict[str, Any], ours: dict[str, Any], path: str, seen: frozenset[str]
    ) -> Iterator[str]:
        for name, their in theirs.items():
            if name not in ours:
                yield f"{path}/{name} is missing"
            else:
                yield from self.missing(their, ours[name], f"{path}/{name}", name, seen)
        if (order := [name for name in ours if name in theirs]) != [name for name in theirs if name in ours]:
            yield f"{path}: the order is {order}"

    def _union(
        self, theirs: list[Any], ours: dict[str, Any], path: str, seen: frozenset[str]
    ) -> Iterator[str]:
        alternatives = list(_alternatives(ours))
        for i, their in enumerate(theirs):
            tries = [list(self.missing(their, our, f"{path}/{i}", "", seen)) for our in alternatives]
            if not tries:
                yield f"{path} is missing"
            elif [] not in tries:
                yield from min(tries, key=len)


def resolved(schema: Any, root: Any) -> Any:
    """Return a schema in which ``$ref`` is replaced with what it refers to; keywords beside it take precedence."""
    while isinstance(schema, dict) and "$ref" in schema:
        target = root
        for part in schema["$ref"].removeprefix("#/").split("/"):
            target = target[part.replace("~1", "/").replace("~0", "~")]
        schema = {**target, **{key: value for key, value in schema.items() if key != "$ref"}}
    if isinstance(schema, dict) and len(schema.get("allOf", ())) == 1:
        schema = {**resolved(schema["allOf"][0], root), **{k: v for k, v in schema.items() if k != "allOf"}}
    return schema


def derived(title: str, name: str) -> bool:
    """Return whether pydantic derives a title from the name of a field or class (or there is no name for it)."""
    return not name or _letters(title) == _letters(name)


def _letters(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


def _alternatives(schema: dict[str, Any]) -> Iterator[Any]:
    for keyword in UNIONS:
        yield from schema.get(keyword, ())
    if isinstance(schema.get("type"), list):
        for kind in schema["type"]:
            yield {**schema, "type": kind}


def _spelled(schema: dict[str, Any]) -> dict[str, Any]:
    if "const" in schema:
        return {"enum": [schema["const"]], **schema}
    if len(schema.get("enum", ())) == 1:
        return {"const": schema["enum"][0], **schema}
    if "enum" not in schema and (choices := _joined(schema.get("anyOf", ()))):
        return {"enum": choices, **schema}
    return schema


def _joined(alternatives: list[Any]) -> list[Any] | None:
    """Return the choices of all alternatives, or None if one of them is not a choice."""
    choices = []
    for each in alternatives:
        if each == {"type": "null"}:
            choices.append(None)
        elif "enum" in each or "const" in each:
            choices += _spelled(each)["enum"]
        else:
            return None
    return choices


def _same(keyword: str, theirs: Any, ours: Any) -> bool:
    if keyword == "required":
        return [name for name in ours if name in theirs] == theirs
    if isinstance(ours, list) and keyword == "type":
        return theirs in ours
    if keyword == "enum" and len({type(choice) for choice in theirs}) > 1:
        return all(
            [x for x in theirs if type(x) is kind] == [x for x in ours if type(x) is kind]
            for kind in set(map(type, theirs))
        )
    return theirs == ours and isinstance(theirs, bool) == isinstance(ours, bool)


def _discriminator(theirs: dict[str, Any], ours: dict[str, Any] | None, path: str) -> Iterator[str]:
    if ours is None:
        yield f"{path} is missing: {theirs!r}"
    elif (theirs["propertyName"], {*theirs.get("mapping", ())}) != (
        ours["propertyName"],
        {*ours.get("mapping", ())},
    ):
        yield f"{path}: {theirs!r} is {ours!r}"
