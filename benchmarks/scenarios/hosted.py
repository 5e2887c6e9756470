"""A server of the official SDK on its own transport, and the same server hosted by mcpbus: processor time, memory and start-up.

The server is the peer of the official SDK in `benchmarks/peers`. Its own transport is measured as that peer is: uvicorn with uvloop
and httptools. Responses are streams, as they are by default.
"""

import socket
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from benchmarks.client import connect
from benchmarks.crowd import open_sessions
from benchmarks.load import Conversation, load
from benchmarks.machine import LOAD_CORE, on_core
from benchmarks.peers.peer import Setting, Wire
from benchmarks.process import Target, listening
from benchmarks.scenarios.chatter import repeat_chatter
from benchmarks.scenarios.scenario import Figures, Inside, Metric
from benchmarks.usage import resident_bytes
from benchmarks.wires import repeat_short_call

SERVER: Final = Path(__file__).parents[1] / "peers" / "python-sdk" / "server.py"
LEGACY: Final = "2025-11-25"
CONNECTIONS, REPORTS = 8, 3
SLICES = 4
BEFORE, SESSIONS = 200, 500
SETTLE_SECONDS = 0.25

_HOSTED: Final = """
import sys
sys.path.insert(0, {folder!r})
from server import make_server
import mcpbus
mcpbus.host(make_server(), loop={loop!r}).run(bind="127.0.0.1:{port}", limits=mcpbus.Limits(max_sessions=20_000))
"""
WAYS: Final = ("own", "asyncio", "trio")


class Hosted(Inside):
    """The same server in three ways, which take turns."""

    name = "hosted"
    in_quick = False
    title = "A server of the official SDK, hosted"
    what = (
        f"The peer of the official SDK on its own transport (uvicorn), and hosted by mcpbus on asyncio and on trio. {CONNECTIONS} legacy "
        f"sessions repeat a short call, then a call that reports progress {REPORTS} times. The three take turns. Shares are medians "
        f"of processor time over that of the own transport. Memory is that of {SESSIONS:,} idle sessions."
    )
    metrics = (
        Metric("short_share", "of the processor time of a short call on its own, asyncio", 2),
        Metric("short_share_trio", "the same, trio", 2),
        Metric("progress_share", "of that of a call with progress, asyncio", 2),
        Metric("progress_share_trio", "the same, trio", 2),
        Metric("own_us", "µs of a short call on its own", 0, more_is_better=None),
        Metric("hosted_us", "µs of a short call, asyncio", 0),
        Metric("own_session", "KiB of a session on its own", 1, more_is_better=None, scale=1 / 1024),
        Metric("session", "KiB of a session, asyncio", 1, scale=1 / 1024),
        Metric("own_start", "s until it listens on its own", 2, more_is_better=None),
        Metric("start", "s until it listens, asyncio", 2),
    )
    sizes = {0: 3}
    seconds = 0.25

    def cost(self, sizes: Sequence[int], seconds: float) -> float:
        """Return about how many seconds a turn takes."""
        return len(sizes) * (len(WAYS) * (2 * seconds * (1 + 1 / SLICES) + 0.7) + 4 * SETTLE_SECONDS + 3.0)

    def turn(self, sizes: Sequence[int], seconds: float) -> Iterator[tuple[int, Figures]]:
        """Measure once."""
        for size in sizes:
            with on_core(LOAD_CORE), ExitStack() as stack:
                targets, starts = {}, {}
                for way in WAYS:
                    begun = time.perf_counter()
                    targets[way] = stack.enter_context(_served(way))
                    starts[way] = time.perf_counter() - begun
                short = _take_turns(targets, seconds, lambda target: repeat_short_call(target, CONNECTIONS))
                progress = _take_turns(
                    targets, seconds, lambda target: repeat_chatter(target, CONNECTIONS, REPORTS)
                )
                memory = {way: _session_bytes(targets[way]) for way in ("own", "asyncio")}
            yield (
                size,
                {
                    "short_share": short["asyncio"] / short["own"],
                    "short_share_trio": short["trio"] / short["own"],
                    "progress_share": progress["asyncio"] / progress["own"],
                    "progress_share_trio": progress["trio"] / progress["own"],
                    "own_us": short["own"],
                    "hosted_us": short["asyncio"],
                    "own_session": memory["own"],
                    "session": memory["asyncio"],
                    "own_start": starts["own"],
                    "start": starts["asyncio"],
                },
            )


@contextmanager
def _served(way: str) -> Iterator[Target]:
    """Serve in one of the ways, in a process on the core of the servers."""

    def command(port: int) -> list[str]:
        if way == "own":
            return [sys.executable, str(SERVER), "uvicorn", str(port)]
        program = _HOSTED.format(folder=str(SERVER.parent), loop=way, port=port)
        return [sys.executable, "-c", program]

    with listening(command, {Setting.STREAMS: "1"}) as (port, group):
        yield Target(way, port, group, LEGACY, LEGACY, Wire.HTTP1, fixed=False)


def _take_turns(
    targets: dict[str, Target], seconds: float, talk: Callable[[Target], list[Conversation]]
) -> dict[str, float]:
    """Return the median of the µs of processor time that one call takes, of each server."""
    conversations = {way: talk(target) for way, target in targets.items()}
    taken: dict[str, list[float]] = {way: [] for way in targets}
    for number in range(SLICES + 1):
        for way, target in targets.items():
            spent = load(target, conversations[way], seconds / SLICES).figures()["cpu_us"]
            if number:  # the first slice warms up
                taken[way].append(spent)
    for conversation in (each for several in conversations.values() for each in several):
        conversation.close()
    return {way: statistics.median(spent) for way, spent in taken.items()}


def _session_bytes(target: Target) -> float:
    """Open sessions, and return what one takes of resident memory."""
    sockets: list[socket.socket] = [connect(target.port) for _ in range(CONNECTIONS)]
    open_sessions(target, BEFORE, sockets)
    time.sleep(SETTLE_SECONDS)
    before = resident_bytes(target.group)
    open_sessions(target, SESSIONS, sockets)
    time.sleep(SETTLE_SECONDS)
    grown = resident_bytes(target.group) - before
    for sock in sockets:
        sock.close()
    return grown / SESSIONS
