"""The arguments of a function: the input schema that lists show, and the decoder from raw JSON to keyword arguments.

Both are built once, at registration. There are two kinds: read from the signature (`TypedArguments`), and written
by hand (`HandWrittenArguments`, where the schema is the author's and the function takes one dict).
"""

from functools import cache
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeAlias

import attrs
import msgspec

from mcpbus.features.errors import RegistrationError
from mcpbus.features.option_types import check_told
from mcpbus.features.schemas.faults import InvalidValueError
from mcpbus.features.schemas.json_schema import HandWritten, JsonSchema, compile_schema
from mcpbus.features.signature import Signature
from mcpbus.protocol.large import decode_without_gc
from mcpbus.protocol.meta import CallReader, call_type

if TYPE_CHECKING:  # pydantic is imported with the first tool
    from mcpbus.features.schemas.validation import Validator

# A refusal tells enough to correct the call and does not grow with it.
_LONGEST_REFUSAL: Final = 1000

Given: TypeAlias = bytes | msgspec.Raw | dict[str, Any]
"""The arguments of a call: JSON, or the members of a `call_reader`, which are texts, numbers, booleans and null."""


class InvalidArgumentsError(Exception):
    """Arguments that the tool's input schema does not admit; the text names them and may go to the model."""

    def __init__(self, text: str) -> None:
        """Say what is wrong, in at most 1000 characters."""
        super().__init__(text if len(text) <= _LONGEST_REFUSAL else text[: _LONGEST_REFUSAL - 1] + "…")


class Arguments(Protocol):
    """The arguments of a function."""

    @property
    def schema(self) -> msgspec.Raw:
        """The input schema, encoded, on one line."""

    @property
    def document(self) -> dict[str, Any]:
        """The input schema, decoded."""

    @property
    def call_reader(self) -> CallReader | None:
        """The decoder of a message and its arguments in one go; None if the arguments are decoded later."""

    def strictly(self) -> Self:
        """Return arguments that read no text as JSON."""

    def decode(self, given: Given) -> dict[str, Any]:
        """Return the function's keyword arguments.

        Raises:
            InvalidArgumentsError: The arguments are not of the schema.
        """


def read_arguments(signature: Signature, input_schema: HandWritten | None) -> Arguments:
    """Return the arguments of a function, under `input_schema` if its author wrote one.

    Raises:
        RegistrationError: An annotation has no JSON form, or the schema cannot be used.
    """
    if input_schema is not None:
        return _hand_written(signature, input_schema)
    return typed_arguments(signature)


@attrs.frozen(eq=False)
class TypedArguments:
    """Arguments as a function's signature declares them.

    Attributes:
        validator: The validator of all of them.
        document: The input schema.
        schema: The same, encoded.
        texts: Whether a text is read as JSON where the schema allows no text.
    """

    validator: "Validator"
    document: dict[str, Any]
    schema: msgspec.Raw
    texts: bool = True

    @property
    def call_reader(self) -> CallReader | None:
        """The decoder of a message, where no argument can grow when it is decoded. No code of the author's runs in it."""
        return _scalar_reader() if self.validator.scalar else None

    def strictly(self) -> Self:  # noqa: D102 - as `Arguments` says
        return attrs.evolve(self, texts=False)

    def decode(self, given: Given) -> dict[str, Any]:  # noqa: D102 - as `Arguments` says
        try:
            if isinstance(given, dict):
                members = given
            elif self.validator.scalar:
                # Texts and numbers give the garbage collector nothing to look through, however long they are.
                members = _decode_members(given)
            else:
                members = decode_without_gc(_decode_members, given)
            arguments: dict[str, Any] = self.validator.read(members, texts=self.texts)
        except InvalidValueError as error:
            text = error.describe("argument", self.document["properties"])
            raise InvalidArgumentsError(text) from error
        except (msgspec.DecodeError, RecursionError) as error:
            raise InvalidArgumentsError(str(error)) from error
        return arguments


@attrs.frozen(eq=False)
class HandWrittenArguments:
    """Arguments under a hand-written schema: the function's one parameter receives them all."""

    _schema: JsonSchema
    _parameter: str
    _validator: "Validator"

    call_reader = None

    @property
    def schema(self) -> msgspec.Raw:  # noqa: D102 - as `Arguments` says
        return self._schema.text

    @property
    def document(self) -> dict[str, Any]:  # noqa: D102 - as `Arguments` says
        document: dict[str, Any] = self._schema.document
        return document

    def strictly(self) -> Self:  # noqa: D102 - as `Arguments` says
        return self

    def decode(self, given: Given) -> dict[str, Any]:  # noqa: D102 - as `Arguments` says
        try:
            value = given if isinstance(given, dict) else decode_without_gc(msgspec.json.decode, given)
            if (faults := self._schema.faults(value)) is not None:
                raise InvalidArgumentsError(f"the arguments do not match the input schema: {faults}")
            return {self._parameter: self._validator.read(value, texts=False)}
        except InvalidValueError as error:
            raise InvalidArgumentsError(error.describe("argument")) from error
        except (msgspec.DecodeError, RecursionError) as error:
            raise InvalidArgumentsError(str(error)) from error


def typed_arguments(signature: Signature) -> TypedArguments:
    """Return the arguments of a function by its signature.

    Raises:
        RegistrationError: An annotation has no JSON form, or a part of it would have no effect.
    """
    from mcpbus.features.schemas.validation import object_validator  # noqa: PLC0415 - as said above

    try:
        validator = object_validator(signature.parameters, signature.owner)
        document = validator.schema()
    except (TypeError, ValueError, NotImplementedError) as error:
        if isinstance(error, RegistrationError):
            raise
        by_hand = ", or give an input_schema by hand" if signature.owner.startswith("tool ") else ""
        fault = str(error)
        if not fault.startswith(signature.owner):
            fault = f"{signature.owner}: its parameters have no JSON form: {fault}"
        raise RegistrationError(
            f"{fault}. Use builtins, Literal, Enum, TypedDict, "
            f"dataclasses, attrs classes, msgspec Structs or pydantic models{by_hand}"
        ) from error
    check_told(f"{signature.owner}, input schema", document)
    return TypedArguments(validator, document, msgspec.Raw(msgspec.json.encode(document)))


def _hand_written(signature: Signature, input_schema: HandWritten) -> HandWrittenArguments:
    from mcpbus.features.schemas.validation import value_validator  # noqa: PLC0415 - as said above

    schema = compile_schema(input_schema, f"{signature.owner}, input_schema")
    if not isinstance(schema.document, dict) or schema.document.get("type") != "object":
        raise RegistrationError(f'{signature.owner}: the root of an input_schema must say "type": "object"')
    parameter = signature.only_parameter
    place = f"{signature.owner}, parameter {parameter.name!r}"
    try:
        validator = value_validator(parameter.annotation, place)
    except TypeError as error:
        raise RegistrationError(f"{place}: its type has no JSON form: {error}") from error
    return HandWrittenArguments(schema, parameter.name, validator)


_Scalar: TypeAlias = str | int | float | bool | None
_decode_members: Final = msgspec.json.Decoder(dict[str, Any]).decode


@cache
def _scalar_reader() -> CallReader:
    return msgspec.json.Decoder(call_type(dict[str, _Scalar])).decode
