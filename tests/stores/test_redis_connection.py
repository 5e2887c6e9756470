"""A connection to Redis and Valkey, over real ones. Real time: they do not know any other."""

import importlib
import re
import sys
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import pairwise

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from mcpbus.core.stores.protocol import Promise
from mcpbus.core.stores.redis import commands
from mcpbus.core.stores.redis.commands import RedisDownError, RedisRefusalError, Script
from mcpbus.core.stores.redis.connection import RedisConnection
from tests.engines import engine

PATIENCE = 60
PUT = Script("redis.call('SET', KEYS[1], ARGV[1]) return redis.call('GET', KEYS[1])")


@contextmanager
def connection(url, *, timeout=PATIENCE):
    made = RedisConnection(url, timeout=timeout)
    yield made
    made.close()


@pytest.fixture
def redis(shared_engine):
    with connection(shared_engine.url) as made:
        yield made


async def has_blocked(other):
    while b"cmd=blpop" not in await other.call("CLIENT LIST"):  # noqa: ASYNC110 - it tells nobody
        await trio.sleep(0.005)


async def test_all_commands_go_over_one_connection_at_once(redis):
    answers = {}

    async def put(number):
        answers[number] = await redis.run(PUT, [f"key {number}"], [number])

    async with trio.open_nursery() as nursery:
        for number in range(50):
            nursery.start_soon(put, number)
    assert answers == {number: str(number).encode() for number in range(50)}
    assert (await redis.call("INFO", "clients")).count(b"connected_clients:1\r") == 1


async def test_a_script_that_was_forgotten_is_sent_whole_once_more(redis):
    assert await redis.run(PUT, ["key"], ["one"]) == b"one"
    await redis.call("SCRIPT FLUSH")
    assert await redis.run(PUT, ["key"], ["two"]) == b"two"
    assert await redis.call("EVALSHA", PUT.digest, 1, "key", b"three") == b"three"


async def test_what_can_be_sent_at_once_is_promised_and_one_task_hears_of_all(redis):
    await redis.call("PING")
    before = trio.lowlevel.current_statistics().tasks_living
    promised = [redis.run_soon(PUT, [f"key {number}"], [number]) for number in range(50)]
    assert all(isinstance(promise, Promise) for promise in promised)
    assert trio.lowlevel.current_statistics().tasks_living == before + 1
    assert [await promise for promise in promised] == [str(number).encode() for number in range(50)]
    await wait_all_tasks_blocked()
    assert trio.lowlevel.current_statistics().tasks_living == before


async def test_where_there_is_no_connection_yet_what_is_promised_is_sent_once_there_is(redis):
    promised = [redis.run_soon(PUT, ["key"], [number]) for number in range(3)]
    assert all(isinstance(promise, Promise) for promise in promised)
    assert [await promise for promise in promised] == [b"0", b"1", b"2"]


async def test_what_is_promised_comes_in_order_though_its_script_was_forgotten(redis):
    push = Script("return redis.call('RPUSH', KEYS[1], ARGV[1])")
    await redis.call("SCRIPT FLUSH")
    promised = [redis.run_soon(push, ["in order"], [number]) for number in range(5)]
    assert [await promise for promise in promised] == [1, 2, 3, 4, 5]
    assert await redis.call("LRANGE", "in order", 0, -1) == [b"%d" % number for number in range(5)]


async def test_what_is_promised_and_refused_says_so(redis):
    await redis.call("PING")
    fails, works = redis.run_soon(Script("return redis.call('NONSENSE')")), redis.run_soon(PUT, ["k"], ["v"])
    with pytest.raises(RedisRefusalError):
        await fails
    assert await works == b"v"


async def test_what_is_promised_as_the_connection_is_lost_is_asked_for_once_more(redis, shared_engine):
    with connection(shared_engine.url) as other, trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(redis.call, "BLPOP", "list", PATIENCE)
            await has_blocked(other)
            promised = [redis.run_soon(PUT, [f"key {number}"], [number]) for number in range(3)]
            assert all(isinstance(promise, Promise) for promise in promised)
            await other.call("CLIENT KILL", "TYPE", "normal", "SKIPME", "yes")
            await has_blocked(other)
            await other.call("RPUSH", "list", "found")
            assert [await promise for promise in promised] == [b"0", b"1", b"2"]


async def test_what_is_promised_by_an_engine_that_says_nothing_fails_in_time(caplog):
    with engine() as server, connection(server.url, timeout=0.2) as redis:
        await redis.call("PING", within=PATIENCE)
        server.pause()
        promised = [redis.run_soon(PUT, ["key"], [number]) for number in range(3)]
        with pytest.raises(RedisDownError, match=r"did not answer within 0.2 s"):
            await promised[0]
        for promise in promised[1:]:
            with pytest.raises(RedisDownError):
                await promise
        server.go_on()
        assert await redis.run(PUT, ["key"], ["new"], within=PATIENCE) == b"new"


async def test_what_is_refused_says_so_and_the_connection_goes_on(redis):
    await redis.call("SET", "text", "no number")
    with pytest.raises(RedisRefusalError, match=r"^Redis at unix:///.*not an integer"):
        await redis.call("INCR", "text")
    assert await redis.call("GET", "text") == b"no number"


async def test_what_was_under_way_when_the_connection_was_lost_is_asked_for_once_more(
    redis, shared_engine, caplog
):
    popped = []

    async def pop():
        popped.append(await redis.call("BLPOP", "list", PATIENCE))

    with connection(shared_engine.url) as other, trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pop)
            await has_blocked(other)
            await other.call("CLIENT KILL", "TYPE", "normal", "SKIPME", "yes")
            await has_blocked(other)
            await other.call("RPUSH", "list", "found")
    assert popped == [[b"list", b"found"]]
    assert [record.message.partition(" was ")[2] for record in caplog.records] == ["lost"]


async def test_an_engine_that_says_nothing_is_down_until_it_speaks_again(caplog):
    with engine() as server, connection(server.url, timeout=0.2) as redis:
        await redis.call("SET", "key", "value", within=PATIENCE)
        server.pause()
        for why in ("did not answer within 0.2 s", "cannot be used|was lost|could not be reached"):
            with pytest.raises(RedisDownError, match=why):
                await redis.call("GET", "key")
        server.go_on()
        assert await redis.call("GET", "key", within=PATIENCE) == b"value"


async def test_an_engine_that_was_started_anew_is_used_again_with_its_scripts():
    with engine() as server, connection(server.url, timeout=0.2) as redis:
        await redis.run(PUT, ["key"], ["old"], within=PATIENCE)
        server.kill()
        said = ""
        with trio.fail_after(PATIENCE):
            while "refused" not in said:  # as nobody has tried to connect before that
                with pytest.raises(RedisDownError) as down:
                    await redis.call("GET", "key")
                said = str(down.value)
        assert re.match(r"^Redis at unix:///[^:]*: .*Connection refused$", said)
        server.start()
        assert await redis.call("GET", "key", within=PATIENCE) is None
        assert await redis.run(PUT, ["key"], ["new"], within=PATIENCE) == b"new"


async def test_a_replica_is_not_used_again_before_it_takes_writes(caplog):
    caplog.set_level("INFO", "mcpbus")
    with engine() as server, connection(server.url) as admin, connection(server.url, timeout=0.5) as redis:
        await redis.run(PUT, ["key"], ["old"], within=PATIENCE)
        await admin.call("REPLICAOF", "127.0.0.1", "1")
        before = await admin.call("INFO", "stats")
        said = ""
        with trio.fail_after(PATIENCE):
            while not said.endswith("cannot be used: it is a replica, which takes no writes"):
                with pytest.raises(RedisDownError) as down:
                    await redis.run(PUT, ["key"], ["refused"])
                said = str(down.value)
        for _ in range(3):
            with pytest.raises(RedisDownError, match="cannot be used"):
                await redis.run(PUT, ["key"], ["refused"])
        after = await admin.call("INFO", "stats")
        assert connections(after) - connections(before) < 8, "it connects again and again"
        assert "is there again" not in caplog.text
        await admin.call("REPLICAOF", "NO", "ONE")
        assert await redis.run(PUT, ["key"], ["new"], within=PATIENCE) == b"new"
    assert "is there again" in caplog.text


def connections(stats):
    return int(re.search(rb"total_connections_received:(\d+)", stats)[1])


@pytest.mark.parametrize(
    ("user", "why"),
    [
        ("", "cannot be used: it asks for a password, and the URL has none"),
        (":wrong@", "cannot be used: the name or the password is wrong"),
    ],
)
async def test_a_password_that_is_missing_or_wrong_is_said_at_once_and_never_shown(user, why, caplog):
    with engine("valkey", "--requirepass", "secret") as server:
        with (
            connection(server.url.replace("//", f"//{user}"), timeout=60) as redis,
            trio.fail_after(PATIENCE),
            pytest.raises(RedisDownError, match=why) as error,
        ):
            await redis.call("PING")
        assert "wrong@" not in str(error.value) + caplog.text
        with connection(server.url.replace("//", "//:secret@")) as redis:
            assert await redis.call("PING") == b"PONG"


def hello(version):
    return b"%%4\r\n+version\r\n+%b\r\n+proto\r\n:3\r\n+id\r\n:1\r\n+role\r\n+master\r\n" % version


@asynccontextmanager
async def fake(serve):
    """Yield the URL of a server that has each connection to it served by `serve`."""
    [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, serve, [listener])
        yield f"redis://127.0.0.1:{listener.socket.getsockname()[1]}/0"
        nursery.cancel_scope.cancel()


async def test_a_connection_on_which_nothing_comes_is_given_up_by_who_is_cancelled_as_well():
    """As by a breaker, which has a deadline of its own."""
    connections = []

    async def serve(stream):
        connections.append(stream)
        for answer in (hello(b"7.0.0"), b"+PONG\r\n"):
            await stream.receive_some()
            await stream.send_all(answer)
        await trio.sleep_forever()

    async with fake(serve) as url:
        with connection(url) as redis:
            assert await redis.call("PING") == b"PONG"
            with trio.move_on_after(0.6), suppress(RedisDownError):
                await redis.call("PING", within=0.8)
            assert await redis.call("PING") == b"PONG"
    assert len(connections) == 2


async def test_what_takes_connections_and_says_nothing_is_told_once_and_by_us_alone(caplog):
    asked = trio.Semaphore(0)

    async def serve(stream):
        asked.release()
        await trio.sleep_forever()

    async with fake(serve) as url:
        with connection(url, timeout=0.02) as redis:
            for _ in range(5):
                with pytest.raises(RedisDownError):
                    await redis.call("PING")
                await asked.acquire()
    assert {record.name for record in caplog.records} == {"mcpbus"}
    assert all(" cannot be used: " in line for line in caplog.messages)
    # Where this machine is slow, it is another thing at times that was waited for in vain.
    assert all(line != following for line, following in pairwise(caplog.messages))


async def test_a_connection_that_is_cut_again_and_again_is_told_of_ten_times_a_minute(caplog):
    caplog.set_level("INFO", "mcpbus")
    cut = trio.Semaphore(0)

    async def serve(stream):
        await stream.receive_some()
        await stream.send_all(hello(b"7.0.0"))
        await stream.aclose()
        cut.release()

    async with fake(serve) as url:
        with connection(url) as redis:
            with suppress(RedisDownError):
                await redis.call("PING", within=0.1)
            for _ in range(15):
                await cut.acquire()
    assert 0 < len(caplog.messages) <= 30
    for said in ("was lost", "cannot be used", "is there again"):
        assert sum(said in message for message in caplog.messages) <= 10


async def test_an_engine_that_is_still_loading_is_waited_for(caplog):
    caplog.set_level("INFO", "mcpbus")
    connections = []

    async def serve(stream):
        connections.append(stream)
        while data := await stream.receive_some():
            if b"HELLO" in data:
                await stream.send_all(hello(b"7.0.0"))
            elif len(connections) < 4:
                await stream.send_all(b"-LOADING Redis is loading the dataset in memory\r\n")
            else:
                await stream.send_all(b"+PONG\r\n")

    async with fake(serve) as url:
        with connection(url) as redis:
            assert await redis.call("PING") == b"PONG"
    assert [message.partition("/0 ")[2] for message in caplog.messages] == [
        "cannot be used now: Redis is loading the dataset in memory",
        "cannot be used: it is still loading what it has",
        "is there again",
    ]
    assert len(connections) == 4


async def test_an_engine_that_says_nothing_once_it_has_loaded_is_given_up(caplog):
    caplog.set_level("INFO", "mcpbus")
    connections = []

    async def serve(stream):
        connections.append(stream)
        number = len(connections)
        while data := await stream.receive_some():
            if b"HELLO" in data:
                await stream.send_all(hello(b"7.0.0"))
            elif number == 1:
                await stream.send_all(b"-LOADING Redis is loading the dataset in memory\r\n")
            elif number == 3:
                await stream.send_all(b"+PONG\r\n")

    async with fake(serve) as url:
        with connection(url, timeout=0.3) as redis:
            assert await redis.call("PING", within=PATIENCE) == b"PONG"
    assert [message.partition("/0 ")[2] for message in caplog.messages] == [
        "cannot be used now: Redis is loading the dataset in memory",
        "cannot be used: it did not answer within 0.3 s",
        "is there again",
    ]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (
            hello(b"6.0.16"),
            "of version 6.0.16, and 6.2 is the oldest",
        ),
        (b"-ERR unknown command `HELLO`, with args\r\n", "older than version 6.2"),
    ],
)
async def test_an_old_engine_is_refused_with_its_version(answer, why):
    async def serve(stream):
        await stream.receive_some()
        await stream.send_all(answer)
        await trio.sleep_forever()

    async with fake(serve) as url:
        with (
            connection(url, timeout=60) as redis,
            trio.fail_after(PATIENCE),
            pytest.raises(RedisDownError, match=why),
        ):
            await redis.call("PING")


async def test_a_connection_that_is_closed_is_used_no_more(shared_engine):
    with connection(shared_engine.url) as redis:
        await redis.call("PING")
        redis.close()
        with pytest.raises(RedisDownError, match="closed"):
            await redis.call("PING")


def test_a_url_of_something_else_is_refused():
    with pytest.raises(ValueError, match="rediss://HOST:PORT or unix:///path/to/socket, and not http://"):
        RedisConnection("http://localhost")


def test_without_coredis_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "coredis.connection", None)
    with pytest.raises(ImportError, match=r"pip install 'mcpbus-server\[cluster\]'"):
        importlib.reload(commands)
