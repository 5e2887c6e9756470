"""What a tool gives back: its output schema, its structured content, and the same as text.

A return annotation that says what the data is becomes the output schema. One that says nothing (none, Any, None) or
only prose and content (str, Image, content blocks, ToolResult) makes a tool without structured content.

What a revision takes differs (rules F-6 to F-9): from 2026-07-28 any JSON value, in 2025-06-18 and 2025-11-25 only
objects, before nothing. So where only objects go, a value of another type is wrapped as ``{"result": value}``, and the
schema with it. A hand-written schema of another type is left out there, with its content: it is not ours to rewrite.
"""

import types
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin

import msgspec

from mcpbus.features.content import CONTENT, ToolResult
from mcpbus.features.errors import RegistrationError
from mcpbus.features.option_types import check_told
from mcpbus.features.schemas import python_types
from mcpbus.features.schemas.faults import InvalidValueError
from mcpbus.features.schemas.json_schema import HandWritten, compile_schema
from mcpbus.features.schemas.parameter import MISSING
from mcpbus.features.signature import Signature
from mcpbus.protocol.json_faults import find_non_finite
from mcpbus.protocol.revisions import Revision, Structured

if TYPE_CHECKING:  # pydantic comes with the first tool
    from mcpbus.features.schemas.validation import Validator


class NonConformingResultError(Exception):
    """A function returned what its own output schema does not admit: the server's fault, for its log only."""


class Output(msgspec.Struct, frozen=True, eq=False):
    """The structured side of a tool's results."""

    _schema: msgspec.Raw
    _wrapped_schema: msgspec.Raw | None
    """The schema where only objects go; None where there is none to show."""
    _wraps: bool
    _write: Callable[[Any], bytes]
    """Returns the JSON of a result, or raises `NonConformingResultError`."""
    _checked: bool = True
    """Whether results are held to the schema here; an upstream server has done so with its own."""

    def schema(self, revision: Revision) -> msgspec.Raw | None:
        """The output schema that a list of `revision` shows, or None."""
        if not revision.output_schema:
            return None
        return self._schema if revision.structured_content is Structured.ANY else self._wrapped_schema

    def encode(self, value: Any) -> bytes:
        """Return the JSON of a result.

        Raises:
            NonConformingResultError: The result is not of the schema.
            TypeError: It has no JSON form.
        """
        return self._write(value)

    def check_left_out(self) -> None:
        """Refuse a result that has no structure.

        Raises:
            NonConformingResultError: Results are held to the schema.
        """
        if self._checked:
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
    from mcpbus.features.schemas.validation import value_validator  # noqa: PLC0415 - pydantic comes with the first tool

    try:
        validator = value_validator(
            signature.returns, f"{signature.owner}, return annotation", instances=True
        )
        document = validator.schema("serialization")
    except RegistrationError:
        raise
    except (TypeError, ValueError, NotImplementedError) as error:
        raise RegistrationError(
            f"{signature.owner}: its return annotation has no JSON form: {error}. Annotate what JSON can hold, "
            f"or -> ToolResult with content of your own"
        ) from error
    check_told(f"{signature.owner}, output schema", document)
    return _output(document, _typed_writer(validator))


def _output(document: Mapping[str, Any], write: Callable[[Any], bytes], *, checked: bool = True) -> Output:
    wraps = document.get("type") != "object"
    raw = msgspec.Raw(python_types.encode_typed(document))
    wrapped = msgspec.Raw(python_types.encode_typed(_wrap(document))) if wraps else raw
    return Output(raw, wrapped, wraps, write, checked)


def _hand_written(output_schema: HandWritten, owner: str) -> Output:
    schema = compile_schema(output_schema, owner)
    if not isinstance(schema.document, dict):
        raise RegistrationError(f"{owner}: the protocol wants an object here, not {schema.document}")
    is_object = schema.document.get("type") == "object"

    def write(value: Any) -> bytes:
        encoded = python_types.encode(value)
        _refuse(schema.faults(msgspec.json.decode(encoded)), value)
        return encoded

    return Output(schema.text, schema.text if is_object else None, _wraps=False, _write=write)


def unchecked_output(document: Mapping[str, Any]) -> Output:
    """Return the structured output of an upstream server's tool, by the schema that its server enforces."""
    return _output(document, python_types.encode, checked=False)


def _typed_writer(validator: "Validator") -> Callable[[Any], bytes]:
    """Return the function that validates results and writes their JSON.

    msgspec writes what it writes as pydantic lists it, several times faster. The JSON is held to the type.
    """

    def write(value: Any) -> bytes:
        encoded = python_types.encode(value)
        _refuse(validator.check(encoded), value)
        return encoded

    def write_by_type(value: Any) -> bytes:
        try:
            return validator.write(value)
        except InvalidValueError as error:
            _refuse(str(error), value)
            raise AssertionError from error

    return write if validator.plain else write_by_type


def _refuse(fault: str | None, value: Any) -> None:
    if fault is not None:
        fault = find_non_finite(value) or fault
        raise NonConformingResultError(f"the result does not match the output schema: {fault}")


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
