"""The JSON of values: msgspec writes them, with paths and pydantic's types taught to it.

Text and plain data are written by orjson, in a seventh of the time if they are long.
"""

import inspect
from collections.abc import Callable
from functools import cache
from pathlib import PurePath
from typing import Any

import msgspec

from mcpbus.protocol.json_faults import check_keys, plain, with_place

_PLAIN = frozenset({str, dict, list})
# What orjson says of keys that are none. Among them two may be the same to JSON, which is shorter then once it has been read.
_NO_TEXT = "Dict key must be str"
# In characters; what is shorter takes either about as long.
_SHORT = 1_000


def to_builtins(value: Any) -> Any:
    """`value` as JSON would show it, in plain dicts, lists and scalars."""
    return msgspec.to_builtins(value, enc_hook=_encode_other)


def _encode_other(value: Any) -> Any:
    if isinstance(value, PurePath):
        return str(value)
    if inspect.iscoroutine(value):
        value.close()
        raise TypeError(f"{value.__qualname__}() returned a coroutine: write await before the call of it")
    if hasattr(value, "__pydantic_serializer__") or type(value).__module__.startswith("pydantic"):
        import pydantic_core  # noqa: PLC0415 - the author of the value has imported it

        return pydantic_core.to_jsonable_python(value, by_alias=True)
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
