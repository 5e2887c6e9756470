"""What is between replicas, and between each of them and Redis, on virtual time: all of it can be cut, half open, slow or away."""

from contextvars import ContextVar

import trio
import trio.testing

from mcpbus.cluster.redis_directory import RedisDirectory
from mcpbus.cluster.tcp import HostPort
from mcpbus.core.stores.redis.commands import RedisDownError

HERE = ContextVar("HERE")
"""Which replica dials."""

_TIMEOUT = 1.0
"""Seconds after which a command is given up."""


class Network:
    """Leads from one replica to the other, and to Redis; each replica is known by a number, which is its port.

    Attributes:
        mode: How Redis is: "up", "down", "slow"; "lossy", where it does what it is asked and the answer is lost, so that it is asked once
            more; or "deaf", where that comes to nothing either.
        away: Replicas that do not reach Redis.
        cut: Pairs of replicas that do not reach each other.
        half_open: Pairs between whom nothing passes, and neither is told.
        dead: Replicas that have been killed.
    """

    def __init__(self):
        self.mode = "up"
        self.away, self.cut, self.half_open, self.dead = set(), set(), set(), set()
        self._accepting = {}
        self._wires = []
        self._changed = trio.Event()

    def changed(self):
        """Have what waits for the network look again, and end what cannot be any more."""
        self._changed.set()
        self._changed = trio.Event()
        for wire in [*self._wires]:
            if wire.pair in self.cut or self.dead.intersection(wire.pair):
                wire.lose()

    async def opened(self, pair):
        """Wait until something passes between two."""
        while pair in self.half_open:
            await self._changed.wait()

    # -- as `mcpbus.cluster.tcp` is used by a directory --------------------------------------------

    async def listen(self, _place):
        await trio.lowlevel.checkpoint()
        return _Listener(HERE.get())

    async def serve(self, listener, accept, _tls):
        async with trio.open_nursery() as nursery:
            self._accepting[listener.number] = lambda stream: nursery.start_soon(accept, stream)
            try:
                await trio.sleep_forever()
            finally:
                del self._accepting[listener.number]

    async def dial(self, place, _tls):
        here, there = HERE.get(), place.port
        pair = frozenset((here, there))
        await self.opened(pair)
        if pair in self.cut or there not in self._accepting or self.dead.intersection(pair):
            raise OSError("nobody is there")
        wires = [Wire(self, pair, stream) for stream in trio.testing.memory_stream_pair()]
        self._wires += wires
        self._accepting[there](wires[1])
        return wires[0]


class _Listener:
    def __init__(self, number):
        self.number = number
        self.socket = self

    def getsockname(self):
        return ("127.0.0.1", self.number)


class Wire(trio.abc.Stream):
    """One end of a connection, on which bytes wait while nothing passes."""

    def __init__(self, network, pair, stream):
        self.pair = pair
        self._network, self._stream = network, stream
        self._came = None

    async def send_all(self, data):
        await self._network.opened(self.pair)
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self):
        await self._network.opened(self.pair)

    async def receive_some(self, max_bytes=None):
        if self._came is None:
            self._came = await self._stream.receive_some(max_bytes)
        await self._network.opened(self.pair)
        came, self._came = self._came, None
        return came

    def lose(self):
        self._network._wires.remove(self)
        self._stream.send_stream.close()
        self._stream.receive_stream.close()

    async def aclose(self):
        if self in self._network._wires:
            self.lose()
        await trio.lowlevel.checkpoint()


class Connection:
    """A replica's connection to Redis, in the place of a `RedisConnection`."""

    def __init__(self, network, redis, number):
        self._network, self._redis, self._number = network, redis, number

    async def call(self, *command, within=None):
        return await self._ask(lambda: self._redis.call(*command), within)

    async def run(self, script, keys=(), arguments=(), *, within=None):
        return await self._ask(lambda: self._redis.run(script, keys, arguments), within)

    async def _ask(self, do, within):
        mode = "down" if self._number in self._network.away | self._network.dead else self._network.mode
        await trio.sleep({"slow": 0.7, "down": within or _TIMEOUT}.get(mode, 0.0005))
        if mode == "down":
            raise RedisDownError("Redis could not be reached")
        answer = do()
        if mode == "deaf":
            await trio.sleep(within or _TIMEOUT)
            raise RedisDownError("Redis did not answer")
        if mode == "lossy":
            await trio.sleep(0.05)
            answer = do()
        await trio.sleep(0.0005)
        return answer


class Directory(RedisDirectory):
    """That of one replica, who is known when it dials."""

    def __init__(self, network, redis, number, lease):
        place = HostPort("127.0.0.1", 0)
        connection = Connection(network, redis, number)
        super().__init__(connection, "{n}", link=place, advertise=place, lease=lease, tls=None)
        self._number = number

    async def listen(self, *given, **named):
        HERE.set(self._number)
        await super().listen(*given, **named)

    async def dial(self, home):
        HERE.set(self._number)
        return await super().dial(home)
