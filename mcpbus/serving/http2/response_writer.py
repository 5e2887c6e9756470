"""The answer of one HTTP/2 request as a stream says it, written in the stack of whoever speaks: no task waits for it."""

import math
from typing import Final, Protocol

import trio

from mcpbus.core.limits import Limits
from mcpbus.core.outbox import Outgoing
from mcpbus.protocol.http.messages import Answer
from mcpbus.transports.answers import HeaderList
from mcpbus.transports.response import Opened, Rendering

_GATHER_SECONDS: Final = 0.001


class Request(Protocol):
    """What is answered."""

    def begin(self, headers: HeaderList, /) -> None:
        """Begin an answer of status 200 in pieces."""

    def say(self, data: bytes, /, *, last: bool, sent: "Sent") -> None:
        """Say a piece of it."""

    def say_whole(self, answer: Answer, /, sent: "Sent") -> None:
        """Say the whole answer."""

    def wake_at(self, time: float, /) -> None:
        """Have `wake` called then."""

    def write_later(self, writer: "Http2ResponseWriter", /) -> None:
        """Have `write_now` called in the next turn of the scheduler."""

    def lose(self) -> None:
        """End in the middle of the answer."""

    def fail(self, failure: BaseException, /) -> None:
        """Report a failure, and end."""


class Sent(Protocol):
    """Told once when what was said is written, or lost."""

    def __call__(self, whole: bool, /) -> None:
        """Take note of it."""


class Http2ResponseWriter:
    """Writes what comes on a stream to an HTTP/2 stream.

    What is said first is written at once. What follows within a millisecond goes out together, one turn of the scheduler later; and
    so does what is said while the last piece is on its way.

    Args:
        request: The request that is answered.
        opened: The stream, which has no log and owes one reply at most.
        limits: How long the answer may be quiet, and its client slow.
    """

    __slots__ = (
        "_gathers",
        "_limits",
        "_over",
        "_rendering",
        "_request",
        "_saying",
        "_stream",
        "_writer",
        "_written_at",
    )

    def __init__(self, request: Request, opened: Opened, limits: Limits) -> None:
        self._request = request
        self._stream = opened.stream
        self._writer = opened.writer
        self._rendering = Rendering(opened)
        self._limits = limits
        self._gathers = False
        self._saying = False
        self._over = False
        self._written_at = -math.inf

    def begin(self) -> None:
        """Write what is there, and from now on what comes."""
        self._writer.connection = self
        self._writer.notify = self._notice
        self._keep_alive_later()
        self.write_now()
        if self._rendering.is_early:
            self.wake()

    def cancel(self) -> None:
        """End in the middle of the answer: the client has left, or there is no room for what it does not read."""
        if not self._over:
            self._let_go()
            self._writer.__exit__()
            self._request.lose()

    def wake(self) -> None:
        """Say something without meaning, if there was nothing else for a while; or give up a client that does not take what was said."""
        now, limits = trio.current_time(), self._limits
        due = self._written_at + (limits.write_deadline if self._saying else limits.keep_alive)
        if self._over:
            return
        if now < due:
            self._request.wake_at(due)
        elif self._saying:
            self._stream.reached.missed_write(self._stream.owner)
            self.cancel()
        else:
            self._write([])

    def write_now(self) -> None:
        """Write all that waits. See `Writer`."""
        self._gathers = False
        while not self._saying and not self._over:
            batch = self._writer.take_now()
            if batch == []:
                return
            self._write(batch)

    def _notice(self, final: bool) -> None:
        if self._saying or self._over or (self._gathers and not final):
            return
        if final or trio.current_time() - self._written_at >= _GATHER_SECONDS:
            self.write_now()
        else:
            self._gathers = True
            self._request.write_later(self)

    def _write(self, batch: list[Outgoing] | None) -> None:
        """Write a batch, a comment if it is empty, or the end if there is none. Nothing is raised: whoever speaks is not to blame."""
        request, rendering = self._request, self._rendering
        self._saying = True
        self._written_at = trio.current_time()
        try:
            head = rendering.begin(batch)
            if isinstance(head, Answer):
                request.say_whole(head, self._sent(said=bool(batch), last=True))
                return
            if head is not None:
                request.begin(head)
            data, more = rendering.piece(batch)
            request.say(data, last=not more, sent=self._sent(said=bool(batch), last=not more))
            if self._saying:
                request.wake_at(self._written_at + self._limits.write_deadline)
        except Exception as failure:  # noqa: BLE001 - a field of the head may be one that HTTP cannot say
            request.fail(failure)

    def _sent(self, *, said: bool, last: bool) -> Sent:
        def sent(whole: bool) -> None:
            self._saying = False
            if not whole:
                self.cancel()
            if self._over:
                return
            if last:
                # The stream may end as soon as it hears of this, and would say so.
                self._let_go()
            if said:
                self._writer.written()  # with the last of it the stream ends
            if not last and not self._over:
                self._keep_alive_later()
                self.write_now()

        return sent

    def _let_go(self) -> None:
        self._over = True
        self._writer.notify = self._writer.connection = None

    def _keep_alive_later(self) -> None:
        self._request.wake_at(
            math.inf if self._rendering.is_patient else trio.current_time() + self._limits.keep_alive
        )
