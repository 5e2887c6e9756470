"""What is one client's comes to no other one, whatever happens to the connections."""

import trio
from scripted import SAID, Scripted, in_a_second, initialize
from upstreams import NEW, OLD

from mcpbus.testing import open_bus
from mcpbus.upstream.pipe import IDLE_SECONDS


class Notes:
    """Which client's call came over which connection."""

    def __init__(self):
        self.wires = {}

    def __call__(self, wire, _request, params):
        self.wires.setdefault(params["arguments"]["who"], set()).add(wire)
        return SAID

    def are_apart(self):
        """Whether no two clients had one in common."""
        return len(set().union(*self.wires.values())) == sum(map(len, self.wires.values()))


async def test_a_process_that_is_being_opened_for_somebody_is_not_adopted_by_somebody_else(autojump_clock):
    notes = Notes()
    scripted = Scripted(OLD, tools_call=notes, initialize=in_a_second(initialize))
    async with (
        open_bus(scripted.proxy(program=True)) as bus,
        bus.connect(revision=NEW) as nobody,
        bus.connect(revision=OLD) as ada,
    ):
        await trio.sleep(IDLE_SECONDS + 1)
        assert scripted.connected == 0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(nobody.call_tool, "t", {"who": "nobody"})
            await trio.sleep(0.5)
            nursery.start_soon(ada.call_tool, "t", {"who": "ada"})
    assert notes.are_apart()
