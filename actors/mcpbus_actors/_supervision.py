# ruff: noqa: SLF001 - a supervisor works on the life of an actor itself
"""What becomes of an actor that raised.

The whole decision is taken in the turn of the exception, before any other message is handled: the
actor is suspended, its parent's strategy decides, and it is restarted, stopped, or its parent is
treated the same way. Nobody ever meets a suspended actor; its queue meanwhile stays where it is.
"""

import logging
from typing import Any, Final

import trio

from mcpbus_actors import _ending
from mcpbus_actors._ask import Ask
from mcpbus_actors._errors import split_failure
from mcpbus_actors._life import LiveMailbox
from mcpbus_actors._messages import DeadLetterReason, Directive, StopReason
from mcpbus_actors._states import RAISED, RESTARTED, STARTED, STOPPING, TRANSITIONS

logger = logging.getLogger("mcpbus.actors")

RESTARTS: Final = 3
"""Restarts that are granted within `WINDOW`; the next failure escalates instead."""
WINDOW: Final = 5.0
"""Seconds over which failures are counted."""


def raised(life: LiveMailbox[Any], message: object, error: BaseException) -> None:
    """Deal with an exception of `handle`: the message is lost, the supervisor decides on the rest."""
    dispatcher = life.system.dispatcher
    dispatcher.handled -= 1
    dispatcher.discard(life, message, DeadLetterReason.FAILED)
    fail(life, error)


def fail(life: LiveMailbox[Any], error: BaseException) -> None:
    """Decide about an actor that raised, and go up the tree as long as the decision is to escalate."""
    system = life.system
    while True:
        system.failures += 1
        if split_failure(error, waited=False)[1] is not None:
            # Nobody supervises a KeyboardInterrupt: it ends the system.
            _ending.end(life, StopReason.FAILED)
            system.surface(error)
            return
        life._state = TRANSITIONS[life._state][RAISED]
        directive, error = _decide(life, error)
        match directive:
            case Directive.RESTART:
                logger.warning("%s raised and is restarted", life.address.name, exc_info=error)
                failure = _restart(life)
                if failure is None:
                    return
                error = failure
            case Directive.STOP:
                logger.error("%s raised and is stopped", life.address.name, exc_info=error)
                _ending.end(life, StopReason.FAILED)
                return
            case Directive.ESCALATE:
                parent = life._parent
                _ending.end(life, StopReason.FAILED)
                if parent is None:
                    system.surface(error)
                    return
                life = parent


def _decide(life: LiveMailbox[Any], error: BaseException) -> tuple[Directive, BaseException]:
    """Ask the strategy, within the bound on restarts; what it raises itself is escalated."""
    strategy = life._strategy
    if strategy is None or life._state is STOPPING:
        return Directive.STOP, error
    now = trio.current_time()
    life._failures = [at for at in life._failures or () if now - at < WINDOW]
    life._failures.append(now)
    failures = len(life._failures)
    try:
        directive = strategy(life.address, error, failures)
    except BaseException as blunder:  # noqa: BLE001 - it goes up in place of what it was to judge
        return Directive.ESCALATE, blunder
    if directive is Directive.RESTART and failures > RESTARTS:
        return Directive.ESCALATE, error
    return directive, error


def _restart(life: LiveMailbox[Any]) -> BaseException | None:
    """Put a fresh instance in place of the one that raised; return what its factory raised."""
    life.system.restarts += 1
    _ending.end_children(life)
    _ending.release(life, StopReason.RESTARTED)
    _forsake_questions(life)
    if life._state is STOPPING:  # a callback asked for it; the dispatcher comes round to it
        return None
    life._state = TRANSITIONS[life._state][RESTARTED]
    try:
        life._actor = life._factory(life, *life._args)
    except BaseException as error:  # noqa: BLE001 - returned, and judged like any other
        return error
    life._state = TRANSITIONS[life._state][STARTED]
    return None


def _forsake_questions(life: LiveMailbox[Any]) -> None:
    """End the questions that the old instance had taken; those in the queue are for the new one."""
    waiting = {id(message) for recipient, message in life.system.dispatcher.queue if recipient is life}
    for watcher in list(life._watchers):
        if isinstance(watcher, Ask) and id(watcher) not in waiting:
            watcher.fail(DeadLetterReason.FAILED)
