"""What a handler is given: who asks, and how to speak to them while it runs."""

from collections.abc import Awaitable, Hashable, Mapping
from contextlib import nullcontext
from typing import Any, Generic, TypeVar

import msgspec
import trio
from mcpbus_actors import EagerTask

from mcpbus.core import outbound
from mcpbus.core.call import CallActor
from mcpbus.core.fairness import MOST_IN_A_ROW, SLICE_SECONDS
from mcpbus.core.hub import Hub, hub_of
from mcpbus.core.input_requests import InputRound, answered_within
from mcpbus.core.message_sinks import MessageSink
from mcpbus.core.outbound import OutboundNotification, Params, Progress
from mcpbus.core.receipt import Receipt
from mcpbus.core.request_context import RequestContext
from mcpbus.core.sessions.session import Session
from mcpbus.core.signals import CloseConnection
from mcpbus.core.state import PrincipalT, StateT, state_of
from mcpbus.features.handler_context import HandlerContext
from mcpbus.features.input_requests.errors import cannot_ask
from mcpbus.features.input_requests.interface import InputRequests
from mcpbus.features.input_requests.requests import InputRequest, OnProgress
from mcpbus.protocol.enums import LogLevel
from mcpbus.protocol.extensions import declared_settings
from mcpbus.protocol.jsonrpc import RequestId
from mcpbus.protocol.revisions import Era, Revision
from mcpbus.protocol.routes import MessageKind
from mcpbus.protocol.validators import check_told_seconds

T = TypeVar("T")

_LOG = MessageKind.LOG


class ClientInfo(msgspec.Struct, frozen=True):
    """What a client says of itself. Nothing of it is verified.

    Attributes:
        info: Its name, version and the like, as it sent them; empty if it sent none.
        capabilities: The capabilities that it declared, as it sent them.
    """

    info: dict[str, Any]
    capabilities: Mapping[str, Any]

    def extension(self, identifier: str) -> Mapping[str, Any] | None:
        """Return its settings for an extension, such as ``io.modelcontextprotocol/ui``; None if it does not declare that."""
        return declared_settings(self.capabilities, identifier)


class Context(InputRequests, HandlerContext, Generic[StateT, PrincipalT]):
    """One run of a handler, as the handler sees it.

    It is a ``Context[Database]`` where the lifespan yields a `Database`, and a ``Context[Database, Principal]`` where those who ask are
    each a `Principal`; type checkers take it for anything where that is not said.

    Annotate a parameter of an async handler with this type, and it is given the context; it does not become an
    argument of the tool. What the handler says with it leaves on the stream of the very request that it
    serves, while the handler runs. Saying something never waits for the client, and returns a `Receipt`. It is a
    cancel point always; and a schedule point once the handler has gone on for a millisecond without a wait, or has said 64 things in a
    row, or what it said and nobody took yet fills half of what may wait for its client, or is still on its way because more is
    going on than is handled at once. What it says first is on its way to the client at once; or, where such
    calls have not taken a millisecond so far, as soon as it waits or ends. The rest of a burst goes out together, the next
    time that others run.
    """

    __slots__ = ("_bus", "_call", "_in_a_row", "_until", "_woken")

    asynchronous = True

    def __init__(self, call: CallActor) -> None:
        self._bus = call.bus
        self._call = call
        self._in_a_row = 0
        self._until = call.bus.clock() + SLICE_SECONDS
        self._woken = 0  # how often its task was when that was said

    @property
    def request_id(self) -> RequestId:
        """The JSON-RPC id of the request, a string or an integer; a retry's once it has come."""
        return self._call.context.request.id

    @property
    def revision(self) -> Revision:
        """The protocol revision that the request is served under."""
        return self._call.context.revision

    @property
    def client(self) -> ClientInfo:
        """What the client says of itself."""
        context = self._call.context
        # Other requests of the same client share what was read of it; a copy is the handler's own.
        return ClientInfo(
            msgspec.to_builtins(context.client_info), msgspec.to_builtins(context.client_capabilities)
        )

    @property
    def principal(self) -> PrincipalT:
        """Whom `auth` or `authenticate` found behind the request; None without authentication."""
        principal: PrincipalT = self._call.context.principal
        return principal

    @property
    def request_context(self) -> RequestContext:
        """The request with all that is known of it. For the bus."""
        return self._call.context

    @property
    def owner(self) -> Hashable:
        """To whom the request is counted: the principal, or where there is none the address that its client connects from."""
        return self._call.context.owner

    @property
    def session(self) -> Session | None:
        """The legacy session of the request; None in revision 2026-07-28 and in stateless serving."""
        return self._call.context.legacy_session

    @property
    def headers(self) -> Mapping[str, str]:
        """The header fields with which the request came over HTTP, by their names in any case.

        Empty over stdio, a WebSocket and HTTP+SSE, and in process. They are as the client, or a proxy, sent them, and nothing of
        them is verified. `Authorization` is left out: whom `authenticate` found is the principal.
        """
        return self._call.context.headers.without(b"authorization")

    @property
    def log_level(self) -> LogLevel | None:
        """From which level the client is sent log lines; None for none at all. What is below it need not be made."""
        return self._call.context.threshold(self._bus.limits.log_level).level

    @property
    def meta(self) -> dict[str, Any]:
        """The request's ``_meta``, as the client sent it."""
        return self._call.context.meta()

    @property
    def state(self) -> StateT:
        """What the server's lifespan yielded.

        Raises:
            RuntimeError: It has no lifespan.
        """
        return state_of(self._bus.lifespan_state)  # type: ignore[no-any-return]  # its author says what it is

    @property
    def round_state(self) -> Any:
        """What the handler's last run left with `InputRequired`; None in a first run."""
        return self._call.answers.state

    @property
    def bus(self) -> Hub:
        """The bus that serves the request."""
        return hub_of(self._bus)

    async def progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> Receipt:
        """Report progress to the client, if it asked for it with a progress token.

        Args:
            progress: How far it is, in any unit. Must increase; a report that does not is discarded.
            total: How far it goes, in the same unit, if that is known.
            message: What is being done. Revision 2024-11-05 does not have it.

        Raises:
            ValueError: `progress` or `total` is not finite.
        """
        said = outbound.progress(self._bus.ledger, progress, total, message)
        await self._say(said)
        return said.receipt

    async def log(self, level: str, data: Any, logger: str | None = None) -> Receipt:
        """Send a log line to the client, if it wants lines of that level.

        Args:
            level: One of the eight syslog levels: debug, info, notice, warning, error, critical, alert,
                emergency.
            data: The line: a text, or any value that is JSON.
            logger: Which part of the server speaks.

        Raises:
            ValueError: There is no such level.
            TypeError: `data` is not JSON.
        """
        said = outbound.log(self._bus.ledger, _LOG, level, data, logger)
        await self._say(said)
        return said.receipt

    async def debug(self, data: Any) -> Receipt:
        """Send a log line of level debug."""
        return await self.log("debug", data)

    async def info(self, data: Any) -> Receipt:
        """Send a log line of level info."""
        return await self.log("info", data)

    async def notice(self, data: Any) -> Receipt:
        """Send a log line of level notice."""
        return await self.log("notice", data)

    async def warning(self, data: Any) -> Receipt:
        """Send a log line of level warning."""
        return await self.log("warning", data)

    async def error(self, data: Any) -> Receipt:
        """Send a log line of level error."""
        return await self.log("error", data)

    async def notify(self, method: str, params: Params = None) -> Receipt:
        """Send a notification of an extension, on the stream of this request.

        In revision 2026-07-28, send only what an extension defines that the client declared.

        Args:
            method: Its method, which begins with ``notifications/`` and is not one of the protocol's core.
            params: Its parameters, a JSON object; or the text of one, as `msgspec.Raw`.

        Raises:
            ValueError: The protocol's core defines `method`, or it is no notification.
            TypeError: `params` is not JSON.
        """
        said = outbound.custom(self._bus.ledger, MessageKind.CUSTOM, method, params)
        await self._say(said)
        return said.receipt

    async def begin_task(self) -> bool:
        """Make the call a task: its client gets a handle now, and the handler goes on without the request.

        What is asked from now on is asked by the task; progress and log lines are discarded. For tools whose
        `TaskSupport` is deferred; in others that have one it has been done before the handler began.

        Returns:
            Whether the call is a task now. It is not where the client did not declare the extension, and where
            there is no room for one and the tool does not require it; then the handler goes on within its request.

        Raises:
            RuntimeError: Another part of the handler waits for the client, or begins the task.
            ProtocolError: The tool requires a task, and there is no room; or the task store failed.
        """
        self._bus.check_handler_thread()
        begun = await self.bus.tasks.begin(self._call)
        await trio.lowlevel.checkpoint()
        return begun

    @property
    def task_id(self) -> str | None:
        """The id of the task that the call is; None if it is none."""
        return self._call.task_id

    async def set_task_message(self, message: str | None) -> None:
        """Show people who look at the task what it is doing; None shows nothing. Does nothing if it is no task."""
        self._bus.check_handler_thread()
        self.bus.tasks.say(self._call, message)
        await trio.lowlevel.checkpoint()

    async def close_stream(self, retry: float = 1.0) -> None:
        """Close the connection that waits for this request, so that its client polls instead; the handler goes on.

        What is said from now on is stored, and the client fetches it when it comes back. Does nothing where it
        could not: only revision 2025-11-25 over HTTP has this, on a server with an event store.

        Args:
            retry: After how many seconds the client may come back.

        Raises:
            ValueError: That is no time that a client can be told.
        """
        self._bus.check_handler_thread()
        check_told_seconds("close_stream()", 0, retry=retry)
        call = self._call
        if isinstance(call.sink, MessageSink) and call.context.revision.priming:
            call.sink.tell(CloseConnection(retry))
        await trio.lowlevel.checkpoint()

    def prepare(
        self, questions: Mapping[str, InputRequest], on_progress: OnProgress | None = None
    ) -> InputRound:
        """Make questions ready to be asked. For the bus.

        Raises:
            InputUnavailableError: They are too many, the revision does not have one of them, or the client did not declare that it can
                be asked.
            TypeError: One of them holds what is not JSON.
        """
        context = self._call.context
        if context.revision.era is Era.MODERN and not self._call.handler.rounds:
            raise cannot_ask("only tools/call, prompts/get and resources/read may ask")
        return self._call.answers.open.prepare(
            questions, context.client_capabilities, context.revision, on_progress
        )

    async def _ask(
        self,
        questions: Mapping[Any, InputRequest],
        timeout: float | None,  # noqa: ASYNC109
        on_progress: OnProgress | None = None,
    ) -> list[Any]:
        self._bus.check_handler_thread()
        call, context = self._call, self._call.context
        answers = call.answers
        bound = answered_within(self._bus, context.owner, timeout, context.revision.era)
        ask = self.prepare({answers.unique(key or q.label): q for key, q in questions.items()}, on_progress)
        answers.fill(ask)
        recorder = self._bus.recorder
        recorded = nullcontext() if recorder is None else recorder.asking(context.life, ask)
        with recorded, answers.open.waiting(ask, call.deliver), bound:
            if context.legacy_session is not None:
                await context.legacy_session.until_initialized()
            if ask.unanswered and not call.deliver(ask):
                await trio.lowlevel.checkpoint_if_cancelled()  # its client has gone, as a rule
                raise cannot_ask("its request has ended")
            return list((await ask.wait()).values())

    def pass_on(self, said: OutboundNotification | Progress) -> Receipt:
        """Send what somebody else has said, as soon as it is said, and let nobody run meanwhile. For the bus."""
        self._bus.check_handler_thread()
        self._call.sink.say(said)
        return said.receipt

    def relay_questions(
        self,
        questions: Mapping[str | None, InputRequest],
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> Awaitable[list[Any]]:
        """Send the input requests of another server together. Awaits the responses, in this order. For the bus.

        Args:
            questions: The input requests.
            timeout: How many seconds the client has; as many as the limits of the bus if left out.
            on_progress: Called with the client's progress.

        Raises:
            InputRequestError: As for `InputRequests`.
        """
        return self._ask(questions, timeout, on_progress)

    def relay_for_session(self, questions: Mapping[str | None, InputRequest]) -> Awaitable[list[Any]]:
        """Ask questions that belong to the legacy session, on the stream of this call, which they outlive. For the bus.

        Raises:
            InputRequestError: As for `InputRequests`.
        """
        call = self._call
        session = call.context.legacy_session
        assert session is not None  # noqa: S101 - the caller has it
        carrier = call.sink
        return session.relay_questions(
            questions, via=carrier.address if isinstance(carrier, MessageSink) else None
        )

    def within(self, server: object) -> "Context[Any]":
        """Return the context as handlers of a mounted server are given it. For the bus."""
        return _MountedContext(self._call, self._bus.mounted_states[server])

    def _say(self, said: OutboundNotification | Progress) -> Awaitable[None]:
        """Say something, and return what is awaited after that: a cancel point, and a schedule point if that is due.

        A schedule point costs more than all else about a notification, and makes the request one that waits. It is due at once
        while what was said is still on its way to the stream: so many things would arrive there together that some are lost.
        """
        self._bus.check_handler_thread()
        has_room = self._call.sink.say(said)
        self._in_a_row += 1
        if (
            has_room
            and self._in_a_row < MOST_IN_A_ROW
            and (self._bus.clock() < self._until or self._has_waited())
        ):
            return trio.lowlevel.checkpoint_if_cancelled()  # noqa: ASYNC105 - the caller awaits it
        return self._let_others_run()

    def _has_waited(self) -> bool:
        """Tell whether others have run since it was last looked, as the handler has waited for something; then it may go on as long."""
        task = self._call.task
        if not isinstance(task, EagerTask) or task.woken == self._woken:
            return False
        self._begin_slice(task.woken)
        return True

    async def _let_others_run(self) -> None:
        await trio.lowlevel.checkpoint()
        task = self._call.task
        self._begin_slice(task.woken if isinstance(task, EagerTask) else 0)

    def _begin_slice(self, woken: int) -> None:
        self._woken = woken
        self._in_a_row, self._until = 0, self._bus.clock() + SLICE_SECONDS

    def __repr__(self) -> str:
        return f"<Context of request {self.request_id!r}, {self.revision.name}>"


class _MountedContext(Context[Any]):
    """That of a handler of a mounted server, whose lifespan has yielded something else."""

    __slots__ = ("_state",)

    def __init__(self, call: CallActor, state: Any) -> None:
        super().__init__(call)
        self._state = state

    @property
    def state(self) -> Any:
        """What the mounted server's lifespan yielded."""
        return state_of(self._state)
