"""The engine for values: pydantic validates them and describes faults, and its adapter gives the JSON Schema.

Decoded JSON is validated by pydantic's Python mode, so that an author's types mean what they mean in every program with pydantic,
with one difference: a boolean is no number, and a number no boolean, as in JSON Schema. Models write two things otherwise, and both
are accepted: ``5.0`` for a whole number, and a text that holds a value (``"5"``) where the schema allows no text.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Annotated, Any, Final

import attrs
import msgspec
from pydantic import (
    ConfigDict,
    GetCoreSchemaHandler,
    PydanticSchemaGenerationError,
    PydanticUserError,
    TypeAdapter,
)
from pydantic_core import CoreSchema, ValidationError

from mcpbus.features.schemas import records
from mcpbus.features.schemas.branching import find_deepest, is_deeper
from mcpbus.features.schemas.faults import Fault, InvalidValueError
from mcpbus.features.schemas.listing import Mode, Schema, list_schema
from mcpbus.features.schemas.parameter import Parameter
from mcpbus.features.schemas.survey import is_scalar, survey
from mcpbus.features.schemas.translation import SchemaUse, translate
from mcpbus.protocol.large import decode_without_gc

_MOST_FAULTS: Final = 1_000
"""pydantic's list of more faults would take much memory."""
_LARGEST_WHOLE: Final = 2**53 - 1
"""Beyond it a float does not tell one integer from the next."""
_WANT_NO_TEXT: Final = frozenset({"none_required", "literal_error", "enum", "is_instance_of", "sequence_str"})
"""The faults, with those that end in ``_type``, of a text that stands for another kind of value."""
_READ_BY_PYDANTIC: Final = frozenset(
    f"{name}_type"
    for name in [
        "string",
        "bytes",
        "date",
        "datetime",
        "time",
        "time_delta",
        "decimal",
        "uuid",
        "url",
        "int",
        "float",
        "bool",
        "complex",
    ]
)
_TOO_DEEP: Final = (
    "Input should be nested at most {} times, since it is of a recursive union without a discriminator"
)
_SAME_IN_JSON: Final = frozenset(
    {
        "string_type",
        "int_type",
        "float_type",
        "bool_type",
        "list_type",
        "dict_type",
        "missing",
        "extra_forbidden",
    }
)
"""The faults that a value other than a text has in JSON, too."""
_UNFIT: Final = "Unable to apply constraint"
"""pydantic's TypeError for a bound that does not fit a member of a union."""
_CONFIG: Final = ConfigDict(ser_json_bytes="base64", ser_json_inf_nan="constants")


@attrs.frozen
class Validator:
    """Validates the values of one type.

    Attributes:
        adapter: pydantic's adapter of the type, which keeps numbers, booleans and texts apart.
        plain: Whether msgspec writes all values of the type as its schema lists them.
        scalar: Whether all members of the type are texts, numbers, booleans or null.
    """

    adapter: TypeAdapter[Any]
    plain: bool
    scalar: bool
    _make_lax: Callable[[], TypeAdapter[Any]]
    _made_lax: list[TypeAdapter[Any]] = attrs.field(init=False, factory=list)
    _validate: Callable[[Any], Any] = attrs.field(init=False)
    _deepest: int | None = attrs.field(init=False)

    @_validate.default
    def _find_validate(self) -> Callable[[Any], Any]:
        return self.adapter.validator.validate_python

    @_deepest.default
    def _find_deepest(self) -> int | None:
        return find_deepest(self.adapter.core_schema)

    def schema(self, mode: Mode = "validation") -> Schema:
        """Return the JSON Schema of the type.

        Raises:
            TypeError: The type has no JSON form, or a default has none.
        """
        return list_schema(self.adapter, mode)

    def read(self, value: Any, *, texts: bool = True) -> Any:
        """Validate decoded JSON.

        Args:
            value: The JSON, decoded.
            texts: Whether a text is read as the value that it holds where the schema allows no text. False accepts
                only what the schema allows.

        Raises:
            InvalidValueError: The value is not of the type.
        """
        if self._deepest is not None and is_deeper(value, self._deepest):
            raise InvalidValueError([Fault((), "too_deep", _TOO_DEEP.format(self._deepest), value)])
        try:
            if texts:
                return self._validate(value)
            return self._read_strictly(value)
        except ValidationError as error:
            return self._look_again(value, error, texts=texts)
        except TypeError as error:
            if not str(error).startswith(_UNFIT):
                raise
            raise InvalidValueError([Fault((), "constraint", str(error), value)]) from error

    def check(self, data: bytes) -> str | None:
        """Return the fault of JSON that is to be sent, or None."""
        try:
            decode_without_gc(partial(self.adapter.validate_json, strict=True), data)
        except ValidationError as error:
            return str(InvalidValueError(_faults(error, None)))
        return None

    def write(self, value: Any) -> bytes:
        """Return the JSON of a value, as pydantic writes its type.

        Raises:
            InvalidValueError: The value is not of the type.
        """
        try:
            value = self.adapter.validate_python(value)
        except ValidationError as error:
            raise InvalidValueError(_faults(error, None)) from error
        return self.adapter.dump_json(value, by_alias=True)

    def _read_strictly(self, value: Any) -> Any:
        return self.adapter.validate_json(msgspec.json.encode(value), strict=True)

    def _look_again(self, value: Any, error: ValidationError, *, texts: bool) -> Any:
        """Validate what a model may have meant. The first faults are reported where that is no better."""
        first = _faults(error, value)
        if not first:
            raise InvalidValueError(first) from error
        for attempt in self._attempts(value, first, texts=texts):
            try:
                return attempt()
            except ValidationError:
                continue
        raise InvalidValueError(first) from error

    def _attempts(self, value: Any, faults: Sequence[Fault], *, texts: bool) -> Iterator[Callable[[], Any]]:
        """Yield the other ways to read a value, each for when the one before has failed."""
        again = self._validate if texts else self._read_strictly
        if any(_is_whole(fault.value) for fault in faults):
            # In all of it: a list is validated up to its first fault.
            value = _with_whole_numbers(value)
            yield partial(again, value)
        meant = (
            [(fault, found) for fault in faults if (found := _value_in(fault)) is not None] if texts else []
        )
        if meant:
            value = _with_values(value, meant)
            yield partial(again, value)
        if texts and any(isinstance(fault.value, str) for fault in faults):
            # pydantic's lax mode reads a text as a number or a boolean.
            yield partial(self._lax().validate_python, value)
        if texts and any(isinstance(fault.value, str) or fault.kind not in _SAME_IN_JSON for fault in faults):
            # Types such as a strict date have a form in JSON alone.
            yield partial(self.adapter.validate_json, msgspec.json.encode(value))

    def _lax(self) -> TypeAdapter[Any]:
        if not self._made_lax:
            self._made_lax.append(self._make_lax())
        return self._made_lax[0]


@attrs.frozen
class _Object:
    """Gives pydantic the schema of an object with some fields."""

    fields: Sequence[Parameter]
    owner: str

    def __get_pydantic_core_schema__(self, _source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return records.fields_schema(
            self.fields, handler, f"{self.owner}, parameter", closed=True, name="Arguments"
        )


@attrs.frozen
class _AnnotatedValue:
    """Gives pydantic the schema of a type as an author wrote it."""

    annotation: Any
    place: str

    def __get_pydantic_core_schema__(self, _source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return handler.generate_schema(translate(self.annotation, self.place))


def object_validator(members: Iterable[Parameter], owner: str) -> Validator:
    """Return a validator of an object with these members and no others, which it returns as a dict.

    Args:
        members: The members.
        owner: The function that messages name.

    Raises:
        RegistrationError: A piece of metadata would have no effect.
        TypeError: A type has no JSON form.
    """
    fields = list(members)
    annotations = [field.annotation for field in fields]
    return _make(_Object(fields, owner), annotations, SchemaUse())


def value_validator(annotation: Any, place: str, *, instances: bool = False) -> Validator:
    """Return a validator of a type; raises as `object_validator` does.

    Args:
        annotation: The type as the author wrote it.
        place: The thing that messages name.
        instances: Whether it validates values of Python, such as results, and not decoded JSON.
    """
    return _make(_AnnotatedValue(annotation, place), [annotation], SchemaUse(instances=instances))


def _make(source: _Object | _AnnotatedValue, annotations: Sequence[Any], reading: SchemaUse) -> Validator:
    found = survey(annotations)

    def make(reading: SchemaUse) -> TypeAdapter[Any]:
        with records.taught(found.records, reading):
            return _adapter(source)

    lax = attrs.evolve(reading, exact=False)
    return Validator(make(reading), found.plain, all(map(is_scalar, annotations)), partial(make, lax))


def _adapter(source: _Object | _AnnotatedValue) -> TypeAdapter[Any]:
    try:
        adapter = TypeAdapter(Annotated[Any, source], config=_CONFIG)
    except PydanticSchemaGenerationError as error:
        raise TypeError(str(error).partition(". Set `arb")[0]) from error
    except PydanticUserError as error:
        raise TypeError(error.message.partition("\n")[0]) from error
    if not adapter.pydantic_complete:
        raise TypeError(
            "a name in it cannot be resolved; write a recursive type with TypeAliasType, or `type X = ...`"
        )
    return adapter


def _faults(error: ValidationError, value: Any) -> list[Fault]:
    """Return the faults of a value; none if they are too many to list."""
    if error.error_count() > _MOST_FAULTS:
        return []
    return [
        Fault(_path(each["loc"], each["type"], value), each["type"], each["msg"], each["input"])
        for each in error.errors(include_url=False, include_context=False)
    ]


def _path(location: Sequence[str | int], kind: str, value: Any) -> tuple[str | int, ...]:
    """Return a location without pydantic's names of types and functions, which are no keys of the value."""
    if value is None:
        return tuple(location)
    path: list[str | int] = []
    for number, step in enumerate(location):
        last = number == len(location) - 1
        if _has(value, step):
            path.append(step)
            value = value[step]
        elif last and kind == "missing":
            path.append(step)
    return tuple(path)


def _is_whole(number: Any) -> bool:
    return isinstance(number, float) and number.is_integer() and abs(number) <= _LARGEST_WHOLE


def _with_whole_numbers(value: Any) -> Any:
    """Return decoded JSON in which each number such as 5.0 is an integer, as it is to JSON Schema (2020-12, section 4.2.3)."""
    if isinstance(value, dict):
        return {key: _with_whole_numbers(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_with_whole_numbers(each) for each in value]
    return int(value) if _is_whole(value) else value


def _value_in(fault: Fault) -> list[Any] | None:
    """Return the JSON that a faulty text holds, alone in a list, or None."""
    text, kind = fault.value, fault.kind
    wants_other = (
        text == "null" or kind in _WANT_NO_TEXT or (kind.endswith("_type") and kind not in _READ_BY_PYDANTIC)
    )
    if not wants_other or not isinstance(text, str) or not fault.path:
        return None
    try:
        found = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return None
    # A text again is no value, and a boolean is no choice of 1.
    return None if isinstance(found, str | bool) else [found]


def _with_values(value: Any, meant: Iterable[tuple[Fault, list[Any]]]) -> Any:
    """Return a copy of decoded JSON with values in the place of the texts that hold them."""
    value = msgspec.json.decode(msgspec.json.encode(value))
    for fault, found in meant:
        *steps, last = fault.path
        inner: Any = value
        for step in steps:
            inner = inner[step] if _has(inner, step) else None
        if _has(inner, last):  # unless another member of a union has put a value around it
            inner[last] = found[0]
    return value


def _has(value: Any, step: str | int) -> bool:
    if isinstance(value, dict):
        return step in value
    return isinstance(value, list) and isinstance(step, int) and step < len(value)
