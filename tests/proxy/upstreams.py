"""Servers that proxies stand for in tests, in the same process and on virtual time, with all connections to them counted."""

from contextlib import asynccontextmanager
from functools import partial

import attrs
import msgspec
import trio
from msgspec.structs import replace

from mcpbus import Context, ResourceNotFoundError, Server
from mcpbus.asking import Elicit
from mcpbus.client.errors import ClientError
from mcpbus.proxy import Proxy
from mcpbus.testing import open_bus

OLD, NEW = "2025-11-25", "2026-07-28"
ELICITATION = {"elicitation": {}}


class Upstream:
    """The other server: opened, and connected to by whoever calls `connect`.

    Attributes:
        bus: Its bus.
        clients: All clients that were connected, with what each declared.
        connected: How many are connected now.
        down: Why nobody can connect, while that is so.
        refused: A revision that it does not speak, though it is asked to.
        slow: How many seconds it takes to connect.
        scoped: Whether connections say to which request belongs what is said.
        lists_templates: Whether it lists the templates that it has.
        declares: The capabilities that it declares instead, if they are others.
        results: What it answers instead, or how it refuses, by the method; servers of others say what ours never does.
    """

    def __init__(self, bus, revision):
        self.bus = bus
        self.revision = revision
        self.clients = []
        self.connected = 0
        self.down = None
        self.refused = None
        self.slow = 0
        self.scoped = False
        self.lists_templates = True
        self.declares = None
        self.results = {}

    @asynccontextmanager
    async def connect(self, *, capabilities, revision=None):
        await trio.sleep(self.slow)
        revision = revision or self.revision
        if self.down is not None or self.refused == revision:
            raise ClientError(self.down or f"the server does not speak {revision}")
        async with self.bus.connect(revision=revision, capabilities=capabilities) as client:
            client.scoped = self.scoped
            if not self.lists_templates:
                client.list_resource_templates = _nothing
            client.request_in_rounds = partial(self._answer, client.request_in_rounds)
            client.describe = partial(self._describe, client.describe)
            self.clients.append(client)
            self.connected += 1
            try:
                yield client
            finally:
                self.connected -= 1

    async def _describe(self, describe):
        described = await describe()
        return described if self.declares is None else replace(described, capabilities=self.declares)

    async def _answer(self, ask, method, *given, **options):
        if method not in self.results:
            return await ask(method, *given, **options)
        result = self.results[method]
        if isinstance(result, Exception):
            raise result
        if options.get("shallow"):
            return {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in result.items()}
        return result

    def lose(self, client):
        """Have a connection be lost."""
        client.disconnected("it was cut")

    @property
    def declared(self):
        """What the clients have declared that were connected, in order."""
        return [client.capabilities for client in self.clients]


async def _nothing():
    return []


@asynccontextmanager
async def upstream(server, revision=NEW, **options):
    async with open_bus(server, **options) as bus:
        yield Upstream(bus, revision)


def proxy_of(reached, *, program=False, negotiates=False, **options):
    """A proxy of an upstream; each connection stands for a process of its own if `program`."""
    proxy = Proxy(reached.connect, **options)
    proxy._upstream = attrs.evolve(proxy._upstream, program=program, negotiates=negotiates)
    return proxy


def weather():  # noqa: C901 - a list
    """A server with some of everything."""
    server = Server("weather", version="1.2", title="The weather", instructions="Ask for the weather.")
    server.begun, server.cancelled = trio.Event(), trio.Event()

    @server.tool(title="Forecast")
    async def forecast(city: str, ctx: Context, days: int = 2) -> list[str]:
        """Forecast the weather of a city."""
        for day in range(days):
            await ctx.progress(day + 1, days, f"day {day + 1}")
        await ctx.info(f"forecast for {city}")
        await ctx.debug("only for who wants to know")
        await ctx.notify("notifications/acme", {"city": city})
        return ["rain"] * days

    @server.tool
    async def ask(ctx: Context, times: int = 1) -> str:
        answers = [await ctx.elicit(f"Question {n + 1}?", str) for n in range(times)]
        return " ".join(str(getattr(each, "data", type(each).__name__)) for each in answers)

    @server.tool
    async def ask_twice_at_once(ctx: Context) -> str:
        answers = await ctx.ask_all({"a": Elicit("A?", str), "b": Elicit("B?", str)})
        return f"{answers['a'].data} {answers['b'].data}"

    @server.tool
    async def hang() -> None:
        server.begun.set()
        try:
            await trio.sleep_forever()
        finally:
            server.cancelled.set()

    @server.tool
    async def who(ctx: Context) -> str:
        session = ctx.session
        return "nobody" if session is None else str(session.state.setdefault("calls", []))

    @server.tool
    async def count(ctx: Context) -> int:
        state = ctx.session.state
        state["n"] = state.get("n", 0) + 1
        return state["n"]

    @server.tool
    async def meta(ctx: Context) -> dict:
        return {
            name: value for name, value in ctx.meta.items() if not name.startswith("io.modelcontextprotocol/")
        }

    @server.resource("data://cities", title="Cities")
    async def cities() -> str:
        return "Oslo"

    @server.resource("data://{city}/now")
    async def now(city: str) -> str:
        if city == "Atlantis":
            raise ResourceNotFoundError("it sank")
        return f"{city}: rain"

    @server.prompt
    async def pack(city: str, days: int = 3) -> str:
        """What to pack."""
        return f"Pack for {days} days in {city}"

    @server.completion("pack", "city")
    async def complete(typed: str, chosen: dict[str, str]) -> list[str]:
        return [f"Oslo for {chosen.get('days')}"] if "Oslo".startswith(typed) else []

    return server
