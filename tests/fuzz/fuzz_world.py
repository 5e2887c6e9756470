"""Random worlds, longer than those of `tests/properties`, and under bounds that differ: all transports, questions, tasks, stores.

Their invariants are those of routing; a program that fails is cut down to the steps that it needs.
"""

from typing import ClassVar

import attrs

from tests.fuzz.fuzz_target import again, bounded

from happenings import Program  # isort: skip - `fuzz_target` knows where these are
from world import LIMITS, World  # isort: skip

BOUNDS = (
    LIMITS,
    attrs.evolve(LIMITS, outbox_items=1, outbox_bytes=400, held_items=0),
    attrs.evolve(
        LIMITS, outbox_items=1000, outbox_bytes=10**6, held_items=100, max_suspended_calls=100, max_tasks=100
    ),
    attrs.evolve(
        LIMITS, keep_alive=3, held_timeout=5, max_suspended_calls=1, max_running_tasks=1, write_deadline=10
    ),
)


class BoundedWorld(World):
    """A world whose bounds follow from its seed."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self.limits = BOUNDS[program.seed % len(BOUNDS)]


def drawn(seed: int) -> Program:
    """Two programs, one after the other."""
    first, then = Program.drawn(seed), Program.drawn(-seed - 1)
    return attrs.evolve(first, steps=first.steps + then.steps)


class WorldTarget:
    """See `Target`; these are cut down by themselves."""

    name: ClassVar = "world"
    batch: ClassVar = 16

    def run(self, seed: int, cases: int | None = None) -> int:
        """See `Target`."""
        count = cases or self.batch
        for number in range(seed * self.batch, seed * self.batch + count):
            with bounded():
                world = BoundedWorld(drawn(number)).run()
            if world.faults:
                raise AssertionError(f"{_told(world)}\n{again(self, seed)}")
        return count


def _told(world: World) -> str:
    broken = _kinds(world)
    shortest = world.program.shrunk(lambda program: bool(broken & _kinds(BoundedWorld(program).run())))
    return "\n".join(
        [*BoundedWorld(shortest).run().faults, str(shortest), "", "and at first:", *world.faults]
    )


def _kinds(world: World) -> set[str]:
    return {fault.partition(":")[0] for fault in world.faults}
