"""Short calls: what a server does with as many as it can take."""

from collections.abc import Iterator, Sequence

from benchmarks.load import load
from benchmarks.peers.peer import Wire
from benchmarks.process import Target
from benchmarks.scenarios.scenario import CPU, LOADER, P50, P99, RATE, RESIDENT, Figures, Served
from benchmarks.usage import resident_bytes
from benchmarks.wires import repeat_short_call


class ShortCall(Served):
    """One call of the echo tool after the other, on each connection."""

    name = "short-call"
    title = "Short calls"
    what = (
        "`tools/call` of an echo tool, on kept-alive connections with one call in flight on each. "
        "Servers with sessions have one for each connection."
    )
    size_title = "connections"
    sizes = {1: 1, 32: 5, 256: 1}
    quick_sizes = (32,)
    metrics = (RATE, P50, P99, CPU, RESIDENT, LOADER)
    wires = frozenset({Wire.HTTP1, Wire.HTTP2, Wire.WEBSOCKET})
    base = "trio-httptools"

    def turn(self, target: Target, sizes: Sequence[int], seconds: float) -> Iterator[tuple[int, Figures]]:
        """Call for a while."""
        for connections in sizes:
            conversations = repeat_short_call(target, connections)
            load(target, conversations, seconds / 10, least=1)  # what is done once is done now
            figures = load(target, conversations, seconds).figures()
            yield connections, {**figures, "resident": resident_bytes(target.group)}
            for conversation in conversations:
                conversation.close()
