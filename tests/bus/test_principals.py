"""Whose something is, in this process and in others."""

import datetime as dt
import enum
import pathlib
import subprocess
import sys
import uuid
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import NamedTuple

import attrs
import msgspec
import pytest

from mcpbus.protocol.principals import Owner, digest_of, is_same
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
    """Compares by content, and has the repr of every object."""

    def __init__(self, name):
        self.name = name

    def __eq__(self, other):
        return isinstance(other, Plain) and other.name == self.name

    def __hash__(self):
        return hash(self.name)


class Itself:
    """Is compared by identity."""

    def __init__(self, name="ann"):
        self.name = name


class Person2(msgspec.Struct, eq=False):
    name: str


class Unspeakable(Plain):
    def __reduce_ex__(self, _):
        raise RuntimeError("no copies")


class Cross:
    def __eq__(self, other):
        raise ValueError("compare me not")

    __hash__ = None


class Point(NamedTuple):
    x: int
    y: int


class Guest:
    """There is one of it in each process."""

    def __eq__(self, other):
        return isinstance(other, Guest)

    def __hash__(self):
        return 0

    def __reduce__(self):
        return "GUEST"


GUEST = Guest()


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
    Plain("ann"),
    Plain("bob"),
    Plain(frozenset("ab")),
    Point(1, 2),
    Point(2, 1),
    (1, 2),
    dt.date(2026, 1, 1),
    dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
    uuid.UUID(int=1),
    uuid.UUID(int=2),
    pathlib.PurePosixPath("/a"),
    pathlib.PurePosixPath("/b"),
    GUEST,
    Itself(),
    Person2("ann"),
    Unspeakable("ann"),
]


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
        (Plain("ann"), Plain("ann")),
        (Unspeakable("ann"), Unspeakable("ann")),
    ],
    ids=lambda one: type(one).__name__,
)
def test_what_is_equal_has_one_digest(one, other):
    assert one == other
    assert digest_of(one) == digest_of(other)
    assert Owner.stored(Owner(one).digest).admits(other)


@pytest.mark.parametrize("make", [Itself, lambda: Person2("ann"), lambda: (Itself(),)])
def test_what_is_itself_alone_is_nobody_else(make):
    one, other = make(), make()
    assert digest_of(one) != digest_of(other)
    assert not Owner(one).admits(other)
    assert Owner(one).admits(one)


def test_an_object_that_is_compared_by_identity_keeps_its_digest_while_it_lives():
    one = Itself()
    assert Owner.stored(digest_of(one)).admits(one)


def test_what_cannot_be_compared_is_not_the_same_and_the_log_says_so(caplog):
    owner = Owner(Cross())
    assert not owner.admits(Cross())
    assert not is_same(Cross(), "ann")
    assert [record.levelname for record in caplog.records] == ["ERROR"] * 2
    assert "Cross" in caplog.text


def test_what_is_the_very_same_need_not_be_compared(caplog):
    cross = Cross()
    assert Owner(cross).admits(cross)
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
for one in t.DIFFERENT[:-3]:
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
    assert run.stdout.split() == [digest_of(one).hex() for one in DIFFERENT[:-3]]
