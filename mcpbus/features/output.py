"""What a tool gives back: its output schema, its structured content, and the same as text.

A return annotation that says what the data is becomes the output schema. One that says nothing (none, Any, None) or
only prose and content (str, Image, content blocks, ToolResult) makes a tool without structured content.

What a revision takes differs (rules F-6 to F-9): from 2026-07-28 any JSON value, in 2025-06-18 and 2025-11-25 only
objects, before nothing. So where only objects go, a value of another type is wrapped as ``{"result": value}``, and the
schema with it. A hand-written schema of another type is left out there, with its content: it is not ours to rewrite.
"""

import types
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec

from mcpbus.features.content import CONTENT, ToolResult
from mcpbus.features.errors import RegistrationError
from mcpbus.features.keywords import check_told
from mcpbus.features.schemas import jsontypes
from mcpbus.features.schemas.handwritten import HandWritten, compile_schema
from mcpbus.features.signature import MISSING, Signature
from mcpbus.protocol.json_faults import find_non_finite
from mcpbus.protocol.revisions import Revision, Structured


class NonConformingResultError(Exception):
    """A function returned what its own output schema does not admit: the server's fault, for its log only."""


class Output(msgspec.Struct, frozen=True, eq=False):
    """The structured side of a tool's results."""

    _schema: msgspec.Raw
    _wrapped_schema: msgspec.Raw | None
    """The schema where only objects go; None where there is none to show."""
    _wraps: bool
    _check: Callable[[bytes], str | None] | None
    """What finds faults; None where another server has held results against its schema, or has not."""

    def schema(self, revision: Revision) -> msgspec.Raw | None:
        """The output schema that a list of `revision` shows, or None."""
        if not revision.output_schema:
            return None
        return self._schema if revision.structured_content is Structured.ANY else self._wrapped_schema

    def check(self, encoded: bytes, value: Any) -> None:
        """Hold the JSON of a result against the schema.

        Args:
            encoded: the JSON.
            value: what it is of.

        Raises:
            NonConformingResultError: it does not conform.
        """
        if self._check is not None and (fault := self._check(encoded)) is not None:
            fault = find_non_finite(value) or fault
            raise NonConformingResultError(f"the result does not match the output schema: {fault}")

    def check_left_out(self) -> None:
        """Refuse a result that has no structure.

        Raises:
            NonConformingResultError: it does not conform.
        """
        if self._check is not None:
            raise NonConformingResultError(
                "a ToolResult without `structured`, though the tool has an output schema"
            )

    def structure(self, encoded: bytes, revision: Revision) -> bytes | None:
        """The ``structuredContent`` for the JSON of a result, or None where `revision` takes none."""
        if revision.structured_content is Structured.ANY:
            return encoded
        if revision.structured_content is Structured.NEVER or self._wrapped_schema is None:
            return None
        if self._wraps:
            return b'{"result":%b}' % encoded
        return encoded if encoded.startswith(b"{") else None


def read_output(signature: Signature, output_schema: HandWritten | None) -> Output | None:
    """The structured output of the function of `signature`, or None if it has none.

    Raises:
        RegistrationError: the return annotation has no JSON form, or the schema cannot be used.
    """
    if output_schema is not None:
        return _hand_written(output_schema, f"{signature.owner}, output_schema")
    if _is_prose(signature.returns):
        return None
    try:
        document = jsontypes.schema_of(signature.returns, serialized=True)
    except (TypeError, ValueError, NotImplementedError) as error:
        raise RegistrationError(
            f"{signature.owner}: its return annotation has no JSON form: {error}. Annotate what JSON can hold, "
            f"or -> ToolResult with content of your own"
        ) from error
    check_told(f"{signature.owner}, output schema", document)
    wraps = document.get("type") != "object"
    raw = msgspec.Raw(jsontypes.encode_typed(document))
    wrapped = msgspec.Raw(jsontypes.encode_typed(_wrap(document))) if wraps else raw
    return Output(raw, wrapped, wraps, _typed_check(signature.returns, document, signature.owner))


def _hand_written(output_schema: HandWritten, owner: str) -> Output:
    schema = compile_schema(output_schema, owner)
    if not isinstance(schema.document, dict):
        raise RegistrationError(f"{owner}: the protocol wants an object here, not {schema.document}")
    is_object = schema.document.get("type") == "object"

    def check(encoded: bytes) -> str | None:
        return schema.faults(msgspec.json.decode(encoded))

    return Output(schema.text, schema.text if is_object else None, _wraps=False, _check=check)


def unchecked_output(document: Mapping[str, Any]) -> Output:
    """The structured output that another server's tool has, by its schema, to which that server holds it."""
    raw = msgspec.Raw(jsontypes.encode(document))
    wraps = document.get("type") != "object"
    wrapped = msgspec.Raw(jsontypes.encode(_wrap(document))) if wraps else raw
    return Output(raw, wrapped, wraps, _check=None)


def _typed_check(kind: Any, document: dict[str, Any], owner: str) -> Callable[[bytes], str | None]:
    """A check of encoded results: by the type itself where JSON can be read back into it, else by the schema.

    It cannot be read back into a union of several object types, nor into a pydantic model that shows computed fields.
    """
    if not jsontypes.has_models(kind):
        try:
            decode = jsontypes.decoder_for(kind).decode
        except TypeError:
            pass
        else:

            def check(encoded: bytes) -> str | None:
                try:
                    decode(encoded)
                except msgspec.ValidationError as error:
                    return str(error)
                return None

            return check
    compiled = compile_schema(document, f"{owner}, whose result is held against its schema")
    return lambda encoded: compiled.faults(msgspec.json.decode(encoded))


def _wrap(document: Mapping[str, Any]) -> dict[str, Any]:
    # Definitions stay at the root, where the references look for them.
    inner = {key: value for key, value in document.items() if key != "$defs"}
    wrapped = {"type": "object", "properties": {"result": inner}, "required": ["result"]}
    return {**wrapped, "$defs": document["$defs"]} if "$defs" in document else wrapped


_PROSE = (MISSING, Any, object, None, type(None), str, list, tuple, ToolResult, *CONTENT)


def _is_prose(annotation: Any) -> bool:
    """Whether the annotation promises text and content rather than data."""
    if any(annotation is kind for kind in _PROSE):
        return True
    origin = get_origin(annotation)
    if origin is Annotated:
        return _is_prose(get_args(annotation)[0])
    if origin in {Union, types.UnionType}:
        members = get_args(annotation)
        return any(_holds_content(member) for member in members) or all(
            _is_prose(member) for member in members
        )
    return _holds_content(annotation) or (origin in {list, tuple} and Any in get_args(annotation))


def _holds_content(annotation: Any) -> bool:
    return annotation in (ToolResult, *CONTENT) or any(_holds_content(part) for part in get_args(annotation))
