"""Generated annotations, each with JSON values that it accepts."""

import enum
import string
from collections.abc import Callable
from dataclasses import field, make_dataclass
from typing import Annotated, Any, Literal, NotRequired, Union

import annotated_types as at
import attrs
import pydantic as p
from hypothesis import strategies as st
from typing_extensions import TypedDict

NAMES = (
    st.text(string.ascii_lowercase, min_size=1, max_size=3)
    .filter(str.isidentifier)
    .map(lambda name: f"f_{name}")
)
TEXT = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "Zs")), max_size=6)
WHOLE = st.integers(-(10**15), 10**15)
FRACTIONS = st.floats(-1e6, 1e6, allow_nan=False).filter(lambda number: not number.is_integer())
"""Numbers with a fraction: JSON Schema takes 5.0 for an integer."""
JSON = st.recursive(
    st.none() | st.booleans() | WHOLE | FRACTIONS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 3


class Mixed(enum.Enum):
    X = "x"
    ONE = 1


@attrs.frozen
class Kind:
    """An annotation and a strategy for values that fit it."""

    annotation: Any
    values: st.SearchStrategy[Any]


def bounds(low: int, high: int) -> Kind:
    return Kind(Annotated[int, p.Field(ge=low, le=high)], st.integers(low - 1, high + 1))


def lengths(low: int, high: int) -> Kind:
    return Kind(Annotated[str, at.Len(low, high)], st.text("ab", min_size=max(0, low - 1), max_size=high + 1))


LEAVES: list[st.SearchStrategy[Kind]] = [
    st.just(Kind(int, WHOLE)),
    st.just(Kind(float, FRACTIONS | WHOLE)),
    st.just(Kind(bool, st.booleans())),
    st.just(Kind(str, TEXT)),
    st.just(Kind(None, st.none())),
    st.just(Kind(Any, JSON)),
    st.just(Kind(p.JsonValue, JSON)),
    st.just(Kind(Color, st.sampled_from(["red", "blue", "green"]))),
    st.just(Kind(Level, st.sampled_from([1, 2, 3]))),
    st.just(Kind(Mixed, st.sampled_from(["x", 1, "1"]))),
    st.just(Kind(Annotated[float, p.Field(gt=0, lt=1)], FRACTIONS | st.floats(0.1, 0.9))),
    st.just(Kind(Annotated[int, at.MultipleOf(3)], st.integers(-9, 9))),
    st.just(Kind(Annotated[str, p.Field(pattern="^[a-z]+$")], st.text("abC1", max_size=3))),
    st.builds(bounds, st.integers(-3, 3), st.integers(4, 9)),
    st.builds(lengths, st.integers(0, 2), st.integers(2, 4)),
    st.lists(
        st.sampled_from(["a", "b", "", "1", 1, 2, -5, True, None]), min_size=1, max_size=3, unique_by=repr
    ).map(lambda choices: Kind(Literal[tuple(choices)], st.sampled_from([*choices, "z", 7]))),
]


def containers(inner: st.SearchStrategy[Kind]) -> st.SearchStrategy[Kind]:
    """Return kinds that are made of other kinds."""
    return st.one_of(
        inner.map(lambda k: Kind(list[k.annotation], st.lists(k.values, max_size=3))),
        inner.map(
            lambda k: Kind(
                Annotated[list[k.annotation], p.Field(min_length=1, max_length=2)],
                st.lists(k.values, max_size=3),
            )
        ),
        inner.map(lambda k: Kind(dict[str, k.annotation], st.dictionaries(TEXT, k.values, max_size=3))),
        inner.map(lambda k: Kind(tuple[k.annotation, ...], st.lists(k.values, max_size=3))),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda ks: Kind(
                tuple[tuple(k.annotation for k in ks)], st.tuples(*(k.values for k in ks)).map(list)
            )
        ),
        st.lists(inner, min_size=2, max_size=3).map(
            lambda ks: Kind(Union[tuple(k.annotation for k in ks)], st.one_of(*(k.values for k in ks)))  # noqa: UP007 -- of a tuple
        ),
        inner.map(
            lambda k: Kind(k.annotation | None if k.annotation is not None else None, k.values | st.none())
        ),
        st.tuples(
            st.sampled_from([model, typed_dict, dataclass]),
            st.dictionaries(NAMES, st.tuples(inner, st.booleans()), min_size=1, max_size=3),
        ).map(lambda made: fields_of(*made)),
    )


def fields_of(
    make: Callable[[dict[str, tuple[Any, bool]]], Any], fields: dict[str, tuple[Kind, bool]]
) -> Kind:
    """Return a kind of class with the given fields, each with whether it is required."""
    required = {name: kind.values for name, (kind, needed) in fields.items() if needed}
    optional = {name: kind.values for name, (kind, needed) in fields.items() if not needed}
    annotation = make({name: (kind.annotation, needed) for name, (kind, needed) in fields.items()})
    return Kind(annotation, st.fixed_dictionaries(required, optional=optional))


def model(fields: dict[str, tuple[Any, bool]]) -> Any:
    return p.create_model(
        "Model", **{name: (kind, ... if needed else None) for name, (kind, needed) in fields.items()}
    )


def typed_dict(fields: dict[str, tuple[Any, bool]]) -> Any:
    return TypedDict(
        "Fields", {name: kind if needed else NotRequired[kind] for name, (kind, needed) in fields.items()}
    )


def dataclass(fields: dict[str, tuple[Any, bool]]) -> Any:
    ordered = sorted(fields.items(), key=lambda item: not item[1][1])
    return make_dataclass(
        "Data", [(name, kind, field() if needed else field(default=None)) for name, (kind, needed) in ordered]
    )


KINDS: st.SearchStrategy[Kind] = st.recursive(st.one_of(LEAVES), containers, max_leaves=5)


@st.composite
def spoiled(draw: Any, value: Any) -> Any:
    """Return a value in which one part is replaced with any other JSON value, or removed."""
    if isinstance(value, list) and value and draw(st.booleans()):
        at_ = draw(st.integers(0, len(value) - 1))
        return [
            *value[:at_],
            *([draw(spoiled(value[at_]))] if draw(st.booleans()) else []),
            *value[at_ + 1 :],
        ]
    if isinstance(value, dict) and value and draw(st.booleans()):
        name = draw(st.sampled_from(sorted(value)))
        rest = {key: item for key, item in value.items() if key != name}
        return {**rest, name: draw(spoiled(value[name]))} if draw(st.booleans()) else rest
    return draw(JSON)
