"""The invariants of what the program asks sessions, outside any request: each question has one end, and its client hears of it."""

from collections.abc import Iterator
from typing import Any

from transcripts import Place, entries, key_of

_REFUSED = {"InputRefusedError", "InvalidInputError"}
"""How questions end that their client has answered, but not as they wanted."""


def nobody_is_waited_for_in_vain(world: Any) -> Iterator[str]:
    """11, while clients are there: a question that was heard is answered by now, or its client knows that it need not be."""
    for session in world.bus.sessions.values():
        if session.questions:
            yield f"questions {sorted(session.questions)} are kept, which nobody asks any more"
    withdrawn = _withdrawn(world)
    for heard in _of_sessions(world):
        # Over HTTP a question is withdrawn only if there is a stream just then.
        ear, there = heard.ear, not heard.ear.client.gone and not world.drained
        if ear.purpose == "all" and there and not heard.answered and not withdrawn.get(_name(heard)):
            yield f"{ear.client} still believes that question {heard.number} waits for it"


def questions_have_one_end(world: Any) -> Iterator[str]:
    """11, in the end: each is heard once at most, and answered, refused or withdrawn, but only one of these, and once."""
    for number, places in _asked_at(world).items():
        asked = world.asked[number]
        if asked.client is not None and len(places) > 1:
            yield f"question {number} was asked {len(places)} times"
        if asked.client is not None and any(root.since > asked.ended for root, *_ in places):
            yield f"question {number} was asked after its end, on a stream that was opened later"
    withdrawn = _withdrawn(world)
    ends = {heard.number: len(withdrawn.get(_name(heard), ())) for heard in _of_sessions(world)}
    answered = {heard.number for heard in world.heard if heard.answered}
    for asked in world.asked.values():
        if asked.client is None:
            continue
        if ends.get(asked.number, 0) > 1:
            yield f"question {asked.number} was withdrawn {ends[asked.number]} times"
        settled = [one for one in asked.together if one.number in answered and not ends.get(one.number)]
        if asked.outcome == "answered" and asked not in settled:
            yield f"question {asked.number} was answered by nobody, or withdrawn as well"
        if asked.outcome in _REFUSED and not settled:
            yield f"question {asked.number} was refused by nobody, or withdrawn as well"


def nothing_unheard_is_withdrawn(world: Any) -> Iterator[str]:
    """11, in the end: who has heard all that was said to them is told of the end of no question that they did not hear."""
    heard = {_name(heard) for heard in world.heard if heard.id is not None}
    for client, (_, question_id) in _withdrawn(world).keys() - heard:
        if client.ear is not None and not client.ear.deaf:
            yield f"{client} was told to forget question {question_id}, which it was never asked"


def _asked_at(world: Any) -> dict[int, set[Place]]:
    """Where each question was heard."""
    places: dict[int, set[Place]] = {}
    for ear in world.ears:
        for place, message in entries(ear):
            if "method" in message and "id" in message and ear.client.kind != "memory":
                places.setdefault(world.number_in(message["params"]), set()).add(place)
    return places


def _of_sessions(world: Any) -> list[Any]:
    """What was heard of the questions that no request asked; a client in process gives up a withdrawn one by itself."""
    return [h for h in world.heard if h.id is not None and world.asked[h.number].client is not None]


def _name(heard: Any) -> tuple[Any, Any]:
    return heard.ear.client, key_of(heard.id)


def _withdrawn(world: Any) -> dict[tuple[Any, Any], set[Place]]:
    """Where each client was told that one of the server's requests needs no answer any more, by that one's id."""
    told: dict[tuple[Any, Any], set[Place]] = {}
    for ear in world.ears:
        for place, message in entries(ear):
            if message.get("method") != "notifications/cancelled" or ear.client.kind == "memory":
                continue
            named = key_of(message["params"]["requestId"])
            if named not in ear.root.sents:  # the end of a listen is told in the same way
                told.setdefault((ear.client, named), set()).add(place)
    return told
