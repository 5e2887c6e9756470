"""The servers of the exchanges: what their tools do, and how they are opened."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any, TypeAlias

import attrs
import msgspec
import trio

from mcpbus import Context, Limits, Server, ToolError, UnauthorizedError
from mcpbus.bus import Bus
from mcpbus.stores import MemoryEventStore
from mcpbus.testing import InMemoryIssuer, open_bus

Region: TypeAlias = Annotated[str, msgspec.Meta(extra_json_schema={"x-mcp-header": "Region"})]
BODY_LIMIT = 40_000
"""Bytes of the longest body: past 16 KiB, from which on a task waits for a body."""


class House:
    """One server, and what its program does while a client waits.

    Attributes:
        server: The server.
        journal: What handlers did, in order.
        go: Set to let the handlers go on that wait.
    """

    def __init__(self, **options: Any) -> None:
        self.server = Server("house", version="1", **options)
        self.journal: list[str] = []
        self.go = trio.Event()
        self.sessions: list[Any] = []
        self.issuer: InMemoryIssuer | None = None
        self.bus: Bus
        self.app: Any
        _add_short_tools(self.server)
        _add_waiting_tools(self)
        _add_asking_tools(self.server)
        _add_other_features(self.server)

    def begin(self) -> None:
        """Forget what another client of the same house has done."""
        self.journal.clear()
        self.sessions.clear()
        self.go = trio.Event()

    def act(self, action: str) -> None:
        """Do what a step names."""
        if action == "go":
            self.go.set()
        elif action == "update":
            self.bus.resource_updated("note://a")
        elif action == "news":
            for session in self.sessions:
                session.notify("notifications/news", {"about": "session"})
        elif action == "drain":
            self.bus.announce_drain()
        else:
            raise ValueError(action)


def _add_short_tools(server: Server) -> None:
    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.tool
    async def burst(ctx: Context, steps: int = 2) -> str:
        for step in range(steps):
            await ctx.progress(step + 1, steps)
            await ctx.info(f"line {step + 1}")
        return "burst"

    @server.tool
    async def steps(ctx: Context, count: int = 2, seconds: float = 0.5) -> str:
        for step in range(count):
            await ctx.progress(step + 1, count)
            await trio.sleep(seconds)
        return "steps"

    @server.tool
    async def nap(seconds: float = 0.5) -> str:
        await trio.sleep(seconds)
        return "rested"


def _add_waiting_tools(house: House) -> None:
    server, journal = house.server, house.journal

    @server.tool
    async def hold(ctx: Context, key: str = "", words: int = 0) -> str:
        for word in range(words):
            await ctx.progress(word + 1)
        try:
            await house.go.wait()
        except trio.Cancelled:
            journal.append(f"{key or 'hold'} cancelled")
            raise
        await ctx.progress(words + 1)
        journal.append(f"{key or 'hold'} returned")
        return "held"

    @server.tool
    async def remember(ctx: Context) -> str:
        house.sessions.append(ctx.session)
        return "remembered"


def _add_asking_tools(server: Server) -> None:
    @server.tool
    async def ask(ctx: Context) -> str:
        return repr(await ctx.elicit("Name?", str, key="k"))

    @server.tool
    async def ask_late(ctx: Context) -> str:
        await ctx.info("about to ask")
        return repr(await ctx.elicit("Name?", str, key="k"))

    @server.tool
    async def fail(words: int = 0) -> str:
        raise ToolError("no such thing")

    @server.tool
    async def crash(ctx: Context, words: int = 0) -> str:
        for word in range(words):
            await ctx.progress(word + 1)
        raise RuntimeError("a fault of the author")

    @server.tool
    async def large(size: int = 40_000) -> str:
        return "x" * size


def _add_other_features(server: Server) -> None:
    @server.tool
    async def route(region: Region = "") -> str:
        return region

    @server.resource("note://a")
    async def note() -> str:
        return "a note"

    @server.prompt
    async def greet(who: str) -> str:
        return f"Greet {who}"


async def _quick(head: Any) -> str:
    return _named(head)


async def _slow(head: Any) -> str:
    await trio.sleep(0.2)
    return _named(head)


def _named(head: Any) -> str:
    token = head.headers.get(b"authorization")
    if token == "Bearer ada":
        return "ada"
    if token == "Bearer eve":
        raise UnauthorizedError('Bearer error="insufficient_scope"', status=403)
    if token == "Bearer crash":
        raise RuntimeError("a fault of the author")
    raise UnauthorizedError('Bearer realm="house"')


@attrs.frozen
class Place:
    """How one server is opened and served."""

    limits: dict[str, Any] = attrs.field(factory=dict)
    http: dict[str, Any] = attrs.field(factory=dict)
    keeps: bool = False
    authenticate: Callable[..., Any] | None = None
    protected: bool = False


_SMALL = {"max_body_bytes": BODY_LIMIT}
PLACES = {
    "plain": Place(http=_SMALL),
    "kept": Place(http=_SMALL, keeps=True),
    "json": Place(http={**_SMALL, "response": "json"}),
    "sse": Place(http={**_SMALL, "response": "sse"}),
    "stateless": Place(http={**_SMALL, "sessions": "stateless"}),
    "no GET": Place(http={**_SMALL, "get_streams": False, "http_sse": False, "websocket": False}),
    "open": Place(
        http={**_SMALL, "allowed_hosts": ["api.example"], "allowed_origins": ["https://app.example"]}
    ),
    "quick names": Place(http=_SMALL, authenticate=_quick),
    "slow names": Place(http=_SMALL, authenticate=_slow),
    "tokens": Place(http=_SMALL, protected=True),
    "one request": Place(http=_SMALL, limits={"max_requests": 1}),
    "one session": Place(http=_SMALL, limits={"max_sessions": 1, "max_requests_per_session": 1}),
    "few listens": Place(http=_SMALL, limits={"max_listens": 1}),
    "brief": Place(
        http=_SMALL,
        limits={"keep_alive": 2.0, "body_timeout": 2.0, "abandoned_timeout": 1.0, "input_timeout": 3.0},
    ),
}


@asynccontextmanager
async def open_house(name: str, **options: Any) -> AsyncIterator[House]:
    """Open the server of one place; `options` are further ones of `open_bus`."""
    place = PLACES[name]
    issuer = InMemoryIssuer() if place.protected else None
    house = House() if issuer is None else House(auth=issuer.protect())
    house.server.authenticate = place.authenticate
    if issuer is not None:
        house.issuer = issuer

        @house.server.tool(scopes=["notes:write"])
        async def scoped() -> str:
            return "written"

    store = MemoryEventStore() if place.keeps else None
    async with open_bus(house.server, limits=Limits(**place.limits), event_store=store, **options) as bus:
        house.bus = bus
        house.app = bus.asgi(**place.http)
        yield house
