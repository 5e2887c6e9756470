"""Short calls through a server that stands for another one."""

import shlex
import sys
from collections.abc import Iterator, Sequence

from benchmarks.load import load
from benchmarks.peers.peer import Ability, Setting
from benchmarks.process import Target
from benchmarks.scenarios.scenario import CPU, LOADER, P50, P99, RATE, RESIDENT, Figures, Served
from benchmarks.servers.ours import ROOT
from benchmarks.usage import resident_bytes
from benchmarks.wires import repeat_short_call

_PROGRAM = [
    *("env", f"--unset={Setting.PROXY}", f"{Setting.STDIO}=1", f"PYTHONPATH={ROOT}"),
    *(sys.executable, "-m", "benchmarks.servers.bus", "lane", "0"),
]
"""The server behind all of them: ours, over standard input and output."""


class ThroughProxy(Served):
    """One call of the echo tool after the other, each passed on to a program."""

    name = "proxy"
    title = "Short calls through a proxy"
    what = (
        "`tools/call` of an echo tool, on kept-alive connections with one call in flight on each, of a server that stands for a program "
        "which speaks over its standard input and output: the same one behind all of them, mcpbus. Processor time and memory are those of both processes, "
        "on one core."
    )
    size_title = "connections"
    sizes = {1: 2, 32: 3}
    quick_sizes = (32,)
    in_quick = False
    metrics = (RATE, P50, P99, CPU, RESIDENT, LOADER)
    needs = Ability.PROXY
    environment = {Setting.PROXY: shlex.join(_PROGRAM)}

    def turn(self, target: Target, sizes: Sequence[int], seconds: float) -> Iterator[tuple[int, Figures]]:
        """Call for a while."""
        for connections in sizes:
            conversations = repeat_short_call(target, connections)
            load(target, conversations, seconds / 10, least=1)
            figures = load(target, conversations, seconds).figures()
            yield connections, {**figures, "resident": resident_bytes(target.group)}
            for conversation in conversations:
                conversation.close()
