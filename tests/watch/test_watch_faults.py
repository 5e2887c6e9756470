"""A fault of a watch, of an observer or of an author's function harms no request."""

import pytest
import trio

from mcpbus import Context, Server
from mcpbus.testing import open_bus
from mcpbus.watch import Watch
from mcpbus.watch.records import EVENTS


def talking():
    server = Server("talking")

    @server.tool
    async def talk(ctx: Context) -> str:
        await ctx.info("x")
        await trio.sleep(1)
        return "done"

    return server


async def call(bus, revision="2025-11-25"):
    async with bus.connect(revision=revision, principal="alice") as client:
        result = await client.call_tool("talk")
        assert result["content"][0]["text"] == "done"


class Noting:
    """Notes all events."""

    def __init__(self):
        self.events = []

    def began(self, life):
        self.events.append(("began", life.name))

    def ended(self, life):
        self.events.append(("ended", life.name, life.outcome))

    def said(self, receipt):
        self.events.append(("said", receipt.method))

    def settled(self, receipt, fate):
        self.events.append(("settled", receipt.method, str(fate)))

    def replied(self, life, fate):
        self.events.append(("replied", life.name, str(fate)))


class Raising:
    """Raises at each event."""

    def __init__(self, calls):
        self.calls = calls

    def __getattr__(self, name):
        if name not in EVENTS:
            raise AttributeError(name)

        def fail(*_):
            self.calls.append(name)
            raise RuntimeError("an observer's own")

        fail.__self__ = self
        return fail


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_observers_are_told_of_questions(revision, autojump_clock):
    class Asking(Noting):
        def asked(self, life, questions):
            self.events.append(("asked", life.name, [each.method for each in questions.values()]))

        def answered(self, life, questions, error):
            self.events.append(("answered", life.name, [each.method for each in questions.values()], error))

    async def answer(*_):
        return {"action": "accept", "content": {"value": "x"}}

    server, noting = Server("asking"), Asking()

    @server.tool
    async def choose(ctx: Context) -> None:
        await ctx.elicit("Which?", str)

    watch = Watch(observers=[noting])
    connecting = {"capabilities": {"elicitation": {}}, "on_input_request": answer, "revision": revision}
    async with open_bus(server, watch=watch) as bus, bus.connect(**connecting) as client:
        await client.call_tool("choose")
    assert [event for event in noting.events if event[0] in {"asked", "answered"}] == [
        ("asked", "choose", ["elicitation/create"]),
        ("answered", "choose", ["elicitation/create"], None),
    ]


async def test_observers_are_told_what_happens(autojump_clock):
    noting = Noting()
    async with open_bus(talking(), watch=Watch(observers=[noting])) as bus:
        await call(bus)
    assert [event for event in noting.events if event[1] in {"talk", "notifications/message"}] == [
        ("began", "talk"),
        ("said", "notifications/message"),
        ("settled", "notifications/message", "delivered"),
        ("ended", "talk", "ok"),
        ("replied", "talk", "delivered"),
    ]


async def test_an_observer_that_raises_is_left_out(autojump_clock, caplog):
    calls, noting = [], Noting()
    async with open_bus(talking(), watch=Watch(observers=[Raising(calls), noting])) as bus:
        await call(bus)
        await call(bus)
        assert bus.ledger.balance() == 0
    assert len(calls) == 1
    assert ("ended", "talk", "ok") in noting.events
    [record] = [each for each in caplog.records if each.levelname == "ERROR"]
    assert record.getMessage().startswith("an observer of the watch raised, and is left out from now on: ")


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("broken", ["of", "add", "count", "target_of", "facts"])
async def test_a_fault_of_the_watch_harms_no_request(broken, revision, autojump_clock, monkeypatch, caplog):
    def fail(*_):
        raise RuntimeError("a bug in the watch")

    watch = Watch()
    async with open_bus(talking(), watch=watch) as bus:
        owners = {"of": watch.records.tallies, "target_of": watch.records, "facts": watch.records}
        monkeypatch.setattr(owners.get(broken, watch.records.tape), broken, fail)
        for _ in range(3):
            await call(bus, revision)
        bus.tools_changed()
        assert bus.ledger.balance() == 0
        assert bus.statistics().requests == 0
    messages = [record.getMessage() for record in caplog.records]
    assert set(messages) <= {"the watch has failed to record something"}


async def test_a_name_that_cannot_be_had_is_replaced(autojump_clock, caplog):
    def fail(principal):
        raise LookupError(principal)

    async with open_bus(talking(), watch=Watch(name_principal=fail)) as bus:
        await call(bus)
        [ended] = [each for each in bus.watch.requests(ended=True) if each.name == "talk"]
        assert ended.owner.startswith("str ")
    assert [record.getMessage() for record in caplog.records] == ["name_principal failed"]


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"messages": 0}, "Watch: messages is more than 0, not 0"),
        ({"calls": "x"}, "Watch: calls is a number, not 'x'"),
        ({"observers": 5}, "observers is a list of objects, not 5"),
        ({"name_principal": "x"}, "name_principal is a function of a principal, not 'x'"),
    ],
)
def test_options_that_cannot_be_right_are_refused(options, fault):
    with pytest.raises((TypeError, ValueError)) as raised:
        Watch(**options)
    assert str(raised.value) == fault


async def test_a_watch_is_no_other_thing(autojump_clock):
    with pytest.raises(TypeError, match=r"^watch is a mcpbus\.watch\.Watch\(\), not True$"):
        async with Server("s").open(watch=True):
            pass
