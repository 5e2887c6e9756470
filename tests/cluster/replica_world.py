"""A world of replicas, their Redis and their clients, in which a list of steps happens, and what was found wrong in it.

The replicas are real buses with the directory of Redis, whose scripts run; the network, Redis and time are not. A step is a
tuple of a verb, what it is about, and the seconds until the next one. Each client has one session, asks any replica, and writes down what
it hears.
"""

import logging
import random
import re
import traceback
from contextlib import AsyncExitStack, suppress
from unittest import mock

import trio
import trio.testing
from lua_redis import LuaRedis
from several import at
from troubled_network import HERE, Directory, Network

from mcpbus import Context, Server
from mcpbus.cluster import redis_directory
from mcpbus.cluster import redis_scripts as scripts
from mcpbus.cluster.directory import Cluster
from mcpbus.core.admission import ServerOverloaded
from mcpbus.core.receipt import FateKind, Location
from mcpbus.protocol.routes import Reason
from mcpbus.testing import StreamEndedError, open_bus, open_probe

LEASE = 2.0
REPLICAS = 3
CLIENTS = 2
LONG = 6.0
"""Seconds after which a lease has lapsed, whatever happened."""
ANSWERED = 60.0
"""Seconds within which each call has to end."""
SAID = "notifications/said"
FORM = {"type": "object", "properties": {"name": {"type": "string"}}}
ANSWER = {"action": "accept", "content": {"name": "Ada"}}
CLEAR = (
    "whether it had an effect is not known",
    "shutting down",
    "has ended",
    "cannot be asked: another process has its session",
)
"""What an error says of a call that has no answer."""
WRITES = (scripts.CREATE, scripts.UPDATE, scripts.HOLD, scripts.RELEASE)


def make(ran):
    """A server that notes in `ran` which calls it runs."""
    server = Server("world")

    @server.tool
    async def act(token: str) -> str:
        ran.append(token)
        return token

    @server.tool
    async def count(ctx: Context, token: str) -> str:
        ran.append(token)
        for number in range(3):
            await ctx.progress(number)
            await trio.sleep(1)
        return token

    @server.tool
    async def ask(ctx: Context, token: str) -> str:
        ran.append(token)
        await ctx.elicit(token, FORM)
        return token

    return server


class Replica:
    """A process, and those that come in its place when it has ended.

    Attributes:
        number: By which steps name it.
        bus: The bus that is open; None if there is none at the moment.
    """

    def __init__(self, world, number):
        self.world, self.number = world, number
        self.bus = self.probe = None
        self.starts = 0

    async def run(self, *, task_status=trio.TASK_STATUS_IGNORED):
        while not self.world.over:
            with trio.CancelScope() as self.life:
                await self._live(task_status)
            self.world.network.dead.discard(self.number)
            task_status = trio.TASK_STATUS_IGNORED
            await trio.sleep(not self.world.over)

    async def _live(self, task_status):
        self.starts += 1
        HERE.set(self.number)
        directory = Directory(self.world.network, self.world.redis, self.number, LEASE)
        cluster = Cluster(
            directory=directory,
            keys=[bytes(32)],
            home=f"{'abc'[self.number]}{self.starts:07}",
            patience=2 * LEASE,
            silence=LEASE,
        )
        self.ends = trio.Event()
        async with AsyncExitStack() as stack:
            try:
                bus = await stack.enter_async_context(open_bus(make(self.world.ran), cluster=cluster))
            except Exception:  # noqa: BLE001 - Redis is down: it is tried again
                return
            self.world.opened.append(bus)
            probe = await stack.enter_async_context(open_probe(bus.asgi(), shell="asgi"))
            self.bus, self.probe = bus, probe
            task_status.started()
            await self.ends.wait()
            await bus.drain(2)
            self.bus = None

    def kill(self):
        """End it without a word: nobody hears of what it still does."""
        if self.bus is not None:
            self.world.network.dead.add(self.number)
            self.world.network.changed()
            for recording in self.probe.recordings:
                recording.disconnect()
            self.bus = None
            self.life.cancel()

    def drain(self):
        """End it in order."""
        if self.bus is not None:
            self.ends.set()


class Client:
    """Who has one session, and notes what it hears of it.

    Attributes:
        number: By which steps name it.
        streams: All GET streams that it has had.
        since: Of each thing that was said to it, the place of the newest stream that had begun before.
        left: Whether it may have missed something: a stream of it was cut off, or it has gone away.
        deleted: Whether it has ended its session.
    """

    def __init__(self, world, number, session):
        self.world, self.number, self.session = world, number, session
        self.streams, self.receipts, self.levels = [], {}, ["info"]
        self.left = self.deleted = False
        self.since = {}
        self.calls = 0

    def token(self):
        self.calls += 1
        return f"{self.number}.{self.calls}"

    def anywhere(self, replica):
        return at(self.session, replica.probe)

    async def call(self, tool, replica):
        token = self.token()
        params = {"name": tool, "arguments": {"token": token}}
        asked = self.anywhere(replica).request("tools/call", params, id=token, progress_token=token)
        if tool == "ask":
            await self._answer(asked)
        if not await self._has_ended(asked, f"{tool} {token}") or asked.status != 200:
            return
        said, replies = [], []
        for message in asked.messages:
            (said if "method" in message else replies).append(message)
        for message in said:
            if message.get("params", {}).get("progressToken", token) != token:
                self.world.fault(f"{tool} {token} heard {message}")
        for reply in replies:
            self._judge(reply, token)
        if len(replies) != 1 and not (self.deleted and not replies):
            self.world.fault(f"{tool} {token} was answered {len(replies)} times")

    def _judge(self, reply, token):
        if reply.get("id") != token:
            self.world.fault(f"{token} was answered {reply}")
        elif "error" in reply:
            if not any(words in reply["error"]["message"] for words in CLEAR):
                self.world.fault(f"{token} was answered with an error that says nothing: {reply}")
        elif reply["result"]["content"][0]["text"] != token:
            self.world.fault(f"{token} was answered {reply}")
        elif self.world.ran.count(token) != 1:
            self.world.fault(f"{token} was answered, and has run {self.world.ran.count(token)} times")

    async def _answer(self, asked):
        """Answer a question, again and again: who takes it may not know yet that it has lost the session."""
        with suppress(StreamEndedError, trio.TooSlowError):
            question = await asked.message(ANSWERED)
            while "method" in question and not asked.over:
                replica = await self.world.living()
                answered = self.anywhere(replica).answer(question["id"], ANSWER)
                await self._has_ended(answered, "an answer")
                with trio.move_on_after(1):
                    await asked.ended()

    async def _has_ended(self, asked, what):
        """Wait for the end, and return whether that was an answer."""
        try:
            await asked.ended(ANSWERED)
        except trio.TooSlowError:
            self.world.fault(f"{what} has not ended: {asked}")
            return False
        if asked.status == 404 and not self.deleted and not self.world.excused:
            self.world.fault(f"{what} was answered 404")
        elif asked.status not in {None, 200, 202, 204, 404, 503}:
            self.world.fault(f"{what} was answered {asked.status} {asked.body}")
        return asked.complete

    async def listen(self, replica):
        stream = self.anywhere(replica).get()
        self.streams.append(stream)
        await stream.begun(ANSWERED)
        if stream.over:
            await self._has_ended(stream, "a GET")

    def leave(self):
        for stream in self.streams:
            if not stream.over:
                self.left = True
                stream.disconnect()

    async def set_level(self, replica, level):
        self.levels.append(level)
        asked = self.anywhere(replica).request("logging/setLevel", {"level": level})
        if (
            await self._has_ended(asked, "setLevel")
            and asked.status == 200
            and "result" in (asked.messages or [{}])[-1]
            and self.levels[-1] == level
        ):
            self.levels = [level]

    async def delete(self, replica):
        self.deleted = True
        await self._has_ended(self.anywhere(replica).delete(), "DELETE")

    async def say(self, replica):
        """Have something be said to it, by whoever is at that replica."""
        number = len(self.world.said)
        self.world.said.append(self)
        begun = [place for place, stream in enumerate(self.streams) if stream.status == 200]
        self.since[number] = max(begun, default=0)
        with suppress(ServerOverloaded):
            found = await replica.bus.find_session(self.session.id, None)
            if found is not None:
                self.receipts[number] = found.notify(SAID, {"number": number})

    def heard(self):
        """The numbers of what it was told, on all its streams."""
        return [number for _, number in self.heard_where()]

    def heard_where(self):
        """The same, each with the place of the stream."""
        for place, stream in enumerate(self.streams):
            for message in stream.messages:
                if message.get("method") == SAID:
                    yield place, message["params"]["number"]


class World:
    """All of them.

    Attributes:
        faults: What was found to be wrong.
        over: Whether the replicas that end are the last ones.
        excused: Whether a session may be unknown: Redis has lost it, and somebody who knew it could not say so.
    """

    def __init__(self, steps):
        self.steps = steps
        self.faults = []
        self.excused = self.over = False
        self.ran, self.opened, self.said = [], [], []
        self._epochs = {}
        self._lost_data = self._lost_somebody = False
        self._forgotten = set()

    def fault(self, what):
        if what not in self.faults:
            self.faults.append(what)

    def run(self):
        """Let the steps happen; the same ones happen the same each time."""
        random.seed(0)
        trio._core._run._r.seed(0)
        logger = logging.getLogger("mcpbus")
        before = logger.level
        logger.setLevel(logging.CRITICAL)
        try:
            with mock.patch.object(trio._core._run, "_ALLOW_DETERMINISTIC_SCHEDULING", True):
                trio.run(self._main, clock=trio.testing.MockClock(autojump_threshold=0))
        except Exception as error:  # noqa: BLE001 - a crash is a fault like others
            self.fault("".join(traceback.format_exception(error))[-3000:])
        finally:
            logger.setLevel(before)
        return self

    async def _main(self):
        self.network, self.redis = Network(), LuaRedis()
        self.redis.done = self._note
        self._copy = self.redis.copy()
        with mock.patch.object(redis_directory, "tcp", self.network):
            async with trio.open_nursery() as self.nursery:
                self.replicas = [Replica(self, number) for number in range(REPLICAS)]
                for replica in self.replicas:
                    await self.nursery.start(replica.run)
                self.clients = []
                for number in range(CLIENTS):
                    session = await self.replicas[number].probe.initialize(capabilities={"elicitation": {}})
                    self.clients.append(Client(self, number, session))
                async with trio.open_nursery() as self.doing:
                    for verb, *arguments, seconds in self.steps:
                        await getattr(self, f"{verb}_")(*arguments)
                        await trio.sleep(seconds)
                        self._look()
                await self._end()
                self.over = True
                for replica in self.replicas:
                    replica.drain()
        self._look()

    # -- steps -------------------------------------------------------------------------------------

    async def living(self, number=0):
        """Return a replica that serves: that one, or the next."""
        while True:
            for each in range(REPLICAS):
                replica = self.replicas[(number + each) % REPLICAS]
                if replica.bus is not None:
                    return replica
            await trio.sleep(0.5)

    async def _have(self, client, deed, number, *arguments):
        async def have():
            await getattr(self.clients[client], deed)(await self.living(number), *arguments)

        self.doing.start_soon(have)
        await trio.testing.wait_all_tasks_blocked()

    async def call_(self, client, tool, number):
        async def have():
            await self.clients[client].call(tool, await self.living(number))

        self.doing.start_soon(have)

    async def listen_(self, client, number):
        await self._have(client, "listen", number)

    async def say_(self, client, number):
        await self._have(client, "say", number)

    async def level_(self, client, number, level):
        await self._have(client, "set_level", number, level)

    async def delete_(self, client, number):
        await self._have(client, "delete", number)

    async def leave_(self, client):
        self.clients[client].leave()

    async def kill_(self, number):
        self._lose_somebody()
        for client in self.clients:
            client.left = True
        self.replicas[number].kill()

    async def drain_(self, number):
        self._lose_somebody()
        self.replicas[number].drain()

    async def isolate_(self, number, seconds):
        """Have one be cut off from everybody but its clients."""
        pairs = {frozenset((number, other)) for other in range(REPLICAS)}
        self._lose_somebody()
        self.doing.start_soon(self._trouble, self.network.half_open, pairs, seconds)
        self.doing.start_soon(self._trouble, self.network.away, {number}, seconds)

    async def away_(self, number, seconds):
        self._lose_somebody()
        self.doing.start_soon(self._trouble, self.network.away, {number}, seconds)

    async def cut_(self, one, other, seconds):
        self.doing.start_soon(self._trouble, self.network.cut, {frozenset((one, other))}, seconds)

    async def half_open_(self, one, other, seconds):
        self.doing.start_soon(self._trouble, self.network.half_open, {frozenset((one, other))}, seconds)

    async def _trouble(self, kind, what, seconds):
        for client in self.clients:
            client.left = True
        kind |= what
        self.network.changed()
        await trio.sleep(seconds)
        kind -= what
        self.network.changed()

    async def redis_(self, mode, seconds):
        async def trouble():
            self.network.mode = mode
            await trio.sleep(seconds)
            self.network.mode = "up"

        self._lose_somebody()
        self.doing.start_soon(trouble)

    async def empty_(self):
        self._lose_data({}, {})

    async def copy_(self):
        """A replica of Redis is as far as this from now on."""
        self._copy = self.redis.copy()

    async def fail_over_(self):
        self._lose_data(*self._copy)
        self._copy = self.redis.copy()

    def _lose_data(self, *left):
        before = [(self._epoch(client), self._kept(client)) for client in self.clients]
        self.redis.restore(*left)
        for client, (epoch, kept) in zip(self.clients, before, strict=True):
            # Redis has lost that it was taken. Whoever has the session next says it once more: who knew of it may have ended as well.
            self._forgotten |= self._kept(client) - kept
            if self._epoch(client) < epoch:
                # It has lost who had the session, and one that had it before may go on with it, and say what it held.
                self._forgotten |= {number for number, whose in enumerate(self.said) if whose is client}
        self._lost_data = True
        self._epochs.clear()
        self.excused = self._lost_somebody

    def _epoch(self, client):
        return int(self.redis.call("HGET", f"{{n}}:s:{client.session.id}", "e") or 0)

    def _kept(self, client):
        """The numbers of what waits for a client in Redis."""
        kept = self.redis.call("HGETALL", f"{{n}}:h:{client.session.id}")[1::2]
        return {int(number) for message in kept for number in re.findall(rb'"number":(\d+)', message)}

    def _lose_somebody(self):
        self._lost_somebody = True
        self.excused = self._lost_data

    # -- what is looked at -------------------------------------------------------------------------

    def _note(self, script, keys, arguments, answer):
        """At most one process writes in an epoch of a session, and none of an earlier one."""
        if script not in WRITES or answer != scripts.DONE:
            return
        name, home, epoch = keys[0], arguments[0], int(arguments[1])
        had = self._epochs.get(name, (0, home))
        if epoch < had[0] or (epoch == had[0] and home != had[1]):
            self.fault(f"{home} wrote in epoch {epoch}, after {had[1]} in epoch {had[0]}")
        self._epochs[name] = (epoch, home)

    def _look(self):
        """What has to be so at any moment."""
        for bus in self.opened:
            if bus.ledger.balance() != 0:
                self.fault(f"the books of {bus.node.home} do not balance: {bus.ledger.balance()}")
        heard = set()
        for client in self.clients:
            for place, number in client.heard_where():
                if self.said[number] is not client:
                    self.fault(f"{number} was heard on the stream of client {client.number}")
                elif number in heard and number not in self._forgotten:
                    self.fault(f"{number} was heard twice")
                elif place < client.since[number] and not self._lost_data:
                    self.fault(f"{number} was heard on a stream that was the older one when it was said")
                heard.add(number)

    async def _end(self):
        """All is well again: what has to be so then."""
        await trio.sleep(2 * LONG)
        clients = [client for client in self.clients if not client.deleted]
        for client in clients:
            for replica in self.replicas:
                pinged = await client.anywhere(replica).request("ping").ended(ANSWERED)
                if pinged.status == 404 and self.excused:
                    client.deleted = True
                elif pinged.status != 200:
                    self.fault(f"client {client.number} is answered {pinged.status} in the end")
        clients = [client for client in clients if not client.deleted]
        await self._validate_speaking(clients)
        self._look()
        for client in clients:
            self._validate_level(client)
            for number, receipt in client.receipts.items():
                self._validate_receipt(client, number, receipt)
        self._validate_owners(clients)

    async def _validate_speaking(self, clients):
        last = {}
        for client in clients:
            await client.listen(self.replicas[client.number])
            for replica in self.replicas:
                last[len(self.said)] = client
                await client.say(replica)
        await trio.sleep(LONG)
        for number, client in last.items():
            if number not in client.heard():
                self.fault(f"{number} was said in the end, and not heard")

    def _validate_receipt(self, client, number, receipt):
        heard = number in client.heard()
        if receipt.fate is None:
            if receipt.location is not Location.REMOTE:
                self.fault(f"{number} is still pending, {receipt.location}")
        elif receipt.fate.kind is FateKind.DELIVERED and not heard and not client.left:
            self.fault(f"{number} is said to be delivered, and was not heard")
        elif heard and receipt.fate.reason in {Reason.OVERFLOW, Reason.UNREACHABLE}:
            self.fault(f"{number} was heard, and is said to be {receipt.fate}")

    def _validate_level(self, client):
        buses = [replica.bus for replica in self.replicas if client.session.id in replica.bus.sessions]
        if not self.excused and len(buses) == 1:
            level = buses[0].sessions[client.session.id].log_level
            if (level and level.value) not in client.levels:
                self.fault(f"the level of client {client.number} is {level}, and not in {client.levels}")

    def _validate_owners(self, clients):
        owners = {
            client.session.id: self.redis.call("HGET", f"{{n}}:s:{client.session.id}", "o").decode()
            for client in clients
        }
        found = [(name, r.bus.node.home) for r in self.replicas for name in r.bus.sessions if name in owners]
        if sorted(found) != sorted(owners.items()):
            self.fault(f"Redis says that sessions are at {owners}, and they are at {found}")
