"""What a tool takes: the input schema that lists show, and the decoder from raw JSON to the function's arguments.

Both are built once, at registration. There are two kinds: read from the signature (`TypedArguments`), and written
by hand (`HandWrittenArguments`, where the schema is the author's and the function takes one dict).
"""

import copy
import enum
import re
from functools import cached_property, partial
from typing import Any, Protocol

import msgspec
from msgspec.structs import asdict

from mcpbus.features.errors import RegistrationError
from mcpbus.features.fields import Factory
from mcpbus.features.keywords import check_told
from mcpbus.features.schemas import jsontypes
from mcpbus.features.schemas.handwritten import HandWritten, JsonSchema, compile_schema
from mcpbus.features.signature import Parameter, Signature
from mcpbus.protocol.json_faults import find_non_finite
from mcpbus.protocol.large import decode_large
from mcpbus.protocol.meta import CallReader, call_type

# A refusal tells enough to correct the call and does not grow with it.
_LONGEST_REFUSAL = 1000
_CONSTANTS = frozenset({type(None), bool, int, float, str, bytes, type(msgspec.UNSET)})
_SCALARS = frozenset({"string", "integer", "number", "boolean", "null"})


class InvalidArgumentsError(Exception):
    """Arguments that the tool's input schema does not admit; the text names them and may go to the model."""

    def __init__(self, text: str) -> None:
        """Say what is wrong, in at most 1000 characters."""
        super().__init__(text if len(text) <= _LONGEST_REFUSAL else text[: _LONGEST_REFUSAL - 1] + "…")


class Arguments(Protocol):
    """What a tool takes."""

    @property
    def schema(self) -> msgspec.Raw:
        """The input schema, encoded, on one line."""

    @property
    def document(self) -> dict[str, Any]:
        """The input schema, decoded."""

    @property
    def call_reader(self) -> CallReader | None:
        """What reads them together with the message that brings them; None if they are left for later."""

    def has_read(self, arguments: msgspec.Struct) -> bool:
        """Whether `call_reader` has read these, and not that of another tool of the same name."""

    def decode(self, raw: bytes | msgspec.Raw | msgspec.Struct) -> dict[str, Any]:
        """The function's keyword arguments, from a JSON object, or from what `call_reader` made of it.

        Raises:
            InvalidArgumentsError: the object is not what the schema says.
        """


def read_arguments(signature: Signature, input_schema: HandWritten | None) -> Arguments:
    """What the function of `signature` takes, under `input_schema` if its author wrote one.

    Raises:
        RegistrationError: an annotation without a JSON form, or a schema that cannot be used.
    """
    if input_schema is not None:
        return _hand_written(signature, input_schema)
    return _typed(signature)


class TypedArguments:
    """Arguments as a function's signature declares them.

    Args:
        kind: A type that has them as its fields.
        document: The input schema.

    Attributes:
        schema: The same, encoded.
        document: As given.
    """

    def __init__(self, kind: type[msgspec.Struct], document: dict[str, Any]) -> None:
        decode = jsontypes.decoder_for(kind).decode
        self.schema = msgspec.Raw(msgspec.json.encode(document))
        self.document = document
        self._kind = kind
        self._asdict = _given if any(each is msgspec.UNSET for each in kind.__struct_defaults__) else asdict
        # Text and numbers give the collector nothing to look through, however long they are.
        self._flat = all(map(_is_scalar, document["properties"].values()))
        self._decode = decode if self._flat else partial(decode_large, decode)

    @cached_property
    def call_reader(self) -> CallReader | None:
        """See `Arguments.call_reader`.

        What is not flat may grow when it is decoded, and is counted before that. And no code of the author's, as pydantic models
        have it, runs before it is known who may call the tool.
        """
        if not self._flat or jsontypes.has_models(self._kind):
            return None
        return jsontypes.decoder_for(call_type(self._kind)).decode

    def has_read(self, arguments: msgspec.Struct) -> bool:
        """See `Arguments.has_read`."""
        return type(arguments) is self._kind

    def decode(self, raw: bytes | msgspec.Raw | msgspec.Struct) -> dict[str, Any]:
        """See `Arguments.decode`."""
        if isinstance(raw, msgspec.Struct):
            return self._asdict(raw)
        try:
            try:
                given = self._decode(raw)
            except msgspec.ValidationError as error:
                if not jsontypes.wants_whole_numbers(error):
                    raise
                given = self._decode(jsontypes.with_whole_numbers(raw))
            return self._asdict(given)
        except (msgspec.DecodeError, RecursionError) as error:
            raise InvalidArgumentsError(_explain(str(error), self.document)) from error


class HandWrittenArguments(msgspec.Struct, frozen=True, eq=False):
    """Arguments under a hand-written schema: the function's one parameter receives them all."""

    _schema: JsonSchema
    _parameter: str
    _convert: Any

    call_reader = None

    def has_read(self, arguments: msgspec.Struct) -> bool:  # noqa: ARG002 - they are somebody else's
        """See `Arguments.has_read`."""
        return False

    @property
    def schema(self) -> msgspec.Raw:
        """See `Arguments.schema`."""
        return self._schema.text

    @property
    def document(self) -> dict[str, Any]:
        """See `Arguments.document`."""
        document: dict[str, Any] = self._schema.document
        return document

    def decode(self, raw: bytes | msgspec.Raw | msgspec.Struct) -> dict[str, Any]:
        """See `Arguments.decode`."""
        assert not isinstance(raw, msgspec.Struct)  # noqa: S101 - there is no reader
        try:
            value = decode_large(msgspec.json.decode, raw)
            if (faults := self._schema.faults(value)) is not None:
                raise InvalidArgumentsError(f"the arguments do not match the input schema: {faults}")
            return {self._parameter: self._convert(value)}
        except (msgspec.DecodeError, RecursionError) as error:
            raise InvalidArgumentsError(_explain(str(error), self.document)) from error


def _typed(signature: Signature) -> TypedArguments:
    fields = [_field(parameter) for parameter in signature.parameters]
    try:
        struct = msgspec.defstruct(
            "Arguments",
            fields,
            namespace={"__doc__": None},
            forbid_unknown_fields=True,
            kw_only=True,
            gc=False,
        )
        jsontypes.decoder_for(struct)
        document = jsontypes.schema_of(struct)
    except (TypeError, ValueError, NotImplementedError) as error:
        raise RegistrationError(
            f"{signature.owner}: its parameters have no JSON form: {error}. Use builtins, Literal, Enum, TypedDict, "
            f"dataclasses, attrs, msgspec Structs or pydantic models, or give an input_schema by hand"
        ) from error
    document.pop("title", None)
    if not document["required"]:
        del document["required"]
    for parameter in signature.parameters:
        if not (parameter.required or isinstance(parameter.default, Factory)):
            schema, told = document["properties"][parameter.name], _default(parameter, signature.owner)
            if find_non_finite(told) is None:
                schema["default"] = told
            else:  # JSON has no such number: clients would be told null, which may be refused
                schema.pop("default", None)
    check_told(f"{signature.owner}, input schema", document)
    return TypedArguments(struct, document)


def _given(arguments: msgspec.Struct) -> dict[str, Any]:
    """The arguments but for those that the function has a default for, or a factory, which nobody else is to see."""
    return {name: value for name, value in asdict(arguments).items() if value is not msgspec.UNSET}


def _is_scalar(schema: dict[str, Any]) -> bool:
    if "anyOf" in schema:
        return all(map(_is_scalar, schema["anyOf"]))
    return "enum" in schema or schema.get("type") in _SCALARS


def _field(parameter: Parameter) -> tuple[str, Any] | tuple[str, Any, Any]:
    if parameter.required:
        return parameter.name, parameter.annotation
    if isinstance(parameter.default, Factory):
        return parameter.name, parameter.annotation | msgspec.UnsetType, msgspec.UNSET
    if type(parameter.default) not in _CONSTANTS and not isinstance(parameter.default, enum.Enum):
        # One call must not see what another did to the default. And msgspec, which puts constants into the schema, fails at those of a
        # type that was taught to it, such as a path; see `_default`.
        return (
            parameter.name,
            parameter.annotation,
            msgspec.field(default_factory=partial(copy.deepcopy, parameter.default)),
        )
    return parameter.name, parameter.annotation, parameter.default


def _default(parameter: Parameter, owner: str) -> Any:
    """What clients are told of a default, of which each call is given a copy."""
    try:
        told = jsontypes.to_builtins(parameter.default)
    except (TypeError, ValueError) as error:
        raise RegistrationError(
            f"{owner}, parameter {parameter.name!r}: clients are told its default, which JSON cannot say: {error}"
        ) from error
    try:
        copy.deepcopy(parameter.default)
    except Exception as error:
        raise RegistrationError(
            f"{owner}, parameter {parameter.name!r}: each call is given a copy of its default, which cannot be copied: {error}"
        ) from error
    return told


def _hand_written(signature: Signature, input_schema: HandWritten) -> HandWrittenArguments:
    schema = compile_schema(input_schema, f"{signature.owner}, input_schema")
    if not isinstance(schema.document, dict) or schema.document.get("type") != "object":
        raise RegistrationError(f'{signature.owner}: the root of an input_schema must say "type": "object"')
    parameter = signature.only_parameter
    return HandWrittenArguments(
        schema, parameter.name, partial(jsontypes.convert_strictly, kind=parameter.annotation)
    )


_FAULT = re.compile(r"^(?P<fault>.+?)(?: - at `\$\.?(?P<place>.*)`)?$", re.DOTALL)
_FIELD = re.compile(r"^Object (?P<kind>missing required|contains unknown) field `(?P<name>.*)`$", re.DOTALL)


def _explain(fault: str, document: dict[str, Any]) -> str:
    """Reword a fault of the decoder for somebody who sees arguments and not Python."""
    found = _FAULT.match(fault)
    fault, place = (found["fault"], found["place"]) if found else (fault, None)
    field = _FIELD.match(fault)
    if field is None:
        return f"argument `{place}`: {fault}" if place else fault
    name = f"{place}.{field['name']}" if place else field["name"]
    if field["kind"] == "missing required":
        kind = _kind(document["properties"][name]) if not place else ""
        return f"missing required argument `{name}`{kind}"
    known = (
        "" if place else "; expected " + (", ".join(f"`{key}`" for key in document["properties"]) or "none")
    )
    return f"unknown argument `{name}`{known}"


def _kind(schema: dict[str, Any]) -> str:
    """The expected type in a word or two, or nothing where one word would not do."""
    if "enum" in schema:
        return " (one of " + ", ".join(map(str, schema["enum"])) + ")"
    kind = schema.get("type") or schema.get("$ref", "").rpartition("/")[2]
    return f" ({kind})" if isinstance(kind, str) and kind else ""
