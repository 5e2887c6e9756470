"""A short soak; ``make soak`` is one of ten minutes."""

import subprocess
import sys
from pathlib import Path

from tests.soak.run import FAULTS
from tests.soak.soak_server import FAULTS as KINDS

ROOT = Path(__file__).parents[2]


def test_a_server_is_after_some_seconds_of_faults_and_disconnects_as_it_was():
    """In a process of its own, like the server: httpx leaves generators behind, which pytest would make faults of."""
    options = ["--minutes", "0.06", "--seed", "1", "--visitors", "4", "--patience", "1"]
    command = [sys.executable, "-m", "tests.soak.run", *options]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_every_kind_of_fault_is_asked_for():
    assert set(FAULTS) == KINDS.keys()
