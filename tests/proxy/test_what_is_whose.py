"""What is one client's comes to no other one, whatever happens to the connections."""

from contextlib import asynccontextmanager

import pytest
import trio
from scripted import SAID, Scripted, in_a_second, initialize
from trio.testing import wait_all_tasks_blocked
from upstreams import ELICITATION, NEW, OLD

from mcpbus import ProtocolError
from mcpbus.testing import open_bus, open_probe
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


async def test_a_server_that_comes_back_in_an_older_revision_has_no_connection_for_all(autojump_clock):
    notes = Notes()
    scripted = Scripted(NEW, tools_call=notes)
    async with (
        open_bus(scripted.proxy()) as bus,
        bus.connect(revision=OLD) as ada,
        bus.connect(revision=OLD) as bob,
        bus.connect(revision=NEW, principal="cid") as cid,
    ):
        clients = {"ada": ada, "bob": bob, "cid": cid}
        await ada.call_tool("t", {"who": "all"})
        scripted.revision = OLD
        scripted.wires[0].client.disconnected("it was cut")
        async with trio.open_nursery() as nursery:
            for who, client in clients.items():
                nursery.start_soon(client.call_tool, "t", {"who": who})
        assert notes.are_apart()


async def test_a_server_that_is_of_another_era_each_time_is_given_up(autojump_clock, caplog):
    scripted = Scripted(NEW)

    @asynccontextmanager
    async def connect(**given):
        scripted.revision = NEW if len(scripted.wires) % 2 == 0 else OLD
        async with Scripted.connect(scripted, **given) as client:
            yield client

    scripted.connect = connect
    async with open_bus(scripted.proxy()) as bus, bus.connect(revision=OLD) as ada:
        scripted.wires[0].client.disconnected("it was cut")
        with pytest.raises(ProtocolError, match="did not answer"):
            await ada.call_tool("t")
    assert "it speaks another revision each time" in caplog.text


@pytest.mark.parametrize("there", [OLD, NEW])
@pytest.mark.parametrize("here", [OLD, NEW])
async def test_what_is_said_late_of_a_call_that_was_cancelled_comes_to_no_other_client(
    here, there, autojump_clock
):
    """A tool that tells on its way out what it has undone."""
    heard = []

    def call(wire, request, params):
        if params["arguments"]["who"] == "ada":
            wire.soon(be_late, wire)
        else:
            wire.soon(reply_at_the_end, wire, request)

    async def be_late(wire):
        await trio.sleep(2)
        wire.say("notifications/message", {"level": "info", "data": "of Ada's"})
        wire.say("notifications/acme", {"of": "Ada"})
        with trio.move_on_after(5):
            await wire.ask("q", message="Ada?")

    async def reply_at_the_end(wire, request):
        await trio.sleep(10)
        wire.reply(request, SAID)

    async def answer(_method, params):
        heard.append(params)
        return {"action": "decline"}

    scripted = Scripted(there, tools_call=call)
    given = {"capabilities": ELICITATION, "on_question": answer}
    async with (
        open_bus(scripted.proxy()) as bus,
        bus.connect(revision=NEW, **given) as ada,
        bus.connect(revision=here, **given) as bob,
    ):
        with trio.move_on_after(1):
            await ada.call_tool("t", {"who": "ada"}, log_level="info")
        await wait_all_tasks_blocked()
        said = {"on_notification": lambda *each: heard.append(each), "log_level": "info"}
        await bob.call_tool("t", {"who": "bob"}, **said)
        assert [*heard, *bob.notifications] == []


@asynccontextmanager
async def hanging_calls(scripted, number, *, streaming=True, **options):
    """A session over HTTP behind a proxy, its GET stream, and calls that run in it: of each the wire, the id there, and the recording."""
    async with open_bus(scripted.proxy(**options)) as bus, open_probe(bus.asgi()) as probe:
        session = await probe.initialize(capabilities=ELICITATION)
        stream = await session.get().begun() if streaming else None
        calls = []
        for _ in range(number):
            recording = session.request("tools/call", {"name": "t", "arguments": {}})
            await wait_all_tasks_blocked()
            [wire, request] = scripted.running[-1]
            calls.append((wire, request, recording))
        yield session, stream, calls


def hanging(**options):
    """A server whose calls end when a test says so."""
    scripted = Scripted(
        OLD, tools_call=lambda wire, request, _: scripted.running.append((wire, request)), **options
    )
    scripted.running = []
    return scripted


def methods(recording):
    return [each.get("method", "reply") for each in recording.messages]


LOG = "notifications/message", {"level": "info", "data": "of the session"}
CUSTOM = "notifications/acme", {"of": "the session"}


@pytest.mark.parametrize(("method", "params"), [LOG, CUSTOM])
@pytest.mark.parametrize(("scoped", "within_call"), [(True, False), (True, True), (False, False)])
async def test_over_http_the_stream_tells_of_which_call_a_message_is(
    scoped, within_call, method, params, autojump_clock
):
    """A connection without streams leaves a guess for messages of extensions alone, and takes log lines for those of the session."""
    scripted = hanging(scoped=scoped)
    async with hanging_calls(scripted, 1) as (_, stream, [(wire, request, call)]):
        wire.say(method, params, within=request if within_call else None)
        await wait_all_tasks_blocked()
        wire.reply(request, SAID)
        await call.ended()
        guessed = not scoped and method == CUSTOM[0]
        assert methods(call) == ([method, "reply"] if within_call or guessed or not scoped else ["reply"])
        assert methods(stream) == ([] if methods(call)[0] == method else [method])


@pytest.mark.parametrize("streaming", [True, False])
async def test_a_question_that_names_no_call_is_asked_once_and_outlives_the_call_on_whose_stream_it_was(
    streaming, autojump_clock
):
    answers = []

    async def ask(wire):
        answers.append(await wire.ask("q"))

    scripted = hanging()
    async with hanging_calls(scripted, 3, streaming=streaming, program=True) as (session, stream, calls):
        (wire, *_), *_ = calls
        wire.soon(ask, wire)
        await wait_all_tasks_blocked()
        for each, request, call in reversed(calls[1:]):
            each.reply(request, SAID)
            await call.ended()
        [question] = [said for *_, call in calls for said in call.messages if "method" in said]
        await session.answer(question["id"], {"action": "decline"}).ended()
        await wait_all_tasks_blocked()
        assert [each["result"] for each in answers] == [{"action": "decline"}]
        assert [methods(call) for *_, call in calls] == [[], ["reply"], ["elicitation/create", "reply"]]
        assert stream is None or stream.messages == []


async def test_a_question_on_the_get_stream_is_asked_on_the_get_stream(autojump_clock):
    scripted = hanging(scoped=True)
    async with hanging_calls(scripted, 1) as (_, stream, [(wire, request, call)]):
        wire.soon(wire.ask, "q")
        await wait_all_tasks_blocked()
        wire.reply(request, SAID)
        await call.ended()
        assert (methods(stream), methods(call)) == (["elicitation/create"], ["reply"])


@pytest.mark.parametrize(("running", "kept"), [(1, False), (2, True)])
async def test_a_question_that_names_no_call_ends_with_the_last_call_that_is_cancelled(
    running, kept, autojump_clock
):
    scripted = hanging()
    async with hanging_calls(scripted, running) as (session, stream, calls):
        wire, _, call = calls[-1]
        wire.soon(wire.ask, "q")
        await wait_all_tasks_blocked()
        await session.notify("notifications/cancelled", {"requestId": running}).ended()
        await wait_all_tasks_blocked()
        assert methods(call) == ["elicitation/create"]
        refused = [each for each in scripted.heard if each.get("id") == "q"]
        assert len(refused) == (0 if kept else 1)
        assert methods(stream) == ([] if kept else ["notifications/cancelled"])
