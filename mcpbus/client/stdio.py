"""A client of a program, one message a line on its standard input and output, and the environment that the program gets."""

import logging
import os
import re
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import msgspec
import trio

from mcpbus.client.client import Client
from mcpbus.client.errors import ClientError
from mcpbus.client.negotiation import negotiate
from mcpbus.client.options import check_client, check_command, check_environment, check_folder
from mcpbus.client.outgoing import SendQueue
from mcpbus.client.pending import OnInputRequest, PendingRequest
from mcpbus.client.reading import LONG_BYTES, Reading, Readings
from mcpbus.client.session import Message
from mcpbus.client.stderr_lines import OnLine, StderrLines
from mcpbus.client.wire import MOST_MESSAGE_BYTES, encode_message
from mcpbus.client.yielding import LONG_WORK_BYTES, Yielder, long_work
from mcpbus.protocol.jsonrpc import JsonRpcRequest, Undecodable
from mcpbus.protocol.keywords import explained
from mcpbus.protocol.revisions import LATEST, named

_ANY_PROGRAM: Final = frozenset(
    [
        "HOME",
        "LOGNAME",
        "PATH",
        "SHELL",
        "TERM",
        "USER",
        "TMPDIR",
        "TZ",
        "LANG",
        "LC_ALL",
        "LC_CTYPE",
        "APPDATA",
        "COMSPEC",
        "HOMEDRIVE",
        "HOMEPATH",
        "LOCALAPPDATA",
        "PATHEXT",
        "PROCESSOR_ARCHITECTURE",
        "PROGRAMDATA",
        "PROGRAMFILES",
        "SYSTEMDRIVE",
        "SYSTEMROOT",
        "TEMP",
        "TMP",
        "USERNAME",
        "USERPROFILE",
        "WINDIR",
    ]
)
"""What a program needs to find its user, its files and others, on POSIX systems and on Windows; none holds a secret."""


def environment_of_a_program(given: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a program: what is given to it, and what any program needs.

    Others of ours may be secrets, which are no concern of a program that somebody else wrote.
    """
    inherited = {name: os.environ[name] for name in _ANY_PROGRAM if name in os.environ}
    return {**inherited, **given}


_log = logging.getLogger("mcpbus")

_PROBE_SECONDS: Final = 10
"""How long a child may take to answer the first modern request, before it is taken to be of an older revision."""
_END_SECONDS: Final = 2
"""How long a child may take to end, after the end of its input, and again after it was told to."""
_STDERR_SECONDS: Final = 0.5
"""How long the standard error is read after the child's output has ended: a grandchild may hold it open."""
_MOST_NOISE: Final = 1_000
"""How many lines a child may print that are no messages."""
_ID: Final = rb'"id"\s*:\s*(-?\d{1,18}|"(?:[^"\\]|\\.){0,200}")'
_VERSION: Final = rb'"jsonrpc"\s*:\s*"2\.0"'
_ANSWERED: Final = (
    re.compile(
        rb"\s*\{\s*(?:%b\s*,\s*)?%b\s*,\s*(?:%b\s*,\s*)?\"(?:result|error)\"" % (_VERSION, _ID, _VERSION)
    ),
    re.compile(rb"[\]}\"\w]\s*,\s*(?:%b\s*,\s*)?%b\s*(?:,\s*%b\s*)?\}\s*\Z" % (_VERSION, _ID, _VERSION)),
)
"""A response whose id comes before its result, or behind it."""
_ID_BYTES: Final = 400
"""How much of the beginning and the end of a line is searched for an id."""


@asynccontextmanager
@explained
async def connect_process(
    command: Sequence[str],
    *,
    revision: str | None = None,
    capabilities: dict[str, Any] | None = None,
    on_input_request: OnInputRequest | None = None,
    client_info: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    on_stderr: OnLine | None = None,
) -> AsyncIterator[Client]:
    """Start a program and connect a client to it; the end of the block ends it.

    Each line of its standard error goes to `on_stderr`. If that is left out, the logger ``mcpbus.stderr`` logs it with level INFO,
    with the program's name. Of a flood, 50 lines a second are passed on, and the program is slowed down.

    Args:
        command: The program and its arguments.
        revision: The only revision that will do; None for the newest that both know.
        capabilities: What the client declares.
        on_input_request: Answers what the server asks, as for `Bus.connect`.
        client_info: The name and version that the server is shown, such as ``{"name": "my-agent", "version": "2.1"}``.
        env: Variables of its environment, besides what any program needs, such as ``PATH``; ``os.environ`` for all that this one has.
        cwd: The folder that it works in; that of this program if left out.
        on_stderr: Called with each line of its standard error, whose control characters are escaped.

    Raises:
        TypeError: Something is not of its type.
        ValueError: There is no such revision, or no program can be given such a command, or such a variable.
        ProtocolError: The server refused.
        ClientError: It cannot be started, or there is no answer.
    """
    fixed = None if revision is None else named(revision)
    check_command(command)
    check_client(capabilities, on_input_request, client_info)
    if on_stderr is not None and not callable(on_stderr):
        raise TypeError(f"on_stderr is a function of a line of text, not {on_stderr!r}")
    raised: Exception | None = None
    try:
        process = await trio.lowlevel.open_process(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment_of_a_program(check_environment(env)),
            cwd=check_folder(cwd),
        )
    except OSError as error:
        raise ClientError(_why_not(command[0], cwd, error)) from None
    try:
        async with trio.open_nursery() as nursery:
            connection = _ProcessConnection(process, command[0], on_stderr)
            client = connection.client = Client(
                fixed or LATEST,
                connection.send,
                nursery,
                capabilities=dict(capabilities or {}),
                on_input_request=on_input_request,
                waiting=connection.waiting,
                info=client_info,
            )
            nursery.start_soon(connection.write)
            nursery.start_soon(connection.read)
            nursery.start_soon(connection.read_stderr)
            try:
                await negotiate(client, fixed, probe_seconds=_PROBE_SECONDS)
                yield client
            except Exception as error:  # noqa: BLE001 - raised again below: a nursery would put it into a group
                raised = error
                nursery.cancel_scope.cancel()
            connection.end()
            nursery.cancel_scope.deadline = trio.current_time() + _END_SECONDS
    finally:
        with trio.CancelScope(shield=True):
            await _end(process)
    if raised is not None:
        raise raised


def _why_not(program: str, cwd: str | os.PathLike[str] | None, error: OSError) -> str:
    """Tell why a program cannot be started, and what is to be written instead."""
    if cwd is not None and error.filename == cwd:
        return f"cannot start {program!r} in {cwd}: {error.strerror}"
    seen_from = Path(cwd or "").absolute()
    if not isinstance(error, FileNotFoundError) or (seen_from / program).exists():
        return f"cannot start {program!r}: {error.strerror}"
    if len(program.split()) > 1:
        return f"cannot start {program!r}: no program is called so; write its arguments as words of their own"
    if Path(program).name != program:
        return f"cannot start {program!r}: there is no such file, seen from {seen_from}"
    return f"cannot start {program!r}: there is no such program on PATH"


async def _end(process: trio.Process) -> None:
    """End a child as the specification has it: its input first, then by signals (rule L-15)."""
    assert process.stdin is not None  # noqa: S101 - it was asked for
    assert process.stdout is not None  # noqa: S101 - likewise
    await process.stdin.aclose()
    with trio.move_on_after(_END_SECONDS):
        await process.wait()
    await process.stdout.aclose()
    if process.stderr is not None:
        await process.stderr.aclose()
    if process.returncode is None:
        process.terminate()
        with trio.move_on_after(_END_SECONDS):
            await process.wait()
    if process.returncode is None:
        process.kill()
        await process.wait()


@attrs.frozen(eq=False)
class _Line:
    """A message as it is written, with the request that it is, if it is one."""

    text: bytes
    request: PendingRequest | None

    @property
    def size(self) -> int:
        return len(self.text)


class _ProcessConnection:
    """The pipes of one child."""

    client: Client

    def __init__(self, process: trio.Process, name: str, on_stderr: OnLine | None) -> None:
        self._process = process
        self._name = name
        self._noise = 0
        self._stderr = StderrLines(name, on_stderr)
        self._stderr_scope = trio.CancelScope()
        self.waiting: SendQueue[_Line] = SendQueue(name)

    def send(self, message: Message, pending: PendingRequest | None) -> None:
        """Send a message."""
        request = pending if isinstance(message, JsonRpcRequest) else None
        self.waiting.put(_Line(encode_message(message) + b"\n", request))

    def end(self) -> None:
        """Send no more: what was sent is still written, and then the child's input ends."""
        self.waiting.close()

    async def write(self) -> None:
        """Write what is sent."""
        stdin = self._process.stdin
        assert stdin is not None  # noqa: S101 - it was asked for
        try:
            while (line := await self.waiting.take()) is not None:
                if line.request is not None:
                    line.request.begun = True
                await stdin.send_all(line.text)
                self.waiting.written(line)
            await stdin.aclose()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return  # the end of its output tells why

    async def read(self) -> None:
        """Deliver what the child says, until it ends."""
        why = "the client was closed"
        try:
            why = await self._deliver() or await self._ended()
        finally:
            self._stderr_scope.deadline = trio.current_time() + _STDERR_SECONDS
            self.client.disconnected(why)

    async def read_stderr(self) -> None:
        """Pass on the lines of standard error, until it ends, or the child's output has ended."""
        stderr = self._process.stderr
        assert stderr is not None  # noqa: S101 - it was asked for
        with self._stderr_scope:
            await self._stderr.read(stderr)

    async def _ended(self) -> str:
        """Tell how the child has ended, whose output has."""
        with trio.move_on_after(_END_SECONDS):
            await self._process.wait()
        status = self._process.returncode
        ended = "closed its output" if status is None else f"ended with status {status}"
        with trio.move_on_after(_STDERR_SECONDS):
            await self._stderr.ended.wait()
        last = f": {self._stderr.last}" if self._stderr.last else ""
        return f"{self._name} {ended} before it answered{last}"

    async def _deliver(self) -> str | None:
        """Deliver each line; return what is wrong, if it is not the end."""
        stdout = self._process.stdout
        assert stdout is not None  # noqa: S101 - it was asked for
        line, turn = self._new_line(), Yielder()

        async def read(piece: bytes | bytearray) -> None:
            nonlocal line
            *parts, last = piece.split(b"\n")
            for part in parts:
                line.add(part)
                line.end()
                if line.too_long:
                    self._fail_answered(line.head, line.tail, line.why)
                else:
                    self._receive(bytes(line.data))
                line = self._new_line()
                await turn.pause()
            line.add(last)

        async for piece in stdout:
            if len(piece) < LONG_WORK_BYTES:
                await read(piece)
            else:
                async with long_work():
                    await read(piece)
                    await turn.pause()
            if line.too_long and not line.head.lstrip().startswith(b"{"):
                return f"{self._name} wrote a line of more than {MOST_MESSAGE_BYTES:,} bytes"
            if self._noise > _MOST_NOISE:
                return f"{self._name} speaks no MCP: what it prints are no messages"
        return None

    def _new_line(self) -> "_LineBuffer":
        return _LineBuffer(self.client.readings)

    def _receive(self, line: bytes) -> None:
        if line.isspace() or not line:
            return
        try:
            self.client.receive(line)
        except (Undecodable, msgspec.DecodeError, RecursionError) as fault:
            self._noise += 1
            self._fail_answered(line[:_ID_BYTES], line[-_ID_BYTES:], str(fault))

    def _fail_answered(self, head: bytes, tail: bytes, why: str) -> None:
        """Fail the call that a line answers, if its id can be found in a line that cannot be read."""
        found = _ANSWERED[0].match(head) or _ANSWERED[1].search(tail)
        if found is not None and self.client.answered_badly(msgspec.json.decode(found[1]), why):
            _log.warning("%s answered a call with a line that cannot be read: %s", self._name, why)


class _LineBuffer:
    """A line as it comes. Of one that is too long only the beginning and the end are kept, to find the call that it answers.

    Args:
        readings: Count its bytes.

    Attributes:
        data: The line so far; empty once it is too long.
        too_long: Whether it has more bytes than a message may have, or than there is memory for.
        why: What is wrong with a line that is too long.
        head: Its first bytes.
        tail: Its last bytes, once it is too long.
    """

    __slots__ = ("_reading", "_readings", "data", "head", "tail", "too_long", "why")

    def __init__(self, readings: Readings) -> None:
        self._readings = readings
        self._reading: Reading | None = None  # only of a long line
        self.why = f"it has more than {MOST_MESSAGE_BYTES:,} bytes"
        self.data = bytearray()
        self.too_long = False
        self.head = self.tail = b""

    def add(self, part: bytes | bytearray) -> None:
        """Add the next bytes."""
        if self.too_long:
            self.tail = (self.tail + part)[-_ID_BYTES:]
            return
        self.data += part
        if len(self.data) > MOST_MESSAGE_BYTES:
            self._drop()
            self.end()
        elif len(self.data) >= LONG_BYTES:
            self._reading = self._reading or Reading(self._readings, self._give_up)
            self._reading.hold(len(self.data))

    def end(self) -> None:
        """Count its bytes no longer."""
        # Each refers to the other: the line would wait for the garbage collector.
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.close()

    def _give_up(self) -> None:
        assert self._reading is not None  # noqa: S101 - it calls this
        self.why = str(self._reading.failure)
        self._drop()

    def _drop(self) -> None:
        self.too_long = True
        self.head, self.tail = bytes(self.data[:_ID_BYTES]), bytes(self.data[-_ID_BYTES:])
        self.data = bytearray()
