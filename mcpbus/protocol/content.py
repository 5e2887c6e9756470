"""The content of a value as bytes, for values whose ``==`` is known.

Equal bytes promise equal values. A class keeps that promise in one of three ways:

- its ``==`` is that of a builtin or of a type in `_TYPES`
- `dataclasses`, attrs, msgspec or pydantic generated its ``==``, so that the compared fields are known
- it defines ``mcpbus_key``, a property or a method that returns the value by which it is known

The content of all other values is unknown: a hand-written ``__eq__`` may compare more than a value shows. A subclass counts by
the class that its ``__eq__`` comes from, and so does ``mcpbus_key``: a subclass with a newer ``__eq__`` needs a newer key.

The bytes are the same in every process, and independent of a ``repr``, a hash and the order of a set. A class that is no
attribute of its module, such as one made by a function, has a name for this process alone.
"""

import datetime as dt
import decimal
import enum
import fractions
import ipaddress
import os
import pathlib
import re
import sys
import uuid
import zoneinfo
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import field, fields, is_dataclass, make_dataclass
from functools import partial
from types import FunctionType, SimpleNamespace
from typing import Any, Final
from weakref import WeakKeyDictionary

import attrs
import msgspec

KEY: Final = "mcpbus_key"
"""The attribute by which a class states the content of its instances."""

_PLAIN: Final = {
    kind: f"builtins.{kind.__qualname__}".encode() for kind in (type(None), bool, int, str, bytes)
}
"""Classes of which most principals and their parts are, with their names as they are written."""

_TEXT: Final = frozenset({str})

_DEEPEST: Final = 32
"""Levels of nesting; the content of deeper values is unknown."""


class UnknownContentError(Exception):
    """The content of a value is not known.

    Args:
        why: The reason.
        kind: The class that could define ``mcpbus_key``; None where that would not help.
    """

    def __init__(self, why: str, kind: type | None = None) -> None:
        super().__init__(why)
        self.kind = kind


Write = Callable[[Any, int], Iterable[bytes]]
"""Writes the parts of a value, which lies so many levels deep."""


class _Form:
    """The way in which the values of one class are written.

    Args:
        name: The name of the class, as it is written.
        write: Writes the parts of a value.
        hashed: Whether equal values are known to have equal hashes, so that they are found in sets and dicts.
        names: The attributes that are all of a value; None where other parts are.
    """

    __slots__ = ("hashed", "name", "names", "write")

    def __init__(
        self, name: bytes, write: Write, *, hashed: bool, names: tuple[str, ...] | None = None
    ) -> None:
        self.name = name
        self.write = write
        self.hashed = hashed
        self.names = names

    @classmethod
    def of_fields(cls, name: bytes, names: tuple[str, ...], *, hashed: bool) -> "_Form":
        """Return the form of values that their attributes are all of."""
        return cls(name, partial(_write_fields, names), hashed=hashed, names=names)


def write_content(value: Any, depth: int = 0, *, hashed: bool = False) -> bytes:
    """Write the content of a value.

    Args:
        value: The value.
        depth: The levels of nesting above it.
        hashed: Whether its hash has to agree with ``==`` too.

    Raises:
        UnknownContentError: Its content is not known.
        Exception: As its own code raises, such as ``mcpbus_key`` or a property.
    """
    kind = type(value)
    plain = _PLAIN.get(kind)
    if plain is not None:
        return _join(plain, [repr(value).encode()])
    if depth > _DEEPEST:
        raise UnknownContentError(f"it is nested more than {_DEEPEST} levels deep")
    form = _forms.get(kind)
    if form is None:
        form = _forms[kind] = _find_form(kind)
    if hashed and not form.hashed:
        raise UnknownContentError(
            f"{kind.__qualname__} in a set or as a key: its __hash__ is not known", kind
        )
    return _join(form.name, form.write(value, depth + 1))


def has_same_content(one: Any, other: Any) -> bool:
    """Return whether the content of two values is the same, as `write_content` writes it.

    Raises:
        UnknownContentError: The content of one is not known, and no other part of them differs.
        Exception: As `write_content`.
    """
    kind = type(one)
    if kind is type(other):
        if kind in _PLAIN:
            return bool(one == other)
        form = _forms.get(kind)
        if form is not None and form.names is not None:  # to write them takes ten times as long
            return all(has_same_content(getattr(one, name), getattr(other, name)) for name in form.names)
        if kind is dict and _TEXT.issuperset(map(type, one)) and _TEXT.issuperset(map(type, other)):
            return one.keys() == other.keys() and all(has_same_content(one[key], other[key]) for key in one)
    return write_content(one) == write_content(other)


def _join(name: bytes, parts: Iterable[bytes]) -> bytes:
    """Join parts so that no other parts give the same bytes."""
    return b"".join([b"%d:%b" % (len(part), part) for part in (name, *parts)])


# -- the form of a class -----------------------------------------------------------------------------------------------


def _find_form(kind: Any) -> _Form:
    """Find out how values of a class are written, if only that they cannot be."""
    compares = _definer(kind, "__eq__")
    keyed = _definer(kind, KEY)
    if keyed is not None and kind.__mro__.index(keyed) <= kind.__mro__.index(compares):
        return _Form(b"key of " + _dotted(kind), _write_key, hashed=False)
    hashes = _definer(kind, "__hash__")
    if issubclass(kind, enum.Enum) and compares in {object, int, str}:
        return _Form(_name(kind), _write_member, hashed=True)
    known = _TYPES.get(compares) or _FOREIGN.get(f"{compares.__module__}.{compares.__qualname__}")
    if known is not None:
        return _Form(_name(kind), known, hashed=hashes is compares and compares in _HASHED)
    return _find_fields(kind, compares, hashes) or _Form(b"", _refuse, hashed=True)


def _find_fields(kind: Any, compares: Any, hashes: Any) -> _Form | None:
    """Find the fields that a generated ``__eq__`` compares; None if no library generated it."""
    equal = vars(compares)["__eq__"]
    if compares is _STRUCT:
        if not kind.__struct_config__.eq:
            return _Form(_name(kind), _write_object, hashed=True)
        frozen = hashes is compares and kind.__struct_config__.frozen
        return _Form.of_fields(_name(kind), kind.__struct_fields__, hashed=frozen)
    if "__attrs_attrs__" in vars(compares) and _is_of_attrs(equal):
        compared = [each for each in attrs.fields(compares) if each.eq]
        mirrored = hashes is compares and all(each.hash is None for each in compared)
        hashed = mirrored and _is_of_attrs(vars(compares)["__hash__"])
        pairs = [(each.name, each.eq_key) for each in compared]
        if any(key is not None for _, key in pairs):
            return _Form(_name(kind), partial(_write_attributes, pairs), hashed=hashed)
        return _Form.of_fields(_name(kind), tuple(name for name, _ in pairs), hashed=hashed)
    if "__dataclass_fields__" in vars(compares) and is_dataclass(compares):
        names = tuple(each.name for each in fields(compares) if each.compare)
        # A class body may define `__eq__` itself, which leaves no other trace than its code.
        like = make_dataclass("Like", [(name, object, field()) for name in names], frozen=True)
        if _is_like(equal, like.__eq__):
            hashed = hashes is compares and _is_like(vars(compares)["__hash__"], like.__hash__)
            return _Form.of_fields(_name(kind), names, hashed=hashed)
    return None


def _definer(kind: Any, name: str) -> Any:
    """Return the class that an attribute of a class comes from; None if there is no such attribute."""
    return next((base for base in kind.__mro__ if name in vars(base)), None)


def _is_of_attrs(function: Any) -> bool:
    return isinstance(function, FunctionType) and function.__code__.co_filename.startswith("<attrs generated")


def _is_like(function: Any, generated: Any) -> bool:
    """Whether a function does the same as a generated one, by its code."""
    if not isinstance(function, FunctionType):
        return False
    one, other = function.__code__, generated.__code__
    return all(
        getattr(one, part) == getattr(other, part)
        for part in ("co_code", "co_names", "co_varnames", "co_consts", "co_freevars")
    )


def _dotted(kind: Any) -> bytes:
    return f"{kind.__module__}.{kind.__qualname__}".encode()


def _name(kind: Any) -> bytes:
    """Return the name of a class: its path, if that leads to it in each process; otherwise one that only this process knows."""
    found: Any = sys.modules.get(kind.__module__)
    for part in kind.__qualname__.split("."):
        found = getattr(found, part, None)
    if found is kind:
        return _dotted(kind)
    return b"%b %b" % (_dotted(kind), _local_names.setdefault(kind, os.urandom(16)))


_forms: "WeakKeyDictionary[type, _Form]" = WeakKeyDictionary()
_local_names: "WeakKeyDictionary[type, bytes]" = WeakKeyDictionary()
_STRUCT: Final = _definer(msgspec.Struct, "__eq__")


# -- the parts of a value ----------------------------------------------------------------------------------------------


def _write_all(values: Iterable[Any], depth: int) -> Iterator[bytes]:
    return (write_content(value, depth) for value in values)


def _write_fields(names: Iterable[str], value: Any, depth: int) -> Iterator[bytes]:
    return _write_all([getattr(value, name) for name in names], depth)


def _write_attributes(pairs: Iterable[tuple[str, Any]], value: Any, depth: int) -> Iterator[bytes]:
    """Write the fields of attrs, each as the function that is given for it has them compared."""
    parts = [(getattr(value, name), key) for name, key in pairs]
    return _write_all([part if key is None else key(part) for part, key in parts], depth)


def _write_key(value: Any, depth: int) -> Iterable[bytes]:
    key = getattr(value, KEY)
    key = key() if callable(key) else key
    if key is None:
        raise UnknownContentError(f"{KEY} of {type(value).__qualname__} is None", type(value))
    return [write_content(key, depth)]


def _write_member(value: Any, _depth: int) -> Iterable[bytes]:
    # A combination of flags may have no name, and its value is an integer.
    return [repr(value.value).encode() if isinstance(value, enum.Flag) else value.name.encode()]


def _write_object(value: Any, _depth: int) -> Iterable[bytes]:
    """Write an object that is compared by identity: one of which each process has the same.

    Raises:
        UnknownContentError: It is another one.
    """
    if value is None:
        return ()
    if isinstance(value, type):
        return [_name(value)]
    if isinstance(value, zoneinfo.ZoneInfo) and value.key and zoneinfo.ZoneInfo(value.key) is value:
        return [value.key.encode()]
    raise UnknownContentError(f"{type(value).__qualname__} is compared by identity")


def _refuse(value: Any, _depth: int) -> Iterable[bytes]:
    raise UnknownContentError(f"{type(value).__qualname__} is compared by an __eq__ of its own", type(value))


def _write_number(make: Callable[[Any], str], value: Any, _depth: int) -> Iterable[bytes]:
    if value != value:  # noqa: PLR0124 - that is how a NaN is known, which equals nothing
        raise UnknownContentError("it is not a number")
    return [make(value).encode()]


def _write_mapping(value: Any, depth: int) -> Iterable[bytes]:
    """Write what a dict holds, in an order of our own: its pairs have none."""
    return sorted(_write_pairs(dict.items(value), depth))


def _write_ordered(value: Any, depth: int) -> Iterable[bytes]:
    return list(_write_pairs(OrderedDict.items(value), depth))


def _write_pairs(pairs: Iterable[tuple[Any, Any]], depth: int) -> Iterator[bytes]:
    return (
        _join(b"builtins.tuple", [write_content(key, depth, hashed=True), write_content(value, depth)])
        for key, value in pairs
    )


def _write_set(walk: Callable[[Any], Iterator[Any]], value: Any, depth: int) -> Iterable[bytes]:
    return sorted(write_content(item, depth, hashed=True) for item in walk(value))


def _write_model(value: Any, depth: int) -> Iterable[bytes]:
    """Write what pydantic compares of a model: its fields, its private attributes, and what is extra."""
    held = vars(value)
    names = list(type(value).__pydantic_fields__)
    if not held.keys() >= set(names):
        raise UnknownContentError(f"a field of {type(value).__qualname__} has no value")
    more = [getattr(value, "__pydantic_private__", None), value.__pydantic_extra__ or {}]
    return _write_all([*(held[name] for name in names), *more], depth)


def _as(make: Callable[[Any], Any]) -> Write:
    """Return what writes a value as the parts that a function makes of it."""
    return lambda value, depth: _write_all(make(value), depth)


def _as_text(make: Callable[[Any], str]) -> Write:
    return lambda value, _depth: [make(value).encode()]


_TYPES: Final[dict[Any, Write]] = {
    object: _write_object,
    int: _as_text(int.__repr__),
    float: partial(_write_number, float.__repr__),
    complex: partial(_write_number, complex.__repr__),
    str: _as_text(str.__repr__),
    bytes: _as_text(bytes.__repr__),
    bytearray: _as_text(bytearray.__repr__),
    list: _as(list.__iter__),
    tuple: _as(tuple.__iter__),
    deque: _as(deque.__iter__),
    dict: _write_mapping,
    OrderedDict: _write_ordered,
    set: partial(_write_set, set.__iter__),
    frozenset: partial(_write_set, frozenset.__iter__),
    SimpleNamespace: lambda value, depth: _write_mapping(vars(value), depth),
    dt.datetime: _as(lambda value: (dt.datetime.isoformat(value), value.fold, value.tzinfo)),
    dt.time: _as(lambda value: (dt.time.isoformat(value), value.fold, value.tzinfo)),
    dt.date: _as_text(dt.date.isoformat),
    dt.timedelta: _as(lambda value: (value.days, value.seconds, value.microseconds)),
    dt.timezone: _as(lambda value: (value.utcoffset(None),)),
    decimal.Decimal: partial(_write_number, decimal.Decimal.__str__),
    fractions.Fraction: _as(lambda value: (value.numerator, value.denominator)),
    uuid.UUID: _as(lambda value: (value.int,)),
    pathlib.PurePath: _as_text(pathlib.PurePath.__str__),
    re.Pattern: _as(lambda value: (value.pattern, value.flags)),
    **{
        _definer(kind, "__eq__"): _as_text(kind.__str__)
        for kind in (
            ipaddress.IPv4Address,
            ipaddress.IPv6Address,
            ipaddress.IPv4Network,
            ipaddress.IPv6Network,
            ipaddress.IPv4Interface,
            ipaddress.IPv6Interface,
        )
    },
}
"""How values are written whose ``__eq__`` comes from one of these classes."""

_FOREIGN: Final[dict[str, Write]] = {
    "pydantic.main.BaseModel": _write_model,
    "pydantic.root_model.RootModel": _write_model,
    "pydantic.networks._BaseUrl": _as_text(str),
    "pydantic.networks._BaseMultiHostUrl": _as_text(str),
    "pydantic.types.SecretStr": _as(lambda value: (value.get_secret_value(),)),
    "pydantic.types.SecretBytes": _as(lambda value: (value.get_secret_value(),)),
    "pydantic.types._SecretBase": _as(lambda value: (value.get_secret_value(),)),
}
"""The same for classes that may not be installed, by name."""

_HASHED: Final = frozenset(_TYPES) - {bytearray, list, deque, dict, OrderedDict, set, SimpleNamespace}
"""Those whose hash agrees with ``==``."""
