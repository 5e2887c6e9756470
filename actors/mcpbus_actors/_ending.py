# ruff: noqa: SLF001 - the end of a life goes through every slot of it
"""How the life of an actor ends, whatever ended it."""

import logging
from typing import Any

from mcpbus_actors._address import Address
from mcpbus_actors._life import LiveMailbox, SystemServices
from mcpbus_actors._messages import StopReason
from mcpbus_actors._states import ENDED, STOP_ASKED, STOPPED, STOPPING, TRANSITIONS

logger = logging.getLogger("mcpbus.actors")


def ask_to_stop(address: Address[Any], reason: StopReason) -> None:
    """Let the address refuse from now on, and end the actor as soon as nothing is being handled."""
    life = address._mailbox
    if life._state >= STOPPING:
        return
    life._state = TRANSITIONS[life._state][STOP_ASKED]
    dispatcher = address._dispatcher
    if dispatcher.busy:
        dispatcher.urgent.append((life, reason))
    else:
        dispatcher.busy = True
        life.end(reason)
        dispatcher.drain()


def end(life: LiveMailbox[Any], reason: StopReason) -> None:
    """End an actor and all below it, the youngest first; the dispatcher must be busy."""
    if life._state is STOPPED:
        return
    if life._children:
        life._state = TRANSITIONS[life._state][STOP_ASKED]
        end_children(life)
    life._state = TRANSITIONS[life._state][ENDED]
    release(life, reason)
    address = life.address
    system = life.system
    del (life._parent._children if life._parent is not None else system.roots)[life]  # type: ignore[union-attr]
    address._mailbox = system.tombstones[reason]
    if life._watchers:
        for watcher in life._watchers:
            watcher.watched_ended(address, reason)
    if system.registry:
        system.registry.forget(address)
    life.empty()


def end_children(life: LiveMailbox[Any]) -> None:
    """End all below an actor, leaves first, without recursion: a tree may be deep."""
    doomed = list(life._children or ())
    for child in doomed:  # the list grows while it is walked: breadth first
        doomed.extend(child._children or ())
        # None of them may spawn or be told anything while the others end.
        child._state = TRANSITIONS[child._state][STOP_ASKED]
    for child in reversed(doomed):
        end(child, StopReason.PARENT)


def release(life: LiveMailbox[Any], reason: StopReason) -> None:
    """Let go of what one instance holds: its tasks, timers, watches, and callbacks."""
    if life._tasks:
        for task in list(life._tasks):
            task.abandon()
        life._tasks = ()
    if life._timers:
        for timer in list(life._timers):
            timer.abandon()
    if life._watching:
        for address in life._watching:
            address._mailbox.remove_watcher(life)
        life._watching = ()
    if life._callbacks:
        _call_back(life, reason)


def _call_back(life: LiveMailbox[Any], reason: StopReason) -> None:
    callbacks, life._callbacks = life._callbacks, ()
    for callback in callbacks:
        try:
            callback(reason)
        except BaseException as error:  # noqa: BLE001 - reported
            callback_raised(life.system, life.address, error)


def callback_raised(system: SystemServices, address: Address[Any], error: BaseException) -> None:
    """Report what a callback of `ActorContext.on_stop` raised."""
    if isinstance(error, KeyboardInterrupt):  # it ends the system instead of the caller
        system.surface(error)
    else:
        system.failures += 1
        logger.error("%s: a callback of on_stop raised", address.name, exc_info=error)
