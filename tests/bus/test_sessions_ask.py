"""A session's client is asked outside any request: on its GET stream or its channel, and in legacy revisions alone."""

import pytest
import trio
from staging import HELLO, staged

from mcpbus import Location, Server
from mcpbus.asking import (
    AcceptedElicitation,
    Elicit,
    InputRefusedError,
    InputRequestError,
    InputTimeoutError,
    InputUnavailableError,
    ListRoots,
    Root,
)
from mcpbus.core.signals import InputEnded
from mcpbus.stores import MemoryEventStore
from mcpbus.testing import open_bus, open_probe
from tests.at_home import KEPT_AS_WELL

EVERYTHING = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
ROOTS = {"roots": [{"uri": "file:///x"}]}
SAMPLED = b'{"role":"assistant","model":"m","content":{"type":"text","text":"yo"}}'
CANCELLED = "notifications/cancelled"
CUSTOM = "notifications/acme/moved"
UNANSWERED = "its initialize has not been answered"


class Asker:
    """Asks in a task of its own, as a program that holds a session does.

    Attributes:
        outcome: What came of it; None as long as it waits.
    """

    def __init__(self, nursery, session, ask=lambda session: session.list_roots()):
        self.outcome = None
        self.done = trio.Event()
        nursery.start_soon(self._run, session, ask)

    async def _run(self, session, ask):
        try:
            self.outcome = await ask(session)
        except InputRequestError as error:
            self.outcome = error
        self.done.set()


async def stalled(it):
    """Open a session with a GET stream that its client reads no more once its head is out."""
    session = await it.probe.initialize(capabilities=EVERYTHING)
    get = await session.get().begun()
    await it.quiet()
    get.stall()
    return session, get


@pytest.mark.parametrize("shell", ["asgi", "http1"])
@pytest.mark.parametrize("response", ["auto", "json"])
@pytest.mark.parametrize(
    ("ask", "method", "answer", "got"),
    [
        (lambda s: s.list_roots(), "roots/list", ROOTS, [Root("file:///x")]),
        (
            lambda s: s.elicit("?", str),
            "elicitation/create",
            {"action": "accept", "content": {"value": "x"}},
            AcceptedElicitation("x"),
        ),
        (
            lambda s: s.elicit_url("?", "https://a.example"),
            "elicitation/create",
            {"action": "accept"},
            AcceptedElicitation(None),
        ),
    ],
)
async def test_what_a_session_asks_is_asked_on_its_get_stream(
    *, ask, method, answer, got, response, shell, autojump_clock
):
    async with (
        staged() as it,
        trio.open_nursery() as nursery,
        open_probe(it.bus.asgi(response=response), shell=shell) as probe,
    ):
        session = await probe.initialize(capabilities=EVERYTHING)
        get = await session.get().begun()
        asker = Asker(nursery, it.bus.sessions[session.id], ask)
        question = await get.message()
        assert question["method"] == method
        assert (await session.answer(question["id"], answer).ended()).status == 202
        await it.quiet()
        assert asker.outcome == got
        get.disconnect()
        await it.assert_nothing_is_left()


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-11-25"])
async def test_on_a_channel_it_is_asked_there(revision, autojump_clock):
    async with staged() as stage, trio.open_nursery() as nursery:
        async with stage.wire(None) as wire:
            declared = {**HELLO, "protocolVersion": revision, "capabilities": EVERYTHING}
            await wire.say("initialize", declared, 0)
            await stage.quiet()
            [session] = stage.bus.sessions.values()
            asker = Asker(nursery, session, lambda s: s.sample("Hi"))
            await stage.quiet()
            assert len(wire.got) == 1, "nothing is asked before initialized"
            await wire.say("notifications/initialized", {})
            await stage.quiet()
            question = wire.got[-1]
            assert question["method"] == "sampling/createMessage"
            await wire.send(b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (question["id"], SAMPLED))
            await stage.quiet()
            assert asker.outcome.text == "yo"
        await stage.assert_nothing_is_left()


async def test_it_is_held_until_there_is_a_stream_for_it(autojump_clock):
    async with staged() as it, trio.open_nursery() as nursery:
        session = await it.probe.initialize(capabilities=EVERYTHING)
        asker = Asker(nursery, it.bus.sessions[session.id])
        await it.quiet()
        assert it.bus.statistics().pending == {Location.HELD: 1}
        get = session.get()
        await session.answer((await get.message())["id"], ROOTS).ended()
        await it.quiet()
        assert asker.outcome == [Root("file:///x")]
        # The stream is gone again, and another one takes what is asked then.
        get.disconnect()
        await it.quiet()
        asker = Asker(nursery, it.bus.sessions[session.id])
        await it.quiet()
        assert asker.outcome is None
        get = session.get()
        await session.answer((await get.message())["id"], ROOTS).ended()
        await it.quiet()
        assert asker.outcome == [Root("file:///x")]


@pytest.mark.parametrize(
    ("limits", "after"), [({"held_timeout": 5}, 5), ({"held_items": 0}, 0)], ids=["late", "none"]
)
async def test_it_is_refused_if_it_may_not_be_held_any_longer_with_all_that_was_asked_with_it(
    limits, after, autojump_clock
):
    async with staged(limits=limits) as it, trio.open_nursery() as nursery:
        session = await it.probe.initialize(capabilities=EVERYTHING)
        both = {"a": ListRoots(), "b": Elicit("?", str)}
        asker = Asker(nursery, it.bus.sessions[session.id], lambda s: s.ask_all(both))
        began = trio.current_time()
        await asker.done.wait()
        assert isinstance(asker.outcome, InputUnavailableError)
        assert trio.current_time() - began == pytest.approx(after, abs=0.01)
        get = await session.get().begun()
        await it.quiet()
        assert get.messages == []
        get.disconnect()
        await it.quiet()
        assert it.bus.statistics().pending == {}
        assert not it.bus.sessions[session.id].questions


@KEPT_AS_WELL
async def test_one_that_does_not_fit_beside_what_is_held_takes_what_was_asked_with_it_along(autojump_clock):
    async with staged(limits={"held_items": 2}) as it, trio.open_nursery() as nursery:
        session = await it.probe.initialize(capabilities=EVERYTHING)
        held = it.bus.sessions[session.id]
        both = {"a": ListRoots(), "b": Elicit("?", str)}
        asker = Asker(nursery, held, lambda s: s.ask_all(both))
        await it.quiet()
        held.notify(CUSTOM)
        await it.quiet()
        assert "outbox was full" in str(asker.outcome)
        assert it.bus.statistics().pending == {Location.HELD: 1}
        get = session.get()
        assert (await get.message())["method"] == CUSTOM
        get.disconnect()
        await it.assert_nothing_is_left()
        assert it.bus.statistics().refused == 2


@pytest.mark.parametrize("seen", [True, False])
@pytest.mark.parametrize("ended", ["late", "cancelled"])
async def test_it_is_withdrawn_when_nobody_waits_for_it_any_more(seen, ended, autojump_clock):
    async with staged(limits={"input_timeout": 7}) as it, trio.open_nursery() as nursery:
        session = await it.probe.initialize(capabilities=EVERYTHING)
        get = await session.get().begun() if seen else None
        cancel = trio.CancelScope()

        async def ask(asked):
            with cancel:
                return await asked.list_roots(timeout=8 if ended == "late" else None)

        asker = Asker(nursery, it.bus.sessions[session.id], ask)
        await it.quiet()
        if ended == "late":
            await trio.sleep(7.1)
            assert isinstance(asker.outcome, InputTimeoutError)
            assert it.bus.statistics().limits_reached == {"input_timeout": 1}
        else:
            cancel.cancel()
        await it.quiet()
        if get is not None:
            question = await get.message()
            withdrawal = await get.message()
            assert (withdrawal["method"], withdrawal["params"]["requestId"]) == (CANCELLED, question["id"])
            assert (await session.answer(question["id"], ROOTS).ended()).status == 202
        else:
            get = await session.get().begun()
            await it.quiet()
            assert get.messages == [], "one that was not seen needs no withdrawal"
        get.disconnect()
        await it.assert_nothing_is_left()
        assert it.bus.statistics().refused == (0 if seen else 1)


@pytest.mark.parametrize("late", [False, True])
async def test_with_a_store_it_is_kept_for_who_comes_back_to_the_stream(late, autojump_clock):
    async with staged(event_store=MemoryEventStore()) as it, trio.open_nursery() as nursery:
        session = await it.probe.initialize(capabilities=EVERYTHING)
        get = await session.get().begun()
        await it.quiet()
        get.disconnect()
        await it.quiet()
        asker = Asker(nursery, it.bus.sessions[session.id], lambda s: s.list_roots(timeout=5))
        await it.quiet()
        assert (it.bus.statistics().stored, asker.outcome) == (1, None)
        if late:
            await asker.done.wait()
        back = session.get(get.event_ids[-1])
        question = await back.message()
        assert question["method"] == "roots/list"
        await session.answer(question["id"], ROOTS).ended()
        await it.quiet()
        if late:
            assert isinstance(asker.outcome, InputTimeoutError)
            assert (await back.message())["params"]["requestId"] == question["id"]
        else:
            assert asker.outcome == [Root("file:///x")]


async def test_what_withdraws_it_is_not_kept_for_another_stream(autojump_clock):
    async with staged() as it, trio.open_nursery() as nursery:
        session = await it.probe.initialize(capabilities=EVERYTHING)
        get = await session.get().begun()
        asker = Asker(nursery, it.bus.sessions[session.id], lambda s: s.list_roots(timeout=5))
        await get.message()
        get.disconnect()
        await trio.sleep(5.1)
        assert isinstance(asker.outcome, InputTimeoutError)
        again = await session.get().begun()
        await it.quiet()
        assert again.messages == []
        again.disconnect()
        await it.assert_nothing_is_left()


async def test_it_is_not_asked_before_the_client_has_sent_initialized(autojump_clock):
    async with staged() as it, trio.open_nursery() as nursery:
        session = await it.probe.initialize(capabilities=EVERYTHING, initialized=False)
        get = await session.get().begun()
        Asker(nursery, it.bus.sessions[session.id])
        await it.quiet()
        assert get.messages == []
        await session.notify("notifications/initialized").ended()
        await session.answer((await get.message())["id"], ROOTS).ended()


async def test_a_hook_has_another_task_ask_once_initialize_is_answered(autojump_clock):
    server = Server("hooks")
    outcomes, askers = [], []

    async def later(session):
        await session.until_initialized()
        return await session.list_roots()

    @server.on_session
    async def hook(session):
        with pytest.raises(InputUnavailableError, match=UNANSWERED) as refused:
            await session.list_roots()
        outcomes.append(refused.value)
        askers.append(Asker(nursery, session, later))
        await trio.sleep(1)

    async with open_bus(server) as bus, trio.open_nursery() as nursery, open_probe(bus.asgi()) as probe:
        session = await probe.initialize(capabilities=EVERYTHING)
        assert len(outcomes) == 1
        get = session.get()
        await session.answer((await get.message())["id"], ROOTS).ended()
        await trio.testing.wait_all_tasks_blocked()
        assert [asker.outcome for asker in askers] == [[Root("file:///x")]]


@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize("end", ["delete", "close"])
async def test_it_ends_with_its_session(held, end, autojump_clock):
    async with staged() as it, trio.open_nursery() as nursery:
        session = await it.probe.initialize(capabilities=EVERYTHING)
        kept = it.bus.sessions[session.id]
        if not held:
            get = await session.get().begun()
        asker = Asker(nursery, kept)
        await it.quiet()
        if end == "delete":
            await session.delete().ended()
        else:
            kept.close()
        await it.quiet()
        assert "the session has ended" in str(asker.outcome)
        if not held:
            await get.ended()
            assert [m["method"] for m in get.messages] == ["roots/list"], (
                "nothing is withdrawn from who has gone"
            )
        with pytest.raises(InputUnavailableError, match="the session has ended"):
            await kept.list_roots()
        await it.assert_nothing_is_left()
        assert it.bus.statistics().refused == (1 if held else 0)


async def test_it_ends_with_the_input_of_its_channel(autojump_clock):
    async with staged() as stage, trio.open_nursery() as nursery, stage.wire(None) as wire:
        await wire.say("initialize", {**HELLO, "capabilities": EVERYTHING}, 0)
        await stage.quiet()
        await wire.say("notifications/initialized", {})
        await stage.quiet()
        [session] = stage.bus.sessions.values()
        asker = Asker(nursery, session)
        await stage.quiet()
        assert wire.got[-1]["method"] == "roots/list"
        session.address.tell(InputEnded())
        await stage.quiet()
        assert "it has ended its input" in str(asker.outcome)
        with pytest.raises(InputUnavailableError, match="it has ended its input"):
            await session.list_roots()


async def test_one_that_is_lost_while_it_is_written_is_refused(autojump_clock):
    async with staged() as it, trio.open_nursery() as nursery:
        session, get = await stalled(it)
        asker = Asker(nursery, it.bus.sessions[session.id])
        await it.quiet()
        get.disconnect()
        await it.quiet()
        assert "the connection ended while it was being written" in str(asker.outcome)
        await it.assert_nothing_is_left()
        assert it.bus.statistics().refused == 1


async def test_what_waits_when_another_stream_takes_over_is_asked_there(autojump_clock):
    async with staged() as it, trio.open_nursery() as nursery:
        session, _ = await stalled(it)
        first = Asker(nursery, it.bus.sessions[session.id])
        await it.quiet()
        second = Asker(nursery, it.bus.sessions[session.id])
        await it.quiet()
        new = session.get()
        question = await new.message()
        await session.answer(question["id"], ROOTS).ended()
        await it.quiet()
        await trio.sleep(2)
        assert second.outcome == [Root("file:///x")]
        assert "the connection ended while it was being written" in str(first.outcome)
        new.disconnect()
        await it.quiet()
        assert it.bus.statistics().pending == {}


async def test_what_nobody_asks_any_more_is_not_asked_on_the_stream_that_takes_over(autojump_clock):
    async with staged() as it, trio.open_nursery() as nursery:
        session, _ = await stalled(it)
        it.bus.sessions[session.id].notify(CUSTOM)  # is being written
        await it.quiet()
        late = Asker(nursery, it.bus.sessions[session.id], lambda s: s.list_roots(timeout=5))
        await late.done.wait()
        asker = Asker(nursery, it.bus.sessions[session.id])
        await it.quiet()
        new = await session.get().begun()
        question = await new.message()
        await session.answer(question["id"], ROOTS).ended()
        await it.quiet()
        assert (asker.outcome, len(new.messages)) == ([Root("file:///x")], 1)
        await trio.sleep(2)
        new.disconnect()
        await it.assert_nothing_is_left()


async def test_whoever_asked_is_told_how_far_its_client_is(autojump_clock):
    told = []
    async with staged() as it, trio.open_nursery() as nursery:
        session = await it.probe.initialize(capabilities=EVERYTHING)
        get = session.get()
        Asker(
            nursery,
            it.bus.sessions[session.id],
            lambda s: s.list_roots(on_progress=lambda *said: told.append(said)),
        )
        question = await get.message()
        said = {"progressToken": question["params"]["_meta"]["progressToken"], "progress": 1, "total": 2}
        await session.notify("notifications/progress", said).ended()
        await it.quiet()
        assert told == [(1.0, 2.0, None)]
        await session.answer(question["id"], ROOTS).ended()


async def test_a_clients_error_is_raised_where_it_was_asked(autojump_clock):
    async with staged() as it, trio.open_nursery() as nursery:
        session = await it.probe.initialize(capabilities=EVERYTHING)
        get = session.get()
        asker = Asker(nursery, it.bus.sessions[session.id])
        error = {"code": -32602, "message": "no"}
        await it.probe.post(
            {"jsonrpc": "2.0", "id": (await get.message())["id"], "error": error},
            {"mcp-session-id": session.id},
        ).ended()
        await it.quiet()
        assert isinstance(asker.outcome, InputRefusedError)
        assert asker.outcome.code == -32602


@pytest.mark.parametrize(
    ("revision", "capabilities", "why"),
    [
        ("2025-11-25", {}, "elicitation"),
        ("2025-03-26", EVERYTHING, "revision 2025-03-26 has no elicitation"),
    ],
)
async def test_what_cannot_be_asked_is_refused_at_once(revision, capabilities, why, autojump_clock):
    async with staged() as it:
        session = await it.probe.initialize(revision, capabilities=capabilities)
        with pytest.raises(InputUnavailableError, match=why):
            await it.bus.sessions[session.id].elicit("?", str)


async def test_a_connection_of_the_newest_revision_has_no_session_to_ask(autojump_clock):
    async with staged() as stage, stage.wire(None):
        await stage.quiet()
        [session] = stage.bus.session_directory.shares
        with pytest.raises(InputUnavailableError, match=UNANSWERED):
            await session.list_roots()
