# ruff: noqa: SLF001 - an address reads the slots of its mailbox, and of the questions put to it
"""Where an actor can be reached, by anybody who was told of it."""

from threading import get_ident
from typing import Any, Generic, NoReturn, TypeVar

import msgspec
import trio

from mcpbus_actors._ask import Ask
from mcpbus_actors._dispatch import Dispatcher
from mcpbus_actors._errors import AskFailedError, AskRefusedError, AskTimeoutError, wrong_thread
from mcpbus_actors._mailbox import Mailbox
from mcpbus_actors._messages import DeadLetterReason, StopReason
from mcpbus_actors._states import RUNNING, STOPPING

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

    __slots__ = ("_dispatcher", "_mailbox", "_name")

    _dispatcher: Dispatcher
    _mailbox: Mailbox[Any]
    _name: str | None

    def __init__(self) -> None:
        raise TypeError("an address is made by spawning an actor")

    @trio.lowlevel.enable_ki_protection
    def tell(self, message: M_contra) -> DeadLetterReason | None:
        """Give a message to the actor: at once if nothing else is being handled, else in its turn.

        It takes no time that depends on the recipient's queue, never waits, and raises nothing that
        the recipient raises. What one sender tells one actor is handled in that order.

        Returns:
            None if the message was accepted. Otherwise why it was not: `DeadLetterReason.STOPPED`, `FAILED`
            or `CLOSED` if the actor is gone, `FULL` if its queue is and the message is one that may be
            refused for that; see `mcpbus_actors.open_system`.

        Raises:
            RuntimeError: Called from a thread that trio does not run in.
        """
        mailbox = self._mailbox
        dispatcher = self._dispatcher
        if get_ident() != dispatcher.thread:
            raise wrong_thread()
        if mailbox._state >= STOPPING:
            return mailbox.system.refuse(self, message, self.drop_reason)
        if dispatcher.busy:
            if mailbox._waiting >= mailbox._capacity and (discard := self._find_room(message)) is not None:
                return mailbox.system.refuse(self, message, discard)
            dispatcher.accepted += 1
            mailbox._waiting += 1
            dispatcher.queue.append((mailbox, message))
        else:
            dispatcher.accepted += 1
            dispatcher.run(mailbox, message)
        return None

    def _find_room(self, message: object) -> DeadLetterReason | None:
        """Make room in a full mailbox, or return why a message is refused all the same."""
        dispatcher = self._dispatcher
        dispatcher.make_room()
        mailbox = self._mailbox
        if mailbox._state >= STOPPING:
            return self.drop_reason
        if mailbox._waiting >= mailbox._capacity and dispatcher.expendable(message):
            return DeadLetterReason.FULL
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
        recipient: Address[Any] = self
        question = Ask(message, self._dispatcher)
        if (discard := recipient.tell(question)) is not None:
            await trio.lowlevel.checkpoint()
            raise AskRefusedError(self.name, discard)
        if not await question.wait(self._mailbox, timeout):
            raise AskTimeoutError(self.name, timeout)
        if question._failure is not None:
            raise AskFailedError(self.name, question._failure)
        return question._value

    @property
    def stopped(self) -> bool:
        """Whether the actor has stopped, or is about to: nothing will be accepted any more."""
        return self._mailbox._state >= STOPPING

    @property
    def drop_reason(self) -> DeadLetterReason:
        """With what a message is refused once the actor has stopped."""
        return self._mailbox.refusal()

    @property
    def name(self) -> str:
        """A name for people; unique in its system unless it was given to ``spawn``."""
        if self._name is None:
            self._name = self._mailbox.system.next_name()
        return self._name

    def __repr__(self) -> str:
        state = self._mailbox._state
        return f"<Address {self.name}{'' if state is RUNNING else ' ' + state.name.lower()}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("an address means something only inside its own process")


class Stopped(msgspec.Struct, frozen=True):
    """Told to an actor when one that it watches has ended; overtakes ordinary messages."""

    address: Address[Any]
    reason: StopReason
