"""The context of a handler that is a plain function, in a thread of its own."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from mcpbus.core import notification
from mcpbus.core.context import ClientInfo, Context
from mcpbus.core.from_thread import run_in_trio, wait_in_trio
from mcpbus.core.notification import OutboundNotification, Params, Progress
from mcpbus.core.receipt import Receipt
from mcpbus.core.session import Session
from mcpbus.core.state import PrincipalT, StateT
from mcpbus.core.sync_bus import SyncBus
from mcpbus.features.asking.answers import Accepted, Cancelled, Declined, Root, Sampled
from mcpbus.features.asking.questions import Question
from mcpbus.features.handler_context import HandlerContext
from mcpbus.protocol.jsonrpc import RequestId
from mcpbus.protocol.revisions import Revision
from mcpbus.protocol.routes import Kind

T = TypeVar("T")


class SyncContext(HandlerContext, Generic[StateT, PrincipalT]):
    """The context of a handler that is a plain function; its methods block the handler's thread.

    The same as `Context` in all else. After a cancellation of the request what it says is discarded.
    """

    __slots__ = ("_context",)

    asynchronous = False

    def __init__(self, context: Context[StateT, PrincipalT]) -> None:
        self._context = context

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
        said = notification.progress
        return self._say(lambda: said(self._context.bus.ledger, progress, total, message))

    def log(self, level: str, data: Any, logger: str | None = None) -> Receipt:
        """Send a log line to the client; see `Context.log`."""
        return self._say(lambda: notification.log(self._context.bus.ledger, Kind.LOG, level, data, logger))

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
        return self._say(lambda: notification.custom(self._context.bus.ledger, Kind.CUSTOM, method, params))

    def elicit(
        self, message: str, schema: type[T] | Mapping[str, Any], **options: Any
    ) -> Accepted[T] | Declined | Cancelled:
        """Ask the user to fill in a form; see `Context.elicit`."""
        return wait_in_trio(partial(self._context.elicit, message, schema, **options))

    def elicit_url(self, message: str, url: str, **options: Any) -> Accepted[None] | Declined | Cancelled:
        """Ask the user to open a page; see `Context.elicit_url`."""
        return wait_in_trio(partial(self._context.elicit_url, message, url, **options))

    def sample(self, messages: str | Sequence[Any], **options: Any) -> Sampled:
        """Ask the client's model to write something; see `Context.sample`."""
        return wait_in_trio(partial(self._context.sample, messages, **options))

    def list_roots(self, **options: Any) -> list[Root]:
        """Ask which folders and files the client lets the server work in; see `Context.list_roots`."""
        return wait_in_trio(partial(self._context.list_roots, **options))

    def ask_all(self, questions: Mapping[str, Question], **options: Any) -> dict[str, Any]:
        """Ask several things at once; see `Context.ask_all`."""
        return wait_in_trio(partial(self._context.ask_all, questions, **options))

    def begin_task(self) -> bool:
        """Make the call a task; see `Context.begin_task`."""
        return wait_in_trio(self._context.begin_task)

    @property
    def task_id(self) -> str | None:
        """The id of the task that the call is; None if it is none."""
        return self._context.task_id

    def task_message(self, message: str | None) -> None:
        """Show people what the task is doing; see `Context.task_message`."""
        context = self._context
        run_in_trio(lambda: context.bus.tasks.say(context._call, message))  # noqa: SLF001 - its other face

    def _say(self, make: Callable[[], OutboundNotification | Progress]) -> Receipt:
        # The ledger belongs to the trio thread, so the notification is made there too.
        return run_in_trio(lambda: self._context.say(make()))

    def __repr__(self) -> str:
        return repr(self._context).replace("Context", "SyncContext", 1)
