"""A request that another process serves, where its client is connected."""

from collections import deque
from types import TracebackType
from typing import Self

import trio

from mcpbus.cluster.link import Link
from mcpbus.cluster.messages import FrameKind


class LinkLostError(Exception):
    """The process that serves a request cannot be reached any more."""


class RedirectToNodeError(Exception):
    """Another process than was asked is to go on with a request."""


class ForwardedRequest:
    """A request, where its client is connected: ``with ForwardedRequest(link, asked) as forwarded``.

    Args:
        link: Leads to who serves it.
        asked: What is asked, an encoded `Open`.
        number: Its channel, if that was opened already.

    Attributes:
        elsewhere: Which process is to go on with it; None as long as that is who was asked, empty if who was asked has ended.
    """

    def __init__(self, link: Link, asked: bytes, number: int | None = None) -> None:
        self.elsewhere: str | None = None
        self._link = link
        self._asked = asked
        self._said: deque[tuple[int, bytes]] = deque()
        self._something = trio.Event()
        self._lost = link.closed
        self._ended = False
        self._begun = False
        self._reconnects = False
        self._number = -1
        if number is not None:
            self._number = number
            link.enter(number, self)

    def __enter__(self) -> Self:
        """Ask."""
        if self._number < 0:
            self._number = self._link.open(self, self._asked)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Let go of it; who still serves it is told that the client has gone."""
        if not self._ended:
            self._link.send(FrameKind.GONE, self._number)
        self._link.leave(self._number)

    async def next(self) -> tuple[int, bytes]:
        """Return what is said next.

        Raises:
            LinkLostError: Nothing more will be.
            RedirectToNodeError: Another process says it: `elsewhere`; whoever is found if that is empty.
        """
        while not self._said:
            if self._lost:
                raise LinkLostError
            self._something = trio.Event()
            await self._something.wait()
        kind, payload = self._said.popleft()
        if kind in {FrameKind.ELSEWHERE, FrameKind.GOODBYE}:
            self._ended = True
            self.elsewhere = payload.decode()
            raise RedirectToNodeError
        return kind, payload

    def reconnect(self) -> None:
        """Ask that the answer, a GET stream, ends in order once it has begun, so that its client opens another one, at another process."""
        self._reconnects = True
        if self._begun:
            self._link.send(FrameKind.RECONNECT, self._number)

    def written(self, *, more: bool) -> None:
        """Tell that what was said last has been written to the client, and whether that was not the end of the answer."""
        self._ended = not more
        self._link.send(FrameKind.WRITTEN, self._number)

    def take(self, kind: int, payload: bytes) -> None:
        """See `LinkChannel`."""
        self._said.append((kind, payload))
        self._something.set()
        if kind == FrameKind.START:
            self._begun = True
            if self._reconnects:
                self.reconnect()

    def lose(self) -> None:
        """See `LinkChannel`."""
        self._lost = self._ended = True
        self._something.set()
