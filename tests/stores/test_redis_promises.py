"""What Redis is to do without anybody who waits for it, over a connection that is lost and comes back, in virtual time."""

from collections import deque

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from mcpbus.core.limit_monitor import LimitMonitor
from mcpbus.core.limits import Limits
from mcpbus.core.stores.circuit_breaker import CircuitBreaker
from mcpbus.core.stores.redis import reconnect, scripts
from mcpbus.core.stores.redis.commands import (
    NoScriptError,
    RedisDownError,
    RedisRefusalError,
    ResponseError,
    Script,
)
from mcpbus.core.stores.redis.connection import RedisConnection

APPEND, FORGET = Script("append"), Script("forget")


class Engine:
    """A Redis that notes what it does, and answers when it is told to.

    Attributes:
        done: The arguments of the scripts that it has run, in order.
        silent: Whether it takes what comes, and says nothing to it.
        away: Whether nobody can connect.
        connections: How many there were.
        refuses: The scripts to which it says no.
    """

    def __init__(self):
        self.done = []
        self.silent = False
        self.away = False
        self.connections = 0
        self.refuses = set()
        self.known = {}
        self._live = None

    def make(self, url, timeout):
        self._live = Connection(self)
        return self._live

    def cut(self):
        self._live.invalidate()

    @property
    def unanswered(self):
        """How many commands it has taken, and said nothing to."""
        return len(self._live.unanswered)

    def answer(self):
        """Do the first of them."""
        self._live.execute(*self._live.unanswered.popleft())


class Connection:
    """As coredis has one; see `BaseConnection`."""

    server_version = "7.0"

    def __init__(self, engine):
        self._engine = engine
        self._lost = trio.Event()
        self.unanswered = deque()
        self._ended = False
        self.usable = False

    async def run(self, *, task_status):
        if self._engine.away:
            raise OSError("it is away")
        self._engine.connections += 1
        self.usable = True
        task_status.started()
        try:
            await self._lost.wait()
        finally:
            self._ended = True
            for request, *_ in self.unanswered:
                request.fail(OSError("the connection was lost"))

    def invalidate(self):
        self.usable = False
        self._lost.set()

    def create_request(self, command, script, number, *arguments, decode, timeout):
        if self._ended:
            raise trio.ClosedResourceError
        request = Request()
        if self._engine.silent or not self.usable:
            self.unanswered.append((request, command, script, arguments[-1]))
        else:
            self.execute(request, command, script, arguments[-1])
        return request

    def execute(self, request, command, script, word):
        engine = self._engine
        if command == b"EVALSHA" and script not in engine.known:
            request.fail(NoScriptError())
            return
        text = script if command == b"EVAL" else engine.known[script]
        engine.known[Script(text).digest] = text
        engine.done.append(word)
        if text in engine.refuses:
            request.fail(ResponseError("no"))
        else:
            request.succeed(word)


class Request:
    """As coredis has one."""

    def __init__(self):
        self._event = trio.Event()
        self._result = self._error = None

    @property
    def complete(self):
        return self._event.is_set()

    def succeed(self, result):
        self._result = result
        self._event.set()

    def fail(self, error):
        self._error = error
        self._event.set()

    def __await__(self):
        if not self.complete:
            yield from self._event.wait().__await__()
        if self._error is not None:
            raise self._error
        return self._result


@pytest.fixture
def redis_engine(monkeypatch):
    engine = Engine()
    monkeypatch.setattr(reconnect, "_make", engine.make)
    return engine


@pytest.fixture
async def redis(redis_engine, autojump_clock):
    connection = RedisConnection("redis://there:1", timeout=1.0)
    await connection.run(APPEND, [], ["first"])
    yield connection
    connection.close()


def ask(redis, *words):
    return [redis.run_soon(APPEND, [], [word]) for word in words]


async def test_what_was_lost_with_a_connection_goes_out_together_on_the_next_one_in_its_order(
    redis, redis_engine, autojump_clock
):
    redis_engine.silent = True
    promised = ask(redis, *range(100))
    redis_engine.cut()
    redis_engine.silent = False
    began = trio.current_time()
    assert [await promise for promise in promised] == [*range(100)]
    assert redis_engine.done == ["first", *range(100)]
    # The pause between two connections, and no more.
    assert trio.current_time() - began == pytest.approx(0.05)


async def test_what_is_asked_for_later_is_done_later_though_the_connection_was_lost(
    redis, redis_engine, autojump_clock
):
    """Or what is forgotten would be kept again."""
    for _ in range(20):  # whoever waits for the connection, tasks run in any order
        redis_engine.done.clear()
        redis_engine.silent = True
        promised = ask(redis, "kept")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(redis.run, FORGET, [], ["forgotten"])
            await wait_all_tasks_blocked()
            redis_engine.cut()
            redis_engine.silent = False
        assert [await promise for promise in promised] == ["kept"]
        assert redis_engine.done == ["kept", "forgotten"]


async def test_what_is_of_a_kind_that_redis_does_not_know_is_told_whole(redis, redis_engine, autojump_clock):
    redis_engine.done.clear()
    words = "first of its kind", "second"
    promised = [redis.run_soon(FORGET, [], [word]) for word in words]
    assert [await promise for promise in promised] == [*words]
    assert redis_engine.done == [*words]


async def test_what_redis_was_made_to_forget_it_is_told_again(redis, redis_engine, autojump_clock):
    for _ in range(20):  # tasks run in any order
        await ask(redis, "known")[0]
        redis_engine.known.clear()
        redis_engine.done.clear()
        *promised, given_up = ask(redis, "one", "two", "given up")
        given_up.withdraw()
        await redis.run(FORGET, [], ["forgotten"])
        promised += ask(redis, "last")
        assert [await promise for promise in promised] == ["one", "two", "last"]
        assert redis_engine.done == ["one", "two", "forgotten", "last"]


async def test_all_that_redis_did_not_know_go_out_together(redis, redis_engine, autojump_clock):
    """Or each would wait for a way to Redis and back of its own."""
    redis_engine.known.clear()
    redis_engine.done.clear()
    promised = ask(redis, *range(100))
    await promised[0]
    assert redis_engine.done == [*range(100)]


async def test_what_redis_did_not_know_goes_out_on_the_next_connection_if_this_one_is_lost_with_that_answer(
    redis, redis_engine, autojump_clock
):
    for _ in range(20):  # tasks run in any order
        await ask(redis, "known")[0]
        redis_engine.known.clear()
        redis_engine.done.clear()
        promised = ask(redis, "one", "two")
        redis_engine.cut()
        assert [await promise for promise in promised] == ["one", "two"]
        assert redis_engine.done == ["one", "two"]


@pytest.mark.parametrize("again", [FORGET, APPEND])
async def test_what_is_to_come_after_all_does_whoever_tells_redis_the_scripts_again(
    again, redis, redis_engine, autojump_clock
):
    """Or what is forgotten would be kept again, and what is asked for would not be there yet."""
    await ask(redis, "known")[0]
    redis_engine.known.clear()
    redis_engine.done.clear()
    redis_engine.silent = True
    promised = ask(redis, "one", "two")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(redis.run, FORGET, [], ["forgotten"])
        await wait_all_tasks_blocked()
        redis_engine.answer()
        redis_engine.known[again.digest] = again.text  # by another process
        while redis_engine.unanswered:
            redis_engine.answer()
            await wait_all_tasks_blocked()
    assert [await promise for promise in promised] == ["one", "two"]
    assert sorted(redis_engine.done[:2]) == ["one", "two"]
    assert redis_engine.done[2:] == ["forgotten"]


async def test_what_is_to_come_after_all_waits_for_none_that_is_asked_for_later(
    redis, redis_engine, autojump_clock
):
    redis_engine.silent = True
    promised = ask(redis, "one")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(redis.run, APPEND, [], ["after one"])
        await wait_all_tasks_blocked()
        promised += ask(redis, "two")
        redis_engine.answer()
        await wait_all_tasks_blocked()
        assert redis_engine.unanswered == 2  # the later one, and what came after the first
        redis_engine.answer()
        redis_engine.answer()
    assert redis_engine.done == ["first", "one", "two", "after one"]
    assert [await promise for promise in promised] == ["one", "two"]


@pytest.mark.parametrize("sent", [True, False], ids=["sent", "not sent yet"])
async def test_what_was_given_up_is_not_asked_for_again(sent, redis, redis_engine, autojump_clock):
    redis_engine.silent = redis_engine.away = True
    if not sent:
        redis_engine.cut()
        await wait_all_tasks_blocked()
    given_up, wanted, last = ask(redis, "given up", "wanted", "last")
    given_up.withdraw()
    if sent:
        redis_engine.cut()
    await wait_all_tasks_blocked()
    last.withdraw()
    redis_engine.silent = redis_engine.away = False
    assert await wanted == "wanted"
    assert redis_engine.done == ["first", "wanted"]


async def test_what_the_breaker_has_given_up_is_not_kept_after_its_session_is_forgotten(
    redis, redis_engine, autojump_clock
):
    told = []
    breaker = CircuitBreaker("event store", Limits(store_deadline=0.5), LimitMonitor())
    redis_engine.silent = True
    for word in ("one", "two"):
        breaker.begin(lambda word=word: redis.run_soon(APPEND, [], [word]), told.append)
    await breaker.wait_idle()
    assert told == [False, False]
    redis_engine.cut()
    redis_engine.silent = False
    await redis.run(FORGET, [], ["forgotten"])
    await trio.sleep(10)
    assert redis_engine.done == ["first", "forgotten"]


async def test_each_has_its_own_time_over_all_connections(redis, redis_engine, autojump_clock):
    redis_engine.silent = True
    [early] = ask(redis, "early")
    await trio.sleep(0.4)
    [late] = ask(redis, "late")
    redis_engine.cut()
    redis_engine.away = True
    began = trio.current_time()
    with pytest.raises(RedisDownError, match="it is away"):
        await early
    assert trio.current_time() - began == pytest.approx(0.6)
    redis_engine.away = redis_engine.silent = False
    assert await late == "late"


async def test_one_that_takes_too_long_ends_the_connection_for_all(redis, redis_engine, autojump_clock):
    redis_engine.silent = True
    promised = ask(redis, "one")
    await trio.sleep(0.5)
    promised += ask(redis, "two")
    with pytest.raises(RedisDownError, match="did not answer within 1 s"):
        await promised[0]
    redis_engine.silent = False
    assert await promised[1] == "two"
    assert redis_engine.connections == 2


async def test_an_answer_is_an_answer_whatever_became_of_the_connection(redis, redis_engine, autojump_clock):
    redis_engine.refuses.add("forget")
    redis_engine.known[FORGET.digest] = FORGET.text
    refused = redis.run_soon(FORGET, [], ["refused"])
    [kept] = ask(redis, "kept")
    redis_engine.cut()
    with pytest.raises(RedisRefusalError):
        await refused
    assert await kept == "kept"
    await redis.run(APPEND, [], ["last"])
    assert redis_engine.done == [
        "first",
        "refused",
        "kept",
        "last",
    ]


async def test_there_is_a_bound_to_what_is_promised(redis, redis_engine, monkeypatch, autojump_clock):
    monkeypatch.setattr(scripts, "MOST", 3)
    redis_engine.silent = True
    *promised, too_many = ask(redis, *range(4))
    with pytest.raises(RedisDownError, match="has not answered to 3 scripts"):
        await too_many
    redis_engine.silent = False
    redis_engine.cut()
    assert [await promise for promise in promised] == [0, 1, 2]
    assert await ask(redis, "again")[0] == "again"


async def test_nothing_is_promised_on_a_connection_that_is_closed(redis, redis_engine, autojump_clock):
    redis_engine.silent = True
    promised = ask(redis, "sent")
    redis.close()
    promised += ask(redis, "not sent")
    for promise in promised:
        with pytest.raises(RedisDownError, match="closed"):
            await promise
    await wait_all_tasks_blocked()
    assert redis_engine.done == ["first"]
