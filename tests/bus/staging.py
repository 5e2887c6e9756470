"""A server whose handlers do nothing by themselves: the test speaks and ends in their place, when it chooses to."""

import json
from contextlib import asynccontextmanager

import trio

from mcpbus import Context, Limits, Server
from mcpbus.core.receipt import Location
from mcpbus.testing import open_bus, open_probe, wait_until_idle
from mcpbus.transports.lines import run_channel

HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
CLAIM = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Call:
    """One run of the tool `hold`."""

    def __init__(self, ctx):
        self.ctx = ctx
        self.outcome = "running"
        self._release = trio.Event()
        self._error = None

    def finish(self, error=None):
        self._error = error
        self._release.set()

    async def run(self):
        try:
            await self._release.wait()
        except trio.Cancelled:
            self.outcome = "cancelled"
            raise
        self.outcome = "returned"
        if self._error is not None:
            raise self._error


class Wire:
    """The client's end of a shared channel, down to the messages.

    Attributes:
        got: All that came so far.
        closed: Whether the server has let go of it.
    """

    def __init__(self, sender):
        self.got = []
        self.closed = False
        self._sender = sender
        self._reads = trio.Event()
        self._reads.set()

    async def say(self, method, params, request_id=None):
        body = {"jsonrpc": "2.0", "method": method, "params": params}
        await self._sender.send(
            json.dumps(body if request_id is None else {**body, "id": request_id}).encode() + b"\n"
        )

    async def send(self, data):
        await self._sender.send(data + b"\n")

    def hang_up(self):
        self._sender.close()

    def stall(self):
        """Take nothing more, until told to resume."""
        self._reads = trio.Event()

    def resume(self):
        self._reads.set()

    @property
    def stalled(self):
        return not self._reads.is_set()

    async def receive(self, data):
        await self._reads.wait()
        self.got += [json.loads(line) for line in data.splitlines()]


class OneTurn:
    """An actor that does all that it is told to in one turn."""

    def __init__(self, cell):
        pass

    def handle(self, deed):
        deed()


class Stage:
    """An open bus with the tool `hold`, a resource and a prompt, HTTP clients, and the calls that run."""

    def __init__(self, **options):
        self.server = Server("stage", version="1", **options)
        self.calls = {}

        @self.server.tool
        async def hold(ctx: Context, key: str = "") -> str:
            call = self.calls[key] = Call(ctx)
            await call.run()
            return f"held {key}"

        self.furnish(self.server)

    @staticmethod
    def furnish(server):
        """Give a server something of each kind."""

        @server.tool
        async def quick(ctx: Context) -> str:
            return "quick"

        @server.resource("res://a/b")
        async def resource() -> str:
            return "content"

        @server.prompt
        def prompt() -> str:
            return "say"

    async def call(self, key=""):
        """Wait until nothing moves, and return the run of `hold` that has this key."""
        await wait_until_idle(self.bus)
        return self.calls[key]

    @asynccontextmanager
    async def wire(self, revision=None):
        """Open a shared channel, initialized if a revision is given."""
        sender, receiver = trio.open_memory_channel(100)
        wire = Wire(sender)
        async with trio.open_nursery() as nursery, sender:
            nursery.start_soon(run_channel, self.bus, receiver, wire.receive)
            if revision is not None:
                await wire.say("initialize", {**HELLO, "protocolVersion": revision}, 0)
                await wait_until_idle(self.bus)
                await wire.say("notifications/initialized", {})
                await wait_until_idle(self.bus)
                wire.got.clear()
            yield wire
            sender.close()

    async def connect(self, revision):
        """Connect a client in process, and leave again."""
        async with self.bus.connect(revision=revision):
            pass

    async def quiet(self):
        await wait_until_idle(self.bus)

    def in_one_turn(self, deed):
        """Call `deed` so that what it tells actors is handled when it has returned, and not before."""
        self.bus.system.spawn(OneTurn).tell(deed)

    def books(self):
        """What is pending, where, and why messages were discarded."""
        assert self.bus.ledger.balance() == 0
        now = self.bus.statistics()
        return dict(now.pending), {reason.name: n for reason, n in now.discarded.items()}

    async def assert_nothing_is_left(self):
        """Everybody has gone: nothing is kept but sessions, and what these hold."""
        await wait_until_idle(self.bus)
        now = self.bus.statistics()
        assert (now.requests, set(now.pending) - {Location.HELD}) == (0, set())
        assert now.tasks <= 1, "a task besides the clock's"
        assert now.actors == now.sessions
        assert self.bus.ledger.balance() == 0


@asynccontextmanager
async def staged(*, limits=None, response="auto", http=None, drain_timeout=5.0, event_store=None, **options):
    """Open a stage; a limit is given by name."""
    stage = Stage(**options)
    async with (
        open_bus(
            stage.server,
            limits=Limits(**(limits or {})),
            event_store=event_store,
            drain_timeout=drain_timeout,
        ) as bus,
        open_probe(bus.asgi(response=response, **(http or {}))) as probe,
    ):
        stage.bus, stage.probe = bus, probe
        yield stage


def tool(key="", name="hold"):
    """The params of a call of `hold`."""
    return {"name": name, "arguments": {"key": key}}


def short(messages):
    """What messages are, in short: the method of a notification, or the id of a reply."""
    return [m.get("method", m.get("id", "error")) for m in messages]


def methods(recording):
    """What a recording has, in short."""
    return short(recording.messages)
