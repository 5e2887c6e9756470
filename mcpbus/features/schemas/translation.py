"""The types of annotations, as pydantic validates them with the meaning that authors and JSON Schema give them.

- Numbers, booleans and texts are kept apart.
- An Iterable is a list, which is validated before the function starts.
- A bound on a union is a bound on each of its members, which clients see.
- The members of an Enum in a Literal are their values to clients.
- A type without a JSON form, or one that is unsafe, is refused.
"""

import datetime as dt
import enum
import types
from collections import defaultdict
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Reversible
from contextvars import ContextVar
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any, Final, Literal, LiteralString, Union, get_args, get_origin

import annotated_types as at
import attrs
import msgspec
from pydantic import AfterValidator, BeforeValidator, GetCoreSchemaHandler, ImportString
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, PydanticKnownError, core_schema

from mcpbus.features.schemas.json_schema import RegistrationError
from mcpbus.features.schemas.metadata import read_metadata

UNIONS: Final = (Union, types.UnionType)
_SCALARS: Final = (int, float, bool)
_CONTAINERS: Final = (list, set, frozenset, tuple, dict)
_ORDERED: Final = (int, float, Decimal, Fraction, dt.date, dt.datetime, dt.time, dt.timedelta)
_SIZED: Final = (str, bytes, list, set, frozenset, tuple, dict)
_BOUNDS: Final[Mapping[type, tuple[type, ...]]] = {
    **dict.fromkeys([at.Gt, at.Ge, at.Lt, at.Le, at.MultipleOf], _ORDERED),
    **dict.fromkeys([at.MinLen, at.MaxLen], _SIZED),
}
"""The constraints that JSON Schema has, and the types that take them."""


@attrs.frozen(eq=False)
class _StopAtFirst:
    """Ends the validation of a container at its first wrong item: a fault of each item would take much memory."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema: Any = handler(source)
        if schema["type"] in _STOPPING:
            schema["fail_fast"] = True
        return schema  # type: ignore[no-any-return]


@attrs.frozen(eq=False)
class _Exact:
    """Keeps numbers and booleans apart, as JSON Schema does and pydantic's lax mode does not."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return {"strict": True, **handler(source)}  # type: ignore[misc, return-value, unused-ignore]


class _Own:
    """Metadata without an effect, of which no two are equal.

    `typing` returns an earlier type for an equal one, and types are equal whose choices have another order.
    """


_STOPPING: Final = frozenset(
    name
    for name, kind in (
        ("list", core_schema.ListSchema),
        ("set", core_schema.SetSchema),
        ("frozenset", core_schema.FrozenSetSchema),
        ("tuple", core_schema.TupleSchema),
        ("dict", core_schema.DictSchema),
    )
    if "fail_fast" in kind.__annotations__
)


@attrs.frozen
class SchemaUse:
    """The use of a schema that is being built.

    Attributes:
        exact: Whether a text is no number and no boolean. An author's own validators see what pydantic gives them.
        instances: Whether values of Python are validated, such as results, and not decoded JSON.
    """

    exact: bool = True
    instances: bool = False


READING: Final[ContextVar[SchemaUse]] = ContextVar("mcpbus reading", default=SchemaUse())  # noqa: B039 - it is frozen


def translate(annotation: Any, place: str) -> Any:
    """Return an annotation in which each piece of metadata has its effect.

    Args:
        annotation: A type, with metadata at any depth of its type arguments.
        place: The parameter or field that messages name.

    Raises:
        RegistrationError: A piece of metadata would have no effect.
    """
    origin = get_origin(annotation) or annotation
    special = _SPECIAL.get(origin)
    if special is not None:
        return special(annotation, place)
    if hasattr(annotation, "__supertype__"):  # a NewType
        return translate(annotation.__supertype__, place)
    _check_enum(annotation, place)
    arguments = get_args(annotation)
    if isinstance(origin, type) and arguments:
        inner = tuple(part if isinstance(part, list) else translate(part, place) for part in arguments)
        # The factory of a defaultdict is its type argument.
        if origin is not defaultdict and any(
            new is not old for new, old in zip(inner, arguments, strict=True)
        ):
            annotation = origin[inner]  # type: ignore[index]
    return Annotated[annotation, _StopAtFirst()] if origin in _CONTAINERS else annotation


def _translate_annotated(annotation: Any, place: str) -> Any:
    bare, *extras = get_args(annotation)
    return with_metadata(bare, read_metadata(extras, place), place)


def _translate_scalar(annotation: Any, _place: str) -> Any:
    return Annotated[annotation, _Exact() if READING.get().exact else _LAX[annotation]]


def _no_boolean(kind: Literal["int_type", "float_type"]) -> BeforeValidator:
    def check(value: Any) -> Any:
        if isinstance(value, bool):
            raise PydanticKnownError(kind)
        return value

    return BeforeValidator(check)


def _boolean_or_text(value: Any) -> Any:
    if not isinstance(value, bool | str):
        raise PydanticKnownError("bool_type")
    return value


_LAX: Final[Mapping[type, BeforeValidator]] = {
    int: _no_boolean("int_type"),
    float: _no_boolean("float_type"),
    bool: BeforeValidator(_boolean_or_text),
}
"""pydantic's lax mode reads numbers and booleans from texts, and would make one of the other."""


def _translate_list(annotation: Any, place: str) -> Any:
    """Return a list: pydantic validates an Iterable while the function reads it, which is late."""
    arguments = get_args(annotation)
    return translate(types.GenericAlias(list, arguments[:1]) if arguments else list, place)


def _refuse_type(annotation: Any, place: str) -> Any:
    raise RegistrationError(f"{place}: no JSON value is a {annotation!r}; take a Literal or an Enum of names")


def _refuse_import(_annotation: Any, place: str) -> Any:
    raise RegistrationError(
        f"{place}: ImportString lets clients import any module; take a Literal or an Enum"
    )


def _translate_literal(annotation: Any, place: str) -> Any:
    """Return choices as clients give them; members of an Enum are their values to clients."""
    choices = get_args(annotation)
    for choice in choices:
        value = choice.value if isinstance(choice, enum.Enum) else choice
        if type(value) not in (*_SCALARS, str, types.NoneType):
            raise RegistrationError(
                f"{place}: {choice!r} is no choice for clients, since JSON has no such value"
            )
    if not any(isinstance(choice, enum.Enum) for choice in choices):
        return annotation
    members = {(choice.value if isinstance(choice, enum.Enum) else choice): choice for choice in choices}
    values = Literal[tuple(members)]  # type: ignore[valid-type]
    return Annotated[values, AfterValidator(lambda value: members[value]), _Own()]


def _check_enum(annotation: Any, place: str) -> None:
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        for member in annotation:
            if not isinstance(member.value, str | int | float | None):
                raise RegistrationError(
                    f"{place}: {member!r} is no choice for clients, since JSON has no value {member.value!r}"
                )


def _translate_union(annotation: Any, place: str) -> Any:
    members = get_args(annotation)
    given = [part for part in members if part is not msgspec.UnsetType]
    inner = [translate(part, place) for part in given]
    if len(given) == len(members) and all(new is old for new, old in zip(inner, members, strict=True)):
        return annotation
    first, *rest = inner
    return Union[(Annotated[first, _Own()], *rest)]


_SPECIAL: Final[Mapping[Any, Callable[[Any, str], Any]]] = {
    Annotated: _translate_annotated,
    Literal: _translate_literal,
    LiteralString: lambda _annotation, _place: str,
    ImportString: _refuse_import,
    type: _refuse_type,
    **dict.fromkeys(UNIONS, _translate_union),
    **dict.fromkeys(_SCALARS, _translate_scalar),
    **dict.fromkeys((Iterable, Iterator, Generator, Collection, Reversible), _translate_list),
}
"""The types that pydantic reads otherwise than authors mean them, or not at all."""


def with_metadata(bare: Any, metadata: Iterable[Any], place: str) -> Any:
    """Return a type with translated metadata; bounds of a union are those of its members.

    Args:
        bare: A type.
        metadata: Metadata that `read_metadata` returned.
        place: The parameter or field that messages name.
    """
    kept = []
    for each in metadata:
        if type(each) in _BOUNDS and _all_take(bare, _BOUNDS[type(each)]):
            # pydantic would check the bound after the union, and not list it.
            bare = Union[tuple(_bounded(part, each) for part in get_args(bare))]  # noqa: UP007 - it is built
        else:
            kept.append(each)
    # An author's validators see values as pydantic gives them.
    own = bare in _SCALARS and not all(map(_is_constraint, kept))
    translated = bare if own else _translate_inner(bare, kept, place)
    return Annotated[(translated, *kept, _Own())] if kept else translated


def _translate_inner(bare: Any, metadata: Iterable[Any], place: str) -> Any:
    if not any(getattr(each, "union_mode", None) == "left_to_right" for each in metadata):
        return translate(bare, place)
    # The first member that reads a text takes it.
    token = READING.set(attrs.evolve(READING.get(), exact=False))
    try:
        return translate(bare, place)
    finally:
        READING.reset(token)


def _is_constraint(metadata: Any) -> bool:
    return isinstance(metadata, FieldInfo | at.BaseMetadata | at.GroupedMetadata)


def _all_take(union: Any, kinds: tuple[type, ...]) -> bool:
    if get_origin(union) not in UNIONS:
        return False
    return all(_bare(part) in kinds for part in get_args(union) if part is not types.NoneType)


def _bounded(part: Any, bound: Any) -> Any:
    return part if part is types.NoneType else Annotated[part, bound]


def _bare(annotation: Any) -> Any:
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    return get_origin(annotation) or annotation
