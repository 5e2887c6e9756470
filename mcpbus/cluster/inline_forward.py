"""A request that another process serves, as long as nobody has to wait for it in a task: its answer is short, and whole."""

import math
from collections.abc import Awaitable
from functools import partial
from typing import Protocol

import msgspec

from mcpbus.cluster.forwarded_request import ForwardedRequest
from mcpbus.cluster.link import Link
from mcpbus.cluster.messages import FrameKind, decode_answered
from mcpbus.core.memory_budget import SHORT_BYTES
from mcpbus.core.receipt import DELIVERED, LOST, Fate, Receipt
from mcpbus.transports.ledger_responses import LedgerResponse
from mcpbus.transports.response_sinks import ResponseSink, TaskResponse


class GoOn(Protocol):
    """Answers a request that is on its way already in a task."""

    def __call__(self, http: TaskResponse, *, forwarded: ForwardedRequest | None = None) -> Awaitable[None]:
        """Answer it."""


class InlineForward:
    """Has a request served over a link, and its answer written by its sink.

    Args:
        link: Leads to who serves it.
        asked: What is asked, an encoded `Open`.
        go_on: Answers it in a task, if the answer is not what it is hoped to be.
    """

    __slots__ = ("_asked", "_go_on", "_left", "_link", "_number", "_sink")

    _number: int
    _sink: ResponseSink

    def __init__(self, link: Link, asked: bytes, go_on: GoOn) -> None:
        self._link = link
        self._asked = asked
        self._go_on = go_on
        self._left = False
        self._number = -1

    def ask(self, sink: ResponseSink) -> None:
        """Ask. No schedule point."""
        if not sink.on_handler_waiting(self, math.inf):
            sink.respond_in_task(self._go_on)
        elif not self._left:
            self._sink = sink
            self._number = self._link.open(self, self._asked, flush_last=sink.flush_last)

    def take(self, kind: int, payload: bytes) -> None:
        """See `LinkChannel`."""
        if kind != FrameKind.ANSWER or len(payload) > SHORT_BYTES:
            self._answer_apart().take(kind, payload)
            return
        said = decode_answered(payload)
        self._link.leave(self._number)
        answer = RelayedAnswer(said.status, said.headers, said.body, link=self._link, number=self._number)
        self._sink.finish(answer)

    def lose(self) -> None:
        """See `LinkChannel`."""
        self._answer_apart().lose()

    def keep_alive(self) -> None:
        """See `KeepAliveHandler`. Who serves it says when its client is told anything."""

    def cancel(self) -> None:
        """See `KeepAliveHandler`."""
        self._left = True
        if self._number >= 0:
            self._link.send(FrameKind.GONE, self._number)
            self._link.leave(self._number)

    def _answer_apart(self) -> ForwardedRequest:
        forwarded = ForwardedRequest(self._link, self._asked, self._number)
        self._sink.respond_in_task(partial(self._go_on, forwarded=forwarded))
        return forwarded


class RelayedAnswer(LedgerResponse, frozen=True, gc=False, kw_only=True):
    """An answer of another process, in whose books it is.

    It knows nothing of its request, which has it: of what knows each other in a circle, this would not be found.

    Attributes:
        link: Leads to that process.
        number: The channel on which it came.
    """

    link: Link
    number: int
    receipts: list[Receipt] = msgspec.field(default_factory=list)
    lost: Fate | None = LOST

    def settle(self, fate: Fate) -> None:
        """Report to that process what has become of it."""
        self.link.send_with_next(FrameKind.WRITTEN if fate is DELIVERED else FrameKind.GONE, self.number)
