"""The invariants of streams: what a listen holds, what a replay holds, and what events are called."""

from collections.abc import Iterator
from typing import Any

from ears import HttpEar
from happenings import LISTS
from invariants_of_requests import may_be_abandoned
from transcripts import is_reply

SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
_FINAL = {"completed", "failed", "cancelled"}


def replays_are_exact(world: Any) -> Iterator[str]:
    """4: what follows an event id is exactly the later events of that same stream, in order (W-23, W-25)."""
    for ear in world.ears:
        if not isinstance(ear, HttpEar) or ear.purpose not in {"post", "get"} or not ear.recording.is_stream:
            continue
        yield from _validate_order(world, ear)


def _validate_order(world: Any, ear: HttpEar) -> Iterator[str]:
    """Each event with data is the next one after what its client named, and is what the store was given."""
    name, due = None, 1
    if ear.after is not None:
        name, due = parse(ear.after)
        due += 1
    for event_id, data, _ in ear.events():
        if event_id is None or not data:
            continue
        stream, number = parse(event_id)
        if stream != name:
            # Only a GET stream that has ended may be gone on with as a new one, which begins at its beginning.
            if name is not None and not (
                ear.purpose == "get" and ear.after is not None and name == parse(ear.after)[0]
            ):
                yield f"{event_id} of another stream followed {name}, after {ear.after}"
            name, due = stream, 1
        if number != due:
            yield f"event {event_id} came where {due} was due, after {ear.after}"
            return
        record = world.store.record.get((ear.client.session.id, stream), [])
        if len(record) < due or record[due - 1] != data:
            yield f"event {event_id} is not what was stored under that id"
        due += 1


def parse(event_id: str) -> tuple[str, int]:
    """The stream and the number that an event id names."""
    name, _, number = event_id.rpartition(".")
    return name, int(number)


def replays_are_complete(world: Any) -> Iterator[str]:
    """4, while clients are there: who came back has all that was said; and was refused only what is gone."""
    for ear in world.ears:
        if isinstance(ear, HttpEar) and ear.after is not None and not ear.client.gone and not ear.deaf:
            yield from _validate_return(world, ear)


def _validate_return(world: Any, ear: HttpEar) -> Iterator[str]:
    name, number = parse(ear.after or "")
    stream = ear.client.session.id, name
    whole = stream in world.store and world.program.store != "failing"
    if ear.recording.status == 400:
        # With no reply any more, to have all that was said is not to be at the end of it.
        ended = stream not in world.store.finals and number == len(world.store.record.get(stream, []))
        abandoned = ended and any(map(may_be_abandoned, ear.root.sents.values()))
        if ear.known and whole and not abandoned:
            yield f"what follows {ear.after} was refused"
        return
    if any(retry for _, _, retry in ear.events()):
        return  # it was sent away again, to come back later
    due, got = _due_and_got(world, ear)
    if got < due and whole and not (ear.over and _was_superseded(world, ear)):
        yield f"{due} events followed {ear.after}, and {got} came"
    if stream in world.store.finals and not ear.over:
        yield f"the stream of {ear.after} has ended and stays open"


def _due_and_got(world: Any, ear: HttpEar) -> tuple[int, int]:
    """Count the events that followed the one that a client came back after, and those of them that came."""
    name, number = parse(ear.after or "")
    due = len(world.store.record.get((ear.client.session.id, name), [])) - number
    got = sum(1 for event_id, data, _ in ear.events() if data and event_id and parse(event_id)[0] == name)
    return due, got


def _was_superseded(world: Any, ear: HttpEar) -> bool:
    """Tell whether a return on another exchange took the stream, and has all that followed, unless its client left that one."""
    seen, found = [ear], [ear]
    while found:
        for rival in found.pop().rivals:
            if rival in seen or rival.recording.status == 400:
                continue
            due, got = _due_and_got(world, rival)
            if rival.deaf or got >= due:
                return True
            seen.append(rival)
            found.append(rival)
    return False


def event_ids_are_in_order(world: Any) -> Iterator[str]:
    """14: priming and retry are for 2025-11-25 alone, ids for legacy streams, and no id is given twice in a session (W-22)."""
    named: dict[tuple[Any, str], bytes] = {}
    for ear in world.ears:
        if not isinstance(ear, HttpEar):
            continue
        for event_id, data, retry in ear.events():
            if event_id is None:
                continue
            if ear.client is None or ear.purpose in {"all", "listen"} or ear.client.session is None:
                yield f"{ear.client} got an event id"
                continue
            if (retry or not data) and ear.client.revision != "2025-11-25":
                yield f"{ear.client} was primed"
            if data and named.setdefault((ear.client, event_id), data) != data:
                yield f"{event_id} names two events"


def listens_hold_what_was_asked(world: Any) -> Iterator[str]:
    """9: a listen has its acknowledgement, then only what it asked for, all stamped, then at most one result."""
    for listen in world.listens:
        mine = [(i, m) for i, m in enumerate(listen.sent.ear.messages) if _belongs(listen.sent, m)]
        if listen.sent.ear.purpose == "listen" and len(mine) != len(listen.sent.ear.messages):
            yield "a listen stream has a message without its stamp"
        if mine and "error" in mine[0][1]:
            continue
        if mine and not mine[0][1].get("method", "").endswith("/acknowledged"):
            yield "a listen does not begin with its acknowledgement"
        if mine:
            yield from _validate_granted(listen, mine[0][1]["params"]["notifications"])
        ended: set[str] = set()
        for index, message in mine[1:]:
            yield from _validate_heard(listen, message, ended)
            if is_reply(message) and message is not mine[-1][1]:
                yield "a listen goes on after its end"
            if index >= listen.sent.ends.get(listen.sent.ear, len(listen.sent.ear.messages)):
                yield f"a cancelled listen goes on with {message}"


def _belongs(sent: Any, message: dict[str, Any]) -> bool:
    stamp = message.get("params", {}).get("_meta", {}).get(SUBSCRIPTION, message.get("id"))
    if "method" in message and "id" in message:
        return False  # a request of the server, whose ids are its own
    return type(stamp) is type(sent.id) and stamp == sent.id


def _validate_granted(listen: Any, granted: dict[str, Any]) -> Iterator[str]:
    own = {note.id for note in listen.tasks if note.client.principal == listen.sent.client.principal}
    if not set(granted.get("taskIds", ())) <= own:
        yield "a listen was granted a task of somebody else"
    if not set(granted.get("resourceSubscriptions", ())) <= listen.uris:
        yield "a listen was granted resources that it did not ask for"


def _validate_heard(listen: Any, message: dict[str, Any], ended: set[str]) -> Iterator[str]:
    method, params = message.get("method", "result"), message.get("params", {})
    if method == "notifications/tasks":
        task = params["taskId"]
        note = next((n for n in listen.tasks if n.id == task), None)
        if note is None or note.client.principal != listen.sent.client.principal:
            yield f"task {task} for a listen that may not hear of it"
        if task in ended:
            yield f"task {task} goes on after its end"
        if params["status"] in _FINAL:
            ended.add(task)
    elif method.endswith("/list_changed"):
        kind = method.split("/")[1]
        if kind not in listen.lists or kind not in LISTS:
            yield f"{kind} for a listen to {listen.lists}"
    elif method == "notifications/resources/updated":
        uri = params["uri"]
        if not any(uri == wanted or uri.startswith(wanted + "/") for wanted in listen.uris):
            yield f"{uri} for a listen to {listen.uris}"
    elif method != "result":
        yield f"{method} on a listen"
