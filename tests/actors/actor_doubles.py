"""Small actors that the tests of every module use."""

import asyncio
import contextlib
from typing import Any

import mcpbus_actors as actors
import trio
from mcpbus_actors import testing


class Recorder:
    """Keeps what it handles; a callable message is called with the actor."""

    def __init__(self, cell: actors.ActorContext[Any], log: list[Any] | None = None) -> None:
        self.cell = cell
        self.log = [] if log is None else log

    def handle(self, message: Any) -> None:
        if callable(message):
            message(self)
        else:
            self.log.append(message)


@contextlib.asynccontextmanager
async def stage():
    """A system, a probe in it, and the list of its dead letters."""
    letters: list[actors.DeadLetter] = []
    async with actors.open_system("test", dead_letter=letters.append) as system:
        yield system, testing.Probe(system, name="probe"), letters


class Restless:
    """Tells itself what it is told, for ever: from then on the system is behind, and whoever tells only queues."""

    def __init__(self, cell: actors.ActorContext[Any]) -> None:
        self.cell = cell

    def handle(self, message: Any) -> None:
        self.cell.address.tell(message)


def boom(_: Any) -> None:
    """Make a recorder raise."""
    raise ValueError("boom")


def stop(recorder: Recorder) -> None:
    """Make a recorder stop."""
    recorder.cell.stop()


def restart(*_: Any) -> actors.Directive:
    """Always restart."""
    return actors.Directive.RESTART


def escalate(*_: Any) -> actors.Directive:
    """Always escalate."""
    return actors.Directive.ESCALATE


class OddError(BaseException):
    """A class of somebody's own."""


async def _be_cancelled() -> None:
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled as error:
            _kept.append(error)


_kept: list[BaseException] = []
trio.run(_be_cancelled)


def stray_cancelled() -> BaseException:
    """A `trio.Cancelled` that somebody has kept, and raises where nobody is cancelled."""
    return _kept[0].with_traceback(None)


FAULTS = {
    "exit": lambda: SystemExit(3),
    "odd": OddError,
    "generator": GeneratorExit,
    "asyncio": asyncio.CancelledError,
    "group": lambda: BaseExceptionGroup("several", [OddError(), ValueError()]),
    "cancelled": stray_cancelled,
    "cancelled in a group": lambda: BaseExceptionGroup("several", [stray_cancelled(), ValueError()]),
}
"""Makes what is no `Exception`, and nobody else's affair all the same."""
