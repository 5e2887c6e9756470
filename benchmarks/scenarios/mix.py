"""Calls as the real world makes them."""

from collections.abc import Iterator, Sequence

from benchmarks.crowd import opening_seconds
from benchmarks.load import load
from benchmarks.mixture import CLIENTS, LEAST_BYTES, MOST_BYTES, TOOLS, mixture
from benchmarks.peers.peer import Ability, Setting
from benchmarks.process import Target
from benchmarks.scenarios.scenario import CPU, LOADER, P50, P99, RATE, RESIDENT, Figures, Served
from benchmarks.traffic import CONNECTIONS, Traffic
from benchmarks.usage import resident_bytes


class Mix(Served):
    """What the short call is not: no call looks like the one before."""

    name = "mix"
    title = "A mixture of calls, as the real world has them"
    what = (
        f"`tools/call` on {CONNECTIONS} connections, of {TOOLS} tools that return their text, {LEAST_BYTES} B to "
        f"{MOST_BYTES // 1000} kB of it, evenly spread over the logarithm. Half of the tools wait once for their turn, one in ten runs "
        "in a thread (where the language needs one), one in ten sends three notifications. One call of two is made in 2026-07-28, the "
        f"other in a session of 2025-11-25. {len(CLIENTS)} kinds of clients call through a proxy, which knows no connection from the other, and use a session for one call at a time: each request has a `X-Request-Id` and a `traceparent` "
        "of its own, the latter in its `_meta` too, with a UUID for progress token. All servers get the same calls, in the same order."
    )
    sizes = {0: 5}
    others = {0: 3}
    metrics = (RATE, P50, P99, CPU, RESIDENT, LOADER)
    needs = Ability.MIX
    environment = {Setting.STREAMS: "1", Setting.TOOLS: "1"}

    def cost(self, sizes: Sequence[int], seconds: float) -> float:
        """Return about how many seconds a turn takes."""
        return super().cost(sizes, seconds) + opening_seconds((CONNECTIONS * len(CLIENTS),))

    def turn(self, target: Target, sizes: Sequence[int], seconds: float) -> Iterator[tuple[int, Figures]]:
        """Call for a while."""
        for size in sizes:
            with Traffic(calls=mixture(), sessions=CLIENTS).to(target) as conversations:
                load(target, conversations, seconds / 10, least=1)
                figures = load(target, conversations, seconds).figures()
                yield size, {**figures, "resident": resident_bytes(target.group)}
