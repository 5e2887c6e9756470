"""What the mutation run breaks, and what it leaves alone."""

import pytest

from tests.mutation.mutants import Mutants
from tests.mutation.packages import PACKAGES, ROOT
from tests.mutation.run import EQUIVALENT, equivalents

BROKEN = [
    (
        "if a < b:\n    f()",
        ["if True:\n    f()", "if False:\n    f()", "if a <= b:\n    f()", "if a < b:\n    pass"],
    ),
    ("if a is None:\n    x = y", ["if True:\n    x = y", "if False:\n    x = y"]),
    ("def f():\n    return a and not b", ["def f():\n    return a or not b", "def f():\n    return a and b"]),
    (
        "def f():\n    self.x = self.y + 1",
        [
            "def f():\n    pass",
            "def f():\n    self.x = self.y - 1",
            "def f():\n    self.x = self.y + 2",
        ],
    ),
    (
        "def f():\n    g(Reason.LOST, True)",
        [
            "def f():\n    pass",
            "def f():\n    g(Reason.DELIVERED, True)",
            "def f():\n    g(Reason.LOST, False)",
        ],
    ),
    ("é = 'é'\ndel x[é]", ["é = 'é'\npass"]),
    ("while a:\n    b = c", ["while False:\n    b = c"]),
    ("while True:\n    b = c", ["while False:\n    b = c"]),
    ("def f():\n    return min(b, c)", ["def f():\n    return max(b, c)"]),
    (
        "with trio.fail_after(seconds):\n    b = c",
        ['with trio.fail_after(float("inf")):\n    b = c'],
    ),
]


@pytest.mark.parametrize(("source", "expected"), BROKEN)
def test_a_place_is_broken_in_each_way_that_there_is(source, expected):
    found = {mutant.applied(source.encode()).decode() for mutant in Mutants("x.py", source.encode())}
    assert found == set(expected)


LEFT_ALONE = [
    "LIMIT = 5",
    "class A(B, frozen=True):\n    x: int = 5",
    "def f(x=True): ...",
    "def __repr__(self):\n    return 'a' if self.x else 'b'",
    "if TYPE_CHECKING:\n    x = f(1)",
    "def f():\n    _log.warning('%d', 1)",
    "def f():\n    assert x is not None",
]


@pytest.mark.parametrize("source", LEFT_ALONE)
def test_what_no_test_needs_to_notice_is_left_alone(source):
    assert [*map(str, Mutants("x.py", source.encode()))] == []


def test_all_that_is_called_equivalent_is_there():
    known = equivalents()
    paths = {path for path, _, _ in known}
    assert paths <= {path for package in PACKAGES.values() for path in package.files()}
    there = set()
    for path in paths:
        mutants = Mutants(path, (ROOT / path).read_bytes())
        there.update(
            (m.path, m.text, m.change) for m in mutants.those(lambda m: (m.path, m.text, m.change) in known)
        )
    assert known == there, f"{EQUIVALENT} names what has gone"
