"""The fifteen invariants of routing, by number, and when each of them is looked at."""

from collections.abc import Callable, Iterator
from typing import Any

import invariants_of_messages as messages
import invariants_of_questions as questions
import invariants_of_requests as requests
import invariants_of_streams as streams

Check = Callable[[Any], Iterator[str]]

ALWAYS: dict[str, tuple[Check, ...]] = {
    "7": (requests.only_those_who_may_cancel,),
    "11": (requests.questions_end,),
    "15": (messages.the_books_balance,),
}
"""After each step."""

BEFORE_LEAVING: dict[str, tuple[Check, ...]] = {
    "2": (messages.streams_end_with_their_replies,),
    "4": (streams.replays_are_complete,),
    "11": (requests.requests_are_answered, questions.nobody_is_waited_for_in_vain),
}
"""When all scripts have ended, and clients are still there."""

AFTERWARDS: dict[str, tuple[Check, ...]] = {
    "1": (messages.one_fate_and_one_stream,),
    "2": (messages.replies_stay_at_home,),
    "3": (messages.get_streams_have_no_replies,),
    "4": (streams.replays_are_exact,),
    "5": (messages.nothing_reaches_strangers,),
    "6": (requests.silence_after_the_end,),
    "8": (messages.no_modern_questions,),
    "9": (streams.listens_hold_what_was_asked,),
    "10": (requests.logs_were_asked_for,),
    "11": (
        requests.answers_fit_their_questions,
        questions.questions_have_one_end,
        questions.nothing_unheard_is_withdrawn,
        messages.rounds_are_used_once,
    ),
    "13": (requests.progress_increases,),
    "14": (streams.event_ids_are_in_order,),
    "15": (messages.all_that_was_heard_is_booked,),
}
"""When everybody has left. The twelfth compares whole runs: see `duet`. What else must hold counts as 0."""


def validate_now(world: Any, *, brief: bool = False) -> None:
    """Look at what must hold at every moment; and, unless `brief`, at what must hold once all is quiet."""
    _judge(world, ALWAYS)
    for stream in world.streams:
        if stream.outbox.queued_bytes - stream.outbox._reserved_bytes > world.bus.limits.outbox_bytes:
            world.fault("0", "an outbox is past its bounds")
    budget = world.bus.budget
    if budget.held != sum(account.held for account in budget.accounts()):
        world.fault("0", "the memory that is held is not that of the accounts")
    world.streams = [stream for stream in world.streams if not stream.stopped]
    if not brief:
        _judge(world, BEFORE_LEAVING)


def judge(world: Any) -> None:
    """Look at everything, when all is over."""
    if world.bus.budget.held:
        world.fault("0", f"memory is still held: {world.bus.budget.accounts()}")
    _judge(world, AFTERWARDS)


def _judge(world: Any, checks: dict[str, tuple[Check, ...]]) -> None:
    for number, several in checks.items():
        for check in several:
            for text in check(world):
                world.fault(number, text)
