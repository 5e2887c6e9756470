"""The answer of one request as a stream says it, written in the stack of whoever speaks: no task waits for it.

What is said first is written at once, or at the end of the present turn, if that is near. What follows within a millisecond goes
out together, one turn of the scheduler later; and so does what is said while a client has not taken the last of it.
"""

import math
from abc import ABC, abstractmethod
from typing import Final

import trio

from mcpbus.core.limits import Limits
from mcpbus.core.outbox import OutboundMessage
from mcpbus.transports.response import Opened

GATHER_SECONDS: Final = 0.001


class GatheringWriter(ABC):
    """Writes what comes on a stream; how it gets onto the wire is its version's of HTTP.

    Args:
        opened: The stream, which has no log and owes one reply at most.
        limits: How long the answer may be quiet, and its client slow.
    """

    __slots__ = (
        "_gathers",
        "_limits",
        "_over",
        "_rendering",
        "_sending",
        "_stream",
        "_writer",
        "_written_at",
    )

    def __init__(self, opened: Opened, limits: Limits) -> None:
        self._stream = opened.stream
        self._writer = opened.writer
        self._rendering = opened.render()
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
        if self._stream.outbox:
            self.write_now()
        if self._rendering.is_early:
            self.keep_alive()

    def cancel(self) -> None:
        """End in the middle of the answer: the client has left, another one has taken its place, or there is no room for it."""
        if not self._over:
            self._let_go()
            self._writer.__exit__()
            self.lose()

    @abstractmethod
    def keep_alive(self) -> None:
        """Say something without meaning, if there was nothing else for a while."""

    def write_now(self) -> None:
        """Write all that waits. See `Writer`."""
        self._gathers = False
        while not self._sending and not self._over:
            batch = self._writer.take_now()
            if batch == []:
                return
            self._write(batch)

    @abstractmethod
    def lose(self) -> None:
        """End what carries the answer. See `Writer`."""

    def _notice(self, final: bool) -> bool:
        """Hear that there is something to take; see `Writer`."""
        if (self._gathers and not final) or self._sending or self._over:
            return self._gathers
        if final or not (
            self._is_about_to_write() or trio.current_time() - self._written_at < GATHER_SECONDS
        ):
            self.write_now()
            return False
        self._gathers = True
        self._write_later()
        return True

    def _let_go(self) -> None:
        self._over = True
        self._writer.notify = self._writer.direct = self._writer.connection = None

    @abstractmethod
    def _write(self, batch: list[OutboundMessage] | None) -> None:
        """Write a batch, a comment if it is empty, or the end if there is none. Nothing is raised: whoever speaks is not to blame."""

    def _is_about_to_write(self) -> bool:
        """Tell whether the turn in which something is said is about to end, so that all that is said in it is one write."""
        return False

    @abstractmethod
    def _write_later(self) -> None:
        """Have `write_now` called in the next turn."""

    @abstractmethod
    def _keep_alive_later(self) -> None:
        """Have `keep_alive` called once the answer has been quiet for long enough."""
