"""What an author writes: a `Server`, which is described with decorators, and can be opened and served."""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
)
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, Unpack

import attrs
import trio

from mcpbus.bus import Bus
from mcpbus.core.hub import open_hub
from mcpbus.core.limits import DRAIN_SECONDS, Limits
from mcpbus.core.nursery import background
from mcpbus.core.receipt import Broadcast
from mcpbus.core.state import StateT
from mcpbus.core.stores.protocol import EventStore, TaskStore
from mcpbus.dispatch.backend import FeaturesBackend
from mcpbus.dispatch.runner import Middleware, Runner
from mcpbus.ending import tell_of_threads
from mcpbus.features.catalogue import Capability
from mcpbus.features.definition import Definition
from mcpbus.features.errors import RegistrationError
from mcpbus.features.function import sole_cause
from mcpbus.features.keywords import check_functions, check_lists
from mcpbus.features.mounting import Mount, read_prefix
from mcpbus.features.tool import Visible
from mcpbus.lifespans import check_lifespan, enter_lifespan
from mcpbus.membership import begin_worker, meet, open_node
from mcpbus.program import check_startable, until_input_ends, until_signalled
from mcpbus.protocol.http.authentication import Authorizer
from mcpbus.protocol.keywords import explained, explained_as
from mcpbus.protocol.messages import Icon
from mcpbus.protocol.request_state import Sealer
from mcpbus.reachable_buses import ReachableBuses
from mcpbus.server_arguments import (
    SERVING,
    Opening,
    check_middleware,
    check_running,
    check_serving,
)
from mcpbus.serving.errors import ServingError

if TYPE_CHECKING:  # what speaks HTTP is imported where it is used, see `mcpbus.bus`
    from mcpbus.cluster.directory import Cluster
    from mcpbus.cluster.redis import Redis
    from mcpbus.protocol.http.origin import HttpFields
    from mcpbus.serving.options import ServeOptions
    from mcpbus.transports.asgi import Receive, Scope, Send
    from mcpbus.transports.lifespan import LifespanApp
    from mcpbus.transports.responder import ResponseMode
    from mcpbus.worker import Worker

Lifespan: TypeAlias = Callable[["Server[Any]"], AbstractAsyncContextManager[StateT]]


@explained_as(elsewhere=SERVING)
class Server(Definition, Generic[StateT]):
    """A server as its author describes it; it does nothing until it is opened. What its lifespan yields is of its type `StateT`.

    Decorators register functions and return them as they are, so that they can be called and tested like any other::

        server = Server("weather", version="1.0.0")

        @server.tool
        async def forecast(city: str, days: int = 3) -> list[Day]:
            "Forecast the weather of a city."

    What is added or removed later, at run time, is told to clients by itself.

    Args:
        name: what clients call it.
        version: its own version.
        title: its name for people.
        description: what it is for, in a sentence.
        instructions: how a model should use it as a whole.
        website_url: where to read more.
        icons: for user interfaces; told in the answers to initialize and server/discover alone.
        lifespan: opens what handlers share: an async context manager made from the server, around everything it
            serves. What it yields is `ctx.state`. Tasks that it starts may push, with `resource_updated` and the like.
        visible: decides by principal who sees, and may call, which tool: ``visible(principal, tool) -> bool``. It
            must be quick: it runs for each tool of each list.
        middleware: wraps every call of a tool, prompt, resource or completion; see `Middleware`.
        auth: lets those in who bring tokens that were issued for this server: a `mcpbus.auth.ResourceServer`.
        authenticate: tells principals in a way of one's own. Without it and `auth` there are none.
        capabilities: what is declared while nothing is registered under it; the rest is declared from the first
            registration on, for good.
        extensions: of the protocol that it has, with their settings by identifier: ``{"com.example/search": {}}``.
            See `on_request`. Tasks are declared by themselves.
        page_size: items on a page of a list.
        list_ttl: seconds for which clients may reuse lists and discovery (from 2026-07-28); 0 leaves it to the
            change notifications.
        threads: how many plain functions run at once.
        state_keys: secrets that seal what clients carry between the rounds of a request; the first one seals, all
            of them open. Replicas share them. Without any, what was sealed ends with the process.
    """

    def __init__(
        self,
        name: str,
        *,
        version: str = "0.0.0",
        title: str | None = None,
        description: str | None = None,
        instructions: str | None = None,
        website_url: str | None = None,
        icons: Iterable[Icon] = (),
        lifespan: Lifespan[StateT] | None = None,
        visible: Visible | None = None,
        middleware: Sequence[Middleware] = (),
        auth: Authorizer | None = None,
        authenticate: Callable[..., Any] | None = None,
        capabilities: Iterable[Capability] = ("tools",),
        extensions: Mapping[str, Mapping[str, Any]] | None = None,
        page_size: int = 1000,
        list_ttl: float = 0.0,
        threads: int = 40,
        state_keys: Sequence[bytes | str] = (),
    ) -> None:
        check_functions(lifespan=lifespan)
        check_lifespan(lifespan)
        check_lists(middleware=middleware)
        check_middleware(middleware)
        super().__init__(
            name,
            version=version,
            title=title,
            description=description,
            instructions=instructions,
            website_url=website_url,
            icons=icons,
            visible=visible,
            auth=auth,
            authenticate=authenticate,
            capabilities=capabilities,
            extensions=extensions,
            page_size=page_size,
            list_ttl=list_ttl,
            state_keys=state_keys,
        )
        self.lifespan = lifespan
        self.runner = Runner(threads, middleware)
        self._buses = ReachableBuses(name)

    @property
    def bus(self) -> Bus[Any]:
        """The bus of the server while it is open: from when its lifespan has yielded until that has been left.

        That of the server in which it is mounted, if that one is open and not itself.

        Raises:
            RuntimeError: It is not open.
        """
        return self._buses.nearest()

    def tools_changed(self) -> Broadcast:
        """Tell every client that the list of tools has changed, as `Bus.tools_changed`.

        In the server's lifespan nobody is there yet, or any more, and nobody is told; so it is with the others of its kind. Where it is
        mounted in another server that is open, that one's clients are told.

        Raises:
            RuntimeError: The server is not open, or this is not the thread that trio runs in.
        """
        return self._buses.tell(lambda bus: bus.tools_changed())

    def prompts_changed(self) -> Broadcast:
        """Tell every client that the list of prompts has changed; see `tools_changed`."""
        return self._buses.tell(lambda bus: bus.prompts_changed())

    def resources_changed(self) -> Broadcast:
        """Tell every client that the list of resources or templates has changed; see `tools_changed`."""
        return self._buses.tell(lambda bus: bus.resources_changed())

    def resource_updated(self, uri: str) -> Broadcast:
        """Tell every client that subscribed to `uri`, or to one that it lies below, that its contents changed; see `tools_changed`."""
        return self._buses.resource_updated(uri)

    @explained
    def mount(self, other: "Server[Any]", *, prefix: str | None = None) -> None:
        """Offer all that another server offers, now and later, beside what is one's own.

        A tool or prompt ``now`` becomes ``weather_now`` with the prefix ``weather``, a resource ``data://now`` becomes
        ``data://weather/now``; without a prefix they are called as they are. The other server's lifespan is entered with this
        one's, and is `ctx.state` for its handlers; its middleware is around them, within this one's; its `visible` and its hooks
        for sessions hold. Who may come in at all, and what is served over which transport, is this one's alone. What it pushes
        with `resource_updated` and the like reaches this one's clients.

        Args:
            other: the other server, which may have others mounted itself.
            prefix: goes before its names.

        Raises:
            RegistrationError: it is mounted already, in a circle even; or a name is taken, or cannot have the prefix.
            RuntimeError: this server is open, or one that it is mounted in.
        """
        if not isinstance(other, Server):
            raise RegistrationError(f"server.mount() takes a mcpbus.Server, not {other!r}")
        if self._buses.is_open():
            raise RuntimeError(f"server {self.name!r} is open: mount others before it is opened")
        if other is self or self in other.mounted() or other in self.mounted():
            raise RegistrationError(
                f"server {other.name!r} is mounted in {self.name!r} already, or the other way round"
            )
        read = read_prefix(prefix)
        Mount(self.features, other.features, read, other, other.runner.middleware)
        self._mounted.append(other)
        other._buses.add_above(self._buses, read)  # noqa: SLF001 - its own kind

    def mounted(self) -> "list[Server[Any]]":
        """Return all servers that are mounted in it, and in these, and so on, each once."""
        return [other for other in self._below() if isinstance(other, Server)]

    def lifespan_context(self) -> AbstractAsyncContextManager[Any]:
        """What its lifespan opens, anew for each opening; yields `NO_STATE` if it has none. See `enter_lifespan`."""
        return enter_lifespan(self.lifespan, self)

    @asynccontextmanager
    async def _lifespans_below(self) -> AsyncIterator[dict[object, Any]]:
        """Enter the lifespans of all mounted servers, and yield what they yield, by server."""
        async with AsyncExitStack() as stack:
            yield {
                server: await stack.enter_async_context(server.lifespan_context())
                for server in self.mounted()
            }

    @explained
    def open(
        self,
        *,
        limits: Limits | None = None,
        event_store: EventStore | None = None,
        task_store: TaskStore | None = None,
        drain_seconds: float = DRAIN_SECONDS,
        cluster: "Cluster | Redis | None" = None,
    ) -> AbstractAsyncContextManager[Bus[StateT]]:
        """Open the server: ``async with server.open() as bus``.

        Its lifespan is entered first and left last. When the block ends, what goes on is drained; when it
        raises or is cancelled, everything is cancelled at once.

        Args:
            limits: What clients may use; the defaults are those of `Limits`.
            event_store: Keeps what legacy clients can come back for when they lose a stream; without one they
                cannot.
            task_store: Keeps tasks and what came of them; in memory if not given.
            drain_seconds: How long requests and tasks may go on when the block ends.
            cluster: The other processes that serve the same server, if there are any: ``Redis("redis://redis")`` of
                `mcpbus.cluster`.

        Raises:
            RuntimeError: The server is open already, or no trio runs here.
            ServingError: It cannot be one of those processes.
        """
        opening = Opening(
            limits=limits,
            event_store=event_store,
            task_store=task_store,
            drain_seconds=drain_seconds,
            cluster=cluster,
        )
        return self._open(opening)

    @asynccontextmanager
    async def _open(self, opening: Opening, worker: "Worker | None" = None) -> AsyncIterator[Bus[StateT]]:
        """Open the server, in a process that is one of several on this machine, if there is a `worker`; see `open`."""
        if not trio.lowlevel.in_trio_run():
            raise RuntimeError(
                "mcpbus runs on trio, and none runs here: start the program with trio.run(main), or with "
                'anyio.run(main, backend="trio"); under asyncio, serve mcpbus.asyncio.asgi(server)'
            )
        if self._buses.opened:
            raise RuntimeError(f"server {self.name!r} is open already: attach all transports to its one bus")
        self._buses.opened = True
        try:
            async with (
                self.lifespan_context() as state,
                self._lifespans_below() as states,
                meet(opening.cluster, self.sealer.given, worker) as joined,
                open_node(joined) as node,
                open_hub(
                    Bus,
                    FeaturesBackend(self, self.runner),
                    opening.limits or Limits(),
                    state,
                    sealer=self._sealer(joined),
                    event_store=opening.event_store,
                    task_store=opening.task_store,
                    drain_seconds=opening.drain_seconds,
                    process=None if node is None else node.home,
                ) as bus,
            ):
                bus.mounted_states.update(states)
                bus.node = node
                if node is not None:
                    await node.join(bus)
                self._buses.own = bus
                yield bus
        finally:
            self._buses.opened = False
            self._buses.own = None

    def _sealer(self, cluster: "Cluster | None") -> Sealer:
        """What seals states; where several processes serve, all of them open what one has sealed."""
        return self.sealer if cluster is None or self.sealer.given else Sealer(cluster.keys)

    @explained
    def asgi(
        self,
        *,
        limits: Limits | None = None,
        event_store: EventStore | None = None,
        task_store: TaskStore | None = None,
        response: "ResponseMode" = "auto",
        **http: "Unpack[HttpFields]",
    ) -> "LifespanApp[Bus[StateT]]":
        """Return the server as an ASGI application for ``hypercorn -k trio module:app``.

        It opens the server in the ASGI lifespan. An application that mounts it and runs no lifespan but its own enters
        `LifespanApp.lifespan` in that: ``Starlette(routes=[Mount("/tools", app)], lifespan=app.lifespan)``.

        Args:
            limits: What clients may use.
            event_store: As for `open`.
            task_store: As for `open`.
            response: The form of answers: "auto" chooses late for each one, "json" and "sse" fix it.
            **http: The fields of `HttpOptions`.
        """
        from mcpbus.transports.lifespan import LifespanApp  # noqa: PLC0415 - as said above
        from mcpbus.transports.responder import check_response  # noqa: PLC0415

        # These complain now, and not at the start.
        check_serving("server.asgi()", http, self.asgi)
        check_response(response)
        opening = Opening(limits=limits, event_store=event_store, task_store=task_store)
        return LifespanApp(partial(self._open, opening), lambda bus: bus.asgi(response=response, **http))

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Refuse to be an ASGI application, which `asgi` returns: what serves one ends at once, and says what to write."""
        fault = (
            f"Server({self.name!r}) is no ASGI application itself: serve app = mcpbus.asyncio.asgi(server), "
            "or app = server.asgi() under hypercorn -k trio"
        )
        if scope["type"] != "lifespan":
            raise TypeError(fault)
        await receive()
        await send({"type": "lifespan.startup.failed", "message": fault})

    @explained
    async def serve(
        self,
        *,
        bind: str | Iterable[str] | None = None,
        limits: Limits | None = None,
        event_store: EventStore | None = None,
        task_store: TaskStore | None = None,
        cluster: "Redis | None" = None,
        response: "ResponseMode" = "auto",
        options: "ServeOptions | None" = None,
        metrics: str | None = None,
        shutdown: trio.Event | None = None,
        task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
        **http: "Unpack[HttpFields]",
    ) -> None:
        """Open the server and serve it over HTTP until cancelled; see `open` and `Bus.serve`."""
        check_serving("server.serve()", http, self.serve, metrics=metrics)
        opening = Opening(limits=limits, event_store=event_store, task_store=task_store, cluster=cluster)
        await self._serve(
            opening,
            bind=bind,
            response=response,
            options=options,
            metrics=metrics,
            shutdown=shutdown,
            task_status=task_status,
            **http,
        )

    async def _serve(self, opening: Opening, worker: "Worker | None" = None, **serving: Any) -> None:
        """Open the server and serve it, in a process that is one of several on this machine, if there is a `worker`; see `serve`."""
        async with self._open(opening, worker) as bus:
            bus.sharing = None if worker is None else worker.sharing
            await bus.serve(**serving)

    @explained
    def run(self, transport: Literal["http", "stdio"] = "http", *, workers: int = 1, **options: Any) -> None:
        """Run the server as a program, until SIGTERM, SIGHUP, Ctrl-C, or on stdio the end of the input.

        What goes on is drained then, and the lifespan is left; a second signal, or after the end of the input the first one, does
        not wait for that. Over HTTP it says on
        standard error where it is served, and tunes the process's garbage collector.

        Args:
            transport: "http" or "stdio".
            workers: How many processes serve over HTTP. With more than one, this one only keeps them: each runs the program anew, up to
                this call. SIGHUP replaces them then, one by one. With a `cluster` each is a replica, with a port of its own.
            **options: As for `serve`; for stdio `limits`, and the `drain_seconds` of `Bus.stdio`.

        Raises:
            SystemExit: On stdio, with a status other than 0: standard input or output is closed, or did not take all that
                was said. With workers, at their end.
            TypeError: An option is not known; the message says what to write.
            ValueError: An option cannot be right.
            ServingError: It cannot be served, such as on an address that is in use.
            RuntimeError: It is called within a program of trio or asyncio, or while its file is imported.
        """
        check_startable()
        check_running(transport, workers, options, serve=self.serve, run=self.run)
        if transport == "stdio":
            drain = options.get("drain_seconds", DRAIN_SECONDS)
            program = partial(until_input_ends, partial(self._serve_stdio, **options), drain)
        else:
            worker = begin_worker(workers, options)
            own = {name: options.pop(name) for name in attrs.fields_dict(Opening) if name in options}
            serve = partial(self._serve, Opening(**own), worker, **options)
            drain = getattr(options.get("options"), "drain_seconds", DRAIN_SECONDS)
            program = partial(until_signalled, self.name, serve, worker, drain)
        try:
            trio.run(program)
        except (ServingError, BaseExceptionGroup) as errors:
            # Where it was raised says nothing to whoever may mend it, and the nurseries around it say nothing to anybody.
            error = sole_cause(errors)
            if isinstance(error, ServingError):
                raise error.with_traceback(None) from None
            raise error from error.__cause__
        finally:
            tell_of_threads()

    async def _serve_stdio(
        self, *, shutdown: trio.Event, limits: Limits | None = None, drain_seconds: float = DRAIN_SECONDS
    ) -> bool:
        async with self.open(limits=limits) as bus:
            whole = await bus.stdio(shutdown=shutdown, drain_seconds=drain_seconds)
            # Requests have ended, but tasks may go on.
            async with background() as nursery:
                nursery.start_soon(_cancel_at, shutdown, nursery.cancel_scope)
                await bus.drain(drain_seconds)
                nursery.cancel_scope.cancel()
            return whole

    def __repr__(self) -> str:
        return f"<Server {self.name} {self.version}: {len(self.features.tools)} tools>"


async def _cancel_at(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel()
