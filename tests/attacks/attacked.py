"""One server process under attack, with the memory that it takes and the answers that an honest client gets from it."""

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import IO

import attrs
import trio

from tests.attacks.attacker import Attacker
from tests.attacks.target import Target

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

MOST_BYTES = 200 * 1024 * 1024
"""The memory above idle that one attack may cost."""
MOST_SECONDS = 1.0
"""The time within which an honest client gets each answer."""
MOST_LOGGED = 1024 * 1024
"""The bytes of log that one attack may cost."""

_FIRST_ANSWERS = 5
_START_SECONDS = 60
_END_SECONDS = 20
_LINGER_SECONDS = 1
_NEVER_LOGGED = re.compile(r"Traceback|TrioInternalError|AssertionError|[^\n\t -~\xa1-\uffff]")
"""An internal error, or a control character that a terminal would obey."""


@attrs.frozen
class Attack:
    """One row of the table.

    Attributes:
        name: The attack in plain words.
        target: Makes the attacked server, and all that it needs until the block ends.
        run: Attacks it, and returns when the worst is over.
        honest: The tool that the honest client calls.
        headers: The header fields of the honest client's requests.
    """

    name: str
    target: Callable[[], AbstractAsyncContextManager[Target]]
    run: Callable[[Attacker], Awaitable[object]]
    honest: str = "echo"
    headers: dict[str, str] = attrs.field(factory=dict)


@attrs.frozen
class Victim:
    """The attacked process.

    Attributes:
        pid: Its process id.
        port: The port at which it serves, on 127.0.0.1.
    """

    pid: int
    port: int


@attrs.frozen
class Outcome:
    """The cost of one attack.

    Attributes:
        name: The attack.
        grown: The peak of resident memory above idle, in bytes.
        slowest: The time of the slowest honest answer, in seconds.
        cpu: The processor time that the server took during this answer, in seconds.
        answers: The number of honest answers.
        logged: The bytes of log.
        faults: The broken limits.
    """

    name: str
    grown: int
    slowest: float
    cpu: float
    answers: int
    logged: int
    faults: tuple[str, ...]

    def __str__(self) -> str:
        row = (
            f"{self.name:<64} {self.grown / 2**20:>7.1f} {1000 * self.slowest:>8.0f} {1000 * self.cpu:>8.0f} "
            f"{self.answers:>6} {self.logged / 1024:>8.1f}"
        )
        return "\n".join([row, *(f"    WRONG: {fault}" for fault in self.faults)])


HEADING = f"{'attack':<64} {'peak MB':>7} {'slow ms':>8} {'CPU ms':>8} {'calls':>6} {'log KB':>8}"


class Memory:
    """The resident memory of a process, as the kernel counts it."""

    def __init__(self, pid: int) -> None:
        self._proc = Path("/proc") / str(pid)
        (self._proc / "clear_refs").write_text("5")  # resets the peak, see proc(5)
        self._before = self._read("VmRSS")

    def _read(self, name: str) -> int:
        return int(re.search(rf"{name}:\s+(\d+) kB", (self._proc / "status").read_text())[1]) * 1024

    @property
    def grown(self) -> int:
        """The peak since this object was made, above the value at that time, in bytes."""
        return self._read("VmHWM") - self._before


@attrs.frozen
class Answer:
    """One answer that the honest client got.

    Attributes:
        seconds: The time that it took.
        cpu: The processor time that the server took meanwhile, in seconds.
        fault: The reason why it is no good answer; empty if it is one.
    """

    seconds: float
    cpu: float
    fault: str


class Honest:
    """The honest client: a process of its own, so that no attacker delays it."""

    def __init__(self, process: trio.Process) -> None:
        self._process = process
        self.answers: list[Answer] = []
        self._more = trio.Event()
        self.ended = False

    async def listen(self) -> None:
        """Collect answers as they come."""
        rest = b""
        async for data in self._process.stdout:
            *lines, rest = (rest + data).split(b"\n")
            self.answers += [Answer(**json.loads(line)) for line in lines]
            self._more.set()
        self.ended = True
        self._more.set()

    async def more(self, number: int) -> None:
        """Wait until so many further answers have come."""
        until = len(self.answers) + number
        while len(self.answers) < until and not self.ended:
            self._more = trio.Event()
            await self._more.wait()

    async def leave(self) -> None:
        """Let the client end after the call that it makes."""
        await self._process.stdin.aclose()
        while not self.ended:
            self._more = trio.Event()
            await self._more.wait()


@asynccontextmanager
async def _process(command: Sequence[str], **options: object) -> AsyncIterator[trio.Process]:
    """Run a program until the block ends, with its children."""
    process = await trio.lowlevel.open_process(list(command), start_new_session=True, **options)
    _favour(process.pid)
    try:
        yield process
    finally:
        with trio.CancelScope(shield=True):
            process.terminate()
            with trio.move_on_after(_END_SECONDS):
                await process.wait()
            process.kill()
            await process.wait()


def _favour(pid: int) -> None:
    """Give a process the processor first, where the user may: other work on the machine is no fault of the server."""
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, pid, -15)
    with suppress(OSError):  # where each session has its own share of the processor, see sched(7)
        Path(f"/proc/{pid}/autogroup").write_text("-15")


@asynccontextmanager
async def _serving(target: Target, tree: Path, log: IO[bytes]) -> AsyncIterator[Victim]:
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as sock:
        number = sock.fileno()
        command = [sys.executable, "-m", "mcpbus", "serve", *target.arguments, "--bind", f"fd://{number}"]
        path = os.pathsep.join(map(str, (tree, tree / "actors", ROOT)))
        options = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.DEVNULL,
            "stderr": log,
            "pass_fds": [number],
            "env": {**os.environ, "PYTHONPATH": path},
            "cwd": HERE,
        }
        async with _process(command, **options) as process:
            port = sock.getsockname()[1]
            sock.close()
            yield Victim(process.pid, port)


@asynccontextmanager
async def _honest(attack: Attack, victim: Victim) -> AsyncIterator[Honest]:
    script = str(HERE / "honest_client.py")
    command = [sys.executable, script, str(victim.port), str(victim.pid), attack.honest]
    command += [json.dumps(attack.headers)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    async with _process(command, **pipes) as process, trio.open_nursery() as nursery:
        honest = Honest(process)
        nursery.start_soon(honest.listen)
        yield honest
        nursery.cancel_scope.cancel()


async def suffer(attack: Attack, tree: Path = ROOT, log_file: Path | None = None) -> Outcome:
    """Start the server of an attack, attack it while an honest client calls it, and return the cost.

    Args:
        attack: The attack.
        tree: The checkout whose mcpbus serves.
        log_file: The file for the log of the server; None for a temporary one.
    """
    with tempfile.TemporaryFile() if log_file is None else log_file.open("w+b") as log:
        async with (
            attack.target() as target,
            _serving(target, tree, log) as victim,
            _honest(attack, victim) as honest,
            trio.open_nursery() as nursery,
        ):
            with trio.fail_after(_START_SECONDS):
                await honest.more(_FIRST_ANSWERS)
            memory = Memory(victim.pid)
            first, logged = len(honest.answers), log.seek(0, os.SEEK_END)
            began = time.monotonic()
            attacker = Attacker(victim.port, nursery, target.go)
            await attack.run(attacker)
            await trio.sleep(_LINGER_SECONDS)
            await honest.leave()
            took = time.monotonic() - began
            grown = memory.grown
            nursery.cancel_scope.cancel()
            await attacker.aclose()
        log.seek(logged)
        lines = log.read()
    return _judge(attack, honest.answers[first:], grown, lines, took)


def _judge(attack: Attack, answers: Sequence[Answer], grown: int, log: bytes, took: float) -> Outcome:
    slowest = max(answers, key=lambda answer: answer.seconds, default=Answer(took, 0, "no answer came"))
    faults = [answer.fault for answer in answers if answer.fault][:3]
    if grown > MOST_BYTES:
        faults.append(f"it took {grown / 2**20:.0f} MB")
    if slowest.seconds > MOST_SECONDS:
        faults.append(f"an honest client waited for {slowest.seconds:.1f} s")
    if len(log) > MOST_LOGGED:
        faults.append(f"it logged {len(log)} bytes")
    if found := _NEVER_LOGGED.search(log.decode(errors="replace")):
        faults.append(f"it logged {log.decode(errors='replace')[max(found.start() - 100, 0) :][:400]!r}")
    return Outcome(attack.name, grown, slowest.seconds, slowest.cpu, len(answers), len(log), tuple(faults))
