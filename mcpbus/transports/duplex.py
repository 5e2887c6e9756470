"""A shared channel: one connection that carries everything, as on stdio, HTTP+SSE, WebSocket and in process.

Legacy requests belong to the connection's session from its initialize on; modern ones carry what they need in
their own ``_meta``. Both may be in flight at once, and their ids are unique across both. When the connection ends,
so does the session, and all that is in flight is cancelled. On stdio alone a client can end its input and go on reading:
it asks nothing more, and what it has asked is still answered.
"""

import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Sequence
from contextlib import asynccontextmanager
from typing import Final, Self

import trio
from mcpbus_actors import EagerTask

from mcpbus.core.admission import ServerOverloaded
from mcpbus.core.hub import Hub
from mcpbus.core.message_stream import MessageStream
from mcpbus.core.outbox import OutboundMessage
from mcpbus.core.request_actor import RequestActor as Admitted
from mcpbus.core.request_context import RequestContext
from mcpbus.core.sessions.messages import CloseSession
from mcpbus.core.sessions.session import SessionStage
from mcpbus.core.signals import InputEnded
from mcpbus.dispatch import dispatcher
from mcpbus.protocol.errors import (
    ProtocolError,
    internal_error,
)
from mcpbus.protocol.jsonrpc import (
    JsonRpcNotification,
    JsonRpcRequest,
    JsonRpcResponse,
    RequestId,
    Undecodable,
    decode,
    decode_batch,
    encode_error,
)
from mcpbus.protocol.principals import IN_PROCESS, Peer
from mcpbus.protocol.revisions import ASSUMED, Revision
from mcpbus.protocol.routes import MessageKind
from mcpbus.transports.duplex_requests import DuplexRequests

_log = logging.getLogger("mcpbus")

IN_A_ROW: Final = 16
"""After so many messages others have their turn, and what these have begun goes on: what it says may be too much already."""

Send = Callable[[list[bytes]], Awaitable[None]]
"""Writes messages in one call; an empty list is due when nothing was said for the keep-alive time."""


def _failed(failure: Exception) -> Undecodable:
    """Log why a message could not be taken, and return what its client is told."""
    _log.error("a message could not be taken", exc_info=failure)
    return Undecodable(internal_error())


class DuplexChannel:
    """Both ends of one connection, for the transport that carries it; leaving its block ends what is left of it.

    Args:
        bus: The bus to attach to.
        principal: Who the client is, if that is known.
        peer: From where it came.
        spared: Whether it ends neither when too much waits for clients that do not read, nor if its client says nothing.

    Attributes:
        session: The session that the connection is.
        requests: What its client asks for.
        writer: The writing end of its stream, for who does not leave it to `write` or `deliver` to use it.

    Raises:
        ServerOverloaded: The bus takes no more connections.
    """

    def __init__(self, bus: Hub, principal: object, peer: Peer = IN_PROCESS, *, spared: bool = False) -> None:
        self._bus = bus
        self.session, self._stream = bus.open_channel(principal, peer, timed=not spared)
        self._stream.exempt_from_eviction = spared
        self.writer = self._stream.attach()
        # More than this waits only for a client that goes on asking and does not read what it is answered.
        self._room = bus.limits.outbox_items + bus.limits.max_requests_per_session
        self._in_a_row = 0
        self._line: trio.Lock | None = None  # most have none
        self.requests = DuplexRequests(bus, self.session, self._stream, principal, peer)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def stream(self) -> MessageStream:
        """What carries all that is said."""
        return self._stream

    @property
    def owner(self) -> Hashable:
        """To whom it is counted."""
        return self.session.owner

    def close(self) -> None:
        """End it, and all that is in flight; what waits is not written any more."""
        self.writer.__exit__()

    async def drain(self, draining: trio.CancelScope) -> str | None:
        """Let what is in flight come to its end, although the client says nothing more.

        Args:
            draining: How long it may take, and how to end it at once.

        Returns:
            What to answer to the rest if it took too long.
        """
        session = self.session
        session.address.tell(InputEnded())
        with draining:
            await session.in_flight.wait_idle()
        if not session.in_flight or trio.current_time() < draining.deadline:
            return None
        self._bus.limit_monitor.note(
            "drain_timeout", session.owner, "what still ran after the end of its input was ended"
        )
        return "The server ended the request, which took too long after the end of its client's input"

    def end(self, why: str | None = None) -> None:
        """End the session; what waits is still written.

        Args:
            why: What requests in flight are answered with; None if the client has left them, which is silent.
        """
        self.session.address.tell(CloseSession(why))

    # -- writing ---------------------------------------------------------------------------------

    async def write(self, send: Send, keep_alive: float = math.inf, *, deadline: float | None = None) -> bool:
        """Write what is said, until the channel ends or its client takes nothing for the write deadline.

        Args:
            send: Writes it; may raise what trio's streams raise for a connection that is broken.
            keep_alive: Seconds of silence after which `send` is called with nothing.
            deadline: Seconds that `send` may take; if not given, those of `Limits.write_deadline`.

        Returns:
            Whether the client took everything.
        """
        reached = self._bus.limit_monitor
        seconds = self._bus.limits.write_deadline if deadline is None else deadline
        try:
            while (batch := await self.writer.take(keep_alive)) is not None:
                with trio.CancelScope() as writing:
                    self.writer.connection = writing
                    with reached.writing(seconds, self.owner) as patience:
                        await send([message.data for message in batch])
                    # A write to a connection that has ended meanwhile may return as if nothing were. One that took its time and
                    # came to its end is none the worse for that.
                    await trio.lowlevel.checkpoint_if_cancelled()
                self.writer.connection = None
                if writing.cancelled_caught or patience.cancelled_caught:
                    return False
                if batch:
                    self.writer.settle_written()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return False
        return True

    async def deliver(self, receive: Callable[[bytes, RequestId | None], object]) -> None:
        """Hand over what is said, message by message, to a program that never waits, until the channel ends.

        Args:
            receive: Called with each message, and with the id of its request, if it is a notification of an extension: nothing in
                such a message names its request.
        """
        while (batch := await self.writer.take()) is not None:
            for message in batch:
                receive(message.data, message.request_id if message.kind is MessageKind.CUSTOM else None)
            if batch:
                self.writer.settle_written()
            if self._stream.waiting:
                # Said by who received it, and there is no end to that, perhaps.
                await trio.lowlevel.checkpoint()

    @property
    def waiting(self) -> int:
        """How many messages wait to be written."""
        return self._stream.waiting

    # -- reading ---------------------------------------------------------------------------------

    async def receive(self, data: bytes) -> None:
        """Take one message of the client, then wait while there is too much that it has not read."""
        await self.take(data)
        await self.wait_writable()

    async def take(self, data: bytes, faults: list[bytes] | None = None, principal: object = None) -> None:
        """Take one message of the client; if it is a batch, wait between its parts.

        Args:
            data: The message.
            faults: Where to put an answer that names no request, if not on the channel; and what is wrong with an answer, which is
                told nowhere else.
            principal: Whose it is, if each message brings a token of its own.
        """
        try:
            self._take(decode(data), principal, faults)
        except Undecodable as fault:
            batch = fault.array and self.requests.has_batches
            self._tell_wrong(await self._take_batch(data, principal, faults) if batch else [fault], faults)
        except Exception as failure:  # noqa: BLE001 - there is no memory for it, say: the connection is none the worse
            self._tell_wrong([_failed(failure)], faults)

    def take_now(
        self,
        data: bytes,
        scope: trio.CancelScope,
        faults: list[bytes] | None = None,
        principal: object = None,
    ) -> EagerTask | None:
        """Take one message of the client that is no array, and run its handler here. No schedule point.

        Args:
            data: The message.
            scope: Encloses the task that runs the handler; see `mcpbus_actors.EagerTask`.
            faults: As for `take`.
            principal: Likewise.

        Returns:
            The handler, if it waits, or has cancelled the scope.
        """
        try:
            return self._take(decode(data), principal, faults, scope=scope)
        except Undecodable as fault:
            self._tell_wrong([fault], faults)
        except Exception as failure:  # noqa: BLE001 - as above
            self._tell_wrong([_failed(failure)], faults)
        return None

    def refuse(self, error: ProtocolError) -> None:
        """Answer what its client has sent and nobody could read. No schedule point."""
        self._tell_wrong([Undecodable(error)])

    def _tell_wrong(self, parts: Sequence[Undecodable], faults: list[bytes] | None = None) -> None:
        """Answer what was no message."""
        for part in parts:
            answer = encode_error(part.id, part.error)
            if part.id is None and faults is not None:
                faults.append(answer)
            else:
                self._answer(None, ASSUMED, answer)

    async def wait_writable(self) -> None:
        """Wait while there is too much that the client has not read, be it many messages or long ones."""
        self._in_a_row += 1
        if self._in_a_row == IN_A_ROW:
            self._in_a_row = 0
            await trio.lowlevel.checkpoint()
        while self.above_high_water:
            await self._stream.wait_writable()

    @property
    def registering(self) -> bool:
        """Whether `initialize` has come, and is not answered yet: what follows it waits for that."""
        return self.session.stage is SessionStage.REGISTERING

    @property
    def above_high_water(self) -> bool:
        """Whether there is too much that the client has not read."""
        return self._stream.waiting > self._room or self._stream.above_high_water

    @property
    def has_waiters(self) -> bool:
        """Whether it is, or somebody waits for a `turn` already: who comes now waits behind them."""
        return self.above_high_water or (self._line is not None and self._line.locked())

    @asynccontextmanager
    async def turn(
        self, size: int, watch: Callable[[trio.CancelScope], Awaitable[None]]
    ) -> AsyncIterator[None]:
        """Wait until there is room for a message, behind those that have waited for longer; nobody else is let in within the block.

        For who has a task for each message. Its bytes are counted meanwhile.

        Args:
            size: How many they are.
            watch: Cancels a scope when who has brought it has gone.

        Raises:
            ServerOverloaded: Too much is kept in memory, and of what this client has it is among the longest.
            trio.BrokenResourceError: Who has brought it went away before that, and was told nothing.
        """
        line = self._line = self._line or trio.Lock()
        in_turn, has_room, scope = False, False, trio.CancelScope()
        account = self._bus.budget.account("a message that waits for room", scope.cancel, owner=self.owner)
        try:
            with scope:
                account.hold(size)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(watch, nursery.cancel_scope)
                    await line.acquire()
                    in_turn = True
                    await self.wait_writable()
                    has_room = True
                    nursery.cancel_scope.cancel()
            if scope.cancelled_caught:
                raise ServerOverloaded("Too much waits for clients that do not read; try again later")
            if not has_room:
                raise trio.BrokenResourceError("the client went away while its message waited for room")
            yield
        finally:
            account.close()
            if in_turn:
                line.release()

    async def _take_batch(
        self, data: bytes, principal: object, faults: list[bytes] | None
    ) -> list[Undecodable]:
        """Take an array of messages as if each had come by itself; return what in it is none."""
        try:
            members = decode_batch(data)
        except Undecodable as fault:
            return [fault]
        for member in members:
            if self.session.address.stopped:
                return []  # nobody is connected any more
            if not isinstance(member, Undecodable):
                self._take(member, principal, faults, alone=False)
                await self.wait_writable()
        return [member for member in members if isinstance(member, Undecodable)]

    def _take(
        self,
        message: JsonRpcRequest | JsonRpcNotification | JsonRpcResponse,
        principal: object = None,
        faults: list[bytes] | None = None,
        *,
        scope: trio.CancelScope | None = None,
        alone: bool = True,
    ) -> EagerTask | None:
        requests = self.requests
        requests.renew(principal)  # there is no other one before this message is taken
        if not isinstance(message, JsonRpcRequest):
            requests.note(message)
            if faults is not None and isinstance(message, JsonRpcResponse) and message.refusal is not None:
                faults.append(encode_error(None, message.refusal))
            return None
        serve = dispatcher.serve if scope is None else dispatcher.admit
        context, (revision, result) = None, requests.judge(message, serve, alone=alone)
        if isinstance(result, Admitted):
            assert scope is not None  # noqa: S101 - otherwise it was started
            context, outcome = result.context, result.run(scope)
            if outcome is None or isinstance(outcome, EagerTask):
                return outcome
            result = outcome
        if isinstance(result, bytes | ProtocolError):
            self.reply(message, revision, result, context)
        return None

    def reply(
        self,
        request: JsonRpcRequest,
        revision: Revision,
        result: bytes | ProtocolError,
        context: RequestContext | None = None,
    ) -> None:
        """Answer a request on the channel, after all that waits there.

        Args:
            request: The request.
            revision: What governs it.
            result: The encoded result object, or the error.
            context: The request as it was admitted, if it was.
        """
        self._answer(request, revision, revision.encode_reply(request.id, result), context)

    def _answer(
        self,
        request: JsonRpcRequest | None,
        revision: Revision,
        data: bytes,
        context: RequestContext | None = None,
    ) -> None:
        method = "" if request is None else request.method
        request_id: RequestId | None = None if request is None else request.id
        self._bus.flush_mailbox(data)
        receipt = self._bus.ledger.emit(method, context)
        self._stream.send(
            OutboundMessage(MessageKind.REPLY, revision.era, data, receipt, request_id=request_id)
        )
