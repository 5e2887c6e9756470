"""Operations of a document as tools: which of them, under which names, with which schemas, hints and descriptions."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import attrs
import msgspec

from mcpbus.core.context import Context
from mcpbus.features.content import ToolResult
from mcpbus.features.errors import RegistrationError
from mcpbus.features.output import unchecked_output
from mcpbus.features.schemas.json_schema import JsonSchema, compile_schema
from mcpbus.features.tool import Tool, ToolOptions, tool
from mcpbus.openapi.addresses import address_of
from mcpbus.openapi.api_client import ApiClient, PlannedCall
from mcpbus.openapi.choosing import OperationPattern, choose_operations
from mcpbus.openapi.document import AddressError, ApiReferences, Located, OpenApiError
from mcpbus.openapi.loosening import without_patterns
from mcpbus.openapi.operations import ApiOperation, RefusedOperation, read_operations
from mcpbus.openapi.requests import plan_request
from mcpbus.openapi.resources import PlannedResource, can_be_resource, plan_resource
from mcpbus.openapi.schemas import SchemaReader
from mcpbus.openapi.security import ApiSecurity
from mcpbus.protocol.messages import ToolAnnotations
from mcpbus.protocol.printable import printable, quoted

_log = logging.getLogger("mcpbus")

_LONGEST_SCHEMA: Final = 32 * 1024
"""Bytes of JSON of an input or output schema, before it is loosened."""
_LONGEST_DESCRIPTION: Final = 1024
_MANY: Final = 60
_REPORTED: Final = 10
_LONGEST: Final = 200


@attrs.frozen
class ToolChoice:
    """Which operations become tools.

    Attributes:
        include: Selects the only ones that do; None for all.
        exclude: Selects those that do not.
        rename: Names of tools by ``operationId``, by name, or by method and path.
        resources: Selects those that become resources instead, where they read and have no body.
        scheme: The scheme of the URIs of resources.
    """

    include: Sequence[OperationPattern] | None = None
    exclude: Sequence[OperationPattern] = ()
    rename: Mapping[str, str] = attrs.field(factory=dict)
    resources: Sequence[OperationPattern] = ()
    scheme: str = "api"

    def selects_resource(self, operation: ApiOperation, name: str) -> bool:
        """Return whether an operation becomes a resource."""
        return can_be_resource(operation) and any(each.matches(operation, name) for each in self.resources)

    def check_resources(self, chosen: Sequence[tuple[ApiOperation, str]]) -> None:
        """Refuse patterns for resources that select none.

        Raises:
            ValueError: There is one.
        """
        for pattern in self.resources:
            if not any(can_be_resource(each) and pattern.matches(each, name) for each, name in chosen):
                raise ValueError(f"resources: no GET operation without a body matches {pattern.text!r}")


@attrs.frozen
class ApiAddress:
    """The address of the API.

    Attributes:
        base_url: The address; None for that of the document.
        variables: Values for the variables of the document's address.
    """

    base_url: str | None
    variables: Mapping[str, str]

    def of(self, references: ApiReferences, operation: ApiOperation) -> str:
        """Return the address for an operation, which may have a server of its own.

        Raises:
            OpenApiError: The operation has none.
            AddressError: The document has none.
        """
        if self.base_url is not None:
            return self.base_url
        if operation.servers is not None:
            return address_of(operation.servers, operation.servers.base, self.variables)
        try:
            return address_of(references.root.get("servers"), references.root.base, self.variables)
        except OpenApiError as error:
            raise AddressError(str(error)) from None


@attrs.frozen
class ApiTools:
    """The tools and resources of a document, and the operations that are neither."""

    tools: tuple[Tool, ...]
    resources: tuple[PlannedResource, ...]
    refused: tuple[RefusedOperation, ...]


def make_tools(
    references: ApiReferences, choice: ToolChoice, address: ApiAddress, security: ApiSecurity, *, legacy: bool
) -> ApiTools:
    """Return the tools of a document.

    Raises:
        OpenApiError: The document has no operations, or no address.
        ValueError: The choice does not fit the document.
    """
    read: list[ApiOperation] = []
    refused: list[RefusedOperation] = []
    for each in read_operations(references):
        if isinstance(each, ApiOperation):
            read.append(each)
        else:
            refused.append(each)
    schemas = SchemaReader(references, legacy=legacy, longest=_LONGEST_SCHEMA)
    tools: list[Tool] = []
    resources: list[PlannedResource] = []
    chosen = choose_operations(read, choice.include, choice.exclude, choice.rename)
    choice.check_resources(chosen)
    for operation, name in chosen:
        try:
            output = _output(operation, schemas)
            schemes = security.schemes(operation.security) or ()
            planned = PlannedCall(
                plan_request(operation, schemas), address.of(references, operation), schemes, output
            )
            if choice.selects_resource(operation, name):
                resources.append(
                    plan_resource(choice.scheme, name, planned, _title(operation), _description(operation))
                )
            else:
                tools.append(_make_tool(name, planned))
        except AddressError:
            raise
        except (OpenApiError, RegistrationError, UnicodeError) as error:
            refused.append(RefusedOperation(operation.key, operation.id, str(error)))
    return ApiTools(tuple(tools), tuple(resources), tuple(refused))


def report(name: str, made: ApiTools, *, chosen: bool) -> None:
    """Log the operations that are no tools, and that there are very many tools."""
    for each in made.refused[:_REPORTED]:
        reason = printable(each.reason, lines=False, longest=500)
        _log.warning("openapi %s: %s is no tool: %s", name, quoted(each.key, _LONGEST), reason)
    if len(made.refused) > _REPORTED:
        _log.warning("openapi %s: %d other operations are no tools", name, len(made.refused) - _REPORTED)
    if len(made.tools) > _MANY and not chosen:
        _log.warning(
            "openapi %s: %d operations are tools now, and models choose badly among more than %d: choose with include=[...]",
            name,
            len(made.tools),
            _MANY,
        )


def _make_tool(name: str, planned: PlannedCall) -> Tool:
    operation, output = planned.plan.operation, planned.output

    async def call(arguments: dict[str, Any], ctx: Context[ApiClient]) -> ToolResult:
        return await ctx.state.call(planned, arguments)

    options: ToolOptions = {
        "name": name,
        "description": _description(operation),
        "annotations": ToolAnnotations(
            read_only_hint=operation.safe,
            destructive_hint=None if operation.safe else operation.method != "POST",
            idempotent_hint=operation.idempotent,
        ),
        "input_schema": planned.plan.input_schema,
        "tags": operation.tags,
    }
    if (title := _title(operation)) is not None:
        options["title"] = title
    try:
        made = tool(call, **options)
    except RegistrationError:
        options["input_schema"] = without_patterns(planned.plan.input_schema)
        made = tool(call, **options)
    return made if output is None else msgspec.structs.replace(made, output=unchecked_output(output.document))


def _output(operation: ApiOperation, schemas: SchemaReader) -> JsonSchema | None:
    """Return the schema of the structured output; None if there is none, or it cannot be used.

    The operation remains without it: its responses are text then.
    """
    if operation.responses is None:
        return None
    several: Iterable[Located] = operation.responses

    def build(convert: Any) -> dict[str, Any]:
        unique = {msgspec.json.encode(each): each for each in map(convert, several)}
        converted = [*unique.values()]
        root = converted[0] if len(converted) == 1 else {"anyOf": converted}
        return root if isinstance(root, dict) else {}

    try:
        schema = schemas.read("response", build)
        if not schema.keys() - {"$defs", "description", "title"}:
            return None  # it admits everything
        return compile_schema(schema, f"openapi {operation.key}, response")
    except (OpenApiError, RegistrationError, TypeError) as error:
        _log.debug(
            "openapi: %s has no output schema: %s", quoted(operation.key, _LONGEST), quoted(error, 500)
        )
        return None


def _title(operation: ApiOperation) -> str | None:
    return None if operation.summary is None else printable(operation.summary, lines=False, longest=100)


def _description(operation: ApiOperation) -> str:
    several = dict.fromkeys(part.strip() for part in (operation.summary, operation.description) if part)
    parts = [*several] or [operation.key]
    return printable(
        "\n\n".join(["Deprecated.", *parts] if operation.deprecated else parts), longest=_LONGEST_DESCRIPTION
    )
