"""Worker threads run one plain function after the other, and in each all is as `trio.to_thread.run_sync` has it. In real time, as threads are."""

import contextvars
import gc
import queue
import threading
import traceback
import weakref
from contextlib import suppress

import pytest
import sniffio
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from mcpbus import Server
from mcpbus.core.worker_threads import WorkerThreads, worker_threads

LONG = 60
"""Seconds after which a test fails that would wait for ever."""

BRIEF = 0.05
"""How long a thread is idle before it ends. Not as short as a thread may be kept from running: `SimpleQueue.get` may then wait for ever."""

variable = contextvars.ContextVar("variable", default="none")


async def until(condition):
    with trio.fail_after(LONG):
        while not condition():
            await trio.lowlevel.checkpoint()


def at_work():
    return {thread for thread in threading.enumerate() if thread.name == "mcpbus thread"}


class Gate:
    """A plain function that has begun, and waits to be let go on."""

    def __init__(self):
        self._token = trio.lowlevel.current_trio_token()
        self.begun, self.go_on, self.ended = trio.Event(), threading.Event(), trio.Event()
        self.thread = None

    def __call__(self):
        self.thread = threading.get_ident()
        trio.from_thread.run_sync(self.begun.set)
        assert self.go_on.wait(LONG)
        try:
            trio.from_thread.check_cancelled()
        finally:
            self._token.run_sync_soon(self.ended.set)
        return "let go"


class Pool:
    """Worker threads, and places for functions in them."""

    def __init__(self, places=40, idle_seconds=LONG):
        self.threads = WorkerThreads(idle_seconds)
        self.places = trio.CapacityLimiter(places)

    async def run(self, function):
        return await self.threads.run(function, self.places)

    async def all_given_back(self):
        await until(lambda: not self.places.borrowed_tokens)


async def started(run):
    """Start what never comes to its end, and return the scope that cancels it."""
    scope = trio.CancelScope()

    async def wait():
        with scope:
            await run()
            raise AssertionError("it was to be cancelled")

    trio.lowlevel.spawn_system_task(wait)
    await wait_all_tasks_blocked()
    return scope


async def test_one_thread_runs_one_function_after_the_other():
    pool = Pool()
    threads = {await pool.run(threading.get_ident) for _ in range(20)}
    assert len(threads) == len(pool.threads) == 1
    assert threads != {threading.get_ident()}


async def test_those_of_one_trio_run_are_the_same():
    assert worker_threads() is worker_threads()


async def test_functions_that_are_put_together_are_begun_together_though_each_blocks():
    pool, together = Pool(), threading.Barrier(10)
    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(pool.run, lambda: together.wait(LONG))
    assert len(pool.threads) == 10
    async with trio.open_nursery() as nursery:  # and those that are idle are awake in time, too
        for _ in range(10):
            nursery.start_soon(pool.run, lambda: together.wait(LONG))
    assert len(pool.threads) == 10


async def test_a_function_begins_though_those_before_it_block():
    pool = Pool()
    async with trio.open_nursery() as nursery:
        gates = [Gate() for _ in range(5)]
        for gate in gates:
            nursery.start_soon(pool.run, gate)
            await gate.begun.wait()
        assert len({gate.thread for gate in gates}) == 5
        for gate in reversed(gates):
            gate.go_on.set()
            await gate.ended.wait()


async def test_there_are_as_many_threads_as_places_at_most():
    pool, running, most = Pool(places=3), set(), []

    def work():
        running.add(threading.get_ident())
        most.append(len(running))
        trio.from_thread.run(trio.lowlevel.checkpoint)
        running.remove(threading.get_ident())

    async with trio.open_nursery() as nursery:
        for _ in range(50):
            nursery.start_soon(pool.run, work)
    assert (len(most), pool.places.borrowed_tokens) == (50, 0)
    assert max(most) <= len(pool.threads) <= 3


class Odd(BaseException):
    pass


@pytest.mark.parametrize("error", [ValueError, Odd, SystemExit, KeyboardInterrupt, StopIteration])
async def test_what_a_function_raises_is_raised_as_trio_does_and_harms_no_other(error):
    pool, raised = Pool(), []

    def fail():
        raise error("why")

    for run in (pool.run, trio.to_thread.run_sync):
        try:
            await run(fail)
        except BaseException as other:  # noqa: BLE001 - whatever it is
            raised.append(
                (
                    type(other),
                    other.args,
                    traceback.extract_tb((other.__cause__ or other).__traceback__)[-1].name,
                )
            )
    assert raised[0] == raised[1]
    assert await pool.run(lambda: "next") == "next"
    assert (len(pool.threads), pool.places.borrowed_tokens) == (1, 0)


async def test_a_function_that_returns_a_coroutine_is_none():
    async def wait():
        raise AssertionError("nobody awaits it")

    with pytest.raises(TypeError, match="coroutine"):
        await Pool().run(wait)


async def test_a_function_has_a_copy_of_its_callers_context_variables_and_no_others():
    pool = Pool()

    async def seen_in_trio():
        return variable.get()

    def look(value):
        seen = variable.get(), trio.from_thread.run(seen_in_trio), trio.from_thread.run_sync(variable.get)
        variable.set("its own")
        return *seen, variable.get(), trio.from_thread.run_sync(variable.get)

    for value in ("first", "second"):
        variable.set(value)
        assert await pool.run(lambda value=value: look(value)) == (value, value, value, "its own", "its own")
        assert variable.get() == value


async def test_a_thread_is_not_taken_for_one_that_trio_runs_in():
    def look():
        with pytest.raises(sniffio.AsyncLibraryNotFoundError):
            sniffio.current_async_library()
        with pytest.raises(RuntimeError):
            trio.lowlevel.current_trio_token()
        return trio.lowlevel.in_trio_run(), trio.lowlevel.in_trio_task(), threading.current_thread().name

    for said in (None, "trio"):
        sniffio.current_async_library_cvar.set(said)
        assert await Pool().run(look) == (False, False, "mcpbus thread")
        assert sniffio.current_async_library_cvar.get() == said


async def raise_it():
    raise ValueError("why")


async def be_cancelled():
    with trio.CancelScope() as scope:
        scope.cancel()
        await trio.lowlevel.checkpoint()
    return "cancelled"


async def nested():
    return await trio.to_thread.run_sync(lambda: trio.from_thread.run(be_cancelled))


async def test_a_function_gets_back_into_trio_without_a_token():
    def work():
        with pytest.raises(ValueError, match="why"):
            trio.from_thread.run(raise_it)
        trio.from_thread.check_cancelled()
        here = trio.from_thread.run_sync(threading.get_ident)
        return here, trio.from_thread.run(be_cancelled), trio.from_thread.run(nested)

    assert await Pool().run(work) == (threading.get_ident(), "cancelled", "cancelled")


async def test_a_call_that_is_cancelled_before_it_begins_takes_nothing():
    threads, place = WorkerThreads(), AtOnce(lambda: pytest.fail("it takes a place"))
    with trio.CancelScope() as scope:
        scope.cancel()
        await threads.run(lambda: pytest.fail("it runs"), place)
    assert scope.cancelled_caught
    assert len(threads) == 0


async def test_a_call_that_is_cancelled_while_it_waits_for_a_place_does_not_run():
    pool, gate = Pool(places=1), Gate()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pool.run, gate)
        await gate.begun.wait()
        scope = await started(lambda: pool.run(lambda: pytest.fail("it runs")))
        scope.cancel()
        gate.go_on.set()
    assert await pool.run(lambda: "next") == "next"
    assert len(pool.threads) == 1


class AtOnce:
    """A place that is taken without a checkpoint, and how often; then something is done."""

    def __init__(self, then=lambda: None):
        self.taken, self._then = 0, then

    async def acquire_on_behalf_of(self, _):
        self.taken += 1
        self._then()

    def release_on_behalf_of(self, _):
        self.taken -= 1


async def no_thread(*_, limiter, **__):
    await limiter.acquire_on_behalf_of(object())
    raise RuntimeError("can't start new thread")


@pytest.mark.parametrize("starts", [True, False])
async def test_a_call_that_is_cancelled_before_its_function_is_handed_out_does_not_run_it(
    monkeypatch, starts
):
    pool, scope, begun, others = Pool(), trio.CancelScope(), [], at_work()
    place = AtOnce(scope.cancel)
    with monkeypatch.context() as patch:
        if not starts:
            patch.setattr(trio.to_thread, "run_sync", no_thread)
        with scope:
            await pool.threads.run(lambda: begun.append(1), place)
        assert (scope.cancelled_caught, place.taken, len(pool.threads)) == (True, 1, 0)
        await until(lambda: not place.taken)
        assert len(pool.threads) == 0
        await until(lambda: at_work() <= others)
    assert await pool.run(lambda: "next") == "next"
    assert (begun, len(pool.threads)) == ([], 1)


async def test_a_call_that_is_cancelled_leaves_its_function_and_the_thread_with_it():
    pool, gate, other = Pool(places=2), Gate(), Gate()
    scope = await started(lambda: pool.run(gate))
    await gate.begun.wait()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pool.run, other)
        await other.begun.wait()
        scope.cancel()
        await wait_all_tasks_blocked()
        assert (len(pool.threads), pool.places.borrowed_tokens) == (1, 2)
        gate.go_on.set()  # it is told that it was cancelled
        await gate.ended.wait()
        await until(lambda: pool.places.borrowed_tokens == 1)
        other.go_on.set()  # and the other is not
        await other.ended.wait()
    assert await pool.run(threading.get_ident) == other.thread
    assert len(pool.threads) == 1


@pytest.mark.parametrize("asks", [False, True])
async def test_a_function_whose_call_is_cancelled_is_told_if_it_asks_and_still_gets_into_trio(asks):
    pool, gate, told, token = Pool(), Gate(), trio.Event(), trio.lowlevel.current_trio_token()
    seen = []

    def work():
        try:
            gate()
        except trio.Cancelled:
            seen.append("cancelled")
            if asks:
                with pytest.raises(trio.Cancelled):
                    trio.from_thread.check_cancelled()
                seen.append(trio.from_thread.run(be_cancelled))
            raise
        finally:
            token.run_sync_soon(told.set)

    scope = await started(lambda: pool.run(work))
    await gate.begun.wait()
    scope.cancel()
    gate.go_on.set()
    await told.wait()
    await pool.all_given_back()
    assert seen == ["cancelled", "cancelled"][: 1 + asks]


async def test_a_call_that_is_cancelled_when_its_function_has_ended_costs_no_thread():
    pool, gate = Pool(), Gate()
    scope = await started(lambda: pool.run(gate))
    await gate.begun.wait()
    token, looked = pool.threads._token, threading.Event()

    class Late:
        def run_sync_soon(self, function):
            looked.set()

    pool.threads._token = Late()
    gate.go_on.set()
    assert looked.wait(LONG)
    scope.cancel()
    pool.threads._token = token
    pool.threads._take()
    await wait_all_tasks_blocked()
    assert (len(pool.threads), pool.places.borrowed_tokens) == (1, 0)
    assert await pool.run(threading.get_ident) == gate.thread


async def test_idle_threads_end():
    pool, together = Pool(idle_seconds=BRIEF), threading.Barrier(5)
    for _ in range(3):
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(pool.run, lambda: together.wait(LONG))
        await until(lambda: not len(pool.threads))


class Looked(queue.SimpleQueue):
    """A queue that counts how often somebody looked for something."""

    times = 0

    def get(self, *args, **kwargs):
        self.times += 1
        return super().get(*args, **kwargs)


async def test_no_thread_ends_that_a_function_is_about_to_be_handed_to(monkeypatch):
    pool = Pool(idle_seconds=BRIEF)
    pool.threads._jobs = looked = Looked()
    async with trio.open_nursery() as nursery:
        with monkeypatch.context() as patch:
            patch.setattr(pool.threads, "_hand_out_new", lambda: None)
            nursery.start_soon(pool.run, lambda: None)
            await until(lambda: looked.times > 3)
        pool.threads._handing_out.unpark()
    await until(lambda: not len(pool.threads))


class Prompt(queue.SimpleQueue):
    """A queue whose only worker is quick: what it takes has ended before whoever has put it goes on."""

    def __init__(self):
        super().__init__()
        self.looking, self.ready = threading.Semaphore(0), False

    def get(self, *args, **kwargs):
        self.looking.release()
        return super().get(*args, **kwargs)

    def put(self, job):
        super().put(job)
        assert job is None or not self.ready or self.looking.acquire(timeout=LONG)


async def test_trio_is_not_woken_for_a_function_that_ends_before_it_looks(monkeypatch):
    pool, woken = Pool(), []
    pool.threads._jobs = prompt = Prompt()
    await pool.run(lambda: None)
    for _ in range(2):
        assert prompt.looking.acquire(timeout=LONG)
    prompt.ready = True
    monkeypatch.setattr(pool.threads, "_token", Waking(woken.append))
    for number in range(3):
        assert await pool.run(lambda number=number: number) == number
    assert woken == []


class Waking:
    def __init__(self, run_sync_soon):
        self.run_sync_soon = run_sync_soon


@pytest.mark.parametrize("turns", range(6))
async def test_a_function_begins_whatever_the_turn_in_which_it_comes_after_another(turns):
    pool, both = Pool(), threading.Barrier(2)

    async def come_later():
        for _ in range(turns):
            await trio.lowlevel.checkpoint()
        await pool.run(lambda: both.wait(LONG))

    for _ in range(10):  # in one turn, who goes first is left to chance
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pool.run, lambda: both.wait(LONG))
            nursery.start_soon(come_later)


async def test_an_idle_thread_holds_nothing():
    pool = Pool()

    class Thing:
        pass

    async def make():
        thing = Thing()
        result = await pool.run(lambda: thing)
        return weakref.ref(result)

    left = await make()
    await wait_all_tasks_blocked()
    gc.collect()
    assert left() is None


async def test_what_a_function_has_raised_is_left_to_no_garbage_collector():
    pool, left = Pool(), []

    def fail():
        error = Odd()
        left.append(weakref.ref(error))
        try:
            raise error
        finally:
            del error

    gc.disable()
    try:
        with suppress(Odd):
            await pool.run(fail)
        await until(lambda: left[0]() is None)
    finally:
        gc.enable()


async def test_a_thread_that_cannot_be_started_fails_its_call_alone(monkeypatch):
    pool, run_sync = Pool(), trio.to_thread.run_sync
    monkeypatch.setattr(trio.to_thread, "run_sync", no_thread)
    with pytest.raises(RuntimeError, match="can't start"):
        await pool.run(lambda: pytest.fail("it runs"))
    monkeypatch.setattr(trio.to_thread, "run_sync", run_sync)
    assert await pool.run(lambda: "next") == "next"
    assert (len(pool.threads), pool.places.borrowed_tokens) == (1, 0)


def test_a_run_ends_though_a_function_does_not_and_its_threads_end_after_it():
    go_on, threads = threading.Event(), []

    def stuck():
        threads.append(threading.current_thread())
        trio.from_thread.run_sync(begun.append, 1)
        assert go_on.wait(LONG)
        return "dropped"

    async def main():
        pool, together = Pool(), threading.Barrier(3)
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(
                    pool.run, lambda: together.wait(LONG) and threads.append(threading.current_thread())
                )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pool.run, stuck)
            nursery.start_soon(pool.run, stuck)
            await until(lambda: len(begun) == 2)
            nursery.cancel_scope.cancel()

    begun = []
    trio.run(main)
    go_on.set()
    while any(thread.name == "mcpbus thread" for thread in threads):
        threading.Event().wait(0.001)


def test_who_still_runs_a_function_when_the_run_ends_hears_of_its_end():
    async def late():
        threads, place = worker_threads(), AtOnce()
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                with suppress(trio.RunFinishedError):  # a thread that is idle may be quicker
                    await threads.run(lambda: None, place)
                for _ in range(2):
                    with pytest.raises(trio.RunFinishedError):
                        await threads.run(lambda: pytest.fail("it runs"), place)
                heard.append(place.taken)

    async def main():
        assert await worker_threads().run(lambda: 1, AtOnce()) == 1
        trio.lowlevel.spawn_system_task(late)
        await wait_all_tasks_blocked()

    heard = []
    # Who is cancelled first, this or the task that hands functions out, is left to chance.
    for _ in range(20):
        trio.run(main)
    assert heard == [0] * 20


@pytest.mark.parametrize("turns", range(6))
def test_who_waits_for_a_function_hears_of_its_end_whatever_the_turn_in_which_the_run_ends(turns):
    async def late(threads, place):
        with trio.CancelScope(shield=True), trio.fail_after(LONG), suppress(trio.RunFinishedError):
            await threads.run(lambda: go_on.wait(LONG), place)
        heard.append(place.taken)

    async def watch(threads):
        with trio.CancelScope(shield=True):
            await until(lambda: threads._over)
        go_on.set()

    async def main():
        threads = worker_threads()
        await threads.run(lambda: None, AtOnce())
        trio.lowlevel.spawn_system_task(watch, threads)
        trio.lowlevel.spawn_system_task(late, threads, AtOnce())
        for _ in range(turns):
            await trio.lowlevel.checkpoint()

    heard = []
    for _ in range(10):  # as above
        go_on = threading.Event()
        trio.run(main)
    assert heard == [0] * 10


def test_a_function_for_which_the_run_ends_too_soon_is_failed():
    raised = []

    async def late(over):
        with trio.CancelScope(shield=True), trio.fail_after(LONG):
            await over.wait()
            try:
                await worker_threads().run(lambda: None, AtOnce())
            except trio.RunFinishedError as error:
                raised.append(error)

    async def main():
        worker_threads()
        over = trio.Event()
        trio.lowlevel.spawn_system_task(late, over)
        await wait_all_tasks_blocked()
        over.set()

    trio.run(main)
    assert len(raised) == 1


async def test_a_tool_is_told_that_its_call_was_cancelled():
    server, gate = Server("s"), Gate()
    server.add_tool(gate, name="gate")
    server.add_tool(trio.from_thread.check_cancelled, name="check")
    async with server.open() as bus, bus.connect() as client:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.call_tool, "gate")
                await gate.begun.wait()
                scope.cancel()
        gate.go_on.set()
        await gate.ended.wait()
        assert "isError" not in await client.call_tool("check")


class Calls:
    """Calls of functions that return or raise their number, some when they are let go on."""

    def __init__(self, limit, nursery):
        self.pool = Pool(limit)
        self.ends, self._gates, self._scopes, self._nursery = {}, [], [], nursery

    def take(self, step, index):
        number = len(self._scopes)
        match step:
            case "put":
                self._begin(lambda: number)
            case "fail":
                self._begin(lambda: self._fail(number))
            case "block":
                self._gates.append(gate := threading.Event())
                self._begin(lambda: gate.wait(LONG) and number)
            case "let go on" if self._gates:
                self._gates[index % len(self._gates)].set()
            case "cancel" if self._scopes:
                self._scopes[index % len(self._scopes)].cancel()

    def let_all_go_on(self):
        for gate in self._gates:
            gate.set()

    def check_ends(self):
        assert self.ends.keys() == set(range(len(self._scopes)))
        for number, end in self.ends.items():
            assert end == number or (end == "cancelled" and self._scopes[number].cancel_called)

    def _begin(self, function):
        self._nursery.start_soon(self._call, len(self._scopes), function, scope := trio.CancelScope())
        self._scopes.append(scope)

    async def _call(self, number, function, scope):
        with scope:
            try:
                end = await self.pool.run(function)
            except ValueError as error:
                end = error.args[0]
        assert number not in self.ends
        self.ends[number] = "cancelled" if scope.cancelled_caught else end

    def _fail(self, number):
        raise ValueError(number)


STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "block", "fail", "let go on", "cancel", "wait"]), st.integers(0, 20)),
    max_size=40,
)


@given(st.integers(1, 5), STEPS)
def test_each_call_has_one_end_and_each_place_comes_back(limit, steps):
    async def main():
        with trio.fail_after(LONG):
            async with trio.open_nursery() as nursery:
                calls = Calls(limit, nursery)
                for step, index in steps:
                    calls.take(step, index)
                    if step == "wait":
                        await wait_all_tasks_blocked()
                    assert calls.pool.threads._unfinished <= len(calls.pool.threads) <= limit
                calls.let_all_go_on()
        calls.check_ends()
        await calls.pool.all_given_back()
        assert calls.pool.threads._unfinished == 0

    trio.run(main)
