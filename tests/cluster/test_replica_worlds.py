"""Whatever happens to replicas, what their clients are promised holds: hypothesis chooses what happens, and cuts it down.

Some worlds here, the same each time; more with ``REPLICA_WORLDS=number``, or ``make fuzz ARGS="--only replicas"``. What fails is shown as the list
of steps that brings it back: ``World([("kill", 0, 2.0), ...]).run().faults``.
"""

import os

import pytest
import replica_world
import trio
from hypothesis import HealthCheck, given, settings
from replica_steps import programs
from replica_world import LEASE, World

from mcpbus.cluster import redis_scripts as scripts
from mcpbus.cluster.redis_directory import RedisDirectory
from mcpbus.core.lease import Lease
from mcpbus.core.stores.redis.commands import Script

WORLDS = int(os.environ.get("REPLICA_WORLDS", "8"))


@settings(
    max_examples=WORLDS, deadline=None, derandomize=True, database=None, suppress_health_check=[*HealthCheck]
)
@given(steps=programs)
def test_what_clients_are_promised_holds_whatever_happens(steps):
    assert World(steps).run().faults == []


def test_who_puts_back_a_session_that_it_has_lost_hears_of_it_from_who_puts_back_the_later_epoch():
    steps = [("isolate", 1, 3.0, 0.0), ("listen", 1, 0, 2.0), ("redis", "down", 4.0, 0.0), ("empty", 0.0)]
    assert World(steps).run().faults == []


@pytest.mark.parametrize(
    "steps",
    [
        [("copy", 0.0), ("drain", 0, 0.5), ("call", 0, "act", 1, 0.3), ("fail_over", 0.0)],
        [("kill", 0, 1.9), ("copy", 0.5), ("call", 0, "act", 1, 0.5), ("fail_over", 0.0)],
    ],
)
def test_who_has_just_got_a_session_finds_that_a_redis_that_is_behind_does_not_know_it(steps):
    some_leases_later = [("call", 1, "act", 1, LEASE + 1)] * 2
    assert World([*some_leases_later, *steps]).run().faults == []


def test_what_redis_has_forgotten_that_it_was_taken_may_be_heard_twice():
    """Who knew of it has ended, and nobody else can."""
    steps = [("say", 1, 0, 0.01), ("copy", 0.0), ("listen", 1, 0, 0.01), ("kill", 1, 0.0), ("fail_over", 0.0)]
    world = World([*steps, ("listen", 1, 2, LEASE + 1)]).run()
    assert world.faults == []
    assert world.clients[1].heard().count(0) == 2


# -- that it is noticed where it does not hold: faults are planted in the product ----


def forget_epochs(monkeypatch):
    """Let who has lost a session write."""
    fence = "if known > tonumber(epoch) or known == tonumber(epoch) and had[1] ~= home then return -1 end"
    for name in ("CREATE", "UPDATE", "HOLD"):
        script = getattr(scripts, name)
        assert fence in script.text
        monkeypatch.setattr(scripts, name, Script(script.text.replace(fence, "")))
    monkeypatch.setattr(replica_world, "WRITES", (scripts.CREATE, scripts.UPDATE, scripts.HOLD))


def forget_leases(monkeypatch):
    """Let who may have lost a session speak to its client."""
    monkeypatch.setattr(Lease, "is_valid", True)


def leave_in_redis(monkeypatch):
    """Leave what waits for a client in Redis when it is sent."""

    async def take(*_):
        await trio.lowlevel.checkpoint()

    monkeypatch.setattr(RedisDirectory, "pop_held", take)


@pytest.mark.parametrize(
    ("plant", "steps", "noticed"),
    [
        (
            forget_epochs,
            [("isolate", 0, 2 * LEASE, LEASE + 1), ("level", 0, 1, "error", 0.5), ("say", 0, 0, 2.0)],
            "wrote in epoch 1",
        ),
        (
            forget_leases,
            [
                ("listen", 0, 0, 0.5),
                ("isolate", 0, 2 * LEASE, LEASE + 1),
                ("listen", 0, 1, 0.5),
                ("say", 0, 0, 0.5),
            ],
            "on a stream that was the older one",
        ),
        (
            leave_in_redis,
            [("say", 0, 0, 0.5), ("listen", 0, 0, 0.5), ("kill", 0, LEASE + 1), ("listen", 0, 1, 0.5)],
            "0 was heard twice",
        ),
        (
            leave_in_redis,
            [
                ("kill", 2, LEASE + 1),
                ("copy", 0.0),
                ("fail_over", LEASE + 1),
                ("say", 0, 0, 0.5),
                ("listen", 0, 0, 0.5),
                ("kill", 0, LEASE + 1),
                ("listen", 0, 1, 0.5),
            ],
            "0 was heard twice",
        ),
    ],
)
def test_a_fault_that_is_planted_is_noticed(plant, steps, noticed, monkeypatch):
    assert World(steps).run().faults == []
    plant(monkeypatch)
    assert any(noticed in fault for fault in World(steps).run().faults)
