"""Replicas, their Redis and their clients under all that may happen to them, for longer than the tests beside them have time for."""

from tests.fuzz.fuzz_target import Drawn

from replica_steps import programs  # isort: skip - `fuzz_target` knows where these are
from replica_world import World  # isort: skip


def _check(steps: list[tuple[object, ...]]) -> None:
    faults = World(steps).run().faults
    assert not faults, "\n".join(faults)


REPLICAS = Drawn("replicas", programs, _check, batch=10)
