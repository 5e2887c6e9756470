"""Short calls: what a server does with as many as it can take."""

from collections.abc import Iterator, Sequence

from benchmarks.answers import check_echo, check_fixed
from benchmarks.dialect import Dialect
from benchmarks.load import Conversation, load, repeat
from benchmarks.load_http2 import repeat_http2
from benchmarks.load_websocket import repeat_websocket
from benchmarks.peers.peer import Wire
from benchmarks.process import Target
from benchmarks.scenarios.scenario import CPU, LOADER, P50, P99, RATE, RESIDENT, Figures, Served
from benchmarks.usage import resident_bytes


class ShortCall(Served):
    """One call of the echo tool after the other, on each connection."""

    name = "short-call"
    title = "Short calls"
    what = (
        "`tools/call` of an echo tool, on kept-alive connections with one call in flight on each. "
        "Servers with sessions have one for each connection."
    )
    size_title = "connections"
    sizes = {1: 2, 32: 5, 256: 2}
    others = {1: 1, 32: 5, 256: 1}
    quick_sizes = (32,)
    metrics = (RATE, P50, P99, CPU, RESIDENT, LOADER)
    wires = frozenset({Wire.HTTP1, Wire.HTTP2, Wire.WEBSOCKET})
    base = "trio-httptools"

    def turn(self, target: Target, sizes: Sequence[int], seconds: float) -> Iterator[tuple[int, Figures]]:
        """Call for a while."""
        for connections in sizes:
            conversations = _connect(target, connections)
            load(target, conversations, seconds / 10, least=1)  # what is done once is done now
            figures = load(target, conversations, seconds).figures()
            yield connections, {**figures, "resident": resident_bytes(target.group)}
            for conversation in conversations:
                conversation.close()


def _connect(target: Target, connections: int) -> list[Conversation]:
    if target.wire is Wire.HTTP2:
        return repeat_http2(target, connections)
    if target.wire is Wire.WEBSOCKET:
        return repeat_websocket(target, connections)
    return repeat(target, connections, Dialect.echo, check_fixed if target.fixed else check_echo)
