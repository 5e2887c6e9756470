"""Both ends of a request that another process serves: what the client is connected to, and what serves it."""

from collections import deque
from types import TracebackType
from typing import Any, Self

import trio

from mcpbus.cluster.frames import Kind
from mcpbus.cluster.link import Link
from mcpbus.cluster.messages import Answered, Open, Said, Started, encode
from mcpbus.protocol.http.headers import Headers
from mcpbus.protocol.http.messages import Answer, Head
from mcpbus.protocol.owners import Peer
from mcpbus.transports.answers import HeaderList


class LinkLostError(Exception):
    """The process that serves a request cannot be reached any more."""


class ElsewhereError(Exception):
    """Another process than was asked is to go on with a request."""


class ForwardedRequest:
    """A request, where its client is connected: ``with ForwardedRequest(link, asked) as forwarded``.

    Args:
        link: Leads to who serves it.
        asked: What is asked.

    Attributes:
        elsewhere: Which process is to go on with it; None as long as that is who was asked.
    """

    def __init__(self, link: Link, asked: Open) -> None:
        self.elsewhere: str | None = None
        self._link = link
        self._asked = asked
        self._said: deque[tuple[int, bytes]] = deque()
        self._something = trio.Event()
        self._lost = False
        self._ended = False

    def __enter__(self) -> Self:
        """Ask."""
        self._lost = self._link.closed
        self._number = self._link.open(self, encode(self._asked))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Let go of it; who still serves it is told that the client has gone."""
        if not self._ended:
            self._link.send(Kind.GONE, self._number)
        self._link.leave(self._number)

    async def next(self) -> tuple[int, bytes]:
        """Return what is said next.

        Raises:
            LinkLostError: Nothing more will be.
            ElsewhereError: Another process says it: `elsewhere`.
        """
        while not self._said:
            if self._lost:
                raise LinkLostError
            self._something = trio.Event()
            await self._something.wait()
        kind, payload = self._said.popleft()
        if kind == Kind.ELSEWHERE:
            self._ended = True
            self.elsewhere = payload.decode()
            raise ElsewhereError
        return kind, payload

    def written(self, *, more: bool) -> None:
        """Tell that what was said last has been written to the client, and whether that was not the end of the answer."""
        self._ended = not more
        self._link.send(Kind.WRITTEN, self._number)

    def take(self, kind: int, payload: bytes) -> None:
        """See `Channel`."""
        self._said.append((kind, payload))
        self._something.set()

    def lose(self) -> None:
        """See `Channel`."""
        self._lost = self._ended = True
        self._something.set()


class LinkedRequest:
    """A request, where it is served: an `HttpRequest` whose client is connected to another process.

    Args:
        link: Leads there.
        number: Its channel.
        asked: What is asked.
    """

    cleared = False
    host = None

    def __init__(self, link: Link, number: int, asked: Open) -> None:
        self.head = Head(asked.verb, asked.path, Headers(asked.fields), asked.query, asked.root)
        self.peer = Peer.at(asked.peer)
        self._link = link
        self._number = number
        self._body = asked.body
        self._gone = trio.Event()
        self._settled = trio.Event()
        self._written = False
        self._started = False

    async def read_body(self, limit: int) -> bytes | None:
        """See `HttpRequest`."""
        await trio.lowlevel.checkpoint()
        body, self._body = self._body, b""
        return body if len(body) <= limit else None

    async def answer(self, reply: Answer) -> None:
        """See `HttpRequest`."""
        await self._say(Kind.ANSWER, _answered(reply))

    async def start_stream(self, headers: HeaderList) -> None:
        """See `HttpRequest`."""
        self._started = True
        self._link.send(Kind.START, self._number, encode(Started(list(headers))))

    async def write(self, data: bytes, *, more: bool) -> None:
        """See `HttpRequest`. Returns when the client has it."""
        await self._say(Kind.DATA, Said(data, more))

    async def disconnected(self) -> None:
        """See `HttpRequest`."""
        await self._gone.wait()

    async def _say(self, kind: Kind, said: Any) -> None:
        self._started = True
        self._written = False
        if not self._gone.is_set():
            self._settled = trio.Event()
            self._link.send(kind, self._number, encode(said))
        await self._settled.wait()
        if not self._written:
            raise trio.BrokenResourceError("the client has gone")

    def fail(self, reply: Answer) -> None:
        """Answer what could not be served, if nothing was said yet; nobody waits until that is written."""
        if not self._started:
            self._link.send(Kind.ANSWER, self._number, encode(_answered(reply)))

    def leave_to(self, home: str) -> None:
        """Tell that another process says what is to be said next; who waits here for something to be written is told that it is not."""
        self._started = True
        self._link.send(Kind.ELSEWHERE, self._number, home.encode())
        self.lose()

    def end(self) -> None:
        """Tell that nothing more is said."""
        self._link.send(Kind.END, self._number)
        self._link.leave(self._number)

    def take(self, kind: int, _payload: bytes) -> None:
        """See `Channel`."""
        if kind == Kind.GONE:
            self.lose()
        elif kind == Kind.WRITTEN:
            self._written = True
            self._settled.set()

    def lose(self) -> None:
        """See `Channel`."""
        self._gone.set()
        self._settled.set()


def _answered(reply: Answer) -> Answered:
    return Answered(reply.status, list(reply.headers), reply.body)
