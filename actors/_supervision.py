# ruff: noqa: SLF001 - a supervisor works on the life of an actor itself
"""What becomes of an actor that raised.

The whole decision is taken in the turn of the exception, before any other message is handled: the
actor is suspended, its parent's strategy decides, and it is restarted, stopped, or its parent is
treated the same way. Nobody ever meets a suspended actor; its queue meanwhile stays where it is.
"""

import logging
from typing import Any, Final

import trio

from actors import _ending
from actors._ask import Ask
from actors._failures import split_failure
from actors._life import Life
from actors._lifecycle import RAISED, RESTARTED, STARTED, STOPPING, TRANSITIONS
from actors._messages import Directive, Discard, StopReason

logger = logging.getLogger("actors")

RESTARTS: Final = 3
"""Restarts that are granted within `WINDOW`; the next failure escalates instead."""
WINDOW: Final = 5.0
"""Seconds over which failures are counted."""


def raised(cell: Life[Any], message: object, error: BaseException) -> None:
    """Deal with an exception of `handle`: the message is lost, the supervisor decides on the rest."""
    dispatcher = cell.system.dispatcher
    dispatcher.handled -= 1
    dispatcher.discard(cell, message, Discard.FAILED)
    fail(cell, error)


def fail(cell: Life[Any], error: BaseException) -> None:
    """Decide about an actor that raised, and go up the tree as long as the decision is to escalate."""
    system = cell.system
    while True:
        system.failures += 1
        if split_failure(error, waited=False)[1] is not None:
            # Nobody supervises a KeyboardInterrupt: it ends the system.
            _ending.end(cell, StopReason.FAILED)
            system.surface(error)
            return
        cell._state = TRANSITIONS[cell._state][RAISED]
        directive, error = _decide(cell, error)
        match directive:
            case Directive.RESTART:
                logger.warning("%s raised and is restarted", cell.address.name, exc_info=error)
                failure = _restart(cell)
                if failure is None:
                    return
                error = failure
            case Directive.STOP:
                logger.error("%s raised and is stopped", cell.address.name, exc_info=error)
                _ending.end(cell, StopReason.FAILED)
                return
            case Directive.ESCALATE:
                parent = cell._parent
                _ending.end(cell, StopReason.FAILED)
                if parent is None:
                    system.surface(error)
                    return
                cell = parent


def _decide(cell: Life[Any], error: BaseException) -> tuple[Directive, BaseException]:
    """Ask the strategy, within the bound on restarts; what it raises itself is escalated."""
    strategy = cell._strategy
    if strategy is None or cell._state is STOPPING:
        return Directive.STOP, error
    now = trio.current_time()
    cell._failures = [at for at in cell._failures or () if now - at < WINDOW]
    cell._failures.append(now)
    failures = len(cell._failures)
    try:
        directive = strategy(cell.address, error, failures)
    except BaseException as blunder:  # noqa: BLE001 - it goes up in place of what it was to judge
        return Directive.ESCALATE, blunder
    if directive is Directive.RESTART and failures > RESTARTS:
        return Directive.ESCALATE, error
    return directive, error


def _restart(cell: Life[Any]) -> BaseException | None:
    """Put a fresh instance in place of the one that raised; return what its factory raised."""
    cell.system.restarts += 1
    _ending.end_children(cell)
    _ending.release(cell, StopReason.RESTARTED)
    _forsake_questions(cell)
    if cell._state is STOPPING:  # a callback asked for it; the dispatcher comes round to it
        return None
    cell._state = TRANSITIONS[cell._state][RESTARTED]
    try:
        cell._actor = cell._factory(cell, *cell._args)
    except BaseException as error:  # noqa: BLE001 - returned, and judged like any other
        return error
    cell._state = TRANSITIONS[cell._state][STARTED]
    return None


def _forsake_questions(cell: Life[Any]) -> None:
    """End the questions that the old instance had taken; those in the queue are for the new one."""
    waiting = {id(message) for recipient, message in cell.system.dispatcher.queue if recipient is cell}
    for watcher in list(cell._watchers):
        if isinstance(watcher, Ask) and id(watcher) not in waiting:
            watcher.fail(Discard.FAILED)
