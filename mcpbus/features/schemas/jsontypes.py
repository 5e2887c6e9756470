"""What lies between Python types and JSON: msgspec, with paths taught to it, and pydantic models where pydantic is installed.

What is text or plain data is written by orjson, in a seventh of the time if it is long.

`schema_of` gives the JSON Schema of a type in the form the protocol wants: an object's schema is at the root and
not behind a ``$ref``, because clients look for ``type: object`` there; what it refers to is under ``$defs``.
"""

import inspect
import re
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import PurePath
from typing import Any, Union, get_args, get_origin

import msgspec

from mcpbus.protocol.json_faults import check_keys, plain, with_place

_REFERENCE = "#/$defs/{name}"
# Beyond it a float does not tell one integer from the next.
_SAFE = 2**53 - 1
# Much longer than what a model writes, and read in some milliseconds however many numbers it holds.
_LONGEST_WRITTEN_ANEW = 65_536
_PLAIN = frozenset({str, dict, list})
# What orjson says of keys that are none. Among them two may be the same to JSON, which is shorter then once it has been read.
_NO_TEXT = "Dict key must be str"
# In characters; what is shorter takes either about as long.
_SHORT = 1_000


def decoder_for(kind: Any) -> "msgspec.json.Decoder[Any]":
    """A decoder of JSON text into `kind`.

    Raises:
        TypeError: `kind` cannot be told from JSON.
    """
    return msgspec.json.Decoder(kind, dec_hook=_decode_other)


def check_convertible(kind: Any) -> None:
    """Refuse a type that `convert` could never make.

    Raises:
        TypeError: `kind` has no JSON form.
    """
    schema_of(kind)
    decoder_for(kind)


def convert(value: Any, kind: Any) -> Any:
    """Turn a string of the protocol (a prompt's argument, a URI's variable) into `kind`, ``"3"`` into 3.

    Raises:
        msgspec.ValidationError: it is not one.
    """
    return msgspec.convert(value, kind, strict=False, dec_hook=_decode_other)


def convert_strictly(value: Any, kind: Any) -> Any:
    """Turn decoded JSON into `kind`; a 5.0 is an integer where one is wanted.

    Raises:
        msgspec.ValidationError: it is not one.
    """
    try:
        return msgspec.convert(value, kind, dec_hook=_decode_other)
    except msgspec.ValidationError as error:
        if not wants_whole_numbers(error):
            raise
    return msgspec.convert(
        msgspec.json.decode(with_whole_numbers(encode(value))), kind, dec_hook=_decode_other
    )


def wants_whole_numbers(error: msgspec.ValidationError) -> bool:
    """Whether `error` may be gone `with_whole_numbers`."""
    return "got `float`" in str(error)


def with_whole_numbers(text: bytes | msgspec.Raw) -> bytes | msgspec.Raw:
    """JSON text, written anew with each number such as 5.0 as the integer that it is, unless it is long.

    To JSON Schema 5.0 is an integer (2020-12, section 4.2.3), and models and some languages write it; msgspec goes by
    how a number is written. It is for what has been refused, so that nobody else pays for it.

    Raises:
        msgspec.DecodeError: the text is not JSON.
    """
    return text if memoryview(text).nbytes > _LONGEST_WRITTEN_ANEW else encode(_whole_numbers.decode(text))


def _read_number(text: str) -> int | float:
    number = float(text)
    return int(number) if number.is_integer() and abs(number) <= _SAFE else number


_whole_numbers = msgspec.json.Decoder(Any, float_hook=_read_number)


def to_builtins(value: Any) -> Any:
    """`value` as JSON would show it, in plain dicts, lists and scalars."""
    return msgspec.to_builtins(value, enc_hook=_encode_other)


def schema_of(kind: Any, *, serialized: bool = False) -> dict[str, Any]:
    """The JSON Schema (2020-12) of `kind`; `serialized` asks for the shape of what is sent rather than received.

    Raises:
        TypeError: `kind` has no JSON form.
    """
    models: dict[str, Any] = {}

    def describe_other(unknown: Any) -> dict[str, Any]:
        if _is_path(unknown):
            return {"type": "string", "format": "path"}
        if not _is_model(unknown):
            raise TypeError(f"{unknown!r} is nothing that JSON can say")
        # A generic model is called "Page[int]", and brackets have no place in a reference.
        prefix = re.sub(r"[^\w.-]", "_", unknown.__qualname__)
        schema: dict[str, Any] = unknown.model_json_schema(
            ref_template=f"#/$defs/{prefix}.{{model}}",
            mode="serialization" if serialized else "validation",
            **_without_offset(unknown),
        )
        for name, definition in schema.pop("$defs", {}).items():
            qualified = f"{prefix}.{name}"
            if models.setdefault(qualified, definition) != definition:
                raise TypeError(f"two different pydantic models are called {qualified}")
        return schema

    root, definitions = _components(kind, describe_other)
    definitions = {**definitions, **models}
    schema = root
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(_REFERENCE.format(name=""))
        schema = {**definitions[name], **{key: value for key, value in schema.items() if key != "$ref"}}
        if not _refers(definitions, name):
            del definitions[name]
    if definitions:
        schema["$defs"] = definitions
    return schema


def has_models(kind: Any) -> bool:
    """Whether a pydantic model is `kind`, or is anywhere inside it."""
    found = False

    def note(unknown: Any) -> dict[str, Any]:
        nonlocal found
        found = found or _is_model(unknown)
        return {"type": "object"}

    _components(kind, note)
    return found


def _components(kind: Any, hook: Callable[[Any], dict[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The schema of `kind`, and what its references name."""
    members = get_args(kind) if get_origin(kind) in {Union, types.UnionType} else (kind,)
    # Member by member, because msgspec refuses a union of several object types, which it could not decode.
    try:
        schemas, definitions = msgspec.json.schema_components(
            members, schema_hook=hook, ref_template=_REFERENCE
        )
    except TypeError as error:
        raise _with_field(error, members) from None
    return ({"anyOf": list(schemas)} if len(schemas) > 1 else dict(schemas[0])), definitions


def _with_field(error: TypeError, kinds: Iterable[Any]) -> TypeError:
    """Return an error of msgspec's as one that says of which field it cannot show the default, if that is its reason."""
    for part in _inspected(msgspec.inspect.multi_type_info(kinds), set()):
        if isinstance(part, msgspec.inspect.Field) and part.default is not msgspec.NODEFAULT:
            try:
                msgspec.to_builtins(part.default)
            except TypeError:
                return TypeError(
                    f"the default of the field {part.name!r} cannot be shown; write field(default_factory=lambda: {part.default!r})"
                )
    return error


def _inspected(part: Any, seen: set[int]) -> Iterator[msgspec.inspect.Type | msgspec.inspect.Field]:
    """What a type is made of, as `msgspec.inspect` tells it, itself included."""
    if isinstance(part, tuple):
        for each in part:
            yield from _inspected(each, seen)
    elif isinstance(part, msgspec.inspect.Type | msgspec.inspect.Field) and id(part) not in seen:
        seen.add(id(part))
        yield part
        for name in part.__struct_fields__:
            yield from _inspected(getattr(part, name), seen)


def _refers(schema: Any, name: str) -> bool:
    """Whether a definition is also reached from within, as that of a recursive type is."""
    if isinstance(schema, dict):
        return schema.get("$ref") == _REFERENCE.format(name=name) or any(
            _refers(part, name) for part in schema.values()
        )
    return isinstance(schema, list | tuple) and any(_refers(part, name) for part in schema)


def _is_model(kind: Any) -> bool:
    # Whoever has a pydantic model has imported pydantic; nobody else pays for it.
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(kind, type) and issubclass(kind, pydantic.BaseModel)


def _without_offset(model: Any) -> dict[str, type]:
    """What has a model's schema leave out the format of what it may send without the offset that RFC 3339 wants."""
    made_by = inspect.signature(model.model_json_schema).parameters.get("schema_generator")
    if made_by is None or not isinstance(made_by.default, type):
        return {}  # the model makes its schema in a way of its own
    return {made_by.name: _without_offset_by(made_by.default)}


@cache
def _without_offset_by(generator: Any) -> type:
    class Schemas(generator):  # type: ignore[misc]
        def datetime_schema(self, schema: Any) -> Any:
            told = super().datetime_schema(schema)
            if self.mode == "serialization" and schema.get("tz_constraint") != "aware":
                told.pop("format", None)
            return told

    return Schemas


def _is_path(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, PurePath)


def _decode_other(kind: Any, value: Any) -> Any:
    if _is_path(kind):
        if not isinstance(value, str):
            raise ValueError(f"Expected `str`, got `{type(value).__name__}`")
        return kind(value)
    if kind is msgspec.UnsetType:
        raise ValueError("Expected nothing")
    if not _is_model(kind):
        raise NotImplementedError
    try:
        return kind.model_validate(value)
    except ValueError as error:
        # pydantic's own text spans lines and links to its site; the place and the rule are what a model needs.
        faults = error.errors(include_url=False, include_input=False, include_context=False)  # type: ignore[attr-defined]
        told = "; ".join(f"{'.'.join(map(str, fault['loc'])) or 'value'}: {fault['msg']}" for fault in faults)
        raise ValueError(told) from error


def _encode_other(value: Any) -> Any:
    if isinstance(value, PurePath):
        return str(value)
    if _is_model(type(value)):
        return value.model_dump(mode="json", by_alias=True)
    if inspect.iscoroutine(value):
        value.close()
        raise TypeError(f"{value.__qualname__}() returned a coroutine: write await before the call of it")
    return plain(value)


encode_typed = msgspec.json.Encoder(enc_hook=_encode_other).encode
"""`encode`, for what is known to be more than text and plain data."""


def encode(value: Any) -> bytes:
    """Encode any value that a function may return.

    Raises:
        TypeError: JSON cannot hold it, or it is plain data, and two keys of a dict would be the same there.
        UnicodeEncodeError: its text has no UTF-8, as lone surrogates have none.
    """
    kind = type(value)
    try:
        if kind not in _PLAIN or (kind is str and len(value) < _SHORT):
            return encode_typed(value)
        return _plain_encoder()(value)
    except TypeError as error:
        encoded = encode_with_place(value)
        if str(error) == _NO_TEXT and len(encode_typed(msgspec.json.decode(encoded))) != len(encoded):
            check_keys(value)
        return encoded


def encode_with_place(value: Any) -> bytes:
    """`encode_typed`, whose error says where in `value` is what JSON cannot hold.

    Raises:
        TypeError: it does.
        UnicodeEncodeError: as for `encode`.
    """
    try:
        return encode_typed(value)
    except TypeError as error:
        raise with_place(error, value, encode_typed) from None


@cache
def _plain_encoder() -> Callable[[Any], bytes]:
    """What encodes text and plain data; imported for the first of them, since a server on stdio is to start soon."""
    import orjson  # noqa: PLC0415 - as said

    # It has ideas of its own about the rest, such as dates.
    refused = (
        orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS
    )
    return lambda value: orjson.dumps(value, None, refused)
