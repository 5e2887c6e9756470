"""The rules of delivery, checked on what a server and its clients have written down, once all is over.

Nothing here knows mcpbus: a message has a name, a scope and a fate by the journal of the server, and has arrived on streams by the journals
of the clients.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeAlias

import attrs

UNKNOWN: Final = ("discarded", "LOST")
"""The fate of a message that its client may have received."""
NOT_SENT: Final = {"discarded", "refused"}

Line: TypeAlias = dict[str, Any]


@attrs.define
class Arrivals:
    """One stream of one client: a response, a GET stream, a listen, or a connection that carries everything.

    Attributes:
        client: Whose it is.
        kind: "response", "get", "listen" or "duplex".
        call: The call that a response answers.
        request: The id of its request.
        messages: The messages that arrived, in order.
        whole: Whether the client has read it to its end, and left in order.
    """

    client: str
    kind: str
    call: str | None = None
    request: int | None = None
    messages: list[Line] = attrs.field(factory=list)
    whole: bool = False

    @property
    def named(self) -> list[str]:
        """The names of the messages that have one."""
        return [name for name in map(name_of, self.messages) if name is not None]


def name_of(message: Line) -> str | None:
    """Return the name of a message, wherever it is in it."""
    params = message.get("params", {})
    match message.get("method"):
        case "notifications/progress":
            return json.loads(params["message"])["name"]  # type: ignore[no-any-return]
        case "notifications/message":
            return params["data"]["name"]  # type: ignore[no-any-return]
        case "notifications/resources/updated":
            return params["uri"].rpartition("/")[2]  # type: ignore[no-any-return]
        case "notifications/checked":
            return params["name"]  # type: ignore[no-any-return]
    return None


@attrs.define
class Book:
    """The journal of a server.

    Attributes:
        scopes: The scope of each message: a call, a client, or a resource.
        copies: How many copies of it were sent.
        fates: The fates of its copies, each with its reason.
        faults: What the journal itself shows to be wrong.
    """

    scopes: dict[str, str] = attrs.field(factory=dict)
    copies: dict[str, int] = attrs.field(factory=dict)
    fates: dict[str, list[tuple[str, str | None]]] = attrs.field(factory=lambda: defaultdict(list))
    faults: list[str] = attrs.field(factory=list)

    @classmethod
    def read(cls, lines: Iterable[Line]) -> "Book":
        """Read a journal."""
        book, ledger = cls(), None
        for line in lines:
            if "emitted" in line and "scope" in line:
                book.scopes[line["emitted"]] = line["scope"]
                book.copies[line["emitted"]] = line["copies"]
            elif "settled" in line:
                book.fates[line["settled"]].append((line["fate"], line["reason"]))
            elif "unsettled" in line:
                book.faults.append(f"{line['unsettled']} has no fate, and is at {line['place']}")
            elif "ledger" in line:
                ledger = line
        if ledger is None:
            book.faults.append("the server has not come to its end")
        elif ledger["ledger"] or ledger["pending"]:
            book.faults.append(f"the ledger does not balance: {ledger}")
        for name, copies in book.copies.items():
            if len(book.fates[name]) != copies and ledger is not None:
                book.faults.append(f"{name} has {copies} copies and the fates {book.fates[name]}")
        return book


def check(book: Book, streams: list[Arrivals], *, proxied: bool = False) -> list[str]:
    """Return what is wrong; nothing if all rules hold. A fate is that at the proxy, if there is one, and not that at the client."""
    rules = (_scopes, _duplicates, _responses, _order, *(() if proxied else (_fates,)))
    return [*book.faults, *(fault for rule in rules for fault in rule(book, streams))]


def _scopes(book: Book, streams: list[Arrivals]) -> Iterator[str]:
    """A message is on a stream of its scope, and on no other one."""
    for stream in streams:
        for name in stream.named:
            scope = book.scopes.get(name)
            if scope is None:
                yield f"{name} has arrived, and was never sent"
            elif not _belongs(scope, stream):
                yield f"{name} of {scope} has arrived on {stream.kind} {stream.call} of {stream.client}"


def _belongs(scope: str, stream: Arrivals) -> bool:
    kind, _, of = scope.partition(" ")
    match kind:
        case "call":
            own = stream.kind == "response" and stream.call == of
            return own or (stream.kind == "duplex" and of.startswith(f"{stream.client}."))
        case "client":
            return stream.client == of and stream.kind in {"get", "duplex"}
    return stream.kind in {"get", "listen", "duplex"}


def _duplicates(book: Book, streams: list[Arrivals]) -> Iterator[str]:
    """No client has a message twice, but for a change that was lost: it is sent again, and the client may have it."""
    arrived = Counter((stream.client, name) for stream in streams for name in stream.named)
    for (client, name), times in arrived.items():
        changed = book.scopes.get(name) == "resource"
        lost = book.fates[name].count(UNKNOWN) if changed else 0
        if times > 1 + lost:
            yield f"{name} has arrived {times} times at {client}"


def _responses(_book: Book, streams: list[Arrivals]) -> Iterator[str]:
    """A request has one response, which is the last message of its stream, and a question is answered where it was asked."""
    responses = Counter[tuple[str, Any]]()
    for stream in streams:
        finals = [at for at, message in enumerate(stream.messages) if "method" not in message]
        responses.update((stream.client, stream.messages[at].get("id")) for at in finals)
        if stream.kind == "response" and finals and finals[0] != len(stream.messages) - 1:
            yield f"something follows the response of {stream.call}"
        if stream.kind == "get" and finals:
            yield f"a response is on the GET stream of {stream.client}"
        for at in finals:
            text = str(stream.messages[at].get("result", {}).get("content", ""))
            if stream.kind == "response" and stream.request != stream.messages[at].get("id"):
                yield f"the response of {stream.call} is on another stream"
            for asked in ("done ", "question "):
                if asked in text and stream.call is not None and stream.call not in text:
                    yield f"{stream.call} was answered {text}"
    yield from (
        f"{client} has {n} responses to request {at}" for (client, at), n in responses.items() if n > 1
    )


def _order(book: Book, streams: list[Arrivals]) -> Iterator[str]:
    """Messages of one scope are in order on each stream. Names count up in the order in which a server sends."""
    for stream in streams:
        last: dict[str, int] = {}
        for name in stream.named:
            scope, number = book.scopes.get(name, ""), int(name.rpartition("-")[2])
            if scope == "resource":
                continue  # a change that was lost is sent again, later
            if number < last.get(scope, 0):
                yield f"{name} of {scope} has arrived after {last[scope]} on {stream.kind} of {stream.client}"
            last[scope] = max(number, last.get(scope, 0))


def _fates(book: Book, streams: list[Arrivals]) -> Iterator[str]:
    """A delivered message has arrived, if its client has read to the end; a discarded one has not, unless it was lost."""
    arrived = Counter(name for stream in streams for name in stream.named)
    cut = {stream.client for stream in streams if not stream.whole}
    for name, fates in book.fates.items():
        scope = book.scopes[name]
        delivered = sum(fate == "delivered" for fate, _ in fates)
        client = scope.partition(" ")[2].partition(".")[0]
        if scope != "resource" and client not in cut and delivered > arrived[name]:
            yield f"{name} of {scope} is delivered, and has not arrived"
        never = all(fate in NOT_SENT and (fate, reason) != UNKNOWN for fate, reason in fates)
        if fates and never and arrived[name]:
            yield f"{name} of {scope} has arrived, and has the fates {fates}"
