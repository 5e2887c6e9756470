"""Classes of principals of all kinds: two principals that differ by ``==`` never have one digest."""

import collections
import dataclasses
import itertools
import warnings
import weakref

import attrs
import msgspec
import pydantic
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mcpbus.protocol.principals import digest_of, is_same
from tests.at_home import NO_CLIENT

pytestmark = NO_CLIENT

BUILTINS = [
    str,
    int,
    float,
    bytes,
    tuple,
    list,
    dict,
    set,
    frozenset,
    collections.OrderedDict,
    collections.deque,
]
"""Builtins that classes are derived from."""

GENERATED = [
    "dataclass",
    "frozen",
    "slots",
    "attrs",
    "attrs frozen",
    "struct",
    "struct dict",
    "tuple",
    "model",
]
"""Kinds of classes whose ``==`` is generated."""

VALUES = [
    0,
    1,
    True,
    1.0,
    -0.0,
    float("nan"),
    "a",
    "A",
    b"a",
    None,
    (),
    (1,),
    [1],
    {"a": 1},
    frozenset({"a"}),
    frozenset(),
]

hidden: "weakref.WeakKeyDictionary[object, object]" = weakref.WeakKeyDictionary()


def by_identity(self, other):
    return self is other


def by_class(self, other):
    return type(self) is type(other)


def by_extra(self, other):
    return type(self) is type(other) and self.extra == other.extra


def by_all(self, other):
    return type(self) is type(other) and vars(self) == vars(other)


def by_name(self, other):
    return type(self) is type(other) and str(self.a).lower() == str(other.a).lower()


EQUALS = [None, by_identity, by_class, by_extra, by_all, by_name]
HASHES = [None, object.__hash__, lambda self: 1, lambda self: hash(type(self))]
STATES = [
    {},
    {"__getstate__": lambda self: {}},
    {"__reduce_ex__": lambda self, _: (type(self), ())},
    {"__reduce__": lambda self: "ONE"},
    {"__repr__": lambda self: "<one>"},
    {"__iter__": lambda self: iter(())},
    {"items": lambda self: ()},
]
numbers = itertools.count()


def make_base(kind, name):
    """Make a class with a compared field `a`, and another one `b` that is not compared where its kind has such fields."""
    if kind in ("dataclass", "frozen", "slots"):
        aside = dataclasses.field(default=0, compare=False)
        flags = {"frozen": kind == "frozen", "slots": kind == "slots"}
        return dataclasses.make_dataclass(name, [("a", object), ("b", object, aside)], **flags)
    if kind in ("attrs", "attrs frozen"):
        fields = {"a": attrs.field(), "b": attrs.field(default=0, eq=False)}
        return attrs.make_class(name, fields, frozen=kind == "attrs frozen")
    if kind in ("struct", "struct dict"):
        return msgspec.defstruct(
            name, [("a", object), ("b", object, 0)], dict=kind == "struct dict", weakref=True
        )
    if kind == "tuple":
        return collections.namedtuple(name, ["a", "b"], defaults=[0])  # noqa: PYI024 - it is made here
    return pydantic.create_model(name, __config__={"extra": "allow"}, a=(object, ...), b=(object, 0))


@st.composite
def classes(draw):
    """Return a class, and whether its ``==`` is that of a library or a builtin."""
    kind = draw(st.sampled_from([*GENERATED, *BUILTINS, object]))
    # One name for many classes: a name alone makes no class known.
    name = draw(st.sampled_from(["Principal", f"Principal{next(numbers)}"]))
    made = make_base(kind, name) if isinstance(kind, str) else kind
    known = kind is not object
    for _ in range(draw(st.integers(0, 2))):
        own = dict(draw(st.sampled_from(STATES)))
        decorated = draw(st.booleans()) and kind in ("dataclass", "frozen", "attrs")
        equal, hashed = draw(st.sampled_from(EQUALS)), draw(st.sampled_from(HASHES))
        if equal is not None:
            own["__eq__"], known = equal, False
        if hashed is not None:
            own["__hash__"] = hashed
        if decorated:
            own["__annotations__"] = {"extra": object}
            own["extra"] = 0 if kind != "attrs" else attrs.field(default=0)
        try:
            made = type(made)(name, (made,), own)
            if decorated and kind in ("dataclass", "frozen"):
                made = dataclasses.dataclass(frozen=kind == "frozen")(made)
            elif decorated:
                made = attrs.define(made)
            known = known or (decorated and equal is None)
        except (TypeError, pydantic.PydanticUserError):
            break  # the library allows no such class
    return made, kind, known


@st.composite
def principals(draw, made, kind):
    values = st.sampled_from(VALUES)
    if isinstance(kind, str):
        one = made(a=draw(values), b=draw(values)) if kind != "slots" else made(draw(values), draw(values))
    elif kind in (list, tuple, collections.deque):
        one = made(draw(st.lists(values, max_size=2)))
    elif kind in (set, frozenset):
        one = made(draw(st.lists(st.sampled_from([0, True, "a", ()]), max_size=2)))
    elif kind in (dict, collections.OrderedDict):
        one = made(draw(st.lists(st.tuples(st.sampled_from(["a", 1]), values), max_size=2)))
    elif kind is object:
        one = made()
    else:
        one = made(draw(st.sampled_from([kind(), kind(b"1") if kind is bytes else kind("1")])))
    for attribute in ("extra", "a", "secret"):
        if draw(st.booleans()):
            try:
                setattr(one, attribute, draw(values))
            except (AttributeError, TypeError, ValueError):
                continue  # it has no such attribute, or is frozen
    return one


def wrap(one, how):
    """Put a principal into another value."""
    if how == "set":
        try:
            return frozenset({one})
        except TypeError:
            return (one,)
    if how == "key":
        try:
            return {one: 1}
        except TypeError:
            return [one]
    return {"none": one, "value": {"sub": one}, "tuple": (one, 1)}[how]


@settings(max_examples=400, suppress_health_check=list(HealthCheck), deadline=None)
@given(st.data())
def test_principals_that_differ_never_have_one_digest(data):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made, kind, _ = data.draw(classes())
        other_made, other_kind, _ = data.draw(st.one_of(st.just((made, kind, True)), classes()))
        one, other = data.draw(principals(made, kind)), data.draw(principals(other_made, other_kind))
        how = data.draw(st.sampled_from(["none", "value", "tuple", "set", "key"]))
        one, other = wrap(one, how), wrap(other, how)
    if one is other:
        return
    try:
        equal = bool(one == other)
    except Exception:  # noqa: BLE001 - a comparison of a generated class that lacks an attribute
        equal = False
    if digest_of(one) == digest_of(other):
        assert equal
    assert is_same(one, other) is (digest_of(one) == digest_of(other))
