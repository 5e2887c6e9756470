"""Each speed trick can be taken out, one at a time, and the outcomes are the same: the tests of the core pass, and those of exchanges."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.tricks import TRICKS

TESTS = Path(__file__).parent
CORE = [
    "bus/test_dormant.py",
    "bus/test_reasons.py",
    "bus/test_crashes.py",
    "bus/test_cancelling.py",
    "bus/test_from_thread.py",
    "asking/test_asking_modern.py",
]
EXCHANGES = "exchanges/test_exchanges.py"
OF_ACTORS = {"dormancy", "eagerness", "leadership", "posting"}
OF_WIRES = {
    "bursts": "call and burst and not as",
    "waiting": "call and nap and not as",
    "heads": "spelling",
    "templates": "spelling",
    "whole": "spelling or (cut and half)",
    "gathering": "spelling or two",
    "direct": "call and steps and not as",
    "epoll": "spelling or asked",
}
"""The exchanges that each trick is there for, as pytest selects them."""


def _without(trick, *arguments):
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        f"--without={trick}",
        *arguments,
    ]
    ran = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout


@pytest.mark.parametrize("trick", sorted(OF_ACTORS))
def test_without_it_the_core_means_the_same(trick):
    _without(trick, *CORE)


@pytest.mark.parametrize("trick", OF_WIRES)
def test_without_it_exchanges_have_the_same_outcome(trick):
    _without(trick, EXCHANGES, "-k", OF_WIRES[trick])


def test_each_trick_is_tested():
    assert OF_ACTORS | OF_WIRES.keys() == TRICKS.keys()
