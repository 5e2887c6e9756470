"""What the suite must know of a server to measure it.

Every server, ours and theirs, listens on ``127.0.0.1:PORT``, has its endpoint at ``/mcp`` and no authentication, runs as one
process (with whatever children it starts), and offers the same:

- ``echo(text: str)`` answers with one text block that holds the text.
- ``chatter(count: int)`` sends ``count`` notifications, one after the other, on the stream of the call, and then answers with any
  text. They are log lines (``notifications/message``) or progress; the call asks for both, with ``logLevel: "debug"`` and a
  ``progressToken`` in its ``_meta``. Each has ``clock=N`` somewhere in its text (a log line's ``data``, a progress ``message``):
  N is CLOCK_MONOTONIC in nanoseconds, read just before the notification is made.
- ``change()``, where the server can: announces one change to all who asked for it, and answers with the text ``clock=N``, read
  just before. The change is ``notifications/resources/updated`` of ``bench://value``, or ``notifications/tools/list_changed``;
  the suite asks for both.
- ``tool_00(text: str)`` to ``tool_49`` answer as ``echo`` does. Those whose names end with 0 to 4 wait first, once, until whatever
  else is ready has had its turn. One that ends with 5 is a function that may block: it runs in another thread, except in a
  language in which any function may. One that ends with 6 sends three notifications first, as ``chatter`` does, which are progress.

What only some scenarios want is set in its environment for these, by the names of `Setting`.

A tool that takes no care to be fast is not a fair peer: servers are written as their package's documentation advises, without
request logs, in release builds.
"""

import abc
import enum
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

HOST = "127.0.0.1"
PATH = "/mcp"
INSTALL_SECONDS = 900


class Absent(Exception):  # noqa: N818  absence is no error: the report says why
    """A server cannot be measured here, for a reason that the report gives."""


class Setting(enum.StrEnum):
    """What is set in a server's environment for the scenarios that want it; to 1, where nothing else is said."""

    STREAMS = "BENCH_STREAMS"
    """Calls send notifications: a package that answers all calls alike, either with JSON (and drops what they would send before) or
    with streams, answers with streams."""
    RESUMPTION = "BENCH_RESUMPTION"
    """Lost streams are resumed: who can do that keeps their events, which costs something; with ``sqlite``, mcpbus does so in SQLite."""
    HTTP_SSE = "BENCH_HTTP_SSE"
    """It speaks HTTP+SSE, at ``/sse``; it need not have ``/mcp``."""
    STDIO = "BENCH_STDIO"
    """It serves its standard input and output, and no port."""
    TOOLS = "BENCH_TOOLS"
    """The mixture is called: a server of which each call costs more the more tools it has, has the fifty."""
    PROXY = "BENCH_PROXY"
    """It stands for the server that this command starts, as a shell has it, and which speaks over standard input and output."""

    # Of mcpbus alone:
    TLS = "BENCH_TLS"
    """It speaks TLS, with a certificate of its own."""
    AUTHORIZATION = "BENCH_AUTHORIZATION"
    """It asks for tokens."""
    WORKERS = "BENCH_WORKERS"
    """It has so many."""
    TWIN = "BENCH_TWIN"
    """It starts once more, at the next port, as a process that knows nothing of the first."""
    REDIS = "BENCH_REDIS"
    """It is a replica, by the engine at this URL."""
    LEASE = "BENCH_LEASE"
    """How long a replica's lease is, in seconds."""
    WITHOUT = "BENCH_WITHOUT"
    """The speed trick that is taken out of it, one of `benchmarks.tricks`."""


class Ability(enum.Enum):
    """What a server can be measured in, beside short calls."""

    CHATTER = "chatter"
    """Its notifications arrive on the stream of the call."""
    SESSIONS = "sessions"
    """``initialize`` opens a session (``Mcp-Session-Id``), DELETE ends it."""
    GET_STREAMS = "get streams"
    """``change`` reaches every session's GET stream."""
    LISTENS = "listens"
    """``change`` reaches every ``subscriptions/listen`` of 2026-07-28."""
    MIX = "mix"
    """It has ``tool_00`` to ``tool_49``, in both eras."""
    HTTP2 = "HTTP/2"
    """It is spoken to over HTTP/2 as over HTTP/1.1, without TLS, by who knows before."""
    HTTP_SSE = "HTTP+SSE"
    """It heeds `Setting.HTTP_SSE`."""
    STDIO = "stdio"
    """It heeds `Setting.STDIO`."""
    PROXY = "proxy"
    """It heeds `Setting.PROXY`."""
    RESUMPTION = "resumption"
    """It heeds `Setting.RESUMPTION`: the lost stream of a call is resumed with ``Last-Event-ID``."""


class Wire(enum.Enum):
    """What a server is spoken to over."""

    HTTP1 = "HTTP/1.1"
    HTTP2 = "HTTP/2"
    WEBSOCKET = "WebSocket"
    TLS = "HTTP/1.1 over TLS"
    HTTP_SSE = "HTTP+SSE"
    STDIO = "stdio"


@attrs.frozen
class Command:
    """How a server is started, in the foreground.

    Attributes:
        arguments: The program and its arguments.
        environment: What is set in its environment beside what is set already.
        folder: Where it runs; None for where the suite runs.
    """

    arguments: Sequence[str]
    environment: Mapping[str, str] = attrs.field(factory=dict)
    folder: Path | None = None


@attrs.frozen(kw_only=True)
class Peer(abc.ABC):
    """One server that is measured.

    Attributes:
        name: A word for the command line and for its folder.
        title: What the report calls it.
        language: What it is written in.
        package: The published package that is measured.
        version: The version that is installed, exactly.
        toolchain: Executables that must be there to install and to run it.
        revision: The newest revision in which it answers ``tools/call``. One before 2026-07-28 is called in a session that
            ``initialize`` opens, or without a session id if it gives none.
        session_revision: The newest revision in which ``initialize`` is answered; None if it is not.
        abilities: What it can be measured in beside short calls.
        wire: What it is spoken to over, unless a setting asks for another.
        fixed: Whether it answers every request with the same bytes, and looks at none.
        warm_up: Calls that it answers before it is measured.
        in_parts_only: Whether it is measured in nothing but parts that need what it can do: for the rest of what its package does stands
            another entry.
    """

    name: str
    title: str
    language: str
    package: str
    version: str
    toolchain: tuple[str, ...] = ()
    revision: str = "2026-07-28"
    session_revision: str | None = "2025-11-25"
    abilities: frozenset[Ability] = frozenset()
    wire: Wire = Wire.HTTP1
    fixed: bool = False
    warm_up: int = 1_000
    in_parts_only: bool = False

    def prepare(self, folder: Path) -> None:
        """Install what it needs, if its toolchain is there.

        Raises:
            Absent: It cannot be measured here.
        """
        for tool in self.toolchain:
            if shutil.which(tool) is None:
                raise Absent(f"{tool} is not installed")
        folder.mkdir(parents=True, exist_ok=True)
        self.install(folder)

    @abc.abstractmethod
    def install(self, folder: Path) -> None:
        """Install its package and build its server in a folder of its own; at once if that was done before.

        Raises:
            Absent: That failed, with the reason in one line.
        """

    @abc.abstractmethod
    def command(self, folder: Path, port: int) -> Command:
        """Return how it is started from the folder that it was installed in."""


def run(arguments: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None) -> None:
    """Run a step of an installation.

    Raises:
        Absent: It failed; the reason is the last line that it wrote.
    """
    try:
        done = subprocess.run(
            arguments,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=INSTALL_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise Absent(f"{arguments[0]}: {problem}") from problem
    if done.returncode != 0:
        last = next((line for line in reversed(done.stdout.splitlines()) if line.strip()), "nothing was said")
        raise Absent(f"{' '.join(arguments[:2])} failed: {last.strip()[:200]}")
