"""The bus as an author holds it: an opened server, and the ways in which clients reach it."""

import logging
from collections.abc import Iterable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Generic, Unpack

import attrs
import trio

from mcpbus.core.backend import Backend, HasRoutes
from mcpbus.core.hub import Hub
from mcpbus.core.limits import DRAIN_SECONDS
from mcpbus.core.state import StateT
from mcpbus.dispatch.backend import FeaturesBackend
from mcpbus.features.definition import ServerDefinition
from mcpbus.protocol.keywords import explained
from mcpbus.protocol.revisions import LATEST
from mcpbus.protocol.validators import check_not_negative
from mcpbus.transports.stdio import run_stdio

# What is for HTTP, or for clients in process, is imported where it is used: a program on stdio starts sooner without it.
if TYPE_CHECKING:
    from mcpbus.client.client import Client
    from mcpbus.client.pending import OnInputRequest
    from mcpbus.cluster.node import Node
    from mcpbus.protocol.http.options import HttpFields
    from mcpbus.serving.counters import ServerCounters
    from mcpbus.serving.listeners import SharedSockets
    from mcpbus.serving.options import ServeOptions
    from mcpbus.transports.asgi import AsgiApp
    from mcpbus.transports.request_handler import ResponseMode
    from mcpbus.watch import Watch

_log = logging.getLogger("mcpbus")


class Bus(Hub, Generic[StateT]):
    """An opened server. Made by `Server.open`."""

    node: "Node | None" = None
    """What leads to the other processes that serve the same, if there are any."""
    sharing: "SharedSockets | None" = None
    """What it listens on together with them."""

    @property
    def state(self) -> StateT:
        """What its lifespan yielded; None if it has none."""
        return super().state  # type: ignore[no-any-return]  # its author says what it is

    @property
    def server(self) -> ServerDefinition:
        """The server that was opened.

        Raises:
            AttributeError: What is served was not made with mcpbus.
        """
        if not isinstance(self.backend, FeaturesBackend):
            raise AttributeError(f"{self.name!r} is not a mcpbus.Server")  # noqa: TRY004 - it has no such attribute
        return self.backend.server

    @property
    def watch(self) -> "Watch":
        """The watch that the server was opened with.

        Raises:
            RuntimeError: It was opened without one.
        """
        from mcpbus.watch import Watch  # noqa: PLC0415 - few servers have one

        if not isinstance(self.recorder, Watch):
            raise RuntimeError("nothing watches this bus: open the server with watch=mcpbus.watch.Watch()")  # noqa: TRY004 - it is no argument
        return self.recorder

    # -- transports ------------------------------------------------------------------------------

    @explained
    def asgi(self, *, response: "ResponseMode" = "auto", **http: "Unpack[HttpFields]") -> "AsgiApp":
        """Return the bus's HTTP endpoint as an ASGI application that needs no lifespan.

        Args:
            response: The form of answers: "auto" chooses late for each one, "json" and "sse" fix it.
            **http: The fields of `HttpOptions`.

        Raises:
            TypeError: An option is not known; the message says what to write.
            ValueError: An option cannot be right; the message says what would be.
        """
        from mcpbus.http_keywords import read_http_options  # noqa: PLC0415 - as said above
        from mcpbus.transports.asgi import AsgiApp  # noqa: PLC0415
        from mcpbus.transports.endpoint import Endpoint  # noqa: PLC0415

        options = read_http_options("bus.asgi()", http, self.asgi)
        beside = self.backend.beside(options.path) if isinstance(self.backend, HasRoutes) else None
        if self.node is None:
            endpoint = Endpoint(self, options, response)
        else:
            from mcpbus.cluster.cluster_endpoint import ClusterEndpoint  # noqa: PLC0415

            endpoint = ClusterEndpoint(self.node, self, options, response)
        _note_programs(self.backend)
        if options.access_log:
            from mcpbus.transports.access_log import with_access_log  # noqa: PLC0415

            endpoint = with_access_log(endpoint)
        return AsgiApp(self, endpoint, beside)

    @explained
    async def serve(
        self,
        *,
        bind: str | Iterable[str] | None = None,
        response: "ResponseMode" = "auto",
        options: "ServeOptions | None" = None,
        metrics: str | None = None,
        inspect: str | None = None,
        shutdown: trio.Event | None = None,
        task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
        **http: "Unpack[HttpFields]",
    ) -> None:
        """Serve the bus over HTTP until cancelled.

        Args:
            bind: Where to listen: one or several ``HOST:PORT``; port 0 takes any free one. As `options` say if left out.
            response: As for `asgi`.
            options: All else about serving: TLS, deadlines, the drain.
            metrics: Where Prometheus finds what the bus has done and holds, at ``/metrics``: one more ``HOST:PORT``. With several
                workers the first one is there, and each other one at the next port.
            inspect: Where the inspector is, for programs on this machine: a loopback ``HOST:PORT`` or ``unix:PATH``; see `Bus.watch`. With several
                workers as `metrics`.
            shutdown: Set it to drain the bus, with all that is attached to it, and return.
            task_status: Reports the URLs of the endpoint.
            **http: The fields of `HttpOptions`.

        Raises:
            CannotListenError: An address cannot be listened on, or the certificate cannot be used.
            TypeError: An option is not known; the message says what to write.
            ValueError: An option cannot be right; the message says what would be.
        """
        from mcpbus.http_keywords import read_http_options  # noqa: PLC0415 - as said above
        from mcpbus.serving import CannotListenError, ServeOptions, ServerCounters, serve  # noqa: PLC0415

        read_http_options("bus.serve()", http, self.serve)
        if options is not None and not isinstance(options, ServeOptions):
            raise TypeError(f"options is a ServeOptions(...), not {options!r}")
        _check_event(shutdown)
        options = options or ServeOptions(write_deadline=self.limits.write_deadline)
        if bind is not None:
            options = attrs.evolve(options, bind=bind)
        _check_exposure(self.backend, options.bind)
        app = self.asgi(response=response, **http)
        status = _WithPath(task_status, app.path)
        counters = ServerCounters() if options.server == "mcpbus" else None
        if metrics in options.bind and not metrics.endswith(":0"):
            raise CannotListenError(f"metrics: cannot listen on {metrics}: the endpoint is there")
        async with self._measured(metrics, counters), self._inspected(inspect):
            await serve(
                app,
                options,
                shutdown=shutdown,
                counters=counters,
                sharing=self.sharing,
                task_status=status,
            )

    def _measured(
        self, metrics: str | None, counters: "ServerCounters | None"
    ) -> AbstractAsyncContextManager[None]:
        """Tell what the bus has done and holds to whoever asks, if that is wanted."""
        if metrics is None:
            return nullcontext()
        from mcpbus.metrics import metrics_served  # noqa: PLC0415 - as said above

        number = 0 if self.sharing is None else self.sharing.board.number
        return metrics_served(self, counters, metrics, number)

    def _inspected(self, inspect: str | None) -> AbstractAsyncContextManager[None]:
        """Have the inspector at an address, if that is wanted."""
        if inspect is None:
            return nullcontext()
        from mcpbus.inspector.serving import inspector_served  # noqa: PLC0415 - as said above
        from mcpbus.metrics import check_inspect  # noqa: PLC0415

        check_inspect(inspect)
        number = 0 if self.sharing is None else self.sharing.board.number
        return inspector_served(self, self.watch, inspect, number)

    @explained
    async def stdio(
        self, *, shutdown: trio.Event | None = None, drain_timeout: float = DRAIN_SECONDS
    ) -> bool:
        """Serve the process's standard input and output until the input ends, and what is in flight then is answered.

        Meanwhile what the program prints goes to standard error. However slowly the client reads, all that is said is
        written; only after the end, and when it has taken nothing for `Limits.write_deadline`, is the rest given up.

        After the end of the input the client can be asked nothing more: a handler that does, or waits for an answer, is told
        so by `InputUnavailableError`. If standard output was hung up too, nobody reads, and what is in flight is cancelled.

        Args:
            shutdown: Set it to drain the bus, with all that is attached to it, and return; after the end of the input, to return
                at once.
            drain_timeout: How long requests may go on then, or after the end of the input; the rest is answered with an error.

        Returns:
            Whether the client took all that was said to it; what it did not take is told in the log.

        Raises:
            StdioClosedError: Standard input or output was closed when the process began.
        """
        check_not_negative("bus.stdio()", drain_timeout=drain_timeout)
        _check_event(shutdown)
        return await run_stdio(self, shutdown=shutdown, drain_timeout=drain_timeout)

    @explained
    def connect(
        self,
        *,
        revision: str = LATEST.name,
        principal: object = None,
        capabilities: Mapping[str, Any] | None = None,
        on_input_request: "OnInputRequest | None" = None,
    ) -> "AbstractAsyncContextManager[Client]":
        """Connect a client in process: ``async with bus.connect() as client``.

        What is called runs in tasks of the bus and in a copy of the caller's context variables, and is cancelled as a
        request is: a caller that is cancelled does not wait for it. Only what cannot wait, such as an async function
        without an ``await``, runs in the task that calls. Each call is a cancel point, and a schedule point unless its answer is there
        at once: then all who call share a millisecond, or 64 calls, before they let others run.

        Args:
            revision: The protocol revision that it speaks; a legacy one begins with the handshake.
            principal: Who it is.
            capabilities: What it declares, such as ``{"elicitation": {}}``.
            on_input_request: Answers what the server asks: an async function of the method and the params.
        """
        from mcpbus.transports.in_process import connect  # noqa: PLC0415 - as said above

        return connect(self, revision, principal, capabilities, on_input_request)


def _check_event(shutdown: object) -> None:
    if shutdown is not None and not isinstance(shutdown, trio.Event):
        raise TypeError(f"shutdown is a trio.Event(), not {shutdown!r}")


def _note_programs(backend: Backend) -> None:
    """Log which programs get nothing of HTTP: what they do with tokens and header fields where they serve HTTP themselves, is gone."""
    programs = backend.server.programs() if isinstance(backend, FeaturesBackend) else []
    if not programs:
        return
    checks = backend.auth is not None or backend.authenticate is not None
    _log.log(
        logging.INFO if checks else logging.WARNING,
        "HTTP does not reach a program over standard input and output (%s): no tokens, no header fields, no get_access_token(), no "
        "custom routes. %s",
        ", ".join(programs),
        "This server checks who its clients are."
        if checks
        else "This server checks no tokens either: --resource and --issuer, or auth=, have it check them.",
    )


def _check_exposure(backend: Backend, binds: Iterable[str]) -> None:
    """Tell the log of a server that everybody may use who reaches it, from wherever.

    Raises:
        ValueError: Its tokens are for development, on this machine alone.
    """
    from mcpbus.protocol.http.options import is_loopback  # noqa: PLC0415 - as said above

    for bind in binds:
        if bind.startswith("unix:") or is_loopback(bind):
            continue
        if backend.auth is not None and backend.auth.local:
            raise ValueError(f"bind is {bind!r}, and the tokens are for development, on this machine alone")
        if backend.auth is None and backend.authenticate is None:
            _log.warning("%s is served without authorization: whoever reaches it may use it", bind)


class _WithPath:
    """Reports the URLs of an endpoint, of which the server below knows the address alone."""

    def __init__(self, task_status: trio.TaskStatus[list[str]], path: str) -> None:
        self._task_status = task_status
        self._path = path

    def started(self, value: list[str] | None = None) -> None:
        self._task_status.started([url + self._path for url in value or ()])
