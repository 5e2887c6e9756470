"""A server that is measured, as a process of its own."""

import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import IO

import attrs

from benchmarks.machine import SERVER_CORE, on_core
from benchmarks.peers.peer import HOST, Absent, Peer, Setting, Wire
from benchmarks.servers import on_stdio

CACHE = Path(__file__).parent / ".cache"
START_SECONDS = 30.0
STOP_SECONDS = 5.0
_APART = 97
"""So many ports lie between the first ones of two processes whose numbers follow each other."""

# Below the ports that the kernel gives to clients, so that no connection of the load takes a server's; and not where another
# run of the suite looks for its own, whose process is as a rule a neighbour of this one.
_ports = count(20_000 + os.getpid() * _APART % 10_000)

_WIRES = {Setting.STDIO: Wire.STDIO, Setting.HTTP_SSE: Wire.HTTP_SSE, Setting.TLS: Wire.TLS}
"""The wires that settings ask for."""


@attrs.frozen
class Target:
    """What the load must know of a server that runs; it is sent to the processes of the load.

    Attributes:
        name: Its name.
        port: Where it listens on the loopback interface.
        group: Its process group.
        revision: The revision in which its tools are called.
        session_revision: The revision in which it opens sessions, if it does.
        wire: What it is spoken to over.
        fixed: Whether it answers every request with the same bytes.
        warm_up: Calls that a process of it answers before it is measured.
    """

    name: str
    port: int
    group: int
    revision: str
    session_revision: str | None
    wire: Wire
    fixed: bool
    warm_up: int = 0


@contextmanager
def running(peer: Peer, environment: Mapping[str, str] = MappingProxyType({})) -> Iterator[Target]:
    """Run a server on the core of the servers, with what is set for it beside what is set already.

    Raises:
        Absent: It cannot be installed here, or does not start; the reason is the last that it said.
    """
    folder = CACHE / peer.name
    peer.prepare(folder)
    port = _free_port()
    command = peer.command(folder, port)
    wire = next((wire for setting, wire in _WIRES.items() if setting in environment), peer.wire)
    arguments = command.arguments
    if wire is Wire.STDIO:
        arguments = on_stdio.command(port, list(arguments))
    with listening(
        lambda _: arguments, {**command.environment, **environment}, port=port, folder=command.folder
    ) as (_, group):
        yield Target(
            peer.name,
            port,
            group,
            peer.revision,
            peer.session_revision,
            wire,
            peer.fixed,
        )


@contextmanager
def listening(
    command: Callable[[int], Sequence[str]],
    environment: Mapping[str, str],
    *,
    port: int | None = None,
    folder: Path | None = None,
) -> Iterator[tuple[int, int]]:
    """Run a command on the core of the servers, and yield its port and its process group once it listens.

    Args:
        command: Makes it for a port.
        environment: What is set for it beside what is set already.
        port: Where it is to listen; None for any.
        folder: Where it runs; None for here.

    Raises:
        Absent: It does not start; the reason is the last that it said.
    """
    port = _free_port() if port is None else port
    with tempfile.TemporaryFile() as log:
        with on_core(SERVER_CORE):
            process = subprocess.Popen(
                command(port),
                cwd=folder,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            _wait_until_it_listens(process, port, log)
            yield port, process.pid
        finally:
            _stop(process)


def _free_port() -> int:
    for port in _ports:
        with socket.socket() as candidate:
            candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with suppress(OSError):
                candidate.bind((HOST, port))
                return port
    raise AssertionError


def _wait_until_it_listens(process: "subprocess.Popen[bytes]", port: int, log: IO[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        with suppress(ConnectionRefusedError), socket.create_connection((HOST, port), timeout=1):
            return
        if process.poll() is not None or time.monotonic() > deadline:
            log.seek(0)
            said = log.read().decode(errors="replace").strip().splitlines()
            raise Absent(f"it does not start: {said[-1][:200] if said else 'and says nothing'}")
        time.sleep(0.02)


def _stop(process: "subprocess.Popen[bytes]") -> None:
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
            break
    with suppress(ProcessLookupError):  # what it started and left behind
        os.killpg(process.pid, signal.SIGKILL)
