"""A call's arguments as a request, as the document describes it."""

import re
from collections.abc import Mapping
from typing import Any, Final

import attrs
import msgspec

from mcpbus.openapi.bodies import body_schema, encode_body, file_fields
from mcpbus.openapi.naming import argument_names
from mcpbus.openapi.operations import ApiOperation, ApiParameter
from mcpbus.openapi.schemas import SchemaReader
from mcpbus.openapi.styles import StyleError, escape_most, header_text, path_text, query_pairs

_BODY: Final = "body"


@attrs.frozen
class ApiRequest:
    """A request, before it has an address and credentials.

    Attributes:
        method: In capitals.
        path: Below the address of the API, escaped.
        query: What follows the question mark, escaped; empty if there is none.
        headers: Names and values.
        content: The body, if there is one.
    """

    method: str
    path: str
    query: str
    headers: tuple[tuple[str, str], ...]
    content: bytes | None


@attrs.frozen
class RequestPlan:
    """How the arguments of a tool become a request.

    Attributes:
        operation: The operation.
        arguments: The name of each parameter's argument, by its place and name.
        input_schema: The schema of all arguments.
        files: The fields of a multipart body that are files.
    """

    operation: ApiOperation
    arguments: Mapping[tuple[str, str], str]
    input_schema: dict[str, Any]
    files: frozenset[str]

    def request(self, given: Mapping[str, Any]) -> ApiRequest:
        """Return the request of a call.

        Args:
            given: Arguments that conform to the schema.

        Raises:
            StyleError: One cannot be written as the document has it; the text names it.
        """
        values: dict[str, str] = {}
        query: list[tuple[str, str]] = []
        cookies: list[tuple[str, str]] = []
        headers: list[tuple[str, str]] = []
        for parameter in self.operation.parameters:
            argument = self.arguments[parameter.place, parameter.name]
            if argument not in given:
                continue
            try:
                text = _written(parameter, given[argument])
                match parameter.place:
                    case "path":
                        values[parameter.name] = path_text(
                            parameter.name, text, parameter.style, explode=parameter.explode
                        )
                    case "query":
                        query += _query(parameter, text)
                    case "header":
                        headers.append((parameter.name, _field(header_text(text, explode=parameter.explode))))
                    case _:
                        cookies += _query(parameter, text)
            except StyleError as error:
                raise StyleError(f"argument {argument!r}: {error}") from None
        if cookies:
            headers.append(("Cookie", "; ".join(f"{name}={value}" for name, value in cookies)))
        headers.append(("Accept", ", ".join(self.operation.accepted) or "*/*"))
        content = None
        if self.operation.body is not None and _BODY in given:
            try:
                kind, content = encode_body(self.operation.body, given[_BODY], self.files)
            except StyleError as error:
                raise StyleError(f"argument {_BODY!r}: {error}") from None
            headers.append(("Content-Type", kind))
        # Some documents tell operations apart by a fragment, which is not sent, or by a query.
        path, _, fixed = self.operation.path.partition("#")[0].partition("?")
        pairs = [escape_most(fixed)] if fixed else []
        return ApiRequest(
            self.operation.method,
            _filled(path, values),
            "&".join([*pairs, *(f"{name}={value}" for name, value in query)]),
            tuple(headers),
            content,
        )


def plan_request(operation: ApiOperation, schemas: SchemaReader) -> RequestPlan:
    """Return how calls of an operation become requests.

    Raises:
        OpenApiError: A schema cannot be read.
    """
    body = operation.body
    names = argument_names(operation.parameters, () if body is None else (_BODY,))
    required = [names[each.place, each.name] for each in operation.parameters if each.required] + (
        [_BODY] if body is not None and body.required else []
    )
    files: frozenset[str] = frozenset()

    def build(convert: Any) -> dict[str, Any]:
        nonlocal files
        properties: dict[str, Any] = {}
        for each in operation.parameters:
            schema = {} if each.schema is None else convert(each.schema)
            properties[names[each.place, each.name]] = _described(schema, each.description)
        if body is not None:
            schema = None if body.schema is None else convert(body.schema)
            files = file_fields(schema) if body.kind == "multipart" else frozenset()
            properties[_BODY] = body_schema(body, schema)
        root = {"type": "object", "properties": properties, "additionalProperties": False}
        return {**root, "required": required} if required else root

    return RequestPlan(operation, names, schemas.read("request", build), files)


def _described(schema: Any, description: str | None) -> Any:
    if description is None or not isinstance(schema, dict):
        return schema
    return {**schema, "description": description}


def _written(parameter: ApiParameter, value: Any) -> Any:
    return msgspec.json.encode(value).decode() if parameter.json else value


def _query(parameter: ApiParameter, value: Any) -> list[tuple[str, str]]:
    return query_pairs(
        parameter.name, value, parameter.style, explode=parameter.explode, reserved=parameter.reserved
    )


def _field(text: str) -> str:
    """Return the text of a header field.

    Raises:
        StyleError: A field cannot hold it (RFC 9110, section 5.5).
    """
    if not text.isascii() or not text.isprintable():
        raise StyleError("a header field holds printable ASCII characters alone")
    return text.strip(" ")


_VARIABLE: Final = re.compile(r"\{([^{}]+)\}")
_DOTS: Final = frozenset({".", ".."})


def _filled(path: str, values: Mapping[str, str]) -> str:
    """Return the path with values in place of its variables.

    Raises:
        StyleError: It leads elsewhere then: clients and servers take dots out of paths.
    """
    # Between two literals there is a variable: a split by a pattern with one group.
    parts = _VARIABLE.split(path)
    filled = "".join(values[part] if index % 2 else escape_most(part) for index, part in enumerate(parts))
    if any(part in _DOTS for part in filled.split("/")):
        raise StyleError(
            "an argument makes '.' or '..' a part of the path, which would lead to another operation"
        )
    return filled
