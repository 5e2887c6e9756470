"""A short chaos; ``make soak ARGS="--chaos redis --minutes 1"`` is a longer one, also over Valkey and workers."""

import pytest
import trio
from chaos import Replicas, Workers, chaos

from tests.at_home import OWN_PROCESSES

pytestmark = OWN_PROCESSES

SECONDS = 3


@pytest.mark.parametrize("system", [Replicas("valkey", 3), Workers(2)], ids=["replicas", "workers"])
async def test_calls_end_rightly_and_nothing_is_said_twice_when_processes_are_killed(system):
    with trio.fail_after(300):
        figures = await chaos(system, SECONDS)
    assert figures.faults == []
    assert figures.troubles["kill"]
    assert figures.ends["right"] > 10
