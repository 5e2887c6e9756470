"""The sending half of one HTTP/2 stream: what is said of an answer, until it is written or lost."""

from collections.abc import Callable
from functools import partial
from typing import Protocol

import trio

from mcpbus.serving.http2.connection_writer import ConnectionWriter
from mcpbus.serving.http2.hpack_encoder import encode_early_head, encode_head
from mcpbus.serving.http2.send_scheduler import Http2SendScheduler, Outgoing, Sent
from mcpbus.transports.responses import HeaderList


class Http2SendOwner(Protocol):
    """The connection of a stream.

    Attributes:
        sending: Sends answers.
        writer: Writes what was sent.
    """

    sending: Http2SendScheduler
    writer: ConnectionWriter

    def said_last(self, stream_id: int, /, *, whole: bool) -> None:
        """Hear that the last of an answer was written, or lost."""


class SendStream:
    """Says an answer.

    Args:
        connection: Its connection. Not the request, which would then know itself through this, and be collected late.
        stream_id: The stream.
        bodiless: Whether only the head of the answer is asked for.

    Attributes:
        started: Whether something of the answer was said.
        ended: Whether the end of it was said.
        gone: Whether nothing more can be said.
    """

    __slots__ = ("_bodiless", "_connection", "_outgoing", "_unsaid", "_waiting", "ended", "gone", "started")

    def __init__(self, connection: Http2SendOwner, stream_id: int, *, bodiless: bool) -> None:
        self._connection = connection
        self._bodiless = bodiless
        self._outgoing = Outgoing(stream_id)
        self._unsaid: HeaderList | None = None  # a head that waits for what comes after it
        self._waiting: trio.Event | None = None
        self.started = False
        self.ended = False
        self.gone = False

    @property
    def unsent(self) -> int:
        """How many bytes of what was said wait for the client to open its windows."""
        return len(self._outgoing.data)

    @property
    def expires(self) -> float:
        """When its client has opened too little of a window for too long."""
        return self._outgoing.expires

    @property
    def is_stalled(self) -> bool:
        """Whether it has."""
        return self._connection.sending.is_stalled(self._outgoing)

    @property
    def is_open(self) -> bool:
        """Whether anything can be said."""
        return not self.gone and self._connection.sending.protocol.is_open(self._outgoing.stream_id)

    def drop(self) -> None:
        """Lose what waits: the stream has gone."""
        self._connection.sending.drop(self._outgoing)

    # -- a head ----------------------------------------------------------------------------------

    def say_early(self, status: int) -> None:
        """Say that the answer will come."""
        if self.is_open:
            protocol = self._connection.sending.protocol
            protocol.say_head(self._outgoing.stream_id, encode_early_head(status), last=False)
            self._connection.writer.flush()

    def say_head(self, status: int, fields: HeaderList) -> None:
        """Say the head of the answer, which a body follows.

        Raises:
            ValueError: A field cannot be said in HTTP.
        """
        self._say_head(encode_head(status, fields), last=False)

    def _say_head(self, block: bytes, *, last: bool) -> None:
        self._connection.sending.protocol.say_head(self._outgoing.stream_id, block, last=last)
        self.started = True

    def begin(self, fields: HeaderList) -> None:
        """Begin an answer of status 200 in pieces; its head goes out with the first one."""
        self._unsaid = fields

    # -- a body ----------------------------------------------------------------------------------

    def say(self, data: bytes, *, last: bool, sent: Sent) -> None:
        """Say a piece of the answer."""
        if not self.is_open:
            sent(False)
            return
        if self._unsaid is not None:
            fields, self._unsaid = self._unsaid, None
            self.say_head(200, fields)
        if self._bodiless:
            data = b""
        if data or last:
            self._say(data, last=last, sent=sent)
        else:
            self._connection.sending.said_head(sent)
        self._connection.writer.flush()

    def say_by_itself(self, data: bytes, begin: Callable[[], Sent]) -> bool:
        """Say a piece in the middle of the answer where nothing else is to be written; see `ConnectionWriter.write_piece`."""
        if self.gone or self._bodiless or self._unsaid is not None:
            return False
        return self._connection.writer.write_piece(self._outgoing.stream_id, data, begin)

    def say_whole(self, block: bytes, body: bytes, *, last: bool, sent: Sent) -> None:
        """Say a whole answer, of whose head this is the block; all but its end, if that is not the `last`."""
        if not self.is_open:
            sent(False)
            return
        if self._bodiless:
            body = b""
        self._say_head(block, last=last and not body)
        if body:
            self._say(body, last=last, sent=sent)
        else:
            self.ended = last
            self._connection.sending.said_head(partial(self._sent_last, sent) if last else sent)
        self._connection.writer.flush()

    def say_at_once(self, block: bytes, body: bytes, sent: Sent) -> bool:
        """Say a whole answer if it is short and nobody's turn comes before, and return whether that could be done."""
        connection, stream_id = self._connection, self._outgoing.stream_id
        if self.gone or self._bodiless or not connection.sending.say_answer(stream_id, block, body, sent):
            return False
        self.started = self.ended = True
        connection.writer.flush()
        return True

    def _say(self, data: bytes, *, last: bool, sent: Sent) -> None:
        self.ended = last
        if last:
            sent = partial(self._sent_last, sent)
        self._connection.sending.say(self._outgoing, data, last=last, sent=sent)

    def _sent_last(self, sent: Sent, whole: bool) -> None:
        sent(whole)
        self._connection.said_last(self._outgoing.stream_id, whole=whole)

    async def wait_sent(self, say: Callable[..., None]) -> None:
        """Say something, and wait until it is written.

        Raises:
            trio.BrokenResourceError: It was lost.
        """
        if self._waiting is not None:
            await self._waiting.wait()  # for what was said by one who was cancelled before it was written
        outcome: list[bool] = []
        done = self._waiting = trio.Event()

        def sent(whole: bool) -> None:
            outcome.append(whole)
            done.set()

        say(sent=sent)
        await done.wait()
        if not outcome[0]:
            raise trio.BrokenResourceError("the client has gone, or accepted nothing for too long")
