# ruff: noqa: SLF001 - a cell is filled in here
"""How an actor comes to life."""

from collections.abc import Callable
from threading import get_ident
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from actors import _cell, _ending
from actors._address import Address
from actors._dispatch import wrong_thread
from actors._errors import LifecycleError
from actors._lifecycle import RUNNING, STARTED, STARTING, TRANSITIONS
from actors._messages import StopReason
from actors._supervision import Strategy

if TYPE_CHECKING:
    from actors._cell import Actor, Cell
    from actors.system import System

M = TypeVar("M")

new_address = Address.__new__


@trio.lowlevel.enable_ki_protection
def spawn(  # noqa: PLR0917 - called in two places
    system: "System",
    parent: "Cell[Any] | None",
    factory: "Callable[..., Actor[M]]",
    args: tuple[Any, ...],
    name: str | None,
    capacity: int,
    strategy: Strategy | None,
) -> Address[M]:
    """Start an actor below a parent, or at the root; see `Cell.spawn`."""
    dispatcher = system.dispatcher
    if get_ident() != dispatcher.thread:
        raise wrong_thread()
    if capacity < 1:
        raise ValueError(f"a mailbox must have room for one message at least, not {capacity}")
    cell: Cell[M] = _cell.Cell(system, dispatcher, parent, factory, args, capacity, strategy)
    address: Address[M] = new_address(Address)
    address._cell = cell
    address._name = name
    cell.address = address
    if parent is None:
        if system.closed:
            raise LifecycleError(f"system {system.name!r} has closed and spawns nothing any more")
        system.roots[cell] = None
    else:
        state = parent._state
        if state is not RUNNING and state is not STARTING:
            raise LifecycleError(f"{parent.address.name} has stopped and spawns nothing any more")
        if parent._children is None:
            parent._children = {cell: None}
        else:
            parent._children[cell] = None
    system.spawned += 1
    # What the factory tells must not run before the actor that it makes is there.
    outermost, behind = not dispatcher.busy, dispatcher.behind
    dispatcher.busy, dispatcher.behind = True, False
    try:
        cell._actor = factory(cell, *args)
        cell._state = TRANSITIONS[cell._state][STARTED]
    except BaseException:
        _ending.end(cell, StopReason.FAILED)
        raise
    finally:
        dispatcher.behind = behind
        if outermost:
            dispatcher.drain()
    return address


def entombed(system: "System", reason: StopReason) -> Address[Any]:
    """Return the address of an actor that has ended and never had one, with what it would have ended for."""
    address: Address[Any] = new_address(Address)
    address._cell = system.tombstones[reason]
    address._name = None
    return address
