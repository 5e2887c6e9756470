"""Limits that were reached: each time is counted, and the log has a line a minute for each limit, since clients decide how often."""

import logging
from collections.abc import Mapping
from types import MappingProxyType, TracebackType
from typing import Final, Protocol

import attrs
import trio

from mcpbus.protocol.printable import quoted

_log = logging.getLogger("mcpbus")

QUIET_SECONDS: Final = 60.0
"""After a line about one limit: how long nothing more is said of it."""
_LONGEST_NAME: Final = 100


class LimitRecorder(Protocol):
    """Records the limits that were reached."""

    def limit_reached(self, limit: str, whom: object, consequence: str, /) -> None:
        """Record one; see `LimitMonitor.note`. Never waits, nor raises."""


class LimitMonitor:
    """What the limits of one server had to keep out, or to end, by the name of each limit.

    Attributes:
        counts: How often each was reached, by the name of the option that sets it.
        recorder: Records each time; None for nothing.
    """

    __slots__ = ("_counts", "_quiet_until", "_unsaid", "counts", "recorder")

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._quiet_until: dict[str, float] = {}
        self._unsaid: dict[str, int] = {}
        self.counts: Mapping[str, int] = MappingProxyType(self._counts)
        self.recorder: LimitRecorder | None = None

    def note(self, limit: str, whom: object, consequence: str, *, usual: bool = False) -> None:
        """Count that a limit was reached. From trio's thread only; it never waits.

        Args:
            limit: The name of the option that sets it, such as ``max_sessions``: one of few, never a client's text.
            whom: Who reached it: a principal or a peer's address; None where nobody in particular did. The log has its `str`, which
                is up to the author of its class: with a secret in it, it is no principal.
            consequence: What was done about it, for people: ``a new session was refused``.
            usual: Whether that is how such things end, such as a session whose client has gone: worth no warning in the log.
        """
        self._counts[limit] = self._counts.get(limit, 0) + 1
        if self.recorder is not None:
            self.recorder.limit_reached(limit, whom, consequence)
        now = trio.current_time()
        if now < self._quiet_until.get(limit, now):
            self._unsaid[limit] = self._unsaid.get(limit, 0) + 1
            return
        self._quiet_until[limit] = now + QUIET_SECONDS
        unsaid = self._unsaid.pop(limit, 0)
        _log.log(
            logging.INFO if usual else logging.WARNING,
            "%s was reached%s: %s%s",
            limit,
            "" if whom is None else f" by {name_of(whom)}",
            consequence,
            f" (and {unsaid} times more since the last line about it)" if unsaid else "",
        )

    def writing(self, seconds: float, whom: object) -> "Writing":
        """Bound a write to a client by `Limits.write_deadline`, and note if that is reached: ``with reached.writing(...): ...``.

        Args:
            seconds: The limit.
            whom: Who is written to, as for `note`.
        """
        return Writing(self, seconds, whom)

    def missed_write(self, whom: object) -> None:
        """Note that a client did not take what was written to it within `Limits.write_deadline`."""
        self.note("write_deadline", whom, "a connection whose client did not read was given up")


class Writing:
    """The block that `LimitMonitor.writing` bounds; ends as that of `trio.move_on_after`, and gives the same scope."""

    __slots__ = ("_reached", "_scope", "_whom")

    def __init__(self, reached: LimitMonitor, seconds: float, whom: object) -> None:
        self._reached = reached
        self._whom = whom
        self._scope = trio.CancelScope(relative_deadline=seconds)

    def __enter__(self) -> trio.CancelScope:
        """Begin to write."""
        return self._scope.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        """End, and note it if the time was over first."""
        swallowed = self._scope.__exit__(kind, value, traceback)
        if self._scope.cancelled_caught:
            self._reached.missed_write(self._whom)
        return swallowed


def name_of(whom: object) -> str:
    """Return what somebody is called in the log: one line, and not a long one, whatever an author's class makes of it."""
    try:
        name = str(whom)
    except Exception:  # noqa: BLE001 - the author's own code, and nobody's request
        name = f"somebody whose {type(whom).__qualname__} has no text"
    return quoted(name, _LONGEST_NAME)


_SECONDS: Final = 60.0
_MOST: Final = 10
"""Lines of one kind that are written in so many seconds."""


@attrs.define
class _Kind:
    """What was said of one kind lately.

    Attributes:
        until: When what was said before does not count any more, by trio's clock.
        said: How many lines.
        unsaid: How many more there were.
    """

    until: float
    said: int = 0
    unsaid: int = 0


class RateLimitedLogger:
    """Lines about the clients of one server: of each kind a few in a minute, and how many there were besides.

    Args:
        logger: Who writes them.
        level: How much they matter.
    """

    def __init__(self, logger: logging.Logger, level: int = logging.WARNING) -> None:
        self._logger = logger
        self._level = level
        self._kinds: dict[str, _Kind] = {}

    def warn(self, text: str, *args: object, exc_info: BaseException | None = None) -> None:
        """Write a line, or count it.

        Args:
            text: What is said, with places for the arguments, and so of which kind it is: one of few, never a client's text.
            args: The arguments.
            exc_info: What was raised, if that is to be seen.
        """
        now, kind = trio.current_time(), self._kinds.get(text)
        more = 0
        if kind is None or now >= kind.until:
            more = 0 if kind is None else kind.unsaid
            kind = self._kinds[text] = _Kind(now + _SECONDS)
        elif kind.said == _MOST:
            kind.unsaid += 1
            return
        kind.said += 1
        if more:
            text, args = f"{text} (and %d times more since the last line about it)", (*args, more)
        self._logger.log(self._level, text, *args, exc_info=exc_info)
