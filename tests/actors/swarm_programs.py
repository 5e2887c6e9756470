"""Random programs for the swarm: what its messages say and what the tasks outside do."""

from typing import Any

import mcpbus_actors as actors
from hypothesis import strategies as st

NAMES = ("alpha", "beta", "gamma")
STRATEGIES = {
    "restart": lambda *_: actors.Directive.RESTART,
    "stop": lambda *_: actors.Directive.STOP,
    "escalate": lambda *_: actors.Directive.ESCALATE,
    "blunder": lambda *_: 1 / 0,
    "none": None,
}


def scripts(depth: int = 2) -> st.SearchStrategy[tuple[tuple[Any, ...], ...]]:
    """What a recipient does in one turn."""
    index = st.integers(0, 7)
    delay = st.sampled_from([0.0, 0.5, 1.0, 2.0])
    leaf = (
        st.tuples(st.just("raise"))
        | st.tuples(st.just("stop"))
        | st.tuples(st.just("spawn"), st.sampled_from(sorted(STRATEGIES)), st.integers(1, 3))
        | st.tuples(st.just("watch"), index)
        | st.tuples(st.just("register"), st.sampled_from(NAMES))
        | st.tuples(st.just("task"), st.sampled_from(["return", "raise", "sleep", "linger", "spite"]))
        | st.tuples(st.just("cancel task"), index)
        | st.tuples(st.just("cancel timer"), index)
        | st.tuples(st.just("reply"), index)
    )
    if not depth:
        return st.lists(leaf, max_size=3).map(tuple)
    inner = scripts(depth - 1)
    action = (
        leaf
        | st.tuples(st.just("tell"), index, inner)
        | st.tuples(st.just("tell"), index, inner)
        | st.tuples(st.just("insist"), index, inner)
        | st.tuples(st.just("after"), delay, inner)
    )
    return st.lists(action, max_size=4).map(tuple)


def programs() -> st.SearchStrategy[list[list[tuple[Any, ...]]]]:
    """What a few tasks outside do, side by side."""
    index = st.integers(0, 7)
    step = (
        st.tuples(st.just("sleep"), st.sampled_from([0.0, 0.0, 0.5, 1.0, 6.0]))
        | st.tuples(st.just("tell"), index, scripts())
        | st.tuples(st.just("tell"), index, scripts())
        | st.tuples(st.just("insist"), index, scripts())
        | st.tuples(st.just("ask"), index, scripts(), st.sampled_from([0.0, 0.5, 3.0]))
        | st.tuples(st.just("spawn"), st.sampled_from(sorted(STRATEGIES)), st.integers(1, 3))
        | st.tuples(st.just("stop"), index)
    )
    return st.lists(st.lists(step, max_size=10), min_size=1, max_size=3)
