"""A case in virtual time, the same each time it is run, with what the server logs as a fault taken for one."""

import itertools
import logging
import random
import secrets
from collections.abc import Awaitable, Callable
from unittest import mock

import trio
import trio.testing

from mcpbus import Bus


class HandlerError(Exception):
    """What handlers raise on purpose; the server has to log it."""


class _Watch(logging.Handler):
    """Keeps what is logged as an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.faults: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, HandlerError):
            self.faults.append(f"{record.name}: {record.getMessage()}: {error!r}")


def play(main: Callable[..., Awaitable[None]], *arguments: object) -> None:
    """Run `main` in virtual time.

    What would be unguessable is counted instead: ``token-1`` is the name of the first session, or whatever it is that
    needs a name first.

    Raises:
        AssertionError: The server has logged an error that no handler raised on purpose.
    """
    random.seed(0)
    trio._core._run._r.seed(0)
    watch, numbers = _Watch(), itertools.count(1)

    def counted(_: int | None = None) -> str:
        return f"token-{next(numbers)}"

    logger = logging.getLogger("mcpbus")
    logger.addHandler(watch)
    logger.propagate = False
    try:
        with (
            mock.patch.object(trio._core._run, "_ALLOW_DETERMINISTIC_SCHEDULING", True),
            mock.patch.object(secrets, "token_urlsafe", counted),
        ):
            trio.run(main, *arguments, clock=trio.testing.MockClock(autojump_threshold=0))
    finally:
        logger.removeHandler(watch)
        logger.propagate = True
    assert watch.faults == []


def assert_balanced(bus: Bus) -> None:
    """Every message is accounted for."""
    assert bus.ledger.balance() == 0, f"{bus.ledger.balance()} messages are missing from the books"
    assert min(bus.ledger.pending.values()) >= 0, bus.ledger.pending


def assert_empty(bus: Bus) -> None:
    """Nothing is left of any client."""
    now = bus.statistics()
    left = (now.sessions, now.requests, now.actors, now.tasks, dict(now.pending))
    assert left == (0, 0, 0, 0, {}), f"something is left: {now}"
    assert (len(bus.topics), len(bus.tasks), len(bus.parked_calls)) == (0, 0, 0)
