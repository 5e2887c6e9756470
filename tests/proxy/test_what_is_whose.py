"""What is one client's comes to no other one, whatever happens to the connections."""

from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import pytest
import trio
from scripted import SAID, Scripted, in_a_second, initialize
from trio.testing import wait_all_tasks_blocked
from upstreams import ELICITATION, NEW, OLD

from mcpbus import ProtocolError
from mcpbus.testing import open_bus, open_probe
from mcpbus.upstream.connection import IDLE_SECONDS


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
    given = {"capabilities": ELICITATION, "on_input_request": answer}
    async with (
        open_bus(scripted.proxy()) as bus,
        bus.connect(revision=NEW, principal="ada", **given) as ada,
        bus.connect(revision=here, principal="bob", **given) as bob,
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


@pytest.mark.parametrize("asking", [0, 1])
async def test_over_http_a_question_is_asked_in_the_call_on_whose_stream_it_arrives(asking, autojump_clock):
    scripted = hanging(scoped=True)
    async with hanging_calls(scripted, 2) as (_, _, calls):
        wire, request, recording = calls[asking]
        wire.soon(partial(wire.ask, "q", within=request, message="?"))
        await wait_all_tasks_blocked()
        asked = [methods(call) for _, _, call in calls]
        assert asked[asking] == ["elicitation/create"]
        assert asked[1 - asking] == []
        assert recording.messages[-1]["params"]["message"] == "?"


async def test_the_session_that_owns_a_connection_is_notified_of_a_page_that_was_completed(autojump_clock):
    scripted = hanging(scoped=True)
    async with hanging_calls(scripted, 1) as (_, stream, [(wire, _, call)]):
        wire.say("notifications/elicitation/complete", {"elicitationId": "e"})
        await wait_all_tasks_blocked()
        assert [each["params"] for each in stream.messages] == [{"elicitationId": "e"}]
        assert methods(stream) == ["notifications/elicitation/complete"]
        assert methods(call) == []


@pytest.mark.parametrize(("method", "params"), [LOG, CUSTOM])
@pytest.mark.parametrize("running", [1, 2])
async def test_over_http_no_call_without_a_session_has_a_message_of_no_call(
    running, method, params, autojump_clock
):
    """Its client has no stream for that, and shares the connection with all at its address."""
    heard = []
    scripted = hanging(scoped=True)
    async with (
        open_bus(scripted.proxy()) as bus,
        bus.connect(revision=NEW) as client,
        trio.open_nursery() as nursery,
    ):
        for _ in range(running):
            said = {"on_notification": lambda *each: heard.append(each), "log_level": "info"}
            nursery.start_soon(lambda said=said: client.call_tool("t", **said))
            await wait_all_tasks_blocked()
        wire, _ = scripted.running[0]
        wire.say(method, params)
        await wait_all_tasks_blocked()
        for wire, request in scripted.running:
            wire.reply(request, SAID)
    assert [*heard, *client.notifications] == []


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


class Kept:
    """A server that keeps a value for each connection: `put` answers with the one before."""

    def __init__(self):
        self.values = {}

    def __call__(self, wire, _request, params):
        before = self.values.get(wire)
        self.values[wire] = params["arguments"]["value"]
        return {"content": [{"type": "text", "text": str(before)}]}


async def put(client, value):
    return (await client.call_tool("t", {"value": value}))["content"][0]["text"]


@asynccontextmanager
async def kept(there=OLD, *, program=False, scoped=False, **options):
    scripted = Scripted(there, tools_call=Kept(), scoped=scoped)
    async with open_bus(scripted.proxy(program=program, **options)) as bus:
        yield scripted, bus


WAYS = pytest.mark.parametrize(
    ("there", "program"), [(OLD, False), (OLD, True), (NEW, True)], ids=["url", "program", "modern program"]
)


def at(host, app):
    """An application as clients of an address see it."""

    async def of_host(scope, receive, send):
        await app({**scope, "client": (host, 1234)}, receive, send)

    return of_host


class Unlike:
    """A principal that no rule can tell from others of its class, but by being another object."""


@WAYS
async def test_two_calls_of_one_client_have_the_same_state_there_and_other_clients_have_none_of_it(
    there, program, autojump_clock
):
    async with kept(there, program=program) as (_, bus), AsyncExitStack() as stack:
        asked = {"capabilities": ELICITATION, "on_input_request": None}
        for owner in (None, "ada", "bob", {"sub": "cid"}, Unlike(), Unlike()):
            client = await stack.enter_async_context(bus.connect(revision=NEW, principal=owner))
            assert [await put(client, 1), await put(client, 2)] == ["None", "1"], owner
            again = await stack.enter_async_context(bus.connect(revision=NEW, principal=owner))
            assert await put(again, 3) == "2", owner
        session = await stack.enter_async_context(bus.connect(revision=OLD, principal="dan"))
        assert [await put(session, 1), await put(session, 2)] == ["None", "1"]
        other = await stack.enter_async_context(bus.connect(revision=OLD, principal="dan", **asked))
        assert await put(other, 3) == ("2" if there == NEW else "None")


@WAYS
@pytest.mark.parametrize("addresses", [("192.0.2.1", "192.0.2.2"), ("2001:db8::1", "2001:db8:1::1")])
async def test_anonymous_clients_at_different_addresses_share_no_state(
    there, program, addresses, autojump_clock
):
    async with kept(there, program=program) as (_, bus), AsyncExitStack() as stack:
        found = []
        for host in (*addresses, addresses[0]):
            probe = await stack.enter_async_context(open_probe(at(host, bus.asgi())))
            params = {"name": "t", "arguments": {"value": host}}
            [message] = (await probe.request("tools/call", params).ended()).messages
            found.append(message["result"]["content"][0]["text"])
    assert found == ["None", "None", addresses[0]]


@WAYS
async def test_each_call_has_a_connection_of_its_own_where_that_is_wanted(there, program, autojump_clock):
    async with kept(there, program=program, isolation="call") as (scripted, bus):
        for here in (OLD, NEW):
            async with bus.connect(revision=here, capabilities=ELICITATION, on_input_request=None) as client:
                before = len(scripted.wires)
                assert [await put(client, 1), await put(client, 2)] == ["None", "None"]
                assert len(scripted.wires) == before + 2
                await wait_all_tasks_blocked()
                assert scripted.connected <= 1


@WAYS
async def test_all_clients_share_a_connection_where_that_is_wanted(there, program, autojump_clock):
    async with kept(there, program=program, isolation="none") as (_, bus), AsyncExitStack() as stack:
        found = []
        for here in (OLD, NEW):
            for principal in (None, "ada", "bob"):
                client = await stack.enter_async_context(bus.connect(revision=here, principal=principal))
                found.append(await put(client, principal))
    assert found == ["None", "None", "ada", "bob", "None", "ada"]


@pytest.mark.parametrize("here", [OLD, NEW])
async def test_a_question_of_no_call_goes_to_the_newest_call_of_that_client_that_accepts_questions(
    here, autojump_clock
):
    asked = []

    def call(wire, request, params):
        async def run():
            await trio.sleep(params["arguments"]["seconds"])
            if params["arguments"]["who"] == "asks":
                answer = await wire.ask(f"q{request}", message="Who?")
                asked.append(answer["result"]["content"]["value"])
            wire.reply(request, SAID)

        wire.soon(run)

    scripted = Scripted(OLD, tools_call=call)

    def declaring(name):
        async def answer(_method, _params):
            return {"action": "accept", "content": {"value": name}}

        return {"capabilities": ELICITATION, "on_input_request": answer, "principal": name}

    async with (
        open_bus(scripted.proxy(program=True)) as bus,
        bus.connect(revision=here, **declaring("ada")) as ada,
        bus.connect(revision=NEW, principal="ada") as mute,
        bus.connect(revision=NEW, **declaring("bob")) as bob,
        trio.open_nursery() as nursery,
    ):
        for client, who, seconds in (
            (ada, "asks", 5),
            (ada, "waits", 20),
            (mute, "waits", 20),
            (bob, "waits", 20),
        ):
            nursery.start_soon(client.call_tool, "t", {"who": who, "seconds": seconds})
            await trio.sleep(1)
    assert asked == ["ada"]


async def test_log_lines_of_no_call_come_to_that_client_and_each_call_has_its_level(autojump_clock):
    def call(wire, request, params):
        async def run():
            await trio.sleep(params["arguments"]["seconds"])
            for level in ("debug", "warning"):
                wire.say("notifications/message", {"level": level, "data": f"{level} of {request}"})
            wire.reply(request, SAID)

        wire.soon(run)

    scripted, heard = Scripted(OLD, tools_call=call), {}
    async with (
        open_bus(scripted.proxy(program=True)) as bus,
        bus.connect(revision=NEW, principal="ada") as ada,
        bus.connect(revision=NEW, principal="ada") as same,
        bus.connect(revision=NEW, principal="bob") as bob,
        trio.open_nursery() as nursery,
    ):

        async def say(client, key, level, seconds):
            heard[key] = []
            await client.call_tool(
                "t",
                {"seconds": seconds},
                log_level=level,
                on_notification=lambda _, params: heard[key].append(params["level"]),
            )

        for key in (ada, "one", "debug", 10), (same, "two", "warning", 5), (bob, "bob", "warning", 20):
            nursery.start_soon(say, *key)
            await trio.sleep(1)
    assert heard == {"one": ["debug", "warning"], "two": ["warning"], "bob": ["warning"]}
    levels = [params["level"] for params in scripted.asked("logging/setLevel")]
    assert levels == ["debug", "warning"]


@pytest.mark.parametrize("isolation", ["clients", "", None])
def test_an_isolation_that_is_none_is_refused(isolation):
    with pytest.raises(ValueError, match="Proxy: isolation is one of client, call, none, not"):
        Scripted(OLD).proxy(isolation=isolation)
