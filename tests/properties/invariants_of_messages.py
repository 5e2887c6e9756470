"""The invariants of messages: what became of each, and where it appeared."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
from transcripts import appearances, entries, is_reply, key_of, own_streams

from mcpbus.core.receipt import DELIVERED, STORED, Fate, FateKind
from mcpbus.protocol.errors import INTERNAL_ERROR, SERVER_ERROR
from mcpbus.protocol.routes import Reason

_LOST = Fate.discarded(Reason.LOST)


def one_fate_and_one_stream(world: Any) -> Iterator[str]:
    """1: each message has exactly one fate; a delivered one appears once, on one stream of one client (W-20)."""
    seen = appearances(world)
    stored = _stored_numbers(world)
    for what, said in world.said.items():
        places = seen.pop(what, {})
        if len(places) > 1:
            yield f"message {what} appeared {len(places)} times"
        if said.receipt is not None:
            yield from _validate_fate(world, said, places, stored)
    for what in seen:
        yield f"nobody said {what}"
    for receipt in world.receipts:
        if receipt.fate is None:
            yield f"{receipt} has no fate"


def _validate_fate(world: Any, said: Any, places: dict[Any, Any], stored: set[int]) -> Iterator[str]:
    fate = said.receipt.fate
    if fate == DELIVERED:
        # A client that goes in the very moment of a write is not noticed by it.
        ears = [ear for root in own_streams(world, said) for ear in world.family(root)]
        if not places and not any(ear.deaf for ear in ears):
            yield f"message {said.what} was delivered to nobody"
    elif fate == STORED:
        if isinstance(said.what, int) and said.what not in stored:
            yield f"message {said.what} is stored nowhere"
    elif places and (fate != _LOST or not all(map(_ended, places.values()))):
        # A write that returned in the moment in which its connection ended, or a part of it, is lost for all that is known.
        yield f"message {said.what} was sent and is {fate}"


def _ended(ear: Any) -> bool:
    return bool(ear.deaf or (ear.purpose == "all" and ear.over))


def _stored_numbers(world: Any) -> set[int]:
    if world.store is None:
        return set()
    events = [msgspec.json.decode(event) for stream in world.store.record.values() for event in stream]
    params = [event.get("params", {}) for event in events]
    return {data["n"] for p in params if isinstance(data := p.get("data", p), dict) and "n" in data}


def replies_stay_at_home(world: Any) -> Iterator[str]:
    """2: a reply is on its own POST's stream, JSON body, or a resume of that, once, and the last there (V-14, X-9)."""
    for root in world.ears:
        if root.root is root and root.purpose != "other":
            yield from _validate_replies(world, root)


def _validate_replies(world: Any, root: Any) -> Iterator[str]:
    places: dict[Any, set[Any]] = {}
    for ear in world.family(root):
        for place, message in entries(ear):
            if not is_reply(message) or message.get("id") is None:
                continue
            key = key_of(message["id"])
            places.setdefault(key, set()).add(place)
            sent = root.sents.get(key)
            if sent is None:
                yield f"a reply to {message['id']!r}, which nobody asked for there"
            elif sent.call is not None and not _is_answer(message, sent.call):
                yield f"call {sent.call.number} was answered {message}"
        replies = sum(map(is_reply, ear.messages))
        if (
            root.purpose in {"post", "listen"}
            and replies == len(root.sents)
            and not is_reply(ear.messages[-1])
        ):
            yield "a stream goes on after its last reply"
    for key, copies in places.items():
        if len(copies) > 1:
            yield f"request {key[1]!r} was answered {len(copies)} times"


def _is_answer(message: dict[str, Any], call: Any) -> bool:
    """Whether a reply that holds what a handler returned holds what this one did."""
    result = message.get("result", {})
    if "content" not in result or result.get("isError"):
        return True
    return bool(result["content"][0]["text"] == f"done {call.number}")


def streams_end_with_their_replies(world: Any) -> Iterator[str]:
    """2, while clients are there: a POST is over once its last reply was written."""
    for ear in world.ears:
        if ear.purpose == "post" and ear.root is ear and not ear.over and ear.sents:
            answered = {key_of(m.get("id")) for m in ear.messages if is_reply(m)}
            if answered >= set(ear.sents):
                yield "a stream stays open after its last reply"


def get_streams_have_no_replies(world: Any) -> Iterator[str]:
    """3: a plain GET stream, and a resume of one, never has a reply (W-19)."""
    for ear in world.ears:
        if ear.purpose == "get" and ear.recording.status == 200 and any(map(is_reply, ear.messages)):
            yield "a GET stream has a reply"


def nothing_reaches_strangers(world: Any) -> Iterator[str]:
    """5: nothing of one session reaches a stream of another one, and nobody answers or looks in another's place."""
    for what, places in appearances(world).items():
        said = world.said.get(what)
        if said is not None and not {ear.root for ear in places.values()} <= own_streams(world, said):
            yield f"message {what} is on a stream that is not its own"
    for heard in world.heard:
        asked = world.asked[heard.number]
        if heard.id is not None and heard.ear.root not in own_streams(world, asked):
            yield f"question {asked.number} is on a stream that is not its own"
    for asked in world.asked.values():
        if asked.outcome == "answered" and asked.value == f"stolen {asked.number}":
            yield f"question {asked.number} was answered by a stranger"
    for sent in world.sents:
        if sent.method.startswith("tasks/") and _differs(world, sent):
            yield f"a stranger's {sent.method} was answered {sent.reply}"


def no_modern_questions(world: Any) -> Iterator[str]:
    """8: no modern stream has a request of the server."""
    for ear in world.ears:
        modern = ear.client is not None and (ear.client.revision is None or ear.purpose == "listen")
        if modern and any("method" in m and "id" in m for m in ear.messages):
            yield f"{ear.client} was sent a request"
    for heard in world.heard:
        sent = world.asked[heard.number].sent
        if heard.id is not None and sent is not None and not sent.legacy:
            yield f"modern call {sent.call.number} sent a request"


def rounds_are_used_once(world: Any) -> Iterator[str]:
    """A round continues its call once, for whom it was made; and no handler begins anew that may not."""
    for sent in world.sents:
        if not sent.method.startswith("tasks/") and _differs(world, sent):
            yield f"{sent.method} was answered {sent.reply} instead of {sent.fault}"
    for call in world.calls:
        if call.runs > (len(call.sents) if call.tool == "again" else 1):
            yield f"call {call.number} ran {call.runs} times"


def _differs(world: Any, sent: Any) -> bool:
    """Whether a request that has to fail was answered otherwise."""
    if sent.fault is None or sent.reply is None:
        return False
    code = sent.reply.get("error", {}).get("code")
    # A session that ends meanwhile, and a bus that closes, answer with that.
    over = {SERVER_ERROR, INTERNAL_ERROR} if world.drained or sent.client.gone else set()
    return code != sent.fault and code not in over


def the_books_balance(world: Any) -> Iterator[str]:
    """15: the fates add up to what was made; and nobody heard more of a kind than the books have."""
    ledger = world.bus.ledger
    if ledger.balance():
        yield f"{ledger.balance()} messages are missing"
    fates = Counter(r.location if r.fate is None else r.fate.kind for r in world.receipts)
    claimed = Counter(ledger.pending)
    claimed += Counter(
        {
            FateKind.DELIVERED: ledger.delivered,
            FateKind.STORED: ledger.stored,
            FateKind.DISCARDED: sum(ledger.discarded.values()),
            FateKind.REFUSED: ledger.refused,
        }
    )
    if +fates != +claimed or ledger.emitted != len(world.receipts):
        yield f"the books say {claimed}, and the receipts {fates}"


def all_that_was_heard_is_booked(world: Any) -> Iterator[str]:
    """15, in the end: of each kind clients heard no more than left."""
    left = Counter(
        r.method for r in world.receipts if r.fate in {DELIVERED, STORED} or r.fate.reason is Reason.LOST
    )
    heard: dict[str, set[Any]] = {}
    for ear in world.ears:
        for place, message in entries(ear):
            if "method" in message:
                heard.setdefault(message["method"], set()).add(place)
    for method, places in heard.items():
        if len(places) > left[method]:
            yield f"{method} was heard {len(places)} times and left {left[method]} times"
