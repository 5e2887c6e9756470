"""Names under which actors are found, for as long as they live."""

import mcpbus_actors as actors
import pytest
from actor_doubles import Recorder, boom, stage, stop


@pytest.mark.parametrize("end", [stop, boom])
async def test_a_registration_vanishes_in_the_turn_in_which_its_owner_ends(end):
    async with stage() as (system, probe, _):
        recorder = system.spawn(Recorder)
        system.registry.register("one", recorder)
        system.registry.register(("two", 2), recorder)
        system.registry.register("probe", probe.address)
        assert system.registry["one"] is recorder
        recorder.tell(end)
        assert dict(system.registry) == {"probe": probe.address}
        assert "one" not in system.registry
        assert system.registry.get("one") is None
        assert len(system.registry) == 1


async def test_a_watcher_that_is_told_finds_the_name_free():
    async with stage() as (system, probe, _):
        free = []
        recorder = system.spawn(Recorder)
        system.registry.register("name", recorder)

        class Heir(Recorder):
            def handle(self, message):
                free.append("name" not in system.registry)

        system.spawn(lambda cell: [cell.watch(recorder), Heir(cell)][1])
        recorder.tell(stop)
        assert free == [True]
        assert probe.messages == []


async def test_a_name_belongs_to_one_actor():
    async with stage() as (system, probe, _):
        other = system.spawn(Recorder, name="other")
        system.registry.register("name", probe.address)
        system.registry.register("name", probe.address)
        with pytest.raises(
            actors.NameTakenError, match=r"^'name' is registered to probe; unregister it first$"
        ):
            system.registry.register("name", other)
        system.registry.unregister("name")
        system.registry.register("name", other)
        system.stop(other)
        assert not system.registry
        with pytest.raises(KeyError):
            system.registry.unregister("name")


async def test_names_come_and_go_one_by_one_and_the_rest_with_their_owner():
    async with stage() as (system, probe, _):
        registry = system.registry
        recorder = system.spawn(Recorder)
        registry.register("probe", probe.address)
        for name in ("one", "one", "two", "three"):
            registry.register(name, recorder)
        registry.unregister("two")
        assert set(registry) == {"probe", "one", "three"}
        recorder.tell(stop)
        assert set(registry) == {"probe"}
        registry.unregister("probe")
        assert not registry._names


async def test_the_dead_cannot_be_registered():
    async with stage() as (system, probe, _):
        probe.stop()
        with pytest.raises(actors.LifecycleError, match="has stopped"):
            system.registry.register("name", probe.address)
