"""Responses of an API as results of tools: structured output, text, images and files, or the error that the model reads."""

from http import HTTPStatus
from typing import Any, Final

import attrs
import msgspec

from mcpbus.features.content import Audio, File, Image, ToolResult
from mcpbus.features.errors import ResourceNotFoundError, ToolError
from mcpbus.features.schemas.json_schema import JsonSchema
from mcpbus.protocol.printable import printable

_LONGEST_ERROR: Final = 2000
"""Characters of an error's text that a model reads."""
_TEXTS: Final = ("text/", "application/xml", "application/yaml", "application/javascript")


@attrs.frozen
class ApiResponse:
    """A response that was read.

    Attributes:
        status: Its status.
        media_type: Its ``Content-Type`` without parameters, in small letters.
        charset: Its ``charset``, if it has one.
        content: Its body.
    """

    status: int
    media_type: str
    charset: str | None
    content: bytes


def read_result(key: str, response: ApiResponse, output: JsonSchema | None) -> ToolResult:
    """Return the result of a call.

    Args:
        key: The method and the path, for messages.
        response: The response.
        output: The schema of the structured output; None if there is none.

    Raises:
        ToolError: The response is an error, or is not as the document describes it.
    """
    if not 200 <= response.status < 300:
        raise ToolError(describe_error(response.status, response.content))
    if output is not None:
        value = _decoded(key, response.content)
        if (fault := output.faults(value)) is not None:
            raise ToolError(
                f"the response to {key} is not as its document describes it: {printable(fault, longest=500)}\n\n{_excerpt(response.content)}"
            )
        return ToolResult(structured=value)
    return _read_plain(key, response)


def read_contents(response: ApiResponse) -> File:
    """Return a response as the contents of a resource.

    Raises:
        ResourceNotFoundError: The API has no such thing.
        ToolError: The response is another error.
    """
    if response.status in {404, 410}:
        raise ResourceNotFoundError(describe_error(response.status, response.content))
    if not 200 <= response.status < 300:
        raise ToolError(describe_error(response.status, response.content))
    kind = response.media_type
    if _is_json(kind) or _is_text(kind):
        return File(_text(response.content, response.charset), mime_type=kind)
    return File(response.content, mime_type=kind or "application/octet-stream")


def _is_json(kind: str) -> bool:
    return kind == "application/json" or kind.endswith("+json")


def _is_text(kind: str) -> bool:
    return kind.startswith(_TEXTS) or kind.endswith("+xml")


def _read_plain(key: str, response: ApiResponse) -> ToolResult:
    """Return the result of a call that has no structured output, by the media type of the response."""
    kind, content = response.media_type, response.content
    made: Any
    if not content:
        made = _phrase(response.status)
    elif _is_json(kind):
        value = _decoded(key, content)
        if isinstance(value, dict):
            return ToolResult(structured=value)
        made = msgspec.json.encode(value).decode()
    elif kind.startswith("image/"):
        made = Image(content, kind)
    elif kind.startswith("audio/"):
        made = Audio(content, kind)
    elif _is_text(kind):
        made = _text(content, response.charset)
    else:
        made = File(content, "response:body", kind or "application/octet-stream")
    return ToolResult(made)


def describe_error(status: int, content: bytes) -> str:
    """Return the status and the beginning of the body of an error, safe to show."""
    excerpt = _excerpt(content)
    return f"{_phrase(status)}: {excerpt}" if excerpt else _phrase(status)


def _phrase(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def _excerpt(content: bytes) -> str:
    # A character has at most four bytes.
    text = content[: 4 * _LONGEST_ERROR + 4].decode(errors="replace").strip()
    return printable(text, longest=_LONGEST_ERROR)


def _decoded(key: str, content: bytes) -> Any:
    try:
        return msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ToolError(
            f"the response to {key} is not JSON, as its document describes it: {_excerpt(content)}"
        ) from None


def _text(content: bytes, charset: str | None) -> str:
    try:
        return content.decode(charset or "utf-8", errors="replace")
    except LookupError:
        return content.decode(errors="replace")
