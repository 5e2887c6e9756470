"""The fifteen invariants of routing, as properties of random worlds; see `world` and `invariants`.

Each run takes the same seeds, and says which; others with ``WORLD_SEED=number``, and more with ``WORLDS=number``. A
program that fails is cut down to the steps that it needs before it is shown, with the seed that brings it back.
"""

import difflib
import os
import time

import attrs
import pytest
from duet import Duet, Piece
from happenings import Program
from world import World

WORLDS = int(os.environ.get("WORLDS", "300"))
DUETS = min(WORLDS, 60)
SEED = int(os.environ.get("WORLD_SEED", "1"))
PARTS = 8


@pytest.mark.parametrize("part", range(PARTS))
def test_whatever_clients_do_the_invariants_hold(part, tally):
    tally.first = SEED
    started = time.perf_counter()
    for number in range(part, WORLDS, PARTS):
        world = World(Program.drawn(SEED + number)).run()
        tally.add(world)
        if world.faults:
            pytest.fail(told(world), pytrace=False)
    tally.seconds += time.perf_counter() - started


def told(world):
    """What went wrong, and the shortest program found in which the same goes wrong."""
    broken = {fault.partition(":")[0] for fault in world.faults}
    shortest = world.program.shrunk(
        lambda program: broken & {fault.partition(":")[0] for fault in World(program).run().faults}
    )
    return "\n".join([*World(shortest).run().faults, str(shortest), "", "and at first:", *world.faults])


def test_a_program_does_the_same_each_time():
    """As replaying and shrinking take for granted."""
    program = Program.drawn(SEED)
    first, again = World(program).run(), World(program).run()
    assert [len(ear.messages) for ear in first.ears] == [len(ear.messages) for ear in again.ears]


@pytest.mark.parametrize("part", range(PARTS))
def test_invariant_12_neither_era_notices_the_other(part, tally, monkeypatch):
    """Each client's transcript is the same whether the other one is there or not."""
    # Ids of questions begin at the same number in both runs.
    monkeypatch.setattr("mcpbus.core.sessions.session.secrets.randbits", lambda _: 0)
    for number in range(part, DUETS, PARTS):
        piece = Piece.drawn(SEED + number)
        together = Duet(piece, ("legacy", "modern")).run()
        assert together.faults == [], piece
        for player in ("legacy", "modern"):
            alone = Duet(piece, (player,)).run()
            differences = difflib.unified_diff(
                alone.transcripts[player].splitlines(),
                together.transcripts[player].splitlines(),
                "alone",
                "together",
            )
            assert [*differences] == [], f"{player} of {attrs.evolve(piece)}"
        tally.duets += 1
