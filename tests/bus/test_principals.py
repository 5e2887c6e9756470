"""Whose something is, in this process and in others."""

import datetime as dt
import enum
import gc
import ipaddress
import pathlib
import re
import subprocess
import sys
import uuid
import zoneinfo
from collections import OrderedDict, defaultdict, deque
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from types import SimpleNamespace
from typing import NamedTuple

import attrs
import msgspec
import pydantic
import pytest

from mcpbus.auth import Principal
from mcpbus.protocol import principals
from mcpbus.protocol.principals import BoundPrincipal, digest_of, is_same
from tests.at_home import NO_CLIENT

pytestmark = NO_CLIENT


@dataclass(frozen=True)
class Silent:
    """Says nothing of its id in its repr, nor in JSON."""

    _id: str = field(repr=False)
    seen: int = field(default=0, compare=False)

    def __repr__(self):
        return "<a user>"


@attrs.frozen(repr=False)
class Loud:
    id: str
    seen: int = attrs.field(default=0, eq=False)


class Role(enum.Enum):
    READER = 1
    WRITER = 2


class Person(msgspec.Struct, frozen=True):
    name: str
    roles: frozenset = frozenset()


class Plain:
    """Compares by a rule of its own, which is not known from outside."""

    def __init__(self, name, tenant="a"):
        self.name = name
        self.tenant = tenant

    def __eq__(self, other):
        return type(other) is type(self) and vars(other) == vars(self)

    def __hash__(self):
        return hash(self.name)


class Keyed(Plain):
    """States its content itself."""

    def mcpbus_key(self):
        return self.name, {"tenant": self.tenant}


class Row(Keyed):
    """Has the rule and the key of its base."""


class Stated(Plain):
    @property
    def mcpbus_key(self):
        return self.name


class Newer(Keyed):
    """Compares more than the key of its base states."""

    shard = 0

    def __eq__(self, other):
        return super().__eq__(other) and other.shard == self.shard

    __hash__ = Plain.__hash__


class NoKey(Plain):
    mcpbus_key = None


class Raising(Plain):
    @property
    def mcpbus_key(self):
        raise LookupError("no database")


class Model(pydantic.BaseModel):
    model_config = {"extra": "allow"}
    name: str
    secret: pydantic.SecretStr = pydantic.SecretStr("")
    _shard: int = 0


class Text(str):
    __slots__ = ()


class Color(enum.Flag):
    RED = 1
    BLUE = 2


@dataclass(frozen=True)
class Tenant(Silent):
    tenant: str = "a"


class Marked(Silent):
    """Has one attribute more, which is not compared."""


class Itself:
    """Is compared by identity."""

    def __init__(self, name="ann"):
        self.name = name


class Person2(msgspec.Struct, eq=False):
    name: str


class Unspeakable(Loud):
    def __reduce_ex__(self, _):
        raise RuntimeError("no copies")


class Cross:
    def __eq__(self, other):
        raise ValueError("compare me not")

    __hash__ = None


class Point(NamedTuple):
    x: int
    y: int


class Names(frozenset):
    pass


DIFFERENT = [
    None,
    "ann",
    "bob",
    b"ann",
    "None",
    1,
    "1",
    1.0,
    True,
    (),
    ("ann",),
    ["ann"],
    ("a", "nn"),
    (("a",), "nn"),
    ("a", ("nn",)),
    frozenset(),
    frozenset({"a", "b"}),
    frozenset({"a", "c"}),
    Names("abcdef"),
    {"name": "ann"},
    {"name": "bob"},
    {"name": {"ann"}},
    OrderedDict(name="ann"),
    Silent("ann"),
    Silent("bob"),
    Loud("ann"),
    Loud("bob"),
    Role.READER,
    Role.WRITER,
    Person("ann"),
    Person("ann", frozenset("ab")),
    Keyed("ann"),
    Keyed("ann", "b"),
    Row("ann"),
    Stated("ann"),
    Tenant("ann"),
    Tenant("ann", tenant="b"),
    Marked("ann"),
    Model(name="ann"),
    Model(name="ann", secret="s"),
    Model(name="ann", more=1),
    Text("ann"),
    Color.RED,
    Color.RED | Color.BLUE,
    Color(0),
    deque(["ann"]),
    defaultdict(list, name="ann"),
    SimpleNamespace(name="ann"),
    Decimal(1),
    Fraction(1),
    ipaddress.ip_address("192.0.2.1"),
    ipaddress.ip_network("192.0.2.0/24"),
    re.compile("a"),
    re.compile("a", re.IGNORECASE),
    dt.timedelta(1),
    dt.datetime(2026, 1, 1, tzinfo=dt.UTC).replace(tzinfo=None),
    dt.datetime(2026, 1, 1, tzinfo=zoneinfo.ZoneInfo("UTC")),
    dt.time(1, fold=1),
    dt.time(1),
    pydantic.AnyUrl("https://a.example"),
    pydantic.AnyUrl("https://b.example"),
    Principal("https://id.example.com", "ann", "app"),
    Principal("https://id.example.com", "ann", "other"),
    Role,
    Point(1, 2),
    Point(2, 1),
    (1, 2),
    dt.date(2026, 1, 1),
    dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
    uuid.UUID(int=1),
    uuid.UUID(int=2),
    pathlib.PurePosixPath("/a"),
    pathlib.PurePosixPath("/b"),
    Unspeakable("ann"),
    Itself(),
    Person2("ann"),
    Plain("ann"),
    NoKey("ann"),
    Newer("ann"),
    Raising("ann"),
    Cross(),
]
UNKNOWN = 7
"""So many of them, at the end, are themselves alone."""


def test_what_differs_has_different_digests():
    digests = {digest_of(one) for one in DIFFERENT}
    assert len(digests) == len(DIFFERENT)
    assert {len(digest) for digest in digests} == {32}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ann", "".join("ann")),
        (Silent("ann", seen=1), Silent("ann", seen=2)),
        (Loud("ann", seen=1), Loud("ann", seen=2)),
        (Person("ann", frozenset("abc")), Person("ann", frozenset("cba"))),
        ({"a": 1, "b": {2}}, {"b": {2}, "a": 1}),
        (Keyed("ann"), Keyed("ann")),
        (Row("ann"), Row("ann")),
        (Tenant("ann"), Tenant("ann", 5)),
        (Unspeakable("ann"), Unspeakable("ann")),
        (Model(name="ann", secret="s", more=[1]), Model(name="ann", secret="s", more=[1])),
        (Point(1, 2), Point(1, 2)),
        (OrderedDict(a=1, b=2), OrderedDict(a=1, b=2)),
        (Principal("https://a.example", "ann", "app", "read"), Principal("https://a.example", "ann", "app")),
        (frozenset({Silent("ann"), Role.READER}), frozenset({Role.READER, Silent("ann")})),
    ],
    ids=lambda one: type(one).__name__,
)
def test_what_is_equal_has_one_digest(one, other):
    assert one == other
    assert digest_of(one) == digest_of(other)
    assert BoundPrincipal.stored(BoundPrincipal(one).digest).admits(other)


def test_a_property_that_states_the_content_decides_alone():
    assert digest_of(Stated("ann")) == digest_of(Stated("ann", "b"))


@dataclass
class Careless:
    """A generated class with an ``__eq__`` of its own."""

    name: str

    def __eq__(self, other):
        return self is other

    __hash__ = None


@attrs.define
class Heedless:
    name: str

    def __eq__(self, other):
        return self is other

    __hash__ = None


class Sealed(msgspec.Struct, dict=True):
    name: str

    def __eq__(self, other):
        return type(other) is type(self) and vars(self) == vars(other)

    __hash__ = None


class Group(frozenset):
    def __eq__(self, other):
        return frozenset.__eq__(self, other) and self.owner == other.owner

    __hash__ = frozenset.__hash__


class Forgetful(Plain):
    def __getstate__(self):
        return {}


@attrs.frozen
class Attributed(Loud):
    pass


class Grown(Attributed):
    """A subclass that an attribute more is compared of."""

    def __eq__(self, other):
        return super().__eq__(other) and self.more == other.more

    __hash__ = None


@dataclass(eq=True)
class Scattered:
    """Equal ones have different hashes."""

    name: str
    __hash__ = object.__hash__


def local(name):
    """Make an instance of a class that has the same name as those made before."""

    @dataclass(frozen=True)
    class Local:
        name: str

    return Local(name)


def sharded(shard):
    model = Model(name="ann")
    model._shard = shard
    return model


def owned(principal, **attributes):
    vars(principal).update(attributes)
    return principal


@pytest.mark.parametrize(
    "make",
    [
        lambda _: Careless("ann"),
        lambda _: Heedless("ann"),
        lambda n: owned(Sealed("ann"), more=n),
        lambda n: owned(Group("ab"), owner=n),
        lambda n: Forgetful("ann", n),
        lambda n: owned(Newer("ann"), shard=n),
        lambda n: owned(Grown("ann"), more=n),
        lambda _: local("ann"),
        lambda _: {"type": type(local("ann"))},
        lambda _: frozenset({Scattered("ann")}),
        lambda _: {Scattered("ann"): 1},
        lambda _: float("nan"),
        lambda _: (float("nan"),),
        lambda _: Decimal("NaN"),
        lambda _: Decimal("sNaN"),
        lambda _: complex("nan"),
        lambda _: Silent(float("nan")),
        lambda n: Model(name="ann", more=n),
        sharded,
    ],
)
def test_what_differs_in_what_is_seen_by_its_own_comparison_alone_has_different_digests(make):
    one, other = make(0), make(1)
    assert digest_of(one) != digest_of(other)
    assert not is_same(one, other)
    assert not BoundPrincipal.stored(digest_of(one)).admits(other)


@pytest.mark.parametrize(
    "make", [Itself, lambda: Person2("ann"), lambda: (Itself(),), lambda: Plain("ann"), Cross]
)
def test_what_is_itself_alone_is_nobody_else(make):
    one, other = make(), make()
    assert digest_of(one) != digest_of(other)
    assert not BoundPrincipal(one).admits(other)
    assert BoundPrincipal(one).admits(one)


def test_an_object_that_is_compared_by_identity_keeps_its_digest_while_it_lives():
    one = Itself()
    assert BoundPrincipal.stored(digest_of(one)).admits(one)


def test_a_class_that_has_to_state_its_content_is_logged_once(caplog):
    class Unstated(Plain):
        pass

    owner = BoundPrincipal(Unstated("ann"))
    assert not owner.admits(Unstated("ann"))
    assert not is_same(Unstated("ann"), "ann")
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "Unstated" in caplog.text
    assert "define mcpbus_key" in caplog.text


def test_a_key_that_cannot_be_read_is_logged_with_its_reason(caplog):
    assert not is_same(Raising("ann"), Raising("ann"))
    assert "LookupError: no database" in caplog.text
    assert "Raising" in caplog.text


@pytest.mark.parametrize(
    "make",
    [lambda: "ann", lambda: Silent("ann"), Itself, dict, lambda: Principal("https://a.example", "a", "b")],
)
def test_most_principals_are_not_worth_a_line_in_the_log(make, caplog):
    is_same(make(), make())
    assert caplog.records == []


def test_nothing_is_remembered_of_a_principal_that_is_gone():
    principals._single.clear()
    digest_of(Itself())
    gc.collect()
    assert not principals._single


def test_what_is_the_very_same_need_not_be_compared(caplog):
    cross = Cross()
    assert BoundPrincipal(cross).admits(cross)
    assert caplog.records == []


def test_what_has_itself_as_a_part_is_itself_alone():
    endless = {}
    endless["self"] = endless
    assert digest_of(endless) != digest_of(endless)


def nested(depth):
    principal = "ann"
    for _ in range(depth):
        principal = [principal]
    return principal


def test_what_is_too_deep_is_itself_alone_however_deep_the_stack_is():
    assert digest_of(nested(33)) == digest_of(nested(33))
    assert digest_of(nested(34)) != digest_of(nested(34))


PROGRAM = """
import test_principals as t
for one in t.DIFFERENT[:-t.UNKNOWN]:
    print(t.digest_of(one).hex())
"""


@pytest.mark.parametrize("seed", ["1", "2"])
def test_other_processes_find_the_same_digests(seed):
    """Hashes of texts, and with them the order of sets, differ from process to process."""
    paths = f"import sys; sys.path[:0] = {[str(pathlib.Path(__file__).parent), *sys.path]!r}"
    run = subprocess.run(
        [sys.executable, "-c", f"{paths}\n{PROGRAM}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={"PYTHONHASHSEED": seed},
    )
    assert run.stdout.split() == [digest_of(one).hex() for one in DIFFERENT[:-UNKNOWN]]
