"""What is said of a mutant: that it survives where nothing notices, also because no test runs it at all."""

import gc
import importlib
import sys
from types import SimpleNamespace

import pytest

from tests.mutation.mutants import Mutants
from tests.mutation.patching import CannotPatchError, LiveFunctions
from tests.mutation.run import Breaking

SOURCE = """
def later(number):
    return number + 1
"""


class Item(SimpleNamespace):
    """As much of a test as is asked here: it notices the fault, or not."""

    def pytest_runtest_protocol(self, item, nextitem):
        module = sys.modules["broken_for_a_test"]
        self.session.testsfailed += self.notices and module.later(1) != 2


def item(name, *, notices):
    made = Item(nodeid=name, notices=notices, session=SimpleNamespace(testsfailed=0))
    made.ihook = made
    return made


@pytest.fixture
def mutant(tmp_path, monkeypatch):
    (tmp_path / "broken_for_a_test.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    importlib.import_module("broken_for_a_test")
    [mutant] = [m for m in Mutants("broken_for_a_test.py", SOURCE.encode()) if m.change == "+ to -"]
    yield mutant
    del sys.modules["broken_for_a_test"]
    gc.unfreeze()


@pytest.mark.parametrize(
    ("tests", "survives"), [([], True), ([False], True), ([False, True], False), ([True, False], False)]
)
def test_a_mutant_survives_where_no_test_notices(tests, survives, mutant):
    items, said = [item(str(at), notices=notices) for at, notices in enumerate(tests)], []
    breaking = Breaking([(mutant, [each.nodeid for each in items])], 1, 1, said.append)
    breaking.pytest_runtestloop(SimpleNamespace(items=items))
    assert said == ([f"{mutant} | survives {len(tests)} tests"] if survives else [])
    assert breaking.survivors == survives
    assert breaking.failed is survives


def test_a_mutant_that_cannot_be_tried_is_counted_by_itself(mutant, monkeypatch):
    def fail(*_):
        raise CannotPatchError

    monkeypatch.setattr(LiveFunctions, "patch", fail)
    said, items = [], [item("0", notices=False)]
    breaking = Breaking([(mutant, ["0"])], 1, 1, said.append)
    breaking.pytest_runtestloop(SimpleNamespace(items=items))
    assert (breaking.survivors, breaking.untried) == (0, 1)
    assert breaking.failed
    assert said == [f"{mutant} | cannot be tried"]
