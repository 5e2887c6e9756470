# ruff: noqa: SLF001 - an address is the outside of a cell and reads its slots
"""Where an actor can be reached, by anybody who was told of it."""

from threading import get_ident
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

import trio

from actors import _ask
from actors._dispatch import wrong_thread
from actors._lifecycle import RUNNING, STOPPING
from actors._messages import Discard

if TYPE_CHECKING:
    from actors._cell import Cell

M_contra = TypeVar("M_contra", contravariant=True)


class Address(Generic[M_contra]):
    """The one way to reach an actor. Made by ``spawn``, compared by identity, valid for ever.

    It is never bound to another actor: once its own has stopped, it refuses everything. Keeping an
    address keeps nothing else in memory.

    ```python
    if (discard := address.tell(Add(2))) is not None:
        log.warning("not added: %s", discard.value)
    ```
    """

    __slots__ = ("_cell", "_name")

    _cell: "Cell[Any]"
    _name: str | None

    def __init__(self) -> None:
        raise TypeError("an address is made by spawning an actor")

    @trio.lowlevel.enable_ki_protection
    def tell(self, message: M_contra) -> Discard | None:
        """Give a message to the actor: at once if nothing else is being handled, else in its turn.

        It takes no time that depends on the recipient's queue, never waits, and raises nothing that
        the recipient raises. What one sender tells one actor is handled in that order.

        Returns:
            None if the message was accepted. Otherwise why it was not: `Discard.STOPPED`, `FAILED`
            or `CLOSED` if the actor is gone, `FULL` if its queue is and the message is one that may be
            refused for that; see `actors.open_system`.

        Raises:
            RuntimeError: Called from a thread that trio does not run in.
        """
        cell = self._cell
        dispatcher = cell._dispatcher
        if get_ident() != dispatcher.thread:
            raise wrong_thread()
        if cell._state >= STOPPING:
            return cell.system.dead_letters.refuse(self, message, self.refusal)
        if dispatcher.busy:
            if cell._waiting >= cell._capacity and (discard := self._find_room(cell, message)) is not None:
                return cell.system.dead_letters.refuse(self, message, discard)
            dispatcher.accepted += 1
            cell._waiting += 1
            dispatcher.queue.append((cell, message))
        else:
            dispatcher.accepted += 1
            dispatcher.run(cell, message)
        return None

    def _find_room(self, cell: "Cell[Any]", message: object) -> Discard | None:
        """Make room in a full mailbox, or return why a message is refused all the same."""
        dispatcher = cell._dispatcher
        dispatcher.make_room()
        if cell._state >= STOPPING:
            return self.refusal
        if cell._waiting >= cell._capacity and dispatcher.expendable(message):
            return Discard.FULL
        return None

    async def ask(self, message: M_contra, timeout: float) -> Any:  # noqa: ASYNC109 - a bound of the question
        """Ask a question and wait for its answer; for tasks, as an actor cannot wait.

        The actor is handed ``Ask(message)`` and answers with ``ask.reply(value)``, in the same turn
        or in a later one.

        Args:
            message: The question.
            timeout: Seconds to wait at most.

        Returns:
            What the actor replied.

        Raises:
            AskRefusedError: The question was not accepted.
            AskFailedError: The actor raised on it, or ended or restarted before it replied.
            AskTimeoutError: No reply came in time.

        If it is cancelled, a reply that comes later is counted and dropped.
        """
        return await _ask.ask(self, message, timeout)

    @property
    def stopped(self) -> bool:
        """Whether the actor has stopped, or is about to: nothing will be accepted any more."""
        return self._cell._state >= STOPPING

    @property
    def refusal(self) -> Discard:
        """With what a message is refused once the actor has stopped."""
        return self._cell.refusal()

    @property
    def name(self) -> str:
        """A name for people; unique in its system unless it was given to ``spawn``."""
        if self._name is None:
            self._name = self._cell.system.next_name()
        return self._name

    def __repr__(self) -> str:
        state = self._cell._state
        return f"<Address {self.name}{'' if state is RUNNING else ' ' + state.name.lower()}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("an address means something only inside its own process")
