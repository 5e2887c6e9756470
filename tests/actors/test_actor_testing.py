"""Probes and settling, for tests of actors."""

import mcpbus_actors as actors
import pytest
import trio
from actor_doubles import Recorder, stage
from mcpbus_actors import testing


async def test_a_probe_waits_for_the_next_message_and_insists_on_its_type(autojump_clock):
    async with stage() as (_, probe, _), trio.open_nursery() as nursery:

        async def later():
            await trio.sleep(2)
            probe.address.tell("first")
            probe.address.tell(2)

        nursery.start_soon(later)
        assert await probe.expect(str, timeout=5) == "first"
        assert trio.current_time() == 2
        with pytest.raises(AssertionError, match="2 is not a str"):
            await probe.expect(str)


async def test_a_probe_gives_up_in_time_and_says_what_it_has_seen(autojump_clock):
    async with stage() as (_, probe, _):
        probe.address.tell(1)
        await probe.expect(int)
        with pytest.raises(AssertionError, match=r"no str within 3 s; so far: \[1\]"):
            await probe.expect(str, timeout=3)
        assert trio.current_time() == 3


async def test_a_probe_expects_nothing(autojump_clock):
    async with stage() as (_, probe, _):
        await probe.expect_nothing(5)
        assert trio.current_time() == 5
        probe.address.tell("something")
        with pytest.raises(AssertionError, match="something"):
            await probe.expect_nothing()


async def test_a_probe_watches_and_stops():
    async with stage() as (system, probe, _):
        other = testing.Probe(system)
        probe.watch(other.address)
        other.stop()
        assert (await probe.expect(actors.Stopped)).address is other.address


async def test_settle_waits_for_backlogs_and_tasks_and_not_for_time(autojump_clock):
    async with stage() as (system, _, _):
        log = []
        recorder = system.spawn(Recorder, log, capacity=5000)

        async def work():
            for _ in range(10):
                await trio.lowlevel.checkpoint()
            system.spawn(Recorder).tell(lambda _: [recorder.tell(number) for number in range(2000)])
            await trio.sleep(1000)

        context = trio.lowlevel.current_task().context
        recorder.tell(lambda actor: actor.cell.start_task(work, context=context))
        await testing.wait_until_idle(system)
        assert len(log) == 2000
        assert trio.current_time() == 0
