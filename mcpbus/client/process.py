"""A client of a program: a child that reads messages from its standard input and writes them to its standard output, one a line."""

import os
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import trio

from mcpbus.client.client import Client
from mcpbus.client.conversation import Message
from mcpbus.client.environment import environment_of_a_program
from mcpbus.client.errors import ClientError, Disconnected
from mcpbus.client.negotiation import negotiate
from mcpbus.client.options import check_client, check_command, check_environment, check_folder
from mcpbus.client.pending import OnQuestion, Pending
from mcpbus.client.wire import MOST_MESSAGE_BYTES, encode_message
from mcpbus.protocol.jsonrpc import Undecodable
from mcpbus.protocol.keywords import explained
from mcpbus.protocol.revisions import LATEST, named

_PROBE_SECONDS: Final = 10
"""How long a child may take to answer the first modern request, before it is taken to be of an older revision."""
_END_SECONDS: Final = 2
"""How long a child may take to end, after the end of its input, and again after it was told to."""
_MOST_NOISE: Final = 1_000
"""How many lines a child may print that are no messages."""


@asynccontextmanager
@explained
async def connect_process(
    command: Sequence[str],
    *,
    revision: str | None = None,
    capabilities: dict[str, Any] | None = None,
    on_question: OnQuestion | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
) -> AsyncIterator[Client]:
    """Start a program and connect a client to it; the end of the block ends it. It inherits standard error.

    Args:
        command: The program and its arguments.
        revision: The only revision that will do; None for the newest that both know.
        capabilities: What the client declares.
        on_question: Answers what the server asks, as for `Bus.connect`.
        env: Variables of its environment, besides what any program needs, such as ``PATH``; ``os.environ`` for all that this one has.
        cwd: The folder that it works in; that of this program if left out.

    Raises:
        TypeError: Something is not of its type.
        ValueError: There is no such revision, or no program can be given such a command, or such a variable.
        ProtocolError: The server refused.
        ClientError: It cannot be started, or there is no answer.
    """
    fixed = None if revision is None else named(revision)
    check_command(command)
    check_client(capabilities, on_question)
    raised: Exception | None = None
    try:
        process = await trio.lowlevel.open_process(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment_of_a_program(check_environment(env)),
            cwd=check_folder(cwd),
        )
    except OSError as error:
        raise ClientError(_why_not(command[0], cwd, error)) from None
    try:
        async with trio.open_nursery() as nursery:
            connection = _ProcessConnection(process, command[0])
            client = connection.client = Client(
                fixed or LATEST,
                connection.send,
                nursery,
                capabilities=dict(capabilities or {}),
                on_question=on_question,
            )
            nursery.start_soon(connection.write)
            nursery.start_soon(connection.read)
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
    if process.returncode is None:
        process.terminate()
        with trio.move_on_after(_END_SECONDS):
            await process.wait()
    if process.returncode is None:
        process.kill()
        await process.wait()


class _ProcessConnection:
    """The pipes of one child."""

    client: Client

    def __init__(self, process: trio.Process, name: str) -> None:
        self._process = process
        self._name = name
        self._noise = 0
        self._sender, self._receiver = trio.open_memory_channel[bytes](1024)

    def send(self, message: Message, pending: Pending | None) -> None:
        """Send a message."""
        try:
            self._sender.send_nowait(encode_message(message) + b"\n")
        except trio.WouldBlock:
            raise Disconnected(f"{self._name} reads nothing") from None
        except trio.ClosedResourceError:
            raise Disconnected("the client was closed") from None
        if pending is not None:
            pending.begun = True

    def end(self) -> None:
        """Send no more: what was sent is still written, and then the child's input ends."""
        self._sender.close()

    async def write(self) -> None:
        """Write what is sent."""
        stdin = self._process.stdin
        assert stdin is not None  # noqa: S101 - it was asked for
        try:
            async for line in self._receiver:
                await stdin.send_all(line)
            await stdin.aclose()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return  # the end of its output tells why

    async def read(self) -> None:
        """Deliver what the child says, until it ends."""
        why = "the client was closed"
        try:
            why = await self._deliver() or await self._ended()
        finally:
            self.client.disconnected(why)

    async def _ended(self) -> str:
        """Tell how the child has ended, whose output has."""
        with trio.move_on_after(_END_SECONDS):
            await self._process.wait()
        status = self._process.returncode
        ended = "closed its output" if status is None else f"ended with status {status}"
        return f"{self._name} {ended} before it answered"

    async def _deliver(self) -> str | None:
        """Deliver each line; return what is wrong, if it is not the end."""
        stdout = self._process.stdout
        assert stdout is not None  # noqa: S101 - it was asked for
        rest: list[bytes | bytearray] = []
        held = 0
        async for piece in stdout:
            *lines, last = piece.split(b"\n")
            for line in lines:
                rest.append(line)
                self._receive(b"".join(rest))
                rest, held = [], 0
            rest.append(last)
            held += len(last)
            if held > MOST_MESSAGE_BYTES:
                return f"{self._name} wrote a line of more than {MOST_MESSAGE_BYTES:,} bytes"
            if self._noise > _MOST_NOISE:
                return f"{self._name} speaks no MCP: what it prints are no messages"
        return None

    def _receive(self, line: bytes) -> None:
        if line.isspace() or not line:
            return
        try:
            self.client.receive(line)
        except (Undecodable, msgspec.DecodeError, RecursionError):
            self._noise += 1
