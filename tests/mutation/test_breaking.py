"""What is said of a mutant: that it survives where nothing notices, also because no test runs it at all."""

import gc
import importlib
import sys
import time
from types import SimpleNamespace

import click
import pytest

from tests.mutation import run
from tests.mutation.mutants import Mutants
from tests.mutation.packages import PACKAGES, PROGRAMS, ROOT
from tests.mutation.patching import CannotPatchError, LiveFunctions
from tests.mutation.run import Breaking, Covered, _choose

SOURCE = """
def later(number):
    return number + 1
"""


class Item(SimpleNamespace):
    """As much of a test as is asked here: it notices the fault, or not, or hangs."""

    def pytest_runtest_protocol(self, item, nextitem):
        module = sys.modules["broken_for_a_test"]
        while self.hangs and module.later(1) != 2:
            time.sleep(1)
        self.session.testsfailed += self.notices and module.later(1) != 2


def item(name, *, notices=False, hangs=False):
    made = Item(nodeid=name, notices=notices, hangs=hangs, session=SimpleNamespace(testsfailed=0))
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
    breaking = Breaking([(mutant, [each.nodeid for each in items])], {}, 1, said.append)
    breaking.pytest_runtestloop(SimpleNamespace(items=items))
    assert said == ([f"{mutant} | survives {len(tests)} tests"] if survives else [])
    assert breaking.survivors == survives
    assert breaking.failed is survives


def test_a_mutant_that_cannot_be_tried_is_counted_by_itself(mutant, monkeypatch):
    def fail(*_):
        raise CannotPatchError

    monkeypatch.setattr(LiveFunctions, "patch", fail)
    said, items = [], [item("0", notices=False)]
    breaking = Breaking([(mutant, ["0"])], {}, 1, said.append)
    breaking.pytest_runtestloop(SimpleNamespace(items=items))
    assert (breaking.survivors, breaking.untried) == (0, 1)
    assert breaking.failed
    assert said == [f"{mutant} | cannot be tried"]


def test_a_mutant_that_hangs_is_ended_by_the_time_limit_of_its_test(mutant, monkeypatch):
    monkeypatch.setattr(run, "LEAST_LIMIT", 1)
    lines = []
    breaking = Breaking([(mutant, ["0"])], {"0": 0.0}, 1, lines.append)
    breaking.pytest_runtestloop(SimpleNamespace(items=[item("0", hangs=True)]))
    assert (breaking.survivors, breaking.endless, breaking.failed) == (0, 1, False)
    assert lines == [f"{mutant} | ended by the time limit of a test"]


def test_a_file_that_only_a_test_would_import_is_imported_before(mutant):
    del sys.modules["broken_for_a_test"]
    lines = []
    breaking = Breaking([(mutant, ["0"])], {}, 1, lines.append)
    breaking.pytest_runtestloop(SimpleNamespace(items=[item("0", notices=True)]))
    assert (breaking.survivors, breaking.untried, lines) == (0, 0, [])


def test_a_mutant_gets_its_own_tests_first_then_the_quickest_while_time_is_left(mutant):
    own = "t/test_http1_broken_for_a_test.py::own"
    seconds = {own: 2.0, "quick": 1.0, "slow": 9.0, "quicker": 0.5}
    covered = Covered({mutant.path: {mutant.line: ["slow", "quick", "quicker", own]}}, seconds)
    assert covered.of(mutant, 4) == [own, "quicker", "quick"]
    assert covered.of(mutant, 1.6) == ["quicker", "quick"]


def test_maps_of_several_tests_become_one():
    covered = Covered({"x.py": {1: ["a"]}}, {"a": 1.0})
    covered.add(Covered({"x.py": {1: ["b", "a"], 2: ["b"]}, "y.py": {1: ["b"]}}, {"b": 2.0}))
    assert covered.tests == {"x.py": {1: ["a", "b"], 2: ["b"]}, "y.py": {1: ["b"]}}
    assert covered.seconds == {"a": 1.0, "b": 2.0}


def test_packages_and_files_choose_what_is_broken_and_which_tests_run():
    auth, serving = PACKAGES["auth"], PACKAGES["serving"]
    assert _choose(("auth",), (), ()) == (auth.files(), [*auth.tests])
    both = [*dict.fromkeys(auth.tests + serving.tests)]
    assert _choose(("auth", "serving"), (), ()) == (auth.files() + serving.files(), both)
    assert _choose((), ("mcpbus/auth/jwt.py",), ()) == (["mcpbus/auth/jwt.py"], [*auth.tests])
    assert _choose((), ("mcpbus/cli/run.py",), ("tests/cli",)) == (["mcpbus/cli/run.py"], ["tests/cli"])
    with pytest.raises(click.UsageError, match="name its tests with --tests"):
        _choose((), ("mcpbus/cli/run.py",), ())


@pytest.mark.parametrize("name", PACKAGES)
def test_all_that_the_table_of_packages_names_is_there(name):
    package = PACKAGES[name]
    assert all([*ROOT.glob(pattern)] for pattern in package.sources)
    assert all((ROOT / tests).exists() for tests in package.tests)
    assert len(set(package.files())) == len(package.files())


def test_all_tests_that_are_left_out_would_run_otherwise():
    for path in PROGRAMS:
        assert (ROOT / path).exists()
        assert any(path.startswith(f"{tests}/") for each in PACKAGES.values() for tests in each.tests)


def test_each_file_is_in_one_package():
    files = [path for package in PACKAGES.values() for path in package.files()]
    assert len(set(files)) == len(files)
