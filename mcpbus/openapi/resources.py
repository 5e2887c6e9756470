"""GET operations as resources: the path is the URI, and parameters are its variables."""

import inspect
import keyword
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import attrs

from mcpbus.core.context import Context
from mcpbus.features.content import File
from mcpbus.features.resource import ResourceOptions, make_resource
from mcpbus.openapi.api_client import ApiClient, PlannedCall
from mcpbus.openapi.document import OpenApiError
from mcpbus.openapi.operations import ApiOperation, ApiParameter

_VARIABLE: Final = re.compile(r"\{([^{}]+)\}")


@attrs.frozen
class PlannedResource:
    """A resource, as a server registers it.

    Attributes:
        uri: The URI, or the template of one.
        function: Reads it.
        options: Its name, its title and the like.
    """

    uri: str
    function: Callable[..., Awaitable[File]]
    options: ResourceOptions


def can_be_resource(operation: ApiOperation) -> bool:
    """Whether an operation may become a resource: it reads, and has no body."""
    return operation.method == "GET" and operation.body is None


def scheme_of(name: str) -> str:
    """Return the scheme of the URIs of a server (RFC 3986, section 3.1)."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-0123456789") or "api"


def plan_resource(
    scheme: str, name: str, planned: PlannedCall, title: str | None, description: str
) -> PlannedResource:
    """Return a resource for an operation.

    Raises:
        OpenApiError: It needs an argument that a URI cannot have.
        RegistrationError: The URI cannot be used.
    """
    operation = planned.plan.operation
    taken = _taken(operation.parameters)
    names = _variables(taken)
    for each in operation.parameters:
        if each.required and each not in taken:
            raise OpenApiError(
                f"a resource has no place for the {each.place} parameter {each.name!r}: leave it a tool"
            )
    arguments = {
        names[each.place, each.name]: planned.plan.arguments[each.place, each.name] for each in taken
    }
    by_name = {each.name: names[each.place, each.name] for each in taken if each.place == "path"}
    path = _VARIABLE.sub(lambda found: f"{{{by_name[found[1]]}}}", operation.path)
    query = ",".join(names[each.place, each.name] for each in taken if each.place == "query")
    uri = f"{scheme}:/{path}{f'{{?{query}}}' if query else ''}"

    async def read(ctx: Context[ApiClient], **values: str | None) -> File:
        given = {arguments[each]: value for each, value in values.items() if value is not None}
        return await ctx.state.read(planned, given)

    _sign(read, taken, names)
    options: ResourceOptions = {"name": name, "description": description}
    if title is not None:
        options["title"] = title
    make_resource(uri, read, options)
    return PlannedResource(uri, read, options)


def _taken(parameters: Sequence[ApiParameter]) -> list[ApiParameter]:
    """Return the parameters that a URI has a place for: those of the path, and those of the query that are one text."""
    return [
        each
        for each in parameters
        if each.place == "path" or (each.place == "query" and not each.json and _is_one_text(each))
    ]


def _is_one_text(parameter: ApiParameter) -> bool:
    schema = None if parameter.schema is None else parameter.schema.value
    kind = schema.get("type") if isinstance(schema, dict) else None
    kinds = {kind} if isinstance(kind, str) else {*kind} if isinstance(kind, list) else set()
    return bool(kinds) and not kinds & {"array", "object"}


def _variables(parameters: Sequence[ApiParameter]) -> dict[tuple[str, str], str]:
    """Return a name for each variable, which is a name in RFC 6570 and in Python."""
    names: dict[tuple[str, str], str] = {}
    for each in parameters:
        name = re.sub(r"[^A-Za-z0-9_]", "_", each.name)
        if not name.isidentifier() or keyword.iskeyword(name) or name == "ctx":
            name = f"{each.place}_{name}"
        while name in names.values():
            name = f"{each.place}_{name}"
        names[each.place, each.name] = name
    return names


def _sign(function: Any, taken: Sequence[ApiParameter], names: dict[tuple[str, str], str]) -> None:
    """Give a function that takes any names the signature of the URI."""
    parameter = inspect.Parameter
    signed = [parameter("ctx", parameter.KEYWORD_ONLY, annotation=Context[ApiClient])]
    for each in taken:
        kind, default = (str, parameter.empty) if each.required else (str | None, None)
        signed.append(
            parameter(names[each.place, each.name], parameter.KEYWORD_ONLY, annotation=kind, default=default)
        )
    function.__signature__ = inspect.Signature(signed, return_annotation=File)
    function.__annotations__ = {**{each.name: each.annotation for each in signed}, "return": File}
