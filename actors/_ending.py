# ruff: noqa: SLF001 - the end of a life goes through every slot of it
"""How the life of an actor ends, whatever ended it."""

import logging
from typing import Any

from actors._address import Address
from actors._life import Life, Services
from actors._lifecycle import ENDED, STOP_ASKED, STOPPED, STOPPING, TRANSITIONS
from actors._messages import StopReason

logger = logging.getLogger("actors")


def ask_to_stop(address: Address[Any], reason: StopReason) -> None:
    """Let the address refuse from now on, and end the actor as soon as nothing is being handled."""
    cell = address._mailbox
    if cell._state >= STOPPING:
        return
    cell._state = TRANSITIONS[cell._state][STOP_ASKED]
    dispatcher = address._dispatcher
    if dispatcher.busy:
        dispatcher.urgent.append((cell, reason))
    else:
        dispatcher.busy = True
        cell.end(reason)
        dispatcher.drain()


def end(cell: Life[Any], reason: StopReason) -> None:
    """End an actor and all below it, the youngest first; the dispatcher must be busy."""
    if cell._state is STOPPED:
        return
    if cell._children:
        cell._state = TRANSITIONS[cell._state][STOP_ASKED]
        end_children(cell)
    cell._state = TRANSITIONS[cell._state][ENDED]
    release(cell, reason)
    address = cell.address
    system = cell.system
    del (cell._parent._children if cell._parent is not None else system.roots)[cell]  # type: ignore[union-attr]
    address._mailbox = system.tombstones[reason]
    if cell._watchers:
        for watcher in cell._watchers:
            watcher.watched_ended(address, reason)
    if system.registry:
        system.registry.forget(address)
    cell.empty()


def end_children(cell: Life[Any]) -> None:
    """End all below an actor, leaves first, without recursion: a tree may be deep."""
    doomed = list(cell._children or ())
    for child in doomed:  # the list grows while it is walked: breadth first
        doomed.extend(child._children or ())
        # None of them may spawn or be told anything while the others end.
        child._state = TRANSITIONS[child._state][STOP_ASKED]
    for child in reversed(doomed):
        end(child, StopReason.PARENT)


def release(cell: Life[Any], reason: StopReason) -> None:
    """Let go of what one instance holds: its tasks, timers, watches, and callbacks."""
    if cell._tasks:
        for task in list(cell._tasks):
            task.abandon()
        cell._tasks = ()
    if cell._timers:
        for timer in list(cell._timers):
            timer.abandon()
    if cell._watching:
        for address in cell._watching:
            address._mailbox.remove_watcher(cell)
        cell._watching = ()
    if cell._callbacks:
        _call_back(cell, reason)


def _call_back(cell: Life[Any], reason: StopReason) -> None:
    callbacks, cell._callbacks = cell._callbacks, ()
    for callback in callbacks:
        try:
            callback(reason)
        except BaseException as error:  # noqa: BLE001 - reported
            callback_raised(cell.system, cell.address, error)


def callback_raised(system: Services, address: Address[Any], error: BaseException) -> None:
    """Report what a callback of `Cell.on_stop` raised."""
    if isinstance(error, KeyboardInterrupt):  # it ends the system instead of the caller
        system.surface(error)
    else:
        system.failures += 1
        logger.error("%s: a callback of on_stop raised", address.name, exc_info=error)
