"""The differences between ways that are intended, each with its reason.

The outcomes of a way that differs are recorded beside those of the first way, in `outcomes.jsonl`. A row here admits them. A row that
admits none any more fails.
"""

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, Final

import attrs


@attrs.frozen
class Difference:
    """What may differ from the first way.

    Attributes:
        exchanges: The names of exchanges, as a pattern.
        ways: The names of ways, as a pattern.
        parts: The parts of the outcome, as paths such as `a.status` or `fates`.
        reason: The cause, and why it is right.
    """

    exchanges: str
    ways: str
    parts: frozenset[str]
    reason: str

    def admits(self, exchange: str, way: str, parts: frozenset[str]) -> bool:
        """Whether this row covers all parts that differ."""
        return fnmatchcase(exchange, self.exchanges) and fnmatchcase(way, self.ways) and parts <= self.parts


def _parts(*names: str) -> frozenset[str]:
    return frozenset(names)


_WHOLE: Final = _parts("a.status", "a.fields", "a.json", "a.body", "fates")

DIFFERENCES: Final = (
    Difference(
        "host: *",
        "http2 *",
        _WHOLE,
        "HTTP/2 has one authority in the place of Host; its absence is a fault of the request itself.",
    ),
    Difference(
        "host: *",
        "asgi *",
        _WHOLE,
        "HTTP/1.1 itself refuses a request without exactly one Host; over ASGI the endpoint does.",
    ),
    Difference(
        "expect: 200-ok*",
        "asgi *",
        _WHOLE,
        "An expectation is for the HTTP server, which answers 417; ASGI applications have none.",
    ),
    Difference(
        "GET stream: *",
        "*",
        _parts("g.events", "h.events"),
        "A task begins a GET stream with a comment; a turn first looks for a message that waits.",
    ),
    Difference(
        "* names: one that makes it crash*",
        "asgi *",
        _parts("a.body", "a.fields"),
        "Over ASGI the server words the 500 for an application that raises.",
    ),
    Difference(
        "* names: one that makes it crash*",
        "link *",
        _parts("a.body", "a.fields", "a.json", "framing"),
        "The node that fails reports over the link, in JSON-RPC.",
    ),
    Difference(
        "one request: initialize",
        "link *",
        _WHOLE,
        "A cluster first stores a new session in its directory, and until then the handshake is a request in flight.",
    ),
)


def flatten(outcome: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of an outcome by their paths."""
    found = {name: part for name, part in outcome.items() if name != "responses"}
    for label, response in outcome["responses"].items():
        found |= {f"{label}.{name}": part for name, part in response.items()}
    return found


def differing(first: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of another way's outcome that differ from the first way's; None for one that is missing.

    `framing` is that of HTTP/1.1: other transports have none.
    """
    names = sorted({*first, *other})
    absent = {"framing"} - set(other)
    return {
        name: other.get(name) for name in names if name not in absent and first.get(name) != other.get(name)
    }


def admitting(exchange: str, way: str, parts: frozenset[str]) -> Iterator[Difference]:
    """Yield the rows that admit a difference."""
    return (row for row in DIFFERENCES if row.admits(exchange, way, parts))
