"""Servers of other SDKs on this bus, unchanged: `host` makes a `Hosted` of one, which is served like a `Server` or mounted in one."""

import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, get_args

import attrs

from mcpbus.bus import Bus
from mcpbus.bus_set import BusSet
from mcpbus.client.client import Client
from mcpbus.core.backend import Backend
from mcpbus.core.limits import Limits
from mcpbus.hosting.detect import FoundServer, find
from mcpbus.hosting.home import Home, TrioHome
from mcpbus.protocol.enums import LogLevel
from mcpbus.protocol.errors import sole_cause
from mcpbus.protocol.http.authentication import Authorizer
from mcpbus.protocol.keywords import explained
from mcpbus.protocol.request_state import StateSealer
from mcpbus.proxy import Proxy
from mcpbus.server_base import ServerBase
from mcpbus.server_options import OpenOptions

if TYPE_CHECKING:
    from mcpbus.asyncio.programs import Program
    from mcpbus.bus import Bus
    from mcpbus.server import Server
    from mcpbus.workers.worker import Worker

_log = logging.getLogger("mcpbus")


class HostedProxy(Proxy):
    """A proxy for a hosted server, which is open as long as the proxy is. Made by `Hosted.as_server`.

    Args:
        name: The name of the hosted server.
        open_bus: Opens it, as `Hosted.open`.
        checks_tokens: Whether it lets in only clients with a token. No token reaches it here, and the log warns of that.
        **options: As for `Proxy`.
    """

    def __init__(
        self,
        name: str,
        open_bus: Callable[[], AbstractAsyncContextManager[Bus[Any]]],
        *,
        checks_tokens: bool,
        **options: Any,
    ) -> None:
        super().__init__(self._connect, name=name, **options)
        self._open_bus = open_bus
        self._checks_tokens = checks_tokens
        self._bus: Bus[Any] | None = None

    @asynccontextmanager
    async def live(self) -> AsyncIterator[None]:
        """Open the hosted server, and be connected to it, for as long as the block lasts."""
        if self._checks_tokens:
            _log.warning(
                "%r checks tokens, and none reaches it within another server: each client of that may call it",
                self.name,
            )
        async with self._open_bus() as bus:
            self._bus = bus
            try:
                async with super().live():
                    yield
            finally:
                self._bus = None

    def _connect(self, **options: Any) -> AbstractAsyncContextManager[Client]:
        assert self._bus is not None  # noqa: S101 - it is live
        return self._bus.connect(**options)


Loop = Literal["asyncio", "trio"]
Stray = Literal["adopt", "session"]

_Method = TypeVar("_Method", bound=Callable[..., Any])

_ALL_LEVELS: Final = Limits(log_level=LogLevel.DEBUG)
"""Servers of other SDKs filter their log lines themselves."""


def _with_settings(method: _Method, *, binds: bool = True) -> _Method:
    """Have a method of `ServerBase` take the HTTP options that it is not given from the settings of the hosted server.

    Args:
        method: The method.
        binds: Whether it decides where the server listens.
    """

    @wraps(method)
    def with_settings(self: "Hosted", *args: Any, **given: Any) -> Any:
        own = getattr(
            super(Hosted, self), method.__name__
        )  # looked up late: a program is loaded with another `run`
        if "stdio" in (*args, given.get("transport")):
            return own(*args, **given)
        settings = {
            name: value for name, value in self.found.http_settings.items() if given.get(name) is None
        }
        if not binds or _has_bind(given.get("options")):
            settings.pop("bind", None)
        return own(*args, **given | settings)

    return with_settings  # type: ignore[return-value]  # it takes and returns the same


def _has_bind(options: object) -> bool:
    """Whether options of serving decide where to listen."""
    from mcpbus.serving.options import ServeOptions  # noqa: PLC0415 - what speaks HTTP is imported where it is used

    return isinstance(options, ServeOptions) and options.bind != ServeOptions().bind


class Hosted(ServerBase[Any]):
    """A server of another SDK, which is opened and served like a `Server`. Made by `host`.

    Attributes:
        found: The server, as its SDK has it.
        auth: The resource server of mcpbus that lets clients in; None if there is none.
    """

    def __init__(
        self,
        found: FoundServer,
        loop: Loop,
        stray: Stray,
        secret_keys: Sequence[bytes | str],
        *,
        routes: bool,
        program: "Program | None" = None,
    ) -> None:
        self.name = found.name
        self.found = found
        self.sealer = StateSealer(secret_keys)
        self.auth: Authorizer | None = None
        self._buses = BusSet(found.name)
        self._loop = loop
        self._stray = stray
        self._routes = routes
        self._program = program
        self._proxy: Server[Any] | None = None
        self._home: Home | None = None
        self._state: Any = None

    def as_server(self) -> "Server[Any]":
        """Return it as a server that can be mounted in another one: ``server.mount(hosted, prefix="notes")`` calls this.

        Its messages and input requests keep their requests. HTTP does not reach it there: no tokens, no header fields, no web
        routes.
        """
        if self._proxy is None:
            from mcpbus.hosted import HostedProxy  # noqa: PLC0415 - few servers are mounted

            self._proxy = HostedProxy(self.name, self.open, checks_tokens=self.knows_principals)
        return self._proxy

    @property
    def knows_principals(self) -> bool:
        """Whether it lets in only clients that it knows."""
        return self.auth is not None or self.found.checks_tokens

    @asynccontextmanager
    async def _open(self, opening: OpenOptions, worker: "Worker | None" = None) -> "AsyncIterator[Bus[Any]]":
        if opening.limits is None:
            opening = attrs.evolve(opening, limits=_ALL_LEVELS)
        async with super()._open(opening, worker) as bus:
            yield bus

    asgi = _with_settings(ServerBase.asgi, binds=False)
    serve = _with_settings(ServerBase.serve)
    run = _with_settings(ServerBase.run)

    @asynccontextmanager
    async def _entered(self) -> AsyncIterator[tuple[Any, Mapping[object, Any]]]:
        try:
            async with self._make_home().enter(self.found.lifespan()) as (home, state):
                self._home, self._state = home, state
                yield state, {}
        except Exception as error:
            if self._loop == "trio" and self._home is None:  # its lifespan failed to begin
                from mcpbus.hosting.asyncio_hint import explained as cause  # noqa: PLC0415 - few servers fail so

                raise cause(self.name, sole_cause(error)) from error
            raise
        finally:
            self._home = self._state = None
            if self._program is not None:
                await self._program.end()

    def _make_home(self) -> Home:
        if self._program is not None:
            return self._program.home()
        if self._loop == "trio":
            return TrioHome()
        from mcpbus.asyncio.home import AsyncioHome  # noqa: PLC0415 - a server on trio needs no asyncio

        return AsyncioHome()

    def _backend(self) -> Backend:
        assert self._home is not None  # noqa: S101 - it was entered
        if not self.found.has_kernel:
            from mcpbus.hosting.pipe_backend import PipeBackend  # noqa: PLC0415 - it imports the SDK

            return PipeBackend(self.found, self._home, self._stray, self.auth, serves_routes=self._routes)
        from mcpbus.hosting.kernel import KernelBackend  # noqa: PLC0415 - likewise

        return KernelBackend(
            self.found, self._home, self._state, self._stray, self.auth, serves_routes=self._routes
        )

    def __repr__(self) -> str:
        return f"<Hosted {self.name}: {self.found.family}, on {self._loop}>"


def host_program(program: "Program", server: object, options: object) -> Hosted:
    """Return the server that a program runs as one that is served in the event loop of the program.

    Raises:
        TypeError: It is one of a version that cannot be hosted.
    """
    return Hosted(find(server, options), "asyncio", "adopt", (), routes=True, program=program)


@explained
def host(
    server: object,
    *,
    loop: Loop = "asyncio",
    stray: Stray = "adopt",
    routes: bool = True,
    secret_keys: Sequence[bytes | str] = (),
) -> Hosted:
    """Return a server of another SDK as one that is opened and served by mcpbus, in this process.

    Args:
        server: An `MCPServer` or a low-level `Server` of the official SDK, a `FastMCP`, or a `FastApiMCP`. It stays as it is.
        loop: Where its code runs: in an asyncio loop, or on trio, which is faster and needs code that uses anyio alone.
        stray: Where a message goes that the server sends without a related request id while a request runs: "adopt" sends
            it with that request, "session" to the GET stream of the session.
        routes: Whether its web routes are served beside the endpoint: those of `custom_route`, of its OAuth server, and its
            metadata.
        secret_keys: As for `Server`.

    Raises:
        TypeError: An option is of another type; or it is no such server, or one of a version that cannot be hosted.
        ValueError: An option cannot be right.
    """
    for option, value, choices in (("loop", loop, Loop), ("stray", stray, Stray)):
        if value not in get_args(choices):
            raise ValueError(
                f"host(): {option} is one of {', '.join(map(repr, get_args(choices)))}, not {value!r}"
            )
    if not isinstance(routes, bool):
        raise TypeError(f"host(): routes is True or False, not {routes!r}")
    return Hosted(find(server), loop, stray, secret_keys, routes=routes)
