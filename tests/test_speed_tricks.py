"""What is only there for speed can be taken out, one at a time, and the core means the same: its own tests say so."""

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
CORE = [
    "bus/test_dormant.py",
    "bus/test_reasons.py",
    "bus/test_crashes.py",
    "bus/test_cancelling.py",
    "bus/test_from_thread.py",
    "asking/test_asking_modern.py",
]


@pytest.mark.parametrize("trick", ["dormancy", "eagerness", "leadership", "posting"])
def test_without_it_the_core_means_the_same(trick):
    tests = [str(TESTS / name) for name in CORE]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--without={trick}", *tests]
    ran = subprocess.run(command, cwd=TESTS.parent, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout
