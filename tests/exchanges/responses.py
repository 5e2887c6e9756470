"""A response as its client receives it, and the part of it that a test compares."""

import json
from collections.abc import Iterable
from hashlib import sha256
from typing import Any

from mcpbus.testing import Recording

TRANSPORT_FIELDS = frozenset(
    {"connection", "content-length", "transfer-encoding", "keep-alive", "date", "upgrade"}
)
"""The fields that belong to one transport: `framing` has the part of them that matters."""

LONGEST_TEXT = 300


class Response(Recording):
    """A response, whose arrival a journal records.

    Args:
        label: Its name in the exchange.
        journal: Gets the label for each message, in the order of arrival over all responses.

    Attributes:
        fields: Its header fields, in order.
        interim: The statuses of the interim responses before it.
    """

    def __init__(self, label: str, journal: list[str]) -> None:
        super().__init__()
        self.label = label
        self.fields: list[tuple[str, str]] = []
        self.interim: list[int] = []
        self._journal = journal

    def begin(self, status: int, fields: Iterable[tuple[bytes, bytes]]) -> None:
        """Note the head."""
        pairs = list(fields)
        self.fields = [(name.decode().lower(), value.decode("latin-1")) for name, value in pairs]
        super().begin(status, pairs)

    def take(self, body: bytes, *, complete: bool) -> None:
        """Note a part of the body."""
        before = len(self.messages)
        super().take(body, complete=complete)
        self._journal += [self.label] * (len(self.messages) - before)

    def disconnect(self) -> None:
        """Go away, unless the response is over."""
        if not self.over:
            super().disconnect()

    @property
    def ending(self) -> str:
        """The state of the response: open, complete, or lost in the middle."""
        if self.complete:
            return "complete"
        if self.aborted:
            return "lost"
        return "left" if self.disconnected else "open"

    def framing(self) -> str:
        """Return how HTTP/1.1 delimits the body, and whether the connection ends with it.

        The length of a short event stream is known or not, depending on the time that the server has for it.
        """
        named = dict(self.fields)
        kind = next((kind for kind in ("content-length", "transfer-encoding") if kind in named), "close")
        kind = "stream" if self.is_stream and kind != "close" else kind
        return f"{kind} {named.get('connection', 'keep-alive').lower()}"


class Names:
    """Stable names for what is different in each run: the ids of sessions, events, questions and suspended calls."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def learn(self, value: str, kind: str) -> None:
        """Give a value a name, unless it has one."""
        if value and value not in self._known:
            self._known[value] = f"${kind}{self._count(kind)}"

    def learn_id(self, number: int) -> None:
        """Give the id of a question a name, unless it has one."""
        if f'"id": {number}' not in self._known:
            name = f"$question{self._count('question')}"
            for member in ("id", "requestId"):
                self._known[f'"{member}": {number}'] = f'"{member}": "{name}"'

    def _count(self, kind: str) -> int:
        return 1 + len(
            {name for name in self._known.values() if name.startswith((f"${kind}", f'"id": "${kind}'))}
        )

    def replace(self, text: str) -> str:
        """Return a text with the names in the place of the values, the longest ones first."""
        for value in sorted(self._known, key=len, reverse=True):
            text = text.replace(value, self._known[value])
        return text


def events_of(body: bytes) -> list[Any]:
    """Return the events of an SSE stream: comments as `:`, others by their fields."""
    found: list[Any] = []
    *whole, rest = body.split(b"\n\n")
    for block in whole:
        lines = block.decode().split("\n")
        if all(line.startswith(":") for line in lines):
            found.append(":")
            continue
        pairs = [line.partition(": ")[::2] for line in lines if not line.startswith(":")]
        event: dict[str, Any] = {}
        for name, value in pairs:
            if name == "data":
                event["data"] = event.get("data", "") + value
            else:
                event[name] = value
        if event.get("data", "").startswith("{"):
            event["data"] = json.loads(event["data"])
        found.append(event["data"] if set(event) == {"data"} else event)
    if rest:
        found.append(f"cut off: {rest.decode()}")
    return found


def shorten(value: Any) -> Any:
    """Return a value in which each long text is its length and its digest."""
    match value:
        case str() if len(value) > LONGEST_TEXT:
            return f"{len(value)} characters {sha256(value.encode()).hexdigest()[:16]}"
        case list():
            return [shorten(each) for each in value]
        case dict():
            return {name: shorten(each) for name, each in value.items()}
    return value


def outcome_of(response: Response) -> dict[str, Any]:
    """Return the part of a response that is compared."""
    found: dict[str, Any] = {"status": response.status, "ends": response.ending}
    fields = sorted(field for field in response.fields if field[0] not in TRANSPORT_FIELDS)
    found["fields"] = [f"{name}: {value}" for name, value in fields]
    if response.is_stream:
        found["events"] = events_of(response.body)
    elif response.body:
        try:
            found["json"] = json.loads(response.body)
        except ValueError:
            found["body"] = response.body.decode(errors="backslashreplace")
    return found
