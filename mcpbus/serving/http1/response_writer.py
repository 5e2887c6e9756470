"""The answer of one request as a stream says it, written in the stack of whoever speaks: no task waits for it.

What is said first is written at once. What follows within a millisecond goes out together, one turn of the scheduler
later. Only where the client does not take it fast enough does a task wait until it has.
"""

import math
from typing import Final, Protocol

import trio

from mcpbus.core.limits import Limits
from mcpbus.core.outbox import Outgoing
from mcpbus.protocol.http.messages import Answer
from mcpbus.serving.http1.request import Connection, Http1Request
from mcpbus.transports.response import Opened, Rendering

_GATHER_SECONDS: Final = 0.001


class Gathering(Connection, Protocol):
    """A connection that has what waits written together with what comes in the same turn."""

    def flush_later(self, writer: "Http1ResponseWriter", /) -> None:
        """Have `write_now` called after the turn: the connection's own, or the scheduler's."""


class Http1ResponseWriter:
    """Writes what comes on a stream to an HTTP/1.1 connection.

    Args:
        connection: The connection.
        request: The request that is answered.
        opened: The stream, which has no log and owes one reply at most.
        limits: How long the answer may be quiet, and its client slow.
    """

    __slots__ = (
        "_connection",
        "_gathers",
        "_limits",
        "_over",
        "_rendering",
        "_request",
        "_sending",
        "_stream",
        "_wire",
        "_writer",
        "_written_at",
    )

    def __init__(self, connection: Gathering, request: Http1Request, opened: Opened, limits: Limits) -> None:
        self._connection = connection
        self._wire = connection.wire
        self._request = request
        self._stream = opened.stream
        self._writer = opened.writer
        self._rendering = Rendering(opened)
        self._limits = limits
        self._gathers = False
        self._sending = False
        self._over = False
        self._written_at = -math.inf

    def begin(self) -> None:
        """Write what is there, and from now on what comes."""
        self._writer.connection = self
        self._writer.notify = self._notice
        self._keep_alive_later()
        self.write_now()
        if self._rendering.is_early:
            self.keep_alive()

    def cancel(self) -> None:
        """End the connection in the middle of the answer: it is lost, or another one has taken its place."""
        if not self._over:
            self._over = True
            self._writer.notify = self._writer.connection = None
            self._writer.__exit__()
            self._connection.lose()

    def keep_alive(self) -> None:
        """Say something without meaning, if there was nothing else for a while."""
        now, due = trio.current_time(), self._written_at + self._limits.keep_alive
        if now < due:
            self._wire.quiet_for(due - now)
        elif not self._sending and not self._over:
            self._write([])

    def write_now(self) -> None:
        """Write all that waits. See `Writer`."""
        self._gathers = False
        while not self._sending and not self._over:
            batch = self._writer.take_now()
            if batch == []:
                return
            self._write(batch)

    def _notice(self, final: bool) -> None:
        if self._sending or self._over or (self._gathers and not final):
            return
        if final or trio.current_time() - self._written_at >= _GATHER_SECONDS:
            self.write_now()
        else:
            self._gathers = True
            self._connection.flush_later(self)

    def _write(self, batch: list[Outgoing] | None) -> None:
        """Write a batch, a comment if it is empty, or the end if there is none. Nothing is raised: whoever speaks is not to blame."""
        request = self._request
        try:
            data = self._encode(batch)
            self._send(data, said=bool(batch), last=request.ended)
        except Exception as failure:  # noqa: BLE001 - a field of the head may be one that HTTP cannot say
            self._connection.fail(failure, request.head)

    def _encode(self, batch: list[Outgoing] | None) -> bytes:
        rendering, request = self._rendering, self._request
        head = rendering.begin(batch)
        if isinstance(head, Answer):
            return request.encode_answer(head)
        if head is not None:
            request.begin_stream(head)
        data, more = rendering.piece(batch)
        return request.encode_piece(data, more=more)

    def _send(self, data: bytes, *, said: bool, last: bool) -> None:
        self._written_at = trio.current_time()
        rest = self._wire.send_now(data)
        if rest is None:
            self.cancel()
        elif rest:
            self._sending = True
            self._connection.start(self._send_rest, rest, said, last)
        else:
            self._sent(said=said, last=last)

    async def _send_rest(self, rest: bytes, said: bool, last: bool) -> None:
        with self._stream.reached.writing(self._limits.write_deadline, self._stream.owner) as deadline:
            await self._wire.send(rest)
        if self._over:
            return
        if deadline.cancelled_caught or self._wire.gone:
            self.cancel()
            return
        self._sending = False
        self._sent(said=said, last=last)
        self.write_now()

    def _sent(self, *, said: bool, last: bool) -> None:
        if last:
            # The stream may end as soon as it hears of this, and would say so.
            self._over = True
            self._writer.notify = self._writer.connection = None
        if said:
            self._writer.written()  # with the last of it the stream ends
        if last:
            self._connection.answered(self._request)
        elif not self._over and self._wire.expires == math.inf:
            self._keep_alive_later()

    def _keep_alive_later(self) -> None:
        patient = self._rendering.is_patient
        self._wire.quiet_for(math.inf if patient else self._limits.keep_alive)
