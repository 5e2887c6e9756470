"""A stream by itself, between those who speak on it and the writer of its connection."""

import gc
import weakref
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from mcpbus import DELIVERED, STORED, Fate, Reason, Server
from mcpbus.core.event_log import EventLog
from mcpbus.core.memory_budget import SHORT_BYTES
from mcpbus.core.outbox import OVERHEAD_BYTES, OutboundMessage
from mcpbus.core.signals import Abort, CloseConnection, Ending, EvictStream, Finish, Purge, Supersede
from mcpbus.protocol.revisions import Era
from mcpbus.protocol.routes import MessageKind, StreamKind
from mcpbus.stores import MemoryEventStore
from mcpbus.testing import open_bus, open_probe

LOST = Fate.discarded(Reason.LOST)


class Broken(MemoryEventStore):
    async def append(self, *_args, **_named):
        raise OSError("disk full")


class Speaker:
    """Speaks on a stream as the actors of a bus do, and has a scope for its connection."""

    def __init__(self, bus, kind, session=None):
        self.bus = bus
        self.stream = bus.open_stream(kind, session)
        self.connection = trio.CancelScope()

    def say(self, kind=MessageKind.CUSTOM, *, size=0, **fields):
        """Say something, and return its receipt."""
        message = OutboundMessage(kind, Era.LEGACY, b"x" * size, self.bus.ledger.emit(kind.value), **fields)
        self.stream.send(message)
        return message.receipt

    def tell(self, message):
        self.stream.address.tell(message)

    def lose(self):
        """Attach a connection, and lose it at once."""
        with self.stream.attach(self.connection):
            pass


@asynccontextmanager
async def streaming(kind=StreamKind.LISTEN, store=None):
    """A stream; with a store, one that its client could come back to."""
    async with open_bus(Server("streams"), event_store=store, drain_timeout=0) as bus:
        if store is None:
            yield Speaker(bus, kind)
        else:
            async with open_probe(bus.asgi()) as probe:
                client = await probe.initialize("2025-11-25")
                speaker = Speaker(bus, kind, bus.sessions[client.id])
                speaker.stream.log.offer()
                yield speaker


# -- what is said ----------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [EvictStream(), Supersede(), Finish()])
async def test_what_is_said_to_a_stream_that_is_about_to_end_is_discarded_at_once(end, autojump_clock):
    async with streaming() as speaker:
        writer = speaker.stream.attach(speaker.connection)
        speaker.say()
        writer.take_now()  # and is not done with it
        speaker.tell(end)
        assert speaker.say().fate == Fate.discarded(Reason.FINISHED)
        assert not speaker.stream.stopped


@pytest.mark.parametrize("kind", [MessageKind.CUSTOM, MessageKind.LIST_CHANGED])
async def test_what_is_said_to_a_stream_that_has_ended_is_discarded(kind, autojump_clock):
    async with streaming(StreamKind.STANDALONE) as speaker:
        speaker.tell(Abort(Ending.CLOSED, Reason.INTERNAL_ERROR))
        assert speaker.stream.stopped
        assert speaker.say(kind).fate == Fate.discarded(Reason.NO_STREAM)


@pytest.mark.parametrize(("request_id", "gone"), [(1, [1]), (None, [1, 2, None])])
async def test_of_a_request_that_ends_what_waits_is_discarded_and_nothing_else(
    request_id, gone, autojump_clock
):
    async with streaming() as speaker:
        speaker.stream.replies_pending = 2
        said = {owner: speaker.say(request_id=owner) for owner in (1, 2, None)}
        speaker.tell(Abort(Ending.CLOSED, Reason.INTERNAL_ERROR, request_id))
        assert [owner for owner, receipt in said.items() if receipt.fate] == gone


@pytest.mark.dormancy
async def test_a_dormant_stream_is_not_counted_among_those_that_are_open(autojump_clock):
    async with streaming(StreamKind.RESPONSE) as speaker:
        speaker.say()
        speaker.stream.stop()
        assert not speaker.stream.active
        assert speaker.bus.statistics().actors == 0
        with trio.fail_after(1):
            await speaker.bus._streams.wait_none()


# -- how much waits --------------------------------------------------------------------------------


async def test_what_is_being_written_counts_with_what_waits(autojump_clock):
    async with streaming() as speaker:
        writer, size = speaker.stream.attach(), SHORT_BYTES - OVERHEAD_BYTES
        speaker.say(size=size)
        writer.take_now()
        assert speaker.bus.budget.held == 0, "a little is not worth it"
        speaker.say(size=size)
        assert speaker.bus.budget.held == 3 * SHORT_BYTES
        writer.settle_written()
        assert speaker.bus.budget.held == SHORT_BYTES


@pytest.mark.parametrize("end", [Purge(lambda _: True, Reason.CANCELLED), Supersede(), EvictStream()])
async def test_what_is_purged_or_handed_over_counts_no_longer(end, autojump_clock):
    async with streaming() as speaker:
        speaker.stream.attach(speaker.connection)
        speaker.say(size=2 * SHORT_BYTES)
        assert speaker.bus.budget.held
        speaker.tell(end)
        assert speaker.bus.budget.held == 0
        assert speaker.stream.stopped is not isinstance(end, Purge)
        assert not speaker.connection.cancel_called, "nothing was being written"


async def test_who_waits_for_less_to_wait_goes_on_when_the_stream_ends(autojump_clock):
    async with streaming() as speaker, trio.open_nursery() as nursery:
        nursery.start_soon(speaker.stream.wait_writable)
        await wait_all_tasks_blocked()
        speaker.tell(Abort(Ending.CLOSED, Reason.INTERNAL_ERROR))
        nursery.cancel_scope.deadline = trio.current_time() + 1
    assert not nursery.cancel_scope.cancelled_caught


async def test_a_stream_that_has_ended_is_not_left_to_the_garbage_collector(autojump_clock):
    class Owner:
        pass

    async with open_bus(Server("streams")) as bus:
        gc.disable()
        try:
            speaker = Speaker(bus, StreamKind.LISTEN)
            owner = speaker.stream.owner = Owner()
            speaker.say(size=2 * SHORT_BYTES)
            speaker.stream.attach()
            known = weakref.ref(owner)
            speaker.tell(Abort(Ending.CLOSED, Reason.INTERNAL_ERROR))
            del speaker, owner
            await wait_all_tasks_blocked()
            assert known() is None
        finally:
            gc.enable()


# -- its writer ------------------------------------------------------------------------------------


async def test_a_writer_without_a_task_is_told_what_is_the_last(autojump_clock):
    async with streaming() as speaker:
        told = []
        speaker.stream.attach().notify = told.append
        speaker.say()
        speaker.tell(Abort(Ending.CLOSED, Reason.INTERNAL_ERROR))
        assert told[0] is False
        assert told[-1] is True


async def test_a_writer_that_waits_is_told_to_close_its_connection(autojump_clock):
    async with streaming(store=MemoryEventStore()) as speaker, trio.open_nursery() as nursery:
        writer, taken = speaker.stream.attach(), []

        async def take():
            taken.append(await writer.take())

        nursery.start_soon(take)
        await wait_all_tasks_blocked()
        speaker.tell(CloseConnection(0.5))
        await wait_all_tasks_blocked()
        assert (taken, writer.retry) == ([[]], 0.5)
        nursery.cancel_scope.cancel()


async def test_what_is_said_within_a_turn_is_taken_soon(autojump_clock):
    async with streaming() as speaker, trio.open_nursery() as nursery:

        async def speak():
            speaker.say()

        nursery.start_soon(speak)
        writer = speaker.stream.attach()
        assert len(await writer.take_after_yield()) == 1


# -- coming back -----------------------------------------------------------------------------------


async def test_nobody_comes_back_to_a_stream_that_has_ended(autojump_clock):
    async with streaming(store=MemoryEventStore()) as speaker:
        speaker.tell(Abort(Ending.CLOSED, Reason.INTERNAL_ERROR))
        with trio.fail_after(1):
            assert await speaker.stream.resume(speaker.connection) is None


async def test_who_comes_back_while_the_stream_ends_is_not_kept_waiting(autojump_clock):
    async with streaming(store=MemoryEventStore()) as speaker, trio.open_nursery() as nursery:
        writer = speaker.stream.attach(speaker.connection)  # which does not let go
        speaker.say()
        writer.take_now()
        resumed = []

        async def resume():
            resumed.append(await speaker.stream.resume(trio.CancelScope()))

        nursery.start_soon(resume)
        await wait_all_tasks_blocked()
        assert resumed == []
        assert speaker.connection.cancel_called
        speaker.stream.stop()
        await wait_all_tasks_blocked()
        assert resumed == [None]
        nursery.cancel_scope.cancel()


async def test_who_comes_first_to_a_stream_that_nobody_writes_has_it_at_once(autojump_clock):
    async with streaming(store=MemoryEventStore()) as speaker:
        with trio.fail_after(1):
            assert await speaker.stream.resume(speaker.connection) is not None


async def test_who_gives_up_coming_back_takes_nothing_from_who_still_writes(autojump_clock):
    async with streaming(store=MemoryEventStore()) as speaker:
        with speaker.stream.attach(speaker.connection) as writer:
            said = speaker.say()
            writer.take_now()
            with trio.move_on_after(1) as impatience:
                await speaker.stream.resume(trio.CancelScope())
            assert impatience.cancelled_caught
            assert said.fate is None
            writer.settle_written()
            assert said.fate == DELIVERED
        kept = speaker.say()
        await wait_all_tasks_blocked()
        assert kept.fate == STORED, "the stream was not given to who is gone"


async def test_who_comes_back_once_more_takes_the_place_of_its_own_earlier_attempt(autojump_clock):
    async with streaming(store=MemoryEventStore()) as speaker, trio.open_nursery() as nursery:
        first, second = trio.CancelScope(), trio.CancelScope()
        writing, resumed = speaker.stream.attach(), []  # whose connection cannot be told to end
        speaker.say()
        writing.take_now()

        async def resume(connection):
            resumed.append(await speaker.stream.resume(connection))

        for connection in (first, second):
            nursery.start_soon(resume, connection)
            await wait_all_tasks_blocked()
        assert [(writer.connection, writer.dismissed) for writer in resumed] == [(first, True)]
        assert resumed.pop().take_now() is None
        writing.__exit__()
        await wait_all_tasks_blocked()
        assert [(writer.connection, writer.dismissed) for writer in resumed] == [(second, False)]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("kept", [False, True])
async def test_what_is_being_written_when_the_connection_is_lost_is_stored_if_it_was_kept(
    kept, autojump_clock
):
    """Whatever was kept before it."""
    async with streaming(store=MemoryEventStore()) as speaker:
        with speaker.stream.attach(speaker.connection) as writer:
            for last in (False, True):
                said = speaker.say()
                writer.take_now()
                if kept or not last:
                    await writer.store_batch()
                if not last:
                    writer.settle_written()
        assert said.fate == (STORED if kept else LOST)


@pytest.mark.failing
async def test_a_fault_while_a_client_is_away_ends_the_stream_and_is_told(
    monkeypatch, caplog, autojump_clock
):
    async with streaming(store=MemoryEventStore()) as speaker:

        async def append(_said, *, final):
            raise RuntimeError("a mistake of ours")

        monkeypatch.setattr(EventLog, "append", staticmethod(append))
        speaker.lose()
        said = speaker.say()
        await wait_all_tasks_blocked()
        assert speaker.stream.stopped
        assert said.fate == LOST
        assert "a mistake of ours" in caplog.text


async def test_a_stream_whose_last_message_is_lost_ends_at_once(autojump_clock):
    async with streaming(store=MemoryEventStore()) as speaker:
        with speaker.stream.attach(speaker.connection) as writer:
            last = speaker.say(MessageKind.REPLY, final=True)
            writer.take_now()
        assert last.fate == LOST
        assert speaker.stream.stopped


async def test_a_stream_that_its_client_has_come_back_to_can_be_cut(autojump_clock):
    async with streaming(store=MemoryEventStore()) as speaker:
        speaker.lose()
        kept = speaker.say()
        await wait_all_tasks_blocked()
        assert kept.fate == STORED
        again = trio.CancelScope()
        with await speaker.stream.resume(again) as writer:
            said = speaker.say()
            await writer.take()
            writer.settle_written()
            assert said.fate == DELIVERED
            speaker.say()
            await writer.take()
            speaker.tell(EvictStream())
            assert again.cancel_called
        assert speaker.stream.stopped


async def test_a_writer_that_has_nothing_to_write_ends_by_itself_when_its_client_comes_back(autojump_clock):
    """So its response has an end, and what is said from now on goes to the other connection at once."""
    async with streaming(store=MemoryEventStore()) as speaker, trio.open_nursery() as nursery:
        taken = []

        async def drain(writer):
            with writer:
                taken.append(await writer.take())

        old = speaker.stream.attach(speaker.connection)
        nursery.start_soon(drain, old)
        await wait_all_tasks_blocked()
        writer = await speaker.stream.resume(trio.CancelScope())
        said = speaker.say()
        await wait_all_tasks_blocked()
        assert taken == [None]
        assert not speaker.connection.cancel_called
        assert [message.receipt for message in writer.take_now()] == [said]


async def test_a_stream_that_can_no_longer_be_kept_ends_while_its_client_is_away(autojump_clock):
    async with streaming(store=Broken()) as speaker:
        speaker.lose()
        said = speaker.say()
        await wait_all_tasks_blocked()
        assert speaker.stream.stopped
        assert said.fate == LOST
