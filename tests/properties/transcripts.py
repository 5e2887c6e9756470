"""What clients heard, as the judges read it: each message with the place at which it came, and what it is."""

from collections.abc import Iterator
from typing import Any

from ears import HttpEar

Place = tuple[Any, ...]
"""Where a message came: the id of its event where that has one, so that a replay is no second copy."""


def entries(ear: Any) -> Iterator[tuple[Place, dict[str, Any]]]:
    """The messages of one ear, in order."""
    ids: list[str | None] = []
    if isinstance(ear, HttpEar):
        ids = [event_id for event_id, data, _ in ear.events() if data and ear.purpose != "all"]
    for index, message in enumerate(ear.messages):
        event_id = ids[index] if index < len(ids) else None
        yield ((ear.root, index, ear) if event_id is None else (ear.root, event_id)), message


def is_reply(message: dict[str, Any]) -> bool:
    return "method" not in message


def key_of(request_id: Any) -> tuple[type, Any]:
    """Ids compare by type and value."""
    return type(request_id), request_id


def what_is(ear: Any, message: dict[str, Any]) -> Any:
    """What a notification that somebody said is, as the notebook names it; None for everything else."""
    params = message.get("params", {})
    if message.get("method") == "notifications/progress":
        token = key_of(params["progressToken"])
        owner = next((s for s in ear.root.sents.values() if key_of(s.token) == token), None)
        return "progress", owner, params["progress"]
    if message.get("method") in {"notifications/message", "notifications/x"}:
        return params.get("data", params).get("n")
    return None


def appearances(world: Any) -> dict[Any, dict[Place, Any]]:
    """Where everything that was said appeared: the ear by place."""
    seen: dict[Any, dict[Place, Any]] = {}
    for ear in world.ears:
        for place, message in entries(ear):
            what = what_is(ear, message)
            if what is not None:
                seen.setdefault(what, {})[place] = ear
    return seen


def own_streams(world: Any, said: Any) -> set[Any]:
    """The streams, by their first ear, on which something that was said may appear."""
    if said.sent is not None:
        return {said.sent.ear.root}
    return {said.client.ear} if said.client.ear is not None else set(said.client.gets)
