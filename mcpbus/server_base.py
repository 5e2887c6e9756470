"""What is opened and served: a server, or what stands for servers elsewhere."""

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, Unpack

import attrs
import trio

from mcpbus.bus import Bus
from mcpbus.bus_set import BusSet
from mcpbus.core.backend import Backend
from mcpbus.core.concurrency import background, cancel_at
from mcpbus.core.hub import open_hub
from mcpbus.core.limits import AS_LIMITS, DRAIN_SECONDS, Limits
from mcpbus.core.receipt import Broadcast
from mcpbus.core.state import StateT
from mcpbus.core.stores.protocol import EventStore, TaskStore
from mcpbus.process.host_processes import warn_of_processes
from mcpbus.process.program import check_startable, serve_until_signalled, until_input_ends
from mcpbus.process.shutdown_report import tell_of_threads
from mcpbus.protocol.errors import sole_cause
from mcpbus.protocol.keywords import explained, explained_as
from mcpbus.protocol.request_state import StateSealer
from mcpbus.server_options import (
    OpenOptions,
    audit_of,
    check_running,
    check_serving,
    read_watch,
    telemetry_of,
)
from mcpbus.serving.errors import ServingError
from mcpbus.workers.membership import begin_worker, open_node, open_peers

if TYPE_CHECKING:  # what speaks HTTP is imported where it is used, see `mcpbus.bus`
    from mcpbus.cluster.directory import Cluster
    from mcpbus.cluster.redis import RedisReplicas
    from mcpbus.protocol.http.options import HttpFields
    from mcpbus.serving.options import ServeOptions
    from mcpbus.telemetry import Telemetry
    from mcpbus.transports.asgi import AsgiApp, Receive, Scope, Send
    from mcpbus.transports.asgi_lifespan import LifespanApp
    from mcpbus.transports.request_handler import ResponseMode
    from mcpbus.watch import Watch
    from mcpbus.watch.audit import Audit
    from mcpbus.workers.worker import Worker


class ServerBase(Generic[StateT]):
    """What has a name and something that answers: it can be opened once at a time, and served in every way that there is.

    Attributes:
        name: What clients call it.
        sealer: Seals what clients carry between the rounds of a request.
    """

    name: str
    sealer: StateSealer
    _buses: BusSet

    def presented_name(self) -> str:
        """What it is called now, for people."""
        return self.name

    # -- what is opened --------------------------------------------------------------------------

    def _entered(self) -> AbstractAsyncContextManager[tuple[Any, Mapping[object, Any]]]:
        """What is entered before all else and left after it: yields what handlers share, and what those of mounted servers do, by server."""
        raise NotImplementedError

    def _backend(self) -> Backend:
        """What answers, anew for each opening."""
        raise NotImplementedError

    # -- telling clients -------------------------------------------------------------------------

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

    # -- opening and serving ---------------------------------------------------------------------

    @explained_as(elsewhere=AS_LIMITS)
    def open(
        self,
        *,
        limits: Limits | None = None,
        event_store: EventStore | None = None,
        task_store: TaskStore | None = None,
        drain_timeout: float = DRAIN_SECONDS,
        cluster: "Cluster | RedisReplicas | None" = None,
        watch: "Watch | None" = None,
        telemetry: "Telemetry | bool | None" = None,
    ) -> AbstractAsyncContextManager[Bus[StateT]]:
        """Open the server: ``async with server.open() as bus``.

        Its lifespan is entered first and left last. When the block ends, what goes on is drained; when it
        raises or is cancelled, everything is cancelled at once.

        Args:
            limits: What clients may use; the defaults are those of `Limits`.
            event_store: Keeps what legacy clients can come back for when they lose a stream; without one they
                cannot.
            task_store: Keeps tasks and what came of them; in memory if not given.
            drain_timeout: How long requests and tasks may go on when the block ends.
            cluster: The other processes that serve the same server, if there are any: ``RedisReplicas("redis://redis")`` of
                `mcpbus.cluster`.
            watch: Records what the bus does; see `mcpbus.watch.Watch` and `Bus.watch`.
            telemetry: True for spans and metrics of OpenTelemetry by its global providers, or a `mcpbus.telemetry.Telemetry`; it implies a
                `watch`.

        Raises:
            RuntimeError: The server is open already, or no trio runs here.
            ImportError: There is no OpenTelemetry, which `telemetry` needs.
            ServingError: It cannot be one of those processes.
        """
        opening = OpenOptions(
            limits=limits,
            event_store=event_store,
            task_store=task_store,
            drain_timeout=drain_timeout,
            cluster=cluster,
            watch=read_watch(watch, telemetry),
            telemetry=telemetry,
        )
        return self._open(opening)

    @asynccontextmanager
    async def _open(self, opening: OpenOptions, worker: "Worker | None" = None) -> AsyncIterator[Bus[StateT]]:
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
                telemetry_of(opening.telemetry, opening.watch) as observe,
                self._entered() as (state, states),
                open_peers(opening.cluster, self.sealer.given, worker) as joined,
                open_node(joined) as node,
                open_hub(
                    Bus,
                    self._backend(),
                    opening.limits or Limits(),
                    state,
                    sealer=self._sealer(joined),
                    event_store=opening.event_store,
                    task_store=opening.task_store,
                    drain_timeout=opening.drain_timeout,
                    process=None if node is None else node.home,
                    watch=opening.watch,
                ) as bus,
            ):
                bus.mounted_states.update(states)
                bus.node = node
                if observe is not None:
                    observe(bus)
                if node is not None:
                    await node.join(bus)
                self._buses.own = bus
                yield bus
        finally:
            self._buses.opened = False
            self._buses.own = None

    def _sealer(self, cluster: "Cluster | None") -> StateSealer:
        """What seals states; where several processes serve, all of them open what one has sealed."""
        return self.sealer if cluster is None or self.sealer.given else StateSealer(cluster.keys)

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
        from mcpbus.transports.asgi_lifespan import LifespanApp  # noqa: PLC0415 - as said above
        from mcpbus.transports.request_handler import check_response  # noqa: PLC0415

        # These complain now, and not at the start.
        check_serving("server.asgi()", http, self.asgi)
        check_response(response)
        opening = OpenOptions(limits=limits, event_store=event_store, task_store=task_store)

        def make(bus: "Bus[StateT]") -> "AsgiApp":
            if http.get("sessions") != "stateless":
                warn_of_processes()
            return bus.asgi(response=response, **http)

        return LifespanApp(partial(self._open, opening), make)

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Refuse to be an ASGI application, which `asgi` returns: what serves one ends at once, and says what to write."""
        fault = (
            f"{type(self).__name__}({self.name!r}) is no ASGI application itself: serve app = mcpbus.asyncio.asgi(server), "
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
        cluster: "RedisReplicas | None" = None,
        watch: "Watch | None" = None,
        telemetry: "Telemetry | bool | None" = None,
        response: "ResponseMode" = "auto",
        options: "ServeOptions | None" = None,
        metrics: str | None = None,
        inspect: str | None = None,
        audit: "Audit | None" = None,
        shutdown: trio.Event | None = None,
        task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
        **http: "Unpack[HttpFields]",
    ) -> None:
        """Open the server and serve it over HTTP until cancelled; see `open` and `Bus.serve`.

        The option `audit` is where a line of JSON is written for each call: the path of a file, ``-`` for standard error, or a function of a dict, which is
        called in a thread. With several workers each has a file of its own, ``PATH.0`` and so on.
        """
        check_serving("server.serve()", http, self.serve, metrics=metrics, inspect=inspect, audit=audit)
        opening = OpenOptions(
            limits=limits,
            event_store=event_store,
            task_store=task_store,
            cluster=cluster,
            watch=read_watch(watch, inspect, audit, telemetry),
            telemetry=telemetry,
        )
        await self._serve(
            opening,
            bind=bind,
            response=response,
            options=options,
            metrics=metrics,
            inspect=inspect,
            audit=audit,
            shutdown=shutdown,
            task_status=task_status,
            **http,
        )

    async def _serve(self, opening: OpenOptions, worker: "Worker | None" = None, **serving: Any) -> None:
        """Open the server and serve it, in a process that is one of several on this machine, if there is a `worker`; see `serve`."""
        audit = serving.pop("audit", None)
        number = None if worker is None else worker.sharing.board.number
        with audit_of(audit, opening.watch, number):
            await self._serve_audited(opening, worker, **serving)

    async def _serve_audited(self, opening: OpenOptions, worker: "Worker | None", **serving: Any) -> None:
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
            **options: As for `serve`; for stdio `limits`, and the `drain_timeout` of `Bus.stdio`.

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
            drain = options.get("drain_timeout", DRAIN_SECONDS)
            program = partial(until_input_ends, partial(self._serve_stdio, **options), drain)
        else:
            worker = begin_worker(workers, options)
            implying = (options.get(name) for name in ("inspect", "audit", "telemetry"))
            options["watch"] = read_watch(options.get("watch"), *implying)
            own = {name: options.pop(name) for name in attrs.fields_dict(OpenOptions) if name in options}
            serve = partial(self._serve, OpenOptions(**own), worker, **options)
            drain = getattr(options.get("options"), "drain_timeout", DRAIN_SECONDS)
            program = partial(serve_until_signalled, self.presented_name, serve, worker, drain)
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
        self, *, shutdown: trio.Event, limits: Limits | None = None, drain_timeout: float = DRAIN_SECONDS
    ) -> bool:
        async with self.open(limits=limits) as bus:
            whole = await bus.stdio(shutdown=shutdown, drain_timeout=drain_timeout)
            # Requests have ended, but tasks may go on.
            async with background() as nursery:
                nursery.start_soon(cancel_at, shutdown, nursery.cancel_scope)
                await bus.drain(drain_timeout)
                nursery.cancel_scope.cancel()
            return whole
