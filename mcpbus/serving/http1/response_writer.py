"""The answer of one HTTP/1.1 request as a stream says it. Only where the client does not take it fast enough does a task wait until it has."""

import math

import trio

from mcpbus.core.limits import SLICE_BYTES, Limits
from mcpbus.core.outbox import OutboundMessage
from mcpbus.protocol.http.messages import HttpResponse
from mcpbus.serving.http1.request import Http1Request, Http1RequestConnection
from mcpbus.serving.response_writer import GatheringWriter
from mcpbus.transports.response_encoder import StreamedResponse
from mcpbus.transports.responses import HeaderList


class Http1ResponseWriter(GatheringWriter):
    """Writes what comes on a stream to an HTTP/1.1 connection.

    Args:
        connection: The connection.
        request: The request that is answered.
        opened: The stream.
        limits: How long the answer may be quiet, and its client slow.
    """

    __slots__ = ("_connection", "_request", "_wire")

    def __init__(
        self,
        connection: Http1RequestConnection,
        request: Http1Request,
        opened: StreamedResponse,
        limits: Limits,
    ) -> None:
        super().__init__(opened, limits, connection.service.coalescer)
        self._connection = connection
        self._wire = connection.wire
        self._request = request

    def _send_one(self, message: OutboundMessage, data: bytes) -> bool:
        last = message.final
        rest = self._wire.send_now(self._request.encode_piece(data, more=not last))
        if rest:
            self._writer.start_writing(message)
            self._sending = True
            self._connection.start(self._send_rest, rest, True, last)
        elif rest is None:
            return False  # what comes of it is seen when it is tried again
        else:
            message.receipt.emit_delivered()
            if last:
                self._sent(said=True, last=True)
        return True

    def keep_alive(self) -> None:
        """Say something without meaning, if there was nothing else for a while."""
        now, due = trio.current_time(), self._written_at + self._limits.keep_alive
        if now < due:
            self._wire.quiet_for(due - now)
        elif not (self._sending or self._keeping or self._over):
            self._write_quiet()

    def _is_about_to_write(self) -> bool:
        return self._coalescer.in_brief_turn

    def lose(self) -> None:
        """See `GatheringWriter`."""
        self._connection.lose()

    def _begin(self, head: HeaderList) -> None:
        self._request.begin_stream(head)

    def _answer(self, answer: HttpResponse, *, said: bool) -> None:
        self._send_now(self._request.encode_answer(answer), said=said, last=True)

    def _send(self, data: bytes, *, said: bool, last: bool) -> None:
        piece = self._request.encode_piece(data, more=not last)
        # As if all that HTTP adds came first: then nothing counts as taken that was not.
        self._taken = len(data) - len(piece)
        self._send_now(piece, said=said, last=last)

    def _fail(self, failure: Exception) -> None:
        self._connection.fail(failure, self._request.head)

    def _send_now(self, data: bytes, *, said: bool, last: bool) -> None:
        self._written_at = trio.current_time()
        rest = self._wire.send_now(data)
        if rest is None:
            self.cancel()
        elif rest:
            self._sending = True
            self._taken += len(data) - len(rest)
            self._connection.start(self._send_rest, rest, said, last)
        else:
            self._sent(said=said, last=last)

    async def _send_rest(self, rest: bytes, said: bool, last: bool) -> None:
        with self._stream.reached.writing(self._limits.write_deadline, self._stream.owner) as deadline:
            for start in range(0, len(rest), SLICE_BYTES):
                await self._wire.send(rest[start : start + SLICE_BYTES])
                if self._over or self._wire.gone:
                    break
                self._took(SLICE_BYTES)
        if self._over:
            return
        if deadline.cancelled_caught or self._wire.gone:
            self.cancel()
            return
        self._sending = False
        self._sent(said=said, last=last)
        self.write_now()

    def _sent(self, *, said: bool, last: bool) -> None:
        self._written(said=said, last=last)
        if last:
            self._connection.answered(self._request)
        elif not self._over and self._wire.expires == math.inf:
            self._keep_alive_later()

    def _keep_alive_later(self) -> None:
        patient = self._rendering.is_patient
        self._wire.quiet_for(math.inf if patient else self._limits.keep_alive)
