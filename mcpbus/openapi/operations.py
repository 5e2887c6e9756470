"""The operations of a document: their parameters, bodies and responses, each read by itself.

An operation that cannot be a tool is refused by its name with the reason, and the others remain.

Source: OpenAPI 3.0.4 and 3.1.1, "Path Item Object", "Operation Object", "Parameter Object", "Request Body Object", "Response Object".
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

import attrs

from mcpbus.openapi.document import ApiReferences, Located, OpenApiError, items_of
from mcpbus.openapi.styles import STYLES
from mcpbus.protocol.printable import quoted

METHODS: Final = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
_IGNORED_HEADERS: Final = frozenset(
    {
        *("accept", "content-type", "authorization"),
        *("host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer"),
    }
)
"""Header parameters that are left out: the specification has the first three ignored, and HTTP itself sets the others."""
_FIELD: Final = re.compile(r"[!#$%&'*+.^_`|~\w-]+", re.ASCII)
_VARIABLE: Final = re.compile(r"\{([^{}]+)\}")
_LONGEST: Final = 100

BodyKind: TypeAlias = Literal["json", "form", "multipart", "text", "binary"]


@attrs.frozen
class ApiParameter:
    """A parameter of an operation.

    Attributes:
        name: Its name in the request.
        place: "path", "query", "header" or "cookie".
        required: Whether a call must have it.
        style: One of `STYLES`.
        explode: Whether the parts of a list or an object stand by themselves.
        reserved: Whether reserved characters remain in a query.
        json: Whether its value is written as JSON, whatever its style.
        schema: The schema of its value; None admits any.
        description: The description for people and models.
    """

    name: str
    place: str
    required: bool
    style: str
    explode: bool
    reserved: bool
    json: bool
    schema: Located | None
    description: str | None


@attrs.frozen
class ApiBody:
    """The body of a request, in one of the media types that the document offers."""

    media_type: str
    kind: BodyKind
    required: bool
    schema: Located | None
    encoding: Mapping[str, Any]
    description: str | None


@attrs.frozen
class ApiOperation:
    """An operation that can be called.

    Attributes:
        method: In capitals.
        path: As the document has it, with its variables.
        id: Its ``operationId``, if it has one.
        summary: A line about it.
        description: More about it.
        tags: Its tags.
        deprecated: Whether it is about to go.
        parameters: Its parameters.
        body: Its body, if it has one.
        accepted: The media types of its successful responses.
        responses: The schemas of its successful responses; None if one of them has none that is JSON.
        servers: The servers that it alone has.
        security: What it asks for; None if the document as a whole has it.
    """

    method: str
    path: str
    id: str | None
    summary: str | None
    description: str | None
    tags: tuple[str, ...]
    deprecated: bool
    parameters: tuple[ApiParameter, ...]
    body: ApiBody | None
    accepted: tuple[str, ...]
    responses: tuple[Located, ...] | None
    servers: Located | None
    security: Any

    @property
    def key(self) -> str:
        """The method and the path, which no other operation has."""
        return f"{self.method} {self.path}"

    @property
    def safe(self) -> bool:
        """Whether the method only reads (RFC 9110, section 9.2.1)."""
        return self.method in {"GET", "HEAD", "OPTIONS", "TRACE"}

    @property
    def idempotent(self) -> bool:
        """Whether a second call changes no more than the first (RFC 9110, section 9.2.2)."""
        return self.safe or self.method in {"PUT", "DELETE"}


@attrs.frozen
class RefusedOperation:
    """An operation that is no tool, and the reason."""

    key: str
    id: str | None
    reason: str


def read_operations(references: ApiReferences) -> Iterator[ApiOperation | RefusedOperation]:
    """Yield all operations of a document, in its order.

    Raises:
        OpenApiError: There are no paths.
    """
    paths = references.root.get("paths")
    if paths is None:
        raise OpenApiError("the document has no paths: there is nothing to call")
    for path in paths.mapping():
        if path.startswith("x-"):
            continue
        item = paths.get(path)
        if item is None:
            continue
        try:
            item = _item(references, item)
        except OpenApiError as error:
            yield RefusedOperation(f"* {path}", None, str(error))
            continue
        for method in METHODS:
            operation = item.get(method)
            if operation is None:
                continue
            key = f"{method.upper()} {path}"
            given = operation.value.get("operationId") if isinstance(operation.value, dict) else None
            identity = given if isinstance(given, str) else None
            try:
                yield _read_operation(references, key, item, operation)
            except OpenApiError as error:
                yield RefusedOperation(key, identity, str(error))


def _item(references: ApiReferences, item: Located) -> Located:
    """Return a path item, with what it refers to below its own members."""
    if "$ref" not in item.mapping():
        return item
    target = references.follow(item)
    own = {name: value for name, value in item.mapping().items() if name != "$ref"}
    return attrs.evolve(target, value={**target.mapping(), **own})


def _read_operation(references: ApiReferences, key: str, item: Located, operation: Located) -> ApiOperation:
    method, _, path = key.partition(" ")
    given = operation.mapping()
    if not path.startswith("/"):
        raise OpenApiError(f"the path {quoted(path, _LONGEST)} does not begin with a slash")
    if _VARIABLE.search(path.partition("?")[2]):
        raise OpenApiError("the path has a variable in its query, which OpenAPI describes by parameters")
    parameters: dict[tuple[str, str], ApiParameter] = {}
    for owner in (item, operation):
        for part in items_of(owner.get("parameters")):
            parameter = _read_parameter(references.follow(part))
            if parameter is not None:
                parameters[parameter.place, parameter.name] = parameter
    variables = set(_VARIABLE.findall(path))
    known = {name for place, name in parameters if place == "path"}
    if missing := sorted(variables - known):
        raise OpenApiError(
            f"the path has the variable {quoted(missing[0], _LONGEST)}, and no parameter of it"
        )
    if idle := sorted(known - variables):
        for name in idle:  # nothing in the path takes its value
            del parameters["path", name]
    accepted, responses = _read_responses(references, operation)
    tags = given.get("tags")
    return ApiOperation(
        method,
        path,
        _text(given.get("operationId")),
        _text(given.get("summary") or item.value.get("summary")),
        _text(given.get("description") or item.value.get("description")),
        tuple(tag for tag in tags if isinstance(tag, str)) if isinstance(tags, list) else (),
        given.get("deprecated") is True,
        tuple(parameters.values()),
        _read_body(references, operation, method),
        accepted,
        responses,
        operation.get("servers") or item.get("servers"),
        given.get("security"),
    )


def _read_parameter(part: Located) -> ApiParameter | None:
    """Return a parameter; None for those that the specification has ignored."""
    given = part.mapping()
    name, place = given.get("name"), given.get("in")
    if not isinstance(name, str) or not name:
        raise OpenApiError(f"{part.place}: a parameter has a name")
    if not isinstance(place, str) or place not in STYLES:
        raise OpenApiError(
            f"parameter {quoted(name, _LONGEST)}: 'in' is {', '.join(STYLES)}, not {quoted(place, _LONGEST)}"
        )
    if place == "header" and name.lower() in _IGNORED_HEADERS:
        return None
    if place == "header" and not _FIELD.fullmatch(name):
        raise OpenApiError(f"parameter {quoted(name, _LONGEST)}: a header field has no such name")
    style = given.get("style", STYLES[place][0])
    if style not in STYLES[place]:
        raise OpenApiError(
            f"parameter {quoted(name, _LONGEST)}: in a {place} the style is {', '.join(STYLES[place])}, not {quoted(style, _LONGEST)}"
        )
    schema, json = part.get("schema"), False
    content = part.get("content")
    if schema is None and content is not None:
        media_type = next(iter(content.mapping()), "")
        json, schema = _is_json(media_type), content.get(media_type, "schema")
    explode = given.get("explode")
    return ApiParameter(
        name,
        place,
        place == "path" or given.get("required") is True,
        style,
        explode if isinstance(explode, bool) else style == "form",
        given.get("allowReserved") is True,
        json,
        schema,
        _text(given.get("description")),
    )


def _read_body(references: ApiReferences, operation: Located, method: str) -> ApiBody | None:
    part = operation.get("requestBody")
    if part is None or method == "TRACE":
        return None
    part = references.follow(part)
    content = part.get("content")
    if content is None or not content.mapping():
        return None
    media_type = min(content.mapping(), key=_preference)
    if not media_type.isascii() or not media_type.isprintable():
        raise OpenApiError(f"the body has the media type {quoted(media_type, _LONGEST)}, which is none")
    schema, kind = content.get(media_type, "schema"), _kind(media_type)
    if schema is not None and kind in {"form", "multipart"}:
        schema = references.follow(schema)  # its fields are written one by one
    encoding = content.get(media_type, "encoding")
    return ApiBody(
        media_type,
        kind,
        part.mapping().get("required") is True,
        schema,
        {} if encoding is None else encoding.mapping(),
        _text(part.mapping().get("description")),
    )


_KINDS: Final[tuple[BodyKind, ...]] = ("json", "form", "multipart", "text", "binary")


def _preference(media_type: str) -> int:
    return _KINDS.index(_kind(media_type))


def _kind(media_type: str) -> BodyKind:
    bare = _bare(media_type)
    if _is_json(bare):
        return "json"
    if bare == "application/x-www-form-urlencoded":
        return "form"
    if bare == "multipart/form-data":
        return "multipart"
    return "text" if bare.startswith("text/") or bare.endswith(("/xml", "+xml", "/yaml")) else "binary"


def _bare(media_type: str) -> str:
    return media_type.partition(";")[0].strip().lower()


def _is_json(media_type: str) -> bool:
    bare = _bare(media_type)
    return bare in {"application/json", "*/*", "application/*"} or bare.endswith("+json")


def _read_responses(
    references: ApiReferences, operation: Located
) -> tuple[tuple[str, ...], tuple[Located, ...] | None]:
    """Return the media types of successful responses, and their schemas if all of them are JSON."""
    responses = operation.get("responses")
    statuses = [] if responses is None else [*responses.mapping()]
    accepted: dict[str, None] = {}
    schemas: list[Located] = []
    structured = True
    # The default response is that of errors, unless there is no other.
    for status in [each for each in statuses if each.startswith("2")] or [
        each for each in statuses if each == "default"
    ]:
        assert responses is not None  # noqa: S101 - it has this status
        response = responses.get(status)
        content = None if response is None else references.follow(response).get("content")
        types = sorted([] if content is None else content.mapping(), key=lambda each: not _is_json(each))
        accepted |= dict.fromkeys(types)
        schema = (
            content.get(types[0], "schema") if content is not None and types and _is_json(types[0]) else None
        )
        structured = structured and schema is not None
        if schema is not None:
            schemas.append(schema)
    return tuple(accepted), tuple(schemas) if structured and schemas else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value.strip() else None
