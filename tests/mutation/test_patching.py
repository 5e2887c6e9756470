"""A mutant takes the place of the function that runs, also where that is held by others, or stands within another one."""

import importlib
import sys

import pytest

from tests.mutation.mutants import Mutants
from tests.mutation.patching import CannotPatchError, LiveFunctions

SOURCE = """
LIMIT = max(1, 2)


def later():
    return LIMIT + 1


class Counter:
    def __init__(self):
        self.count = 0

    class Inner:
        @property
        def size(self):
            return 5

    @staticmethod
    def within():
        def inner():
            return 7

        return inner


made = Counter.within()
held = later
"""


@pytest.fixture
def patched(tmp_path, monkeypatch):
    (tmp_path / "broken_for_a_test.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("broken_for_a_test")
    live = LiveFunctions(tmp_path)

    def patch(change):
        [mutant] = [m for m in Mutants("broken_for_a_test.py", SOURCE.encode()) if m.change == change]
        live.patch(mutant)
        return module

    yield patch
    del sys.modules["broken_for_a_test"]


def test_a_function_that_somebody_holds_is_broken(patched):
    module = patched("+ to -")
    assert module.held is module.later
    assert module.held() == 1


def test_a_property_of_a_class_in_a_class_is_broken(patched):
    assert patched("5 to 6").Counter.Inner().size == 6


def test_a_function_within_another_is_broken_where_it_was_made_already_and_where_it_is_made_anew(patched):
    module = patched("7 to 8")
    assert module.made() == module.Counter.within()() == 8


def test_what_stands_in_no_function_is_not_said_to_be_tried(tmp_path, monkeypatch):
    source = "if len('a') == 1:\n    pass\n"
    (tmp_path / "outside.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("outside")
    live = LiveFunctions(tmp_path)
    for mutant in Mutants("outside.py", source.encode()):
        with pytest.raises(CannotPatchError):
            live.patch(mutant)
    del sys.modules["outside"]
