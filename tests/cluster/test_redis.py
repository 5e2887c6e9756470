"""Replicas that find each other in Redis or Valkey: real ones, over real sockets."""

import math
import re
import ssl
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio
import trio.testing
from several import at, quiet
from test_adoption import INITIALIZE
from test_forwarding import call, make, text

import mcpbus.cluster
from mcpbus import Server
from mcpbus.cluster import RedisReplicas, TlsPair
from mcpbus.cluster.directory import FencedError, SessionClaim, StoredHeldMessage, StoredSession
from mcpbus.cluster.redis_directory import RedisDirectory
from mcpbus.cluster.redis_scripts import LEASE
from mcpbus.cluster.tcp import HostPort
from mcpbus.core.lease import Lease, elapsed
from mcpbus.core.stores.redis.commands import RedisDownError, RedisRefusalError
from mcpbus.core.stores.redis.connection import RedisConnection
from mcpbus.serving import ServingError
from mcpbus.testing import open_bus, open_probe
from tests.engines import engine

LOOPBACK = "127.0.0.1:0"
ANY_PLACE = HostPort("127.0.0.1", 1)
CERTIFICATE = str(Path(__file__).parent.parent / "serving" / "localhost.pem")

PATIENCE = 60
SOON = 10


@pytest.fixture
def namespace(request):
    """Names of their own for each test in a Redis that all share."""
    return request.node.name.replace(" ", "")[-60:]


@pytest.fixture(autouse=True)
def _make_keys_at_once(monkeypatch):
    """In a Redis of its own nobody has lost a common key."""
    monkeypatch.setattr("mcpbus.cluster.redis_directory._KEY_WAIT", 0.0)


@pytest.fixture(autouse=True)
def _renew_leases_soon(monkeypatch):
    monkeypatch.setattr("mcpbus.cluster.redis_directory._RENEW", 0.01)


@pytest.fixture
async def connection(shared_engine):
    redis = RedisConnection(shared_engine.url, timeout=PATIENCE)
    yield redis
    redis.close()


def directory_of(connection, namespace, lease=60.0):
    place = HostPort.parse(LOOPBACK)
    return RedisDirectory(connection, f"{{{namespace}}}", link=place, advertise=place, lease=lease, tls=None)


async def echo(stream):
    async with stream:
        async for data in stream:
            await stream.send_all(data)


@pytest.mark.parametrize(
    "capabilities",
    [{}, {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {}}],
    ids=["plain", "with all"],
)
async def test_a_session_takes_at_most_a_kibibyte_of_redis(replicas, connection, namespace, capabilities):
    session = await replicas.probes[0].initialize(capabilities=capabilities)
    keys = await connection.call("KEYS", f"*{session.id}*")
    assert keys == [f"{{mcpbus:{namespace}}}:s:{session.id}".encode()]
    assert 0 < await connection.call("MEMORY USAGE", keys[0]) <= 1024


async def until(condition):
    with trio.fail_after(PATIENCE):
        while not condition():  # noqa: ASYNC110 - of another process, as it were
            await trio.sleep(0.02)


async def test_who_has_a_lease_is_found_until_it_leaves(connection, namespace):
    directory, lease = directory_of(connection, namespace), Lease()
    assert await directory.dial("home") is None
    async with trio.open_nursery() as nursery:
        await nursery.start(directory.listen, "home", echo, lease)
        assert await directory.homes() == ["home"]
        async with await directory.dial("home") as stream:
            await stream.send_all(b"hello")
            assert await stream.receive_some() == b"hello"
        first = lease.until
        await until(lambda: lease.until > first)
        assert await directory.homes() == ["home"]
        nursery.cancel_scope.cancel()
    assert (await directory.homes(), await directory.dial("home")) == ([], None)


async def test_a_lease_lapses_with_nobody_to_renew_it(connection, namespace):
    directory = directory_of(connection, namespace)
    await directory._renew("home", ANY_PLACE)
    assert await directory.homes() == ["home"]
    await directory_of(connection, namespace, 0.05)._renew("home", ANY_PLACE)
    with trio.fail_after(PATIENCE):
        while await directory.homes():  # noqa: ASYNC110 - Redis tells nobody
            await trio.sleep(0.02)
    assert await directory.dial("home") is None


ONE = SessionClaim("s", "one")


async def test_a_process_whose_lease_has_lapsed_is_sure_of_nothing_until_it_has_asked(connection, namespace):
    directory, lease = directory_of(connection, namespace), Lease()
    began = elapsed()
    async with trio.open_nursery() as nursery:
        await nursery.start(directory.listen, "one", echo, lease)
        assert began <= lease.until - 59.5 <= elapsed()
        await directory.create(ONE, b"it")
        first = lease.until
        await directory._renew("one", ANY_PLACE)
        assert lease.until > first
        await connection.call("DEL", f"{{{namespace}}}:r:one")
        lapsing = lease.until
        for _ in range(2):
            await directory._renew("one", ANY_PLACE)
            assert lease.until == lapsing
        assert await directory.maintain([ONE], 60) == []
        asked = lease.until
        assert asked > lapsing
        await directory._renew("one", ANY_PLACE)
        assert lease.until > asked
        nursery.cancel_scope.cancel()


async def test_a_lease_that_had_lapsed_is_noticed_though_the_first_answer_did_not_come(
    connection, namespace, monkeypatch
):
    directory = directory_of(connection, namespace)
    await directory._renew("one", ANY_PLACE)
    assert await directory.maintain([], 60) == []
    assert directory._is_sure
    await connection.call("DEL", f"{{{namespace}}}:r:one")

    async def run(*asked):
        await connection.run(*asked)
        raise RedisDownError("no answer came")

    with monkeypatch.context() as patch:
        patch.setattr(directory, "_redis", SimpleNamespace(run=run))
        with pytest.raises(RedisDownError):
            await directory._renew("one", ANY_PLACE)
    assert directory._is_sure
    await directory._renew("one", ANY_PLACE)
    assert not directory._is_sure


async def test_that_a_lease_had_lapsed_is_told_again_to_a_renewal_that_is_repeated(connection, namespace):
    keys = [f"{{{namespace}}}:{name}" for name in ("r:one", "R", "E")]

    async def renew(name):
        was, *_ = await connection.run(LEASE, keys, ["one", str(ANY_PLACE), 60_000, name])
        return was

    assert [await renew(name) for name in ("a1", "a1", "b2", "b2")] == [0, 0, 1, 1]
    await connection.call("DEL", keys[0])
    assert [await renew(name) for name in ("c3", "c3", "d4")] == [0, 0, 1]


async def test_a_renewal_of_which_the_answer_came_too_late_is_none(connection, namespace):
    directory, lease = directory_of(connection, namespace), Lease()
    async with trio.open_nursery() as nursery:
        await nursery.start(directory.listen, "one", echo, lease)
        directory._renewed_until = lease.until = trio.current_time() - 1
        await directory._renew("one", ANY_PLACE)
        assert not lease.is_valid
        assert await directory.maintain([], 60) == []
        assert lease.is_valid
        nursery.cancel_scope.cancel()


async def test_the_epoch_says_who_may_write(connection, namespace):
    directory = directory_of(connection, namespace)
    assert await directory.get("s") is await directory.claim("s", "one", "two") is None
    for _ in range(2):
        await directory.create(ONE, b"old")
        await directory.update(ONE, b"it")
    assert await directory.get("s") == StoredSession(ONE, b"it")
    with pytest.raises(OSError, match="LEASE"):
        await directory.claim("s", "one", "two")
    await directory._renew("two", ANY_PLACE)
    for _ in range(2):  # the second time as if the first answer had not come
        claimed = await directory.claim("s", "one", "two")
        assert claimed == StoredSession(SessionClaim("s", "two", 2), b"it") == await directory.get("s")
    await directory._renew("three", ANY_PLACE)
    assert await directory.claim("s", "one", "three") == claimed  # its owner lives
    for write in (directory.create, directory.update):
        with pytest.raises(FencedError):
            await write(ONE, b"late")
    with pytest.raises(FencedError):
        await directory.remove(ONE)
    await directory.update(claimed.ownership, b"new")
    assert (await directory.get("s")).record == b"new"
    for _ in range(2):
        await directory.remove(claimed.ownership)
    assert not await connection.call("EXISTS", f"{{{namespace}}}:s:s")
    with pytest.raises(FencedError):
        await directory.update(claimed.ownership, b"late")  # it has ended: Redis has lost nothing


async def test_what_redis_has_lost_is_put_back_by_who_had_it_last(connection, namespace):
    directory, late = directory_of(connection, namespace), directory_of(connection, namespace)
    for each, home in ((directory, "two"), (late, "one")):
        await each._renew(home, ANY_PLACE)
        each._in_doubt = False
    await directory.create(ONE, b"old")
    await connection.call("DEL", f"{{{namespace}}}:r:one")
    claimed = await directory.claim("s", "one", "two")
    assert await directory.maintain([claimed.ownership], 60) == []
    await connection.call("FLUSHALL")
    for each, home in ((directory, "two"), (late, "one")):
        await each._renew(home, ANY_PLACE)
    for _ in range(2):
        assert await directory.maintain([claimed.ownership], 60) == ["s"]
    await directory.pop_held(claimed.ownership, ["1"])
    with pytest.raises(OSError, match="lost the session"):
        await directory.append_held(claimed.ownership, {"1": StoredHeldMessage(b"it", 1)}, [])
    with pytest.raises(OSError, match="told it anew"):
        await directory.get("s")
    await late.update(ONE, b"old")
    await directory.update(claimed.ownership, b"new")
    assert await directory.maintain([claimed.ownership], 60) == []
    assert await directory.get("s") == StoredSession(claimed.ownership, b"new")
    assert await late.maintain([ONE], 60) == ["s"]
    with pytest.raises(FencedError):
        await late.update(ONE, b"old")


async def test_who_begins_when_redis_has_just_lost_what_it_knew_waits_for_it_too(connection, namespace):
    for lease, doubts in ((60.0, True), (0.05, False)):
        directory = directory_of(connection, namespace, lease)
        await directory._renew("new", ANY_PLACE)
        if doubts:
            with pytest.raises(OSError, match="is told it anew"):
                await directory.get("s")
            await trio.sleep(0.2)
        else:
            assert await directory.get("s") is None


async def test_a_redis_whose_clock_is_behind_is_waited_for_no_longer(connection, namespace):
    future = int((await connection.call("TIME"))[0]) * 1000 + 3_600_000
    await connection.call("SET", f"{{{namespace}}}:E", f"lost {future}")
    directory = directory_of(connection, namespace, 0.05)
    await directory._renew("new", ANY_PLACE)
    with trio.fail_after(SOON):
        while await directory._may_be_put_back():  # noqa: ASYNC110 - nobody tells
            await trio.sleep(0.02)


async def test_what_is_kept_outlasts_who_has_it_for_as_long_as_it_may_be_idle(connection, namespace):
    directory = directory_of(connection, namespace)

    async def left():
        return await connection.call("PTTL", f"{{{namespace}}}:s:s") / 1000

    await directory.maintain([], 600)
    await directory.create(ONE, b"it")
    assert 650 < await left() <= 660
    assert await directory.maintain([ONE], 60) == []
    directory._due["s"] -= 60
    assert await directory.maintain([ONE], 60) == []
    assert 110 < await left() <= 120
    await connection.call("PEXPIRE", f"{{{namespace}}}:s:s", 5)
    await trio.sleep(0.02)
    assert await directory.get("s") is None


@pytest.fixture
def tls_pair():
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(CERTIFICATE, CERTIFICATE)
    return TlsPair(server, ssl.create_default_context(cafile=CERTIFICATE))


async def test_what_waits_for_a_client_goes_with_its_session(connection, namespace):
    directory = directory_of(connection, namespace)
    await directory.create(ONE, b"it")
    for _ in range(2):
        await directory.append_held(
            ONE, {"1": StoredHeldMessage(b"first", 1000), "2": StoredHeldMessage(b"second one", 500)}, ["0"]
        )
    await directory.append_held(ONE, {"3": StoredHeldMessage(b"\0 third", 100)}, ["1", "9"])
    held = (await directory.get("s")).held
    assert {name: each.data for name, each in held.items()} == {"2": b"second one", "3": b"\0 third"}
    assert 450 < held["2"].seconds <= 500
    assert 50 < held["3"].seconds <= 100
    assert 900 < await connection.call("PTTL", f"{{{namespace}}}:h:s") / 1000 <= 1000
    await directory.pop_held(ONE, ["3"])
    await directory._renew("two", ANY_PLACE)
    claimed = await directory.claim("s", "one", "two")
    assert [*claimed.held] == ["2"]
    for write in (
        directory.pop_held(ONE, ["2"]),
        directory.append_held(ONE, {"4": StoredHeldMessage(b"late", 1)}, []),
    ):
        with pytest.raises(FencedError):
            await write
    assert [*(await directory.get("s")).held] == ["2"]
    await directory.remove(claimed.ownership)
    assert not await connection.call("EXISTS", f"{{{namespace}}}:h:s")


async def test_what_may_wait_for_ever_waits_for_long(connection, namespace):
    directory = directory_of(connection, namespace)
    await directory.create(ONE, b"it")
    await directory.append_held(ONE, {"1": StoredHeldMessage(b"it", math.inf)}, [])
    assert (await directory.get("s")).held["1"].seconds > 1e8


async def test_a_session_that_is_released_is_for_whoever_is_asked(connection, namespace):
    directory = directory_of(connection, namespace)
    await directory._renew("one", ANY_PLACE)
    await directory._renew("two", ANY_PLACE)
    await directory.create(ONE, b"it")
    await directory.append_held(ONE, {"1": StoredHeldMessage(b"held", 10)}, [])
    for _ in range(2):  # what was done already may be said once more
        await directory.release([ONE, SessionClaim("unknown", "one")])
    with pytest.raises(FencedError):
        await directory.update(ONE, b"late")
    owner = (await directory.get("s")).ownership.home
    assert await directory.dial(owner) is None
    claimed = await directory.claim("s", owner, "two")
    assert claimed.ownership == SessionClaim("s", "two", 3)
    assert (claimed.record, [*claimed.held]) == (b"it", ["1"])
    await directory.update(claimed.ownership, b"new")


async def test_a_round_is_used_by_one(connection, namespace):
    directory = directory_of(connection, namespace)
    used = [await directory.claim_round("r", user, 60) for user in ("one", "one", "two")]
    assert used == [True, True, False]
    assert await directory.claim_round("another", "one", 0.1)
    await trio.sleep(0.15)
    assert await directory.claim_round("another", "two", 0.1)


# -- whole replicas --------------------------------------------------------------------------------


class Replicas:
    """Buses that find each other in Redis. Their leases last, however seldom they have a turn."""

    def __init__(self, url, namespace, **options):
        self.redis = RedisReplicas(url, namespace=namespace, link=LOOPBACK, lease=60.0, **options)
        self.buses, self.probes = [], []

    async def run(self, make=make, *, task_status, **options):
        async with (
            open_bus(make(), cluster=self.redis, **options) as bus,
            open_probe(bus.asgi()) as probe,
        ):
            self.buses.append(bus)
            self.probes.append(probe)
            task_status.started()
            await trio.sleep_forever()


@pytest.fixture
def _patient(patient_redis, monkeypatch):
    """Have replicas wait for their Redis, which is there, as long as any machine takes."""
    monkeypatch.setattr("mcpbus.cluster.session_records.DIRECTORY_SECONDS", PATIENCE)


@pytest.fixture
async def replicas(shared_engine, namespace, nursery, _patient):
    made = Replicas(shared_engine.url, namespace)
    for _ in range(2):
        await nursery.start(made.run)
    yield made
    nursery.cancel_scope.cancel()


async def test_a_session_is_found_from_another_replica_and_goes_on_there(replicas):
    one, other = replicas.buses
    session = await replicas.probes[0].initialize()
    assert text(await call(at(session, replicas.probes[1]), "echo", text="hello").reply()) == "hello"
    assert (len(one.sessions), len(other.sessions)) == (1, 0)
    await pause(one)
    session = at(session, replicas.probes[1])
    assert text(await call(session, "echo", text="on").reply(timeout=PATIENCE)) == "on"
    assert len(other.sessions) == 1
    go_on(one)
    await until(lambda: not one.sessions)
    assert text(await call(at(session, replicas.probes[0]), "echo", text="back").reply()) == "back"


async def place_of(directory, home):
    """Where a replica listens for the others."""
    found = await directory._redis.call("GET", f"{directory._prefix}:r:{home}")
    return HostPort.parse(found.split()[0].decode())


async def pause(bus):
    """Have a replica neither renew its lease nor be reached, though it lives."""
    directory = bus.node._cluster.directory

    async def nothing(*_):
        await trio.lowlevel.checkpoint()

    directory._renew = nothing
    bus.node._try_to_reach = nothing
    key = f"{directory._prefix}:r:{bus.node.home}"
    await directory._redis.call("DEL", key)
    for links in [*bus.node.links.by_home.values()]:
        for link in links:
            link.close()
    await trio.testing.wait_all_tasks_blocked(0.05)  # until the others have noticed


def go_on(bus):
    del bus.node._cluster.directory._renew


@pytest.mark.usefixtures("_patient")
async def test_many_replicas_that_want_one_session_agree_whose_it_is(shared_engine, namespace, nursery):
    replicas = Replicas(shared_engine.url, namespace)
    for _ in range(4):
        await nursery.start(replicas.run)
    session = await replicas.probes[0].initialize()
    await pause(replicas.buses[0])
    asked = [at(session, replicas.probes[1 + n % 3]).request("ping", id=n) for n in range(9)]
    assert [(await one.ended(timeout=PATIENCE)).status for one in asked] == [200] * 9
    assert sorted(len(bus.sessions) for bus in replicas.buses[1:]) == [0, 0, 1]
    nursery.cancel_scope.cancel()


async def test_where_redis_is_down_calls_go_on_and_what_it_has_to_keep_is_refused(namespace, nursery):
    with engine() as server:
        replicas = Replicas(server.url, namespace)
        for _ in range(2):
            await nursery.start(replicas.run)
        probes = replicas.probes
        session = await probes[0].initialize()
        await session.request("resources/subscribe", {"uri": "res://one"}).ended()
        await quiet(replicas.buses)
        lost = SessionClaim(replicas.buses[0].node.names.new(), replicas.buses[0].node.home)
        server.kill()
        assert text(await call(at(session, probes[1]), "echo", text="on").reply()) == "on"
        refused = [
            probes[0].post(INITIALIZE),
            session.request("logging/setLevel", {"level": "error"}),
            probes[0].post({"jsonrpc": "2.0", "id": 1, "method": "ping"}, {"mcp-session-id": lost.name}),
        ]
        began = trio.current_time()
        assert [(await one.ended(timeout=PATIENCE)).status for one in refused] == [503] * 3
        assert trio.current_time() - began < SOON
        server.start()  # with nothing in it
        directory = replicas.buses[0].node._cluster.directory
        with trio.fail_after(PATIENCE):
            while await kept(directory, session.id) is None:  # noqa: ASYNC110 - Redis tells nobody
                await trio.sleep(0.05)
        await is_done(lambda: session.request("logging/setLevel", {"level": "error"}))
        await pause(replicas.buses[0])
        session = at(session, probes[1])
        await is_done(lambda: session.request("ping"))
        (taken,) = replicas.buses[1].sessions.values()
        assert (taken.log_level.value, taken.subscriptions) == ("error", {"res://one"})
        nursery.cancel_scope.cancel()


async def is_done(ask):
    """Ask until Redis is there again, which may take a while to answer."""
    with trio.fail_after(PATIENCE):
        while (status := (await ask().ended()).status) != 200:
            assert status == 503


async def kept(directory, name):
    try:
        return await directory.get(name)
    except OSError:
        return None


@pytest.mark.usefixtures("_patient")
async def test_links_may_be_encrypted(shared_engine, namespace, nursery, tls_pair):
    replicas = Replicas(shared_engine.url, namespace, tls=tls_pair, advertise="localhost")
    for _ in range(2):
        await nursery.start(replicas.run)
    session = await replicas.probes[0].initialize()
    assert text(await call(at(session, replicas.probes[1]), "echo", text="hello").reply()) == "hello"
    bus = replicas.buses[0]
    place = await place_of(bus.node._cluster.directory, bus.node.home)
    async with await trio.open_tcp_stream(place.host, place.port) as stream:
        await stream.send_all(b"\0\0\0\0\x01\0\0\0\0")
        with trio.fail_after(PATIENCE):
            assert not (await stream.receive_some()).startswith(b"\0\0")
    nursery.cancel_scope.cancel()


async def test_a_stranger_on_the_port_of_links_is_sent_away(replicas):
    bus = replicas.buses[0]
    place = await place_of(bus.node._cluster.directory, bus.node.home)
    async with await trio.open_tcp_stream(place.host, place.port) as stream:
        await stream.send_all(b"GET / HTTP/1.1\r\n\r\n")
        with trio.fail_after(PATIENCE), suppress(trio.BrokenResourceError):
            while await stream.receive_some():
                pass
    session = await replicas.probes[0].initialize()
    assert text(await call(at(session, replicas.probes[1]), "echo", text="hello").reply()) == "hello"


async def test_a_redis_that_stands_still_holds_nobody_up_for_long(namespace, nursery):
    with engine() as server:
        replicas = Replicas(server.url, namespace)
        await nursery.start(replicas.run)
        session = await replicas.probes[0].initialize()
        server.pause()
        began = trio.current_time()
        assert (await session.request("logging/setLevel", {"level": "error"}).ended()).status == 503
        assert trio.current_time() - began < SOON
        assert text(await call(session, "echo", text="on").reply()) == "on"
        server.go_on()
        await is_done(lambda: session.request("logging/setLevel", {"level": "error"}))
        nursery.cancel_scope.cancel()


async def why_not(server, redis):
    """What a server says that cannot be opened."""
    with pytest.raises(ServingError) as raised:
        async with server.open(cluster=redis):
            pass
    return str(raised.value)


REFUSING = pytest.mark.parametrize(
    ("refuse", "take", "said"),
    [
        (
            "REPLICAOF 127.0.0.1 1",
            "REPLICAOF NO ONE",
            "cannot be used(: it is a replica| now: .*read only replica)",
        ),
        ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0", "answered with an error: .*maxmemory"),
    ],
    ids=["it has failed over", "it is out of memory"],
)


@REFUSING
async def test_a_redis_that_takes_no_writes_is_one_that_is_down(refuse, take, said, namespace, nursery):
    with engine() as server:
        replicas = Replicas(server.url, namespace)
        await nursery.start(replicas.run)
        (probe,) = replicas.probes
        session = await probe.initialize()
        redis = RedisConnection(server.url, timeout=PATIENCE)
        await redis.call(*refuse.split(" "))
        assert (await probe.post(INITIALIZE).ended(timeout=60)).status == 503
        assert text(await call(session, "echo", text="on").reply()) == "on"
        with trio.fail_after(PATIENCE):
            while "did not answer within" in (why := await why_not(Server("late"), replicas.redis)):
                pass  # so busy is the machine
        assert re.search(f"^Redis at unix:.*{said}[^\\n]*$", why)
        await redis.call(*take.split(" "))
        await is_done(lambda: probe.post(INITIALIZE))
        redis.close()
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("redis", "said"),
    [
        (RedisReplicas("redis://127.0.0.1:1", link=LOOPBACK), "Redis at redis://127.0.0.1:1 cannot be used"),
        (RedisReplicas("redis://127.0.0.1:1"), "need a secret in common"),
    ],
)
async def test_who_cannot_join_says_why_in_one_line(redis, said, monkeypatch):
    # It is told at the first failure and not at the end of a time, within which a busy machine may not have come to any.
    monkeypatch.setattr("mcpbus.core.stores.redis.reconnect._is_final", lambda _error: True)
    monkeypatch.setattr("mcpbus.cluster.redis._START_SECONDS", PATIENCE)
    server = Server("alone")
    with pytest.raises(ServingError, match=said) as raised:
        async with server.open(cluster=redis):
            pass
    assert "\n" not in str(raised.value)


async def test_a_wrong_password_is_said_in_one_line(namespace):
    with engine("valkey", "--requirepass", "secret") as server:
        redis = RedisReplicas(server.url.replace("//", "//:wrong@"), namespace=namespace, link=LOOPBACK)
        with pytest.raises(ServingError, match=r"^Redis at unix:[^\n]*: the name or the password is wrong$"):
            async with Server("alone").open(cluster=redis):
                pass


async def test_who_cannot_find_the_others_says_why_in_one_line(shared_engine, namespace, monkeypatch):
    async def fail(_):
        raise RedisRefusalError("NOPERM this user may not")

    monkeypatch.setattr(RedisDirectory, "homes", fail)
    with pytest.raises(ServingError, match=r"^NOPERM this user may not$"):
        async with Server("alone").open(
            cluster=RedisReplicas(shared_engine.url, namespace=namespace, link=LOOPBACK)
        ):
            pass


async def test_a_place_that_is_taken_is_told(shared_engine, namespace):
    async with (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0] as listener:
        place = f"127.0.0.1:{listener.socket.getsockname()[1]}"
        redis = RedisReplicas(shared_engine.url, namespace=namespace, link=place)
        with pytest.raises(ServingError, match=f"links cannot be listened for on {place}"):
            async with Server("alone").open(cluster=redis):
                pass


@pytest.mark.parametrize(
    "given",
    [
        {"namespace": ""},
        {"namespace": "a b"},
        {"namespace": "a{"},
        {"lease": 0},
        {"link": "h:99999"},
        {"link": "h:1:2"},
        {"advertise": ":1"},
    ],
)
def test_what_cannot_be_is_refused(given):
    with pytest.raises(ValueError, match="is"):
        RedisReplicas("redis://r", **given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"link": "127.0.0.1:7000"}, "a port of its own, so write '127.0.0.1:0'"),
        ({"advertise": "[::1]:7000"}, "a port of its own, so write the host alone, '[::1]'"),
    ],
)
def test_workers_have_no_port_in_common(given, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        Server("it").run(workers=2, cluster=RedisReplicas("redis://r", **given))
    for place in ({"link": "127.0.0.1"}, {"advertise": "h"}, {"advertise": "h:0"}):
        RedisReplicas("redis://r", **place).check_for_workers()


@pytest.mark.parametrize("url", ["localhost:6379", ":secret@h:6379", "http://h", "redis://", ""])
@pytest.mark.parametrize("taker", [RedisReplicas, RedisConnection])
def test_what_is_no_address_of_redis_is_refused_where_it_is_written(taker, url):
    with pytest.raises(ValueError, match="the URL of Redis is redis://HOST:PORT") as raised:
        taker(url)
    assert "secret" not in str(raised.value)


def test_a_place_is_a_host_and_perhaps_a_port():
    assert [str(HostPort.parse(text)) for text in ("h", "h:1", "[::1]:2")] == ["h:0", "h:1", "[::1]:2"]


def test_the_url_with_its_password_is_not_shown():
    assert "secret" not in repr(RedisReplicas("redis://:secret@r"))


def test_what_is_not_there_is_said_not_to_be():
    with pytest.raises(AttributeError, match="has no attribute 'Reds'"):
        mcpbus.cluster.Reds  # noqa: B018
