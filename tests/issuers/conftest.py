"""The official client as the tests of authorization have it, and the issuers, which run for as long as the tests do."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.npm import NODE, install

_HERE = Path(__file__).parent
sys.path.append(str(_HERE.parent / "auth"))


@pytest.fixture(scope="session")
def issuers():
    """Where each of them is."""
    command = [NODE, install(_HERE) / "issuers.mjs"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            yield json.loads(process.stdout.readline())
        finally:
            process.terminate()
