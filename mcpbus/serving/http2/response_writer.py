"""The answer of one HTTP/2 request as a stream says it."""

import math
from functools import partial

import trio

from mcpbus.core.limits import Limits
from mcpbus.core.outbox import OutboundMessage
from mcpbus.protocol.http.messages import HttpResponse
from mcpbus.serving.http2.frames import LONGEST_PAYLOAD
from mcpbus.serving.http2.request import Http2Request
from mcpbus.serving.http2.send_scheduler import Sent
from mcpbus.serving.response_writer import GatheringWriter
from mcpbus.serving.write_coalescer import WriteCoalescer
from mcpbus.transports.response_encoder import StreamedResponse
from mcpbus.transports.responses import HeaderList


class Http2ResponseWriter(GatheringWriter):
    """Writes what comes on a stream to an HTTP/2 stream.

    Args:
        request: The request that is answered.
        opened: The stream.
        limits: How long the answer may be quiet, and its client slow.
        coalescer: Has what comes in a row written together.
    """

    __slots__ = ("_request", "_unsent")

    def __init__(
        self, request: Http2Request, opened: StreamedResponse, limits: Limits, coalescer: WriteCoalescer
    ) -> None:
        super().__init__(opened, limits, coalescer)
        self._request = request
        self._unsent = 0  # how much waited for the client's windows when it was last looked at

    def keep_alive(self) -> None:
        """Say something without meaning, if there was nothing else for a while; or give up a client that does not take what was said."""
        now, limits = trio.current_time(), self._limits
        due = self._written_at + (limits.write_deadline if self._sending else limits.keep_alive)
        if self._over or self._keeping:
            return
        if now < due:
            self._request.wake_at(due)
        elif self._sending and self._has_moved():
            self._written_at = now
            self._request.wake_at(now + limits.write_deadline)
        elif self._sending:
            self._stream.reached.missed_write(self._stream.owner)
            self.cancel()
        else:
            self._write_quiet()

    def _has_moved(self) -> bool:
        """Whether the client has taken enough of what waits since it was last looked at; one that is slow may take its time."""
        before, self._unsent = self._unsent, self._request.answering.unsent
        return before - self._unsent >= LONGEST_PAYLOAD

    def lose(self) -> None:
        """See `GatheringWriter`."""
        self._request.lose()

    def _begin(self, head: HeaderList) -> None:
        self._request.begin(head)

    def _answer(self, answer: HttpResponse, *, said: bool) -> None:
        self._sending = True
        self._written_at = trio.current_time()
        self._request.say_whole(answer, self._sent(said=said, last=True))
        self._unsent = self._request.answering.unsent

    def _send(self, data: bytes, *, said: bool, last: bool) -> None:
        self._sending = True
        self._written_at = trio.current_time()
        self._request.answering.say(data, last=last, sent=self._sent(said=said, last=last))
        if self._sending:
            self._unsent = self._request.answering.unsent
            self._request.wake_at(self._written_at + self._limits.write_deadline)

    def _send_one(self, message: OutboundMessage, data: bytes) -> bool:
        if message.final or not self._request.answering.say_by_itself(
            data, partial(self._begin_one, message)
        ):
            return False
        if not self._sending:
            message.receipt.emit_delivered()
        return True

    def _begin_one(self, message: OutboundMessage) -> Sent:
        self._writer.start_writing(message)
        self._sending = True
        self._unsent = 0
        self._request.wake_at(self._clock() + self._limits.write_deadline)
        return self._sent(said=True, last=False)

    def _fail(self, failure: Exception) -> None:
        self._leave()  # first: the client may still be told of the failure, and nothing else
        self._request.fail(failure)

    def _sent(self, *, said: bool, last: bool) -> Sent:
        def sent(whole: bool) -> None:
            self._sending = False
            if not whole:
                self.cancel()
            if self._over:
                return
            self._written(said=said, last=last)
            if not last and not self._over:
                self._keep_alive_later()
                self.write_now()

        return sent

    def _keep_alive_later(self) -> None:
        self._request.wake_at(
            math.inf if self._rendering.is_patient else trio.current_time() + self._limits.keep_alive
        )
