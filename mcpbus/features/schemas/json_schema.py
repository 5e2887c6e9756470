"""JSON Schemas that an author writes by hand: kept as they are, enforced, and closed against the network.

A schema is read once, at registration. What a list shows is the author's own text: members keep their order,
numbers and escapes their spelling. Only insignificant white space is taken out of a text that holds line ends,
because every message of the protocol is one line (a pretty-printed schema is the usual case).

The dialect is 2020-12 unless ``$schema`` names another one that the validator knows. A ``$ref`` is never
fetched, neither over the network nor from a file: one that the schema itself does not resolve is refused.
Source: requirements F-2 to F-4 (SEP-1613, SEP-2106).

What can be wrong with what an author registers.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Never

import msgspec

if TYPE_CHECKING:
    import jsonschema_rs


class RegistrationError(ValueError):
    """A tool, resource, prompt or completion cannot be registered as written: the author's fault.

    Raised while the program starts (or when something is added at run time), never while a client waits.
    The message names the thing, the rule and the way out.
    """


HandWritten = Mapping[str, Any] | bool | str | bytes

# How many faults of one value are told: enough to correct a call in one go, bounded against a value full of them.
_TOLD_FAULTS = 5


class JsonSchema(msgspec.Struct, frozen=True, eq=False):
    """A compiled hand-written schema."""

    text: msgspec.Raw
    """The schema as a list shows it, on one line."""
    document: Any
    """The schema, decoded."""
    _validator: "jsonschema_rs.Validator"

    def faults(self, value: Any) -> str | None:
        """What keeps `value` from conforming, each fault with the place it is at, or None when it conforms."""
        if self._validator.is_valid(value):
            return None
        told: list[str] = []
        for error in self._validator.iter_errors(value):
            if len(told) == _TOLD_FAULTS:
                told.append("and more")
                break
            place = ".".join(str(step) for step in error.instance_path)
            told.append(f"{error.message} - at `{place}`" if place else error.message)
        return "; ".join(told)


def compile_schema(schema: HandWritten, owner: str, *, formats: bool = False) -> JsonSchema:
    """Read `schema` (a mapping, a boolean, or JSON text) for `owner`, the thing that messages name.

    Args:
        schema: The schema.
        owner: The thing that messages name.
        formats: Whether ``format`` is enforced; in JSON Schema it is no more than a note.

    Raises:
        RegistrationError: the text is not JSON, the schema is not valid in its dialect, the dialect is unknown,
            or a ``$ref`` leads outside the schema.
    """
    import jsonschema_rs  # noqa: PLC0415 - most servers have no schema by hand

    text = _one_line(schema, owner)
    document = msgspec.json.decode(text)
    if not isinstance(document, dict | bool):
        raise RegistrationError(
            f"{owner}: a JSON Schema is an object or a boolean, not {type(document).__name__}"
        )
    try:
        validator = jsonschema_rs.validator_for(document, retriever=_refuse, validate_formats=formats)
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        reason = getattr(error, "message", None) or str(error).partition("\n")[0]
        raise RegistrationError(
            f"{owner}: the JSON Schema cannot be used: {reason}. "
            f"References must resolve inside the schema itself (put what they name under $defs); nothing is fetched."
        ) from error
    return JsonSchema(msgspec.Raw(text), document, validator)


def _one_line(schema: HandWritten, owner: str) -> bytes:
    if isinstance(schema, str | bytes):
        text = schema.encode() if isinstance(schema, str) else schema
        try:
            msgspec.json.decode(text)
            # A raw line end inside a JSON string is not JSON, so any that is left is insignificant white space.
            return msgspec.json.format(text, indent=-1) if b"\n" in text or b"\r" in text else text.strip()
        except msgspec.DecodeError as error:
            raise RegistrationError(f"{owner}: the JSON Schema is not JSON: {error}") from error
    try:
        return msgspec.json.encode(schema)
    except (TypeError, ValueError) as error:
        raise RegistrationError(f"{owner}: the JSON Schema holds what JSON cannot: {error}") from error


def _refuse(uri: str) -> Never:
    raise ValueError(f"{uri} is not part of the schema and references are never fetched")
