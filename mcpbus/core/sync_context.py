"""The context and the bus of a handler that is a plain function and runs in a thread."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

import trio

from mcpbus.core import outbound
from mcpbus.core.context import ClientInfo, Context
from mcpbus.core.hub import Hub
from mcpbus.core.memory_budget import SHORT_BYTES
from mcpbus.core.outbound import OutboundNotification, Params, Progress
from mcpbus.core.receipt import Broadcast, Receipt
from mcpbus.core.sessions.session import Session
from mcpbus.core.state import PrincipalT, StateT
from mcpbus.core.statistics import Statistics
from mcpbus.features.handler_context import HandlerContext
from mcpbus.features.input_requests.requests import InputRequest
from mcpbus.features.input_requests.results import (
    AcceptedElicitation,
    CancelledElicitation,
    DeclinedElicitation,
    Root,
    SamplingResult,
)
from mcpbus.protocol.enums import LogLevel
from mcpbus.protocol.jsonrpc import RequestId
from mcpbus.protocol.revisions import Revision
from mcpbus.protocol.routes import MessageKind


class SyncBus:
    """The bus that serves a request, for a plain function: what it says is said in the thread that trio runs in.

    `Context.bus`, which an async function has, does more.
    """

    __slots__ = ("_bus",)

    def __init__(self, bus: Hub) -> None:
        self._bus = bus

    def tools_changed(self) -> Broadcast:
        """Tell every client that wants to know that the list of tools has changed."""
        return self._bus.from_thread.run(self._bus.tools_changed)

    def prompts_changed(self) -> Broadcast:
        """Tell every client that wants to know that the list of prompts has changed."""
        return self._bus.from_thread.run(self._bus.prompts_changed)

    def resources_changed(self) -> Broadcast:
        """Tell every client that wants to know that the list of resources or templates has changed."""
        return self._bus.from_thread.run(self._bus.resources_changed)

    def resource_updated(self, uri: str) -> Broadcast:
        """Tell every client that subscribed to `uri`, or to one that it lies below, that its contents changed."""
        return self._bus.from_thread.run(partial(self._bus.resource_updated, uri))

    def statistics(self) -> Statistics:
        """Return what the bus has done and holds at this moment."""
        return self._bus.from_thread.run(self._bus.statistics)


T = TypeVar("T")

_MOST_POSTED = 32
"""How many things are said before the thread waits until they have arrived."""
_PATIENCE_SECONDS = 0.5
"""A client is slow that takes nothing for that long; the thread does not wait for it again."""


class SyncContext(HandlerContext, Generic[StateT, PrincipalT]):
    """The context of a handler that is a plain function, in a thread of its own: what asks the client blocks that.

    The same as `Context` in all else. What it says is on its way when a method returns, and where it is, and what became of it, its
    receipt tells a moment later. After a cancellation of the request what it says is discarded. Threads that the function starts itself
    may say things as well; what waits for the client belongs to the function's own.
    """

    __slots__ = ("_bus", "_call", "_context", "_most_posted", "_patient", "_posted")

    asynchronous = False

    def __init__(self, context: Context[StateT, PrincipalT]) -> None:
        self._context = context
        self._bus, self._call = context._bus, context._call  # noqa: SLF001 - its other face
        self._posted = 0
        self._patient = True  # until the client turns out to be slow
        self._most_posted = min(_MOST_POSTED, self._bus.limits.outbox_items // 2)

    @property
    def request_id(self) -> RequestId:
        """The JSON-RPC id of the request, a string or an integer."""
        return self._context.request_id

    @property
    def revision(self) -> Revision:
        """The protocol revision that the request is served under."""
        return self._context.revision

    @property
    def client(self) -> ClientInfo:
        """What the client says of itself."""
        return self._context.client

    @property
    def principal(self) -> PrincipalT:
        """Whom `auth` or `authenticate` found behind the request; None without authentication."""
        return self._context.principal

    @property
    def owner(self) -> Hashable:
        """To whom the request is counted; see `Context.owner`."""
        return self._context.owner

    @property
    def session(self) -> Session | None:
        """The legacy session of the request, if there is one. Its methods belong to the trio thread."""
        return self._context.session

    @property
    def headers(self) -> Mapping[str, str]:
        """The header fields with which the request came over HTTP; see `Context.headers`."""
        return self._context.headers

    @property
    def log_level(self) -> LogLevel | None:
        """See `Context.log_level`."""
        return self._context.log_level

    @property
    def meta(self) -> dict[str, Any]:
        """The request's ``_meta``, as the client sent it."""
        return self._context.meta

    @property
    def state(self) -> StateT:
        """What the server's lifespan yielded."""
        return self._context.state

    @property
    def bus(self) -> SyncBus:
        """The bus that serves the request, with what a plain function can tell all clients."""
        return SyncBus(self._context.bus)

    def progress(self, progress: float, total: float | None = None, message: str | None = None) -> Receipt:
        """Report progress to the client; see `Context.progress`."""
        return self._say(outbound.progress, progress, total, message)

    def log(self, level: str, data: Any, logger: str | None = None) -> Receipt:
        """Send a log line to the client; see `Context.log`."""
        return self._say(outbound.log, MessageKind.LOG, level, data, logger)

    def debug(self, data: Any) -> Receipt:
        """Send a log line of level debug."""
        return self.log("debug", data)

    def info(self, data: Any) -> Receipt:
        """Send a log line of level info."""
        return self.log("info", data)

    def notice(self, data: Any) -> Receipt:
        """Send a log line of level notice."""
        return self.log("notice", data)

    def warning(self, data: Any) -> Receipt:
        """Send a log line of level warning."""
        return self.log("warning", data)

    def error(self, data: Any) -> Receipt:
        """Send a log line of level error."""
        return self.log("error", data)

    def notify(self, method: str, params: Params = None) -> Receipt:
        """Send a notification of an extension; see `Context.notify`."""
        return self._say(outbound.custom, MessageKind.CUSTOM, method, params)

    def elicit(
        self, message: str, schema: type[T] | Mapping[str, Any], **options: Any
    ) -> AcceptedElicitation[T] | DeclinedElicitation | CancelledElicitation:
        """Ask the user to fill in a form; see `Context.elicit`."""
        return self._bus.from_thread.wait(partial(self._context.elicit, message, schema, **options))

    def elicit_url(
        self, message: str, url: str, **options: Any
    ) -> AcceptedElicitation[None] | DeclinedElicitation | CancelledElicitation:
        """Ask the user to open a page; see `Context.elicit_url`."""
        return self._bus.from_thread.wait(partial(self._context.elicit_url, message, url, **options))

    def sample(self, messages: str | Sequence[Any], **options: Any) -> SamplingResult:
        """Ask the client's model to write something; see `Context.sample`."""
        return self._bus.from_thread.wait(partial(self._context.sample, messages, **options))

    def list_roots(self, **options: Any) -> list[Root]:
        """Ask which folders and files the client lets the server work in; see `Context.list_roots`."""
        return self._bus.from_thread.wait(partial(self._context.list_roots, **options))

    def ask_all(self, questions: Mapping[str, InputRequest], **options: Any) -> dict[str, Any]:
        """Ask several things at once; see `Context.ask_all`."""
        return self._bus.from_thread.wait(partial(self._context.ask_all, questions, **options))

    def begin_task(self) -> bool:
        """Make the call a task; see `Context.begin_task`."""
        return self._bus.from_thread.wait(self._context.begin_task)

    @property
    def task_id(self) -> str | None:
        """The id of the task that the call is; None if it is none."""
        return self._context.task_id

    def set_task_message(self, message: str | None) -> None:
        """Show people what the task is doing; see `Context.set_task_message`."""
        tasks, call = self._context.bus.tasks, self._call
        self._bus.from_thread.run(lambda: tasks.say(call, message))

    def _say(self, make: Callable[..., OutboundNotification | Progress], *what: Any) -> Receipt:
        here = self._bus.from_thread.is_here()
        said = make(self._bus.ledger, *what)
        if here:
            self._call.sink.say(said)
            return said.receipt
        self._bus.from_thread.post(lambda: self._call.sink.say(said))
        self._posted += 1
        stream = self._call.stream
        is_long = len(said.data) > SHORT_BYTES  # it is counted where it arrives, and not before
        if is_long or self._posted >= self._most_posted or (stream is not None and stream.outbox.half_full):
            self._posted = 0  # what arrives together may be more than there is room for
            if self._patient:
                self._patient = self._bus.from_thread.wait_briefly(self._until_room, _PATIENCE_SECONDS)
            else:
                self._bus.from_thread.run(_nothing)
        return said.receipt

    async def _until_room(self) -> None:
        """Wait until half of what may wait for the client does no more, or nothing more is sent to it."""
        await trio.lowlevel.checkpoint()
        stream = self._call.stream
        while stream is not None and stream.outbox.half_full and not stream.stopped:
            await stream.wait_writable()

    def __repr__(self) -> str:
        return repr(self._context).replace("Context", "SyncContext", 1)


def _nothing() -> None:
    """Do nothing but wait for one's turn."""
