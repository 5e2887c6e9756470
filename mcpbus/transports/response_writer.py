"""How one HTTP request is answered from a stream by its own task, each batch in one write."""

from contextlib import AbstractContextManager

import trio

from mcpbus.core.limit_monitor import LimitMonitor
from mcpbus.core.limits import Limits
from mcpbus.core.outbox import OutboundMessage
from mcpbus.protocol.http.messages import HttpResponse
from mcpbus.transports.response_encoder import StreamedResponse, are_replies
from mcpbus.transports.response_sinks import TaskResponse


class ResponseWriter:
    """Writes the response of one request, in its own task.

    Args:
        http: The request.
        opened: What is written.
        started: Whether the response has begun as an SSE stream.
    """

    def __init__(self, http: TaskResponse, opened: StreamedResponse, *, started: bool = False) -> None:
        self._http = http
        self._stream = opened.stream
        self._writer = opened.writer
        self._rendering = opened.render(started=started)
        self._batch: list[OutboundMessage] | None = []
        self._held = 0

    async def at_once(self) -> bool:
        """Answer in JSON if the reply is there within a few turns of the scheduler, and return whether it was.

        A client that disconnects meanwhile is noticed by the write, or not at all: the reply was made. The shell bounds
        the time that the write takes.
        """
        batch = self._batch = await self._writer.take_after_yield()
        if not batch or not self._rendering.is_whole(batch):
            return False
        with trio.CancelScope() as scope:
            self._writer.connection = _ResponseConnection(
                self._http, scope
            )  # to be given up where too much waits for clients
            await self._http.answer(self._rendering.whole(batch))
            self._writer.settle_written()
        return True

    async def run(self, limits: Limits) -> None:
        """Write what comes until the stream or the connection ends."""
        async with trio.open_nursery() as nursery:
            self._writer.connection = _ResponseConnection(self._http, nursery.cancel_scope)
            nursery.start_soon(watch, self._http, nursery.cancel_scope)
            while await self.step(nursery.cancel_scope, limits):
                pass
            nursery.cancel_scope.cancel()

    async def step(self, connection: trio.CancelScope, limits: Limits) -> bool:
        """Write the next batch, or a comment where there was none for the keep-alive time.

        Returns:
            Whether there may be more: not after the last message, nor after a write that missed its deadline,
            nor to a client that has gone meanwhile. What was being written then is not delivered.
        """
        rendering = self._rendering
        batch, self._batch = self._batch, []
        if not batch and batch is not None and not rendering.is_early:
            batch = await self._writer.take(float("inf") if rendering.is_patient else limits.keep_alive)
            if not batch and batch is not None and rendering.is_patient:
                # What woke it was purged, or is a wish that only an event could tell; there is nothing else to say.
                self._writer.retry = None
                return True
        if batch and self._may_wait(batch):
            self._writer.defer_batch()
            return True
        more = False
        stream = self._stream
        with bounded(self._http, stream.reached, limits.write_deadline, stream.owner) as deadline:
            more = await self._write(batch)
        if deadline.cancelled_caught or connection.cancel_called:
            return False
        if batch:
            self._writer.settle_written()
        return more

    async def _write(self, batch: list[OutboundMessage] | None) -> bool:
        rendering, writer = self._rendering, self._writer
        head = rendering.begin(batch)
        if isinstance(head, HttpResponse):
            await self._http.answer(head)
            return False
        if head is not None:
            await self._http.start_stream(head)
        keeps = batch is not None and not rendering.is_array
        before = rendering.prime(writer.retry, begins=head is not None) if keeps else b""
        first = await writer.store_batch() if keeps and batch else None
        data, more = rendering.piece(batch, before, first)
        await self._http.write(data, more=more)
        return more

    def _may_wait(self, batch: list[OutboundMessage]) -> bool:
        """Tell whether the answer can still become a JSON array: replies are there, and more of them are to come.

        If none has come since they were held back, it is time to keep the connection alive, as a stream.
        """
        held, self._held = self._held, len(batch)
        return self._rendering.may_become_array and len(batch) > held and are_replies(batch)


class _ResponseConnection:
    """The connection of one response, as its stream ends it; a `Cancellable`."""

    __slots__ = ("_http", "_scope")

    def __init__(self, http: TaskResponse, scope: trio.CancelScope) -> None:
        self._http = http
        self._scope = scope

    def cancel(self) -> None:
        """End the response, also in the middle of a write."""
        self._http.give_up()
        self._scope.cancel()


def bounded(
    http: TaskResponse, reached: LimitMonitor, seconds: float, whom: object
) -> AbstractContextManager[trio.CancelScope]:
    """Bound writes to a client by `Limits.write_deadline`, if they are not bounded where it is seen how much the client takes."""
    return trio.CancelScope() if http.bounds_writes else reached.writing(seconds, whom)


async def watch(http: TaskResponse, connection: trio.CancelScope) -> None:
    """Cancel the connection's scope when its client disconnects."""
    await http.disconnected()
    connection.cancel()
