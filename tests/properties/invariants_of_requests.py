"""The invariants of requests: when they end, what ends them, and what may be said for them until then."""

from collections.abc import Iterator
from typing import Any

import trio
from handlers import BRIEF_SECONDS
from notebook import LIFETIME
from transcripts import appearances, entries, is_reply, key_of, what_is

from mcpbus.core.receipt import Location
from mcpbus.protocol.enums import LogLevel

_ABANDONED_SECONDS = 300


def silence_after_the_end(world: Any) -> Iterator[str]:
    """6: after its reply, its cancel, or the disconnect of a modern client, nothing of a request is written."""
    for ear in world.ears:
        replied: set[Any] = set()
        for index, (_, message) in enumerate(entries(ear)):
            if is_reply(message):
                replied.add(ear.root.sents.get(key_of(message.get("id"))))
                sent = ear.root.sents.get(key_of(message.get("id")))
            else:
                sent = _owner(world, ear, message)
                if sent is not None and sent in replied:
                    yield f"{sent.client}: {_short(message)} came after the reply to {sent.id!r}"
            # What withdraws a question follows the cancel: its client would wait for an answer otherwise.
            withdraws = message.get("method") == "notifications/cancelled"
            if sent is not None and not withdraws and index >= sent.ends.get(ear, index + 1):
                yield f"{sent.client}: {_short(message)} came after the cancel of {sent.id!r}"
    for what in appearances(world):
        said = world.said.get(what)
        if said is not None and said.sent is not None and said.tick > said.sent.silenced:
            yield f"message {what} was said after the end of its request, and sent"


def _short(message: dict[str, Any]) -> str:
    return str(message)[:200]


def _owner(world: Any, ear: Any, message: dict[str, Any]) -> Any:
    """The request that a message belongs to."""
    what = what_is(ear, message)
    if what is not None:
        said = world.said.get(what)
        return None if said is None else said.sent
    if message["method"] == "notifications/cancelled":
        named = key_of(message["params"]["requestId"])
        sent = ear.root.sents.get(named)
        if sent is not None and sent.method == "subscriptions/listen":
            return None  # on a shared channel it follows the listen's result
        found = [h for h in world.heard if h.ear is ear and key_of(h.id) == named]
        return world.asked[found[0].number].sent if found else None
    if "id" in message and ear.client.kind != "memory":
        return world.asked[world.number_in(message["params"])].sent
    return None


def validate_purge(world: Any, sent: Any) -> None:
    """6, in the moment in which a cancel has ended a handler: what waits for the request is kept no longer."""
    if sent.call.sents[-1] is not sent:
        return
    waiting = [s.receipt.location for s in world.said.values() if s.sent is sent and s.receipt is not None]
    if Location.OUTBOX in waiting:
        world.fault("6", f"what waits for the cancelled call {sent.call.number} is kept")


def only_those_who_may_cancel(world: Any) -> Iterator[str]:
    """7: a handler is cancelled by its client's wish or the end of its session, and in legacy eras by no disconnect."""
    for call in world.calls:
        if call.outcome == "cancelled" and not world.drained and not _may_be_cancelled(world, call):
            call.outcome = "cancelled by nobody"
            yield f"{call.client}'s call {call.number} was cancelled by nobody"


def _may_be_cancelled(world: Any, call: Any) -> bool:
    now = trio.current_time()
    if call.tool == "brief" and now >= call.began + BRIEF_SECONDS:
        return True
    if call.is_task:
        return now >= call.began + LIFETIME or call.task is None or call.task.cancelled
    return any(map(_may_end, call.sents)) or _lapsed(world, call)


def _may_end(sent: Any) -> bool:
    if sent.cancelled or sent.client.gone:
        return True
    return may_be_abandoned(sent) if sent.legacy else bool(sent.ear.deaf)


def may_be_abandoned(sent: Any) -> bool:
    """Whether the stream of a legacy request may have ended without its reply, since nobody came back to it in time."""
    abandoned = sent.dropped_at is not None and trio.current_time() >= sent.dropped_at + _ABANDONED_SECONDS
    # What takes nothing for the write deadline is dropped by the server, at a time known only to it; and a client
    # that was sent away to come back later may not do so in time.
    polled = sent.call is not None and any(verb == "poll" for verb, _ in sent.call.script)
    return abandoned or (sent.dropped_at is None and (sent.ear.deaf or polled))


def _lapsed(world: Any, call: Any) -> bool:
    """Whether it waited for a modern client that did not come back in time, or that others needed the room of."""
    modern = not call.sents[-1].legacy
    return modern and any(a.call is call and a.outcome in {None, "cancelled"} for a in world.asked.values())


def validate_disconnect(world: Any, sents: Any) -> None:
    """7, in the moment of a disconnect that cancels: the handlers of these requests run no longer."""
    for sent in sents:
        call = sent.call
        if call is None or call.sents[-1] is not sent or call.outcome != "running" or sent.reply is not None:
            continue
        if not call.shielded and not call.asking and not call.is_task:
            world.fault("7", f"call {call.number} outlives the disconnect of {sent.client}")


def logs_were_asked_for(world: Any) -> Iterator[str]:
    """10: a modern request gets log lines only of the level that it asked for."""
    for ear in world.ears:
        for _, message in entries(ear):
            if message.get("method") != "notifications/message":
                continue
            said = world.said.get(what_is(ear, message))
            if said is None or said.sent is None or said.sent.legacy:
                continue
            wanted = said.sent.level
            if wanted is None or LogLevel(message["params"]["level"]) < LogLevel(wanted):
                yield f"{message['params']} for a request with level {wanted}"


def questions_end(world: Any) -> Iterator[str]:
    """11: every question of a handler ends in bounded time: with its own answer, or with an error."""
    now = trio.current_time()
    for asked in world.asked.values():
        if asked.ended is None and now > asked.bound + 1:
            asked.bound = float("inf")
            yield f"question {asked.number} was never answered, nor given up"


def answers_fit_their_questions(world: Any) -> Iterator[str]:
    """11, in the end: all have ended, and each has its own answer."""
    for asked in world.asked.values():
        if asked.ended is None:
            yield f"question {asked.number} has not ended"
        elif asked.ended > asked.bound + 1:
            yield f"question {asked.number} took {asked.ended - asked.started} s"
        elif asked.outcome == "answered" and asked.value != str(asked.number):
            given = world.asked.get(int(asked.value.removeprefix("stolen ")))
            # A call that is run again has the answers of its former run; and a thief may well answer for himself.
            other = asked.call is None or given is None or given.call is not asked.call
            if other and (given is None or not asked.value.startswith("stolen ")):
                yield f"question {asked.number} was answered {asked.value}"
        elif asked.outcome not in {"answered", "cancelled"} and not asked.outcome.endswith("Error"):
            yield f"question {asked.number} ended as {asked.outcome}"


def requests_are_answered(world: Any) -> Iterator[str]:
    """11, while clients are there: every request has an answer by now, unless its client cancelled it or has gone."""
    for sent in world.sents:
        if sent.reply is not None or sent.cancelled or sent.client.gone or sent.client.kind == "memory":
            continue
        if sent.method == "subscriptions/listen" and not world.drained:
            continue
        ears = world.family(sent.ear)
        if any(ear.deaf for ear in ears) or (sent.ear.purpose != "all" and _let_go(sent.ear)):
            continue
        yield f"{sent.client}'s {sent.method} {sent.id!r} has no answer"


def _let_go(ear: Any) -> bool:
    """Whether an exchange was refused, or its client sent away to come back later."""
    return ear.recording.status != 200 or any(retry for _, _, retry in ear.events())


def progress_increases(world: Any) -> Iterator[str]:
    """13: the progress of a request strictly increases on each stream, and stops at the reply."""
    for ear in world.ears:
        values: dict[Any, list[float]] = {}
        for _, message in entries(ear):
            if message.get("method") == "notifications/progress":
                token = key_of(message["params"]["progressToken"])
                values.setdefault(token, []).append(message["params"]["progress"])
        for token, went in values.items():
            if went != sorted(set(went)):
                yield f"progress of {token[1]!r} went {went}"
