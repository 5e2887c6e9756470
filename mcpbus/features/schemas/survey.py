"""A look at all that a type is made of, before a schema of it is built."""

import collections
import collections.abc
import datetime as dt
import enum
import uuid
from collections.abc import Iterable
from decimal import Decimal
from pathlib import PurePath
from typing import Annotated, Any, Final, Literal, TypeVar, get_args, get_origin

import annotated_types as at
import attrs
import msgspec
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from mcpbus.features.schemas import records
from mcpbus.features.schemas.translation import UNIONS

_OF_MSGSPEC: Final = frozenset(
    {
        *(
            Any,
            None,
            type(None),
            object,
            bool,
            int,
            float,
            str,
            bytes,
            bytearray,
            dict,
            list,
            tuple,
            set,
            frozenset,
        ),
        *(dt.datetime, dt.date, dt.time, uuid.UUID, Decimal, Literal, msgspec.UnsetType),
        *(collections.abc.Mapping, collections.abc.MutableMapping, collections.abc.Sequence),
        *(
            collections.abc.MutableSequence,
            collections.abc.Set,
            collections.abc.MutableSet,
            collections.abc.Collection,
        ),
    }
)
"""The types that msgspec writes as pydantic lists them."""
_SCALARS: Final = frozenset({str, int, float, bool, type(None), None})


@attrs.define
class Survey:
    """The parts of a type that need care.

    Attributes:
        records: The classes that `mcpbus.features.schemas.records` reads.
        plain: Whether msgspec writes all values of the type as its schema lists them.
    """

    records: set[type] = attrs.field(factory=set)
    plain: bool = True


def survey(annotations: Iterable[Any]) -> Survey:
    """Look at types and all that is inside them."""
    found = Survey()
    for annotation in annotations:
        _look(annotation, found, set())
    return found


def is_scalar(annotation: Any) -> bool:
    """Whether each value of a type is the same in Python as in JSON: texts, numbers, booleans, null, and choices of these."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return is_scalar(get_args(annotation)[0])
    if origin in UNIONS:
        return all(map(is_scalar, get_args(annotation)))
    if origin is Literal:
        return all(type(each) in _SCALARS for each in get_args(annotation))
    return isinstance(annotation, type | None) and annotation in _SCALARS


def _look(annotation: Any, found: Survey, seen: set[Any]) -> None:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        found.plain = found.plain and all(map(_is_plain, arguments[1:]))
        _look(arguments[0], found, seen)
    elif hasattr(annotation, "__value__") or hasattr(origin, "__value__"):  # a type alias
        _look_once(getattr(annotation, "__value__", None) or origin.__value__, found, seen)
        _look_all(arguments, found, seen)
    elif hasattr(annotation, "__supertype__"):  # a NewType
        _look(annotation.__supertype__, found, seen)
    elif origin is Literal or isinstance(annotation, TypeVar) or annotation is ... or annotation is Any:
        pass
    elif origin in UNIONS:
        _look_all(arguments, found, seen)
    else:
        _look_at_class(annotation, origin or annotation, found, seen)
        _look_all(arguments, found, seen)


def _look_all(annotations: Iterable[Any], found: Survey, seen: set[Any]) -> None:
    for each in annotations:
        if not isinstance(each, list):
            _look(each, found, seen)


def _look_once(annotation: Any, found: Survey, seen: set[Any]) -> None:
    if id(annotation) not in seen:
        seen.add(id(annotation))
        _look(annotation, found, seen)


def _look_at_class(annotation: Any, kind: Any, found: Survey, seen: set[Any]) -> None:
    if records.is_record(kind) or kind in found.records:
        found.records.add(kind)
        if attrs.has(kind) and any(each.name != each.alias for each in attrs.fields(kind)):
            found.plain = False  # msgspec leaves private attributes out
        if annotation not in seen:
            seen.add(annotation)
            _look_all([field.annotation for field in records.fields_of(annotation)], found, seen)
    elif (isinstance(kind, type) and issubclass(kind, BaseModel)) or not _writes(kind):
        found.plain = False


def _writes(kind: Any) -> bool:
    try:
        if kind in _OF_MSGSPEC:
            return True
    except TypeError:
        return False
    return isinstance(kind, type) and issubclass(kind, enum.Enum | PurePath)


def _is_plain(metadata: Any) -> bool:
    """Whether a piece of metadata changes nothing of what is written."""
    if isinstance(metadata, FieldInfo):
        return metadata.serialization_alias is None and all(map(_is_plain, metadata.metadata))
    return isinstance(metadata, str | msgspec.Meta | at.BaseMetadata | at.GroupedMetadata) or isinstance(
        getattr(metadata, "documentation", None), str
    )
