# ruff: noqa: SLF001 - the dispatcher keeps its accounts in the mailboxes' own slots
"""When a message is handled: at once if nothing else is, otherwise in its turn.

A mailbox is a place in two queues that all actors of a system share, plus counts of its own. That
keeps an idle actor small (no deque of its own), makes a turn a single `popleft`, and is fair: messages
are handled in the order in which they were accepted, whoever they are for. The two queues are the two
lanes: `urgent` holds system messages and wishes to stop, and is emptied before `queue` is looked at.

Dispatch runs on the stack of whoever tells, so a caller that only wanted to say something could be kept
busy without end. After ``BUDGET`` turns the rest moves to a task; meanwhile the dispatcher counts as busy,
so that everybody else only queues.

How much waits has a bound, whoever tells. Between two turns of the scheduler the task takes ``CATCH_UP``
turns for each message that waits, so that no message waits for longer than one turn of the scheduler for
each step of what it leads to, however many are told meanwhile. And whoever finds a mailbox full while it is
only the task that is waited for takes those turns itself, so that a mailbox holds no more than its capacity,
besides what is told within turns. There, where nobody can wait, a full mailbox refuses what is `expendable`,
and takes the rest: nothing but the system's author knows what else bounds that, such as one for each request. The end of
a task does likewise whatever waits, since nobody knows how large that is which came of it.

Two other designs were weighed. A deque per actor costs 760 bytes each as soon as it is allocated, and
a queue of ready actors besides. A task per actor costs over 4 KiB and two switches of task a message.
"""

import contextvars
from collections import deque
from collections.abc import Callable
from threading import get_ident
from typing import Any, Final

import trio

from mcpbus_actors._errors import wrong_thread
from mcpbus_actors._mailbox import Mailbox
from mcpbus_actors._messages import DeadLetterReason, StopReason
from mcpbus_actors._states import RUNNING

BUDGET: Final = 256
"""Turns taken on one stack, or at least by the task between two checkpoints; about half a millisecond of work."""
CATCH_UP: Final = 4
"""Turns taken for each message that waits: for itself, and for what it and the next ones lead to."""


def always_expendable(_message: object) -> bool:
    """Say that every message is expendable, which is so unless a system is told otherwise."""
    return True


class Dispatcher:
    """The lanes of one system, its accounts of messages, and the right to handle one.

    Attributes:
        busy: A message is being handled, or some wait for the task; whoever tells now only queues.
        behind: Nothing is being handled, and some wait for the task.
        expendable: Tells which messages a full mailbox refuses.
        queue: The user lane: recipient and message.
        urgent: The system lane: recipient, and a message or the reason to stop.
        accepted: Messages that were given a place, or handled at once.
        handled: Messages that `handle` returned from, and the one it is at work on.
        discarded: Messages that were accepted and then not handled.
        late_replies: Replies to questions that had already ended.
    """

    __slots__ = (
        "accepted",
        "behind",
        "busy",
        "context",
        "discarded",
        "expendable",
        "handled",
        "late_replies",
        "nursery",
        "queue",
        "thread",
        "urgent",
    )

    def __init__(self, nursery: trio.Nursery, expendable: Callable[[Any], bool] = always_expendable) -> None:
        self.nursery = nursery
        self.expendable = expendable
        self.thread = get_ident()
        # Tasks of the system itself belong to whoever opened it, not to whoever happened to tell.
        self.context = contextvars.copy_context()
        self.busy = False
        self.behind = False
        self.queue: deque[tuple[Mailbox[Any], Any]] = deque()
        self.urgent: deque[tuple[Mailbox[Any], Any]] = deque()
        self.accepted = 0
        self.handled = 0
        self.discarded = 0
        self.late_replies = 0

    def check_thread(self) -> None:
        """Refuse a call from a thread that trio does not run in.

        Raises:
            RuntimeError: Always, in such a thread.
        """
        if get_ident() != self.thread:
            raise wrong_thread()

    def run(self, mailbox: Mailbox[Any], message: object) -> None:
        """Handle a message now; the dispatcher must not be busy, the mailbox must be running."""
        self.busy = True
        self.handled += 1
        try:
            mailbox._actor.handle(message)
        except BaseException as error:  # noqa: BLE001 - the supervisor decides; nothing is swallowed
            mailbox.raised(message, error)
        if self.queue or self.urgent:
            self.drain()
        else:
            self.busy = False

    @trio.lowlevel.enable_ki_protection
    def deliver(self, mailbox: Mailbox[Any], message: object) -> None:
        """Put a message into the user lane, however many wait there."""
        self.accepted += 1
        if self.busy:
            mailbox._waiting += 1
            self.queue.append((mailbox, message))
        else:
            self.run(mailbox, message)

    @trio.lowlevel.enable_ki_protection
    def notify(self, mailbox: Mailbox[Any], message: object) -> None:
        """Put a message into the system lane."""
        self.accepted += 1
        if self.busy:
            self.urgent.append((mailbox, message))
        else:
            self.run(mailbox, message)

    def drain(self) -> None:
        """Take turns until both lanes are empty or the budget is spent; then let the task go on."""
        if self._take_turns(BUDGET):
            self.behind = True
            self.context.run(self.nursery.start_soon, self._work_off)

    async def _work_off(self) -> None:
        while self._catch_up():
            # Shielded: until the system closes its actors must hear from their tasks, also from those that
            # are being cancelled. Closing empties the lanes, so this cannot go on for ever.
            await trio.lowlevel.cancel_shielded_checkpoint()

    def make_room(self) -> None:
        """Take the turns that the task has yet to take, if they are all that a full mailbox, or something large, waits for."""
        if self.behind:
            self._catch_up()
            self.behind = self.busy = True  # until the task has found out what is left

    def _catch_up(self) -> bool:
        """Take turns for all that waits and what it leads to, and return whether any are left to take."""
        self.behind = False
        self.behind = self._take_turns(max(BUDGET, CATCH_UP * (len(self.queue) + len(self.urgent))))
        return self.behind

    @trio.lowlevel.enable_ki_protection
    def _take_turns(self, turns: int) -> bool:
        """Take so many turns at most, and return whether any are left to take; the dispatcher must be busy."""
        queue = self.queue
        urgent = self.urgent
        for _ in range(turns):
            if urgent:
                mailbox, message = urgent.popleft()
                if type(message) is StopReason:
                    mailbox.end(message)
                    continue
            elif queue:
                mailbox, message = queue.popleft()
                mailbox._waiting -= 1
            else:
                break
            if mailbox._state is RUNNING:
                self.handled += 1
                try:
                    mailbox._actor.handle(message)
                except BaseException as error:  # noqa: BLE001 - as in run()
                    mailbox.raised(message, error)
            else:
                self.discard(mailbox, message)
        self.busy = bool(queue or urgent)
        return self.busy

    def discard(self, mailbox: Mailbox[Any], message: object, reason: DeadLetterReason | None = None) -> None:
        """Account for an accepted message that will not be handled; see `Mailbox.lose`."""
        self.discarded += 1
        mailbox.lose(message, reason)

    def settle(self) -> None:
        """Empty both lanes whatever the budget; for closing, when nobody handles anything any more."""
        while self._take_turns(BUDGET):
            pass

    @property
    def queued(self) -> int:
        """Messages that were accepted and not yet handled or discarded."""
        return len(self.queue) + sum(type(message) is not StopReason for _, message in self.urgent)
