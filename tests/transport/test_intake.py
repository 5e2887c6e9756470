"""What is taken of a client while it has to be waited for, and its connection ends meanwhile."""

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from mcpbus.core.limit_monitor import LimitMonitor
from mcpbus.core.memory_budget import MemoryBudget
from mcpbus.protocol.large import LARGE_BYTES
from mcpbus.transports.inbound_queue import InboundQueue

LONG, ARRAY = b"x" * LARGE_BYTES, b"[{}]"


class Taker:
    """A channel that writes down what it takes."""

    above_high_water = registering = False

    def __init__(self):
        self.took = []

    async def take(self, message):
        self.took.append(message)

    def take_now(self, message, _scope):
        self.took.append(message)


class Place:
    """An intake for which one message is there."""

    def __init__(self, message):
        self.channel = Taker()
        self.budget = MemoryBudget(float("inf"), LimitMonitor())
        left = [message]
        self.intake = InboundQueue(self.channel, self.budget, lambda: left.pop() if left else None)
        self.intake.advance()


@pytest.mark.parametrize("message", [LONG, ARRAY])
async def test_what_is_apart_is_taken_after_a_turn(message, autojump_clock):
    place = Place(message)
    assert place.intake.take(None) is None
    assert place.channel.took == []
    await place.intake.wait_ready()
    assert place.channel.took == [message]
    assert place.intake.next is None


@pytest.mark.parametrize("message", [LONG, ARRAY])
async def test_what_was_about_to_be_taken_is_not_once_it_has_ended(message, monkeypatch):
    place = Place(message)

    async def end():
        place.intake.end()

    monkeypatch.setattr(trio.lowlevel, "checkpoint", end)  # in that very turn
    await place.intake.wait_ready()
    assert place.channel.took == []


async def test_what_waits_for_its_turn_is_not_taken_once_it_has_ended(autojump_clock):
    place = Place(LONG)
    async with trio.open_nursery() as nursery, place.budget.line:
        nursery.start_soon(place.intake.wait_ready)
        await wait_all_tasks_blocked()
        place.intake.end()
    assert place.channel.took == []


async def test_what_is_no_more_than_an_array_does_not_wait_behind_what_is_long(autojump_clock):
    place = Place(ARRAY)
    async with place.budget.line:
        with trio.fail_after(1):
            await place.intake.wait_ready()
    assert place.channel.took == [ARRAY]


@pytest.mark.parametrize("ended", [False, True])
async def test_what_is_there_is_taken_unless_it_has_ended(ended):
    place = Place(b"{}")
    if ended:
        place.intake.end()
    assert place.intake.take(None) is None
    assert place.channel.took == ([] if ended else [b"{}"])
