"""Whose task runs what is called in process, in whose context; and how it ends."""

import contextlib
import contextvars

import pytest
import trio
from places import LEGACY, MODERN, REVISIONS, call, placed

from mcpbus import Context, ProtocolError, Server
from mcpbus.client.errors import DisconnectedError
from mcpbus.testing import wait_until_idle

VARIABLE = contextvars.ContextVar("variable", default="unset")


# -- whose task, whose context -------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cannot_wait", "waits"])
async def test_a_handler_sees_its_callers_context_variables_and_changes_none(name, autojump_clock):
    async with placed() as place, place.bus.connect() as client:
        seen = []

        @place.server.tool
        async def looks(ctx: Context) -> str:
            seen.append(VARIABLE.get())
            VARIABLE.set("changed")
            if name == "waits":
                await trio.sleep(1)
                seen.append(VARIABLE.get())
            return ""

        @place.server.tool
        async def looks_once() -> str:
            seen.append(VARIABLE.get())
            VARIABLE.set("changed")
            return ""

        VARIABLE.set("mine")
        await client.call_tool("looks" if name == "waits" else "looks_once")
        assert seen == (["mine", "changed"] if name == "waits" else ["mine"])
        assert VARIABLE.get() == "mine"


async def test_a_handler_is_cancelled_by_its_request_alone_and_keeps_nobody_waiting(autojump_clock):
    async with placed() as place, place.bus.connect() as client:
        deadlines, ended = [], []

        @place.server.tool
        async def stubborn() -> str:
            deadlines.append(trio.current_effective_deadline())
            try:
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    await trio.sleep(10)
                ended.append(trio.current_time())
            return ""

        begun = trio.current_time()
        with trio.move_on_after(5):
            await client.call_tool("stubborn")
        assert trio.current_time() == begun + 5
        assert deadlines == [float("inf")]
        assert await call(client, "does_not_wait", "on") == "on"
        await trio.sleep(20)
        assert ended == [begun + 15]


@REVISIONS
async def test_a_call_that_is_cancelled_while_it_waits_is_cancelled_on_the_bus(revision, autojump_clock):
    async with placed() as place, place.bus.connect(revision=revision) as client:
        for key in ("one", "two"):
            with trio.move_on_after(1):
                await call(client, "waits", key)
            await wait_until_idle(place.bus)
            assert place.log[-2:] == [f"waits {key}", f"cancelled {key}"]
            assert place.bus.statistics().requests == 0


@REVISIONS
@pytest.mark.parametrize("inner", ["cannot_wait", "does_not_wait", "waits", "speaks"])
async def test_a_handler_may_call_through_the_client_that_called_it(inner, revision, autojump_clock):
    async with placed() as place, place.bus.connect(revision=revision) as client:
        place.go.set()

        @place.server.tool
        async def outer(key: str) -> str:
            return f"outer {await call(client, inner, key)}"

        with trio.fail_after(1):
            assert await call(client, "outer", "x") == "outer x"


async def test_a_handler_that_ends_its_own_session_is_answered_that_it_has_ended(autojump_clock):
    async with placed() as place, place.bus.connect(revision=LEGACY) as client:

        @place.server.tool
        async def closes(ctx: Context) -> str:
            ctx.session.close()
            return "too late"

        with pytest.raises(ProtocolError) as caught:
            await client.call_tool("closes")
        assert caught.value.code == -32603
        await wait_until_idle(place.bus)
        with pytest.raises(DisconnectedError):
            await call(client, "cannot_wait")
        with pytest.raises(DisconnectedError):
            await client.notify("notifications/nothing")


async def test_who_hears_may_cause_more_to_be_said_and_others_still_run(autojump_clock):
    async with (
        placed() as place,
        place.bus.connect(revision=LEGACY) as client,
        trio.open_nursery() as nursery,
    ):
        [session] = place.bus.sessions.values()
        said, stop = [], trio.Event()

        def again(method, params):
            said.append(method)
            if not stop.is_set() and len(said) < 1000:
                session.log("error", "again")

        async def stop_soon():
            while not said:
                await trio.lowlevel.checkpoint()
            stop.set()

        nursery.start_soon(stop_soon)
        place.go.set()
        await call(client, "speaks", on_notification=again)
        await wait_until_idle(place.bus)
        assert len(said) < 100


# -- the end -------------------------------------------------------------------------------------


@REVISIONS
async def test_a_client_that_leaves_ends_what_others_still_call_through_it(revision, autojump_clock):
    async with placed() as place, trio.open_nursery() as nursery:
        ends = []

        async def try_to(client, key):
            try:
                await call(client, "waits", key)
            except DisconnectedError as error:
                ends.append(error)

        async with place.bus.connect(revision=revision) as client:
            for number in range(3):
                nursery.start_soon(try_to, client, str(number))
            await wait_until_idle(place.bus)
        await wait_until_idle(place.bus)
        assert len(ends) == 3
        assert sum(line.startswith("cancelled") for line in place.log) == 3
        with pytest.raises(DisconnectedError):
            await call(client, "cannot_wait")


async def test_a_block_that_raises_or_is_cancelled_leaves_nothing(autojump_clock):
    async with placed() as place:
        with contextlib.suppress(ExceptionGroup):
            async with place.bus.connect() as client, trio.open_nursery() as nursery:
                nursery.start_soon(call, client, "waits")
                await wait_until_idle(place.bus)
                raise KeyError
        with trio.move_on_after(1):
            async with place.bus.connect() as client:
                await call(client, "waits")


@REVISIONS
async def test_a_drain_lets_calls_finish_and_refuses_new_ones(revision, autojump_clock):
    async with placed() as place, place.bus.connect(revision=revision) as client:
        answers = []

        async def wait(key):
            try:
                answers.append(await call(client, "waits", key))
            except ProtocolError as error:
                answers.append(error.code)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait, "x")
            await wait_until_idle(place.bus)
            nursery.start_soon(place.bus.drain, 5)
            await trio.sleep(1)
            for name in ("cannot_wait", "does_not_wait"):
                with pytest.raises(ProtocolError, match="shutting down"):
                    await call(client, name)
            if revision != MODERN:
                place.go.set()
        assert answers == [-32603 if revision == MODERN else "x"]


@REVISIONS
async def test_calls_past_the_bound_are_refused_and_do_no_harm(revision, autojump_clock):
    async with placed(max_requests_per_session=2) as place, place.bus.connect(revision=revision) as client:
        async with trio.open_nursery() as nursery:
            for key in "ab":
                nursery.start_soon(call, client, "waits", key)
            await wait_until_idle(place.bus)
            for name in ("cannot_wait", "does_not_wait"):
                with pytest.raises(ProtocolError, match="Too many requests"):
                    await call(client, name)
            place.go.set()
        assert await call(client, "cannot_wait", "on") == "on"


async def test_the_books_balance_whatever_is_called(autojump_clock):
    async with placed() as place:
        place.go.set()
        answered = []

        async def use(client, number):
            for name in ("cannot_wait", "speaks", "does_not_wait", "waits", "nothing"):
                try:
                    answered.append(await call(client, name, str(number), on_notification=lambda *_: None))
                except ProtocolError as error:
                    answered.append(error.code)
                assert place.bus.ledger.balance() == 0

        async with place.bus.connect() as one, place.bus.connect(revision=LEGACY) as two:
            before = place.bus.statistics()
            async with trio.open_nursery() as nursery:
                for number in range(10):
                    nursery.start_soon(use, one, number)
                    nursery.start_soon(use, two, number)
            now = place.bus.statistics()
        # One answer for each call, and three notifications for each that speaks.
        assert len(answered) == 100
        assert now.emitted - before.emitted == now.delivered - before.delivered == 100 + 20 * 3


@REVISIONS
async def test_a_client_of_a_handlers_that_is_still_there_when_the_bus_ends_ends_with_it(
    revision, autojump_clock, caplog
):
    server = Server("s", version="1")
    inside = trio.Event()

    @server.tool
    async def waits() -> None:
        inside.set()
        with trio.CancelScope(shield=True):
            await trio.sleep(1)

    @server.tool
    async def asks_in_turn(ctx: Context) -> None:
        with trio.CancelScope(shield=True):
            async with ctx.bus.connect(revision=revision) as inner:
                with contextlib.suppress(DisconnectedError, ProtocolError):
                    await inner.call_tool("waits")

    with trio.CancelScope() as whole:
        async with (
            server.open() as bus,
            bus.connect(revision=revision) as client,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(client.call_tool, "asks_in_turn")
            await inside.wait()
            whole.cancel()
    assert bus.ledger.balance() == 0
    assert not caplog.records
