"""JSON-RPC messages of every method, and what may be wrong with them."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import attrs
from hypothesis import strategies as st

from mcpbus.dispatch.methods import METHODS
from mcpbus.tasks import TASKS

PREFIX = "io.modelcontextprotocol/"
MODERN = "2026-07-28"
CAPABILITIES = {"elicitation": {}, "sampling": {}, "roots": {}, "extensions": {TASKS: {}}}
CLAIM = {
    PREFIX + "protocolVersion": MODERN,
    PREFIX + "clientCapabilities": CAPABILITIES,
    PREFIX + "logLevel": "debug",
}
_INFO = {"name": "fuzz", "version": "1"}
HELLO = {"protocolVersion": "2025-11-25", "capabilities": CAPABILITIES, "clientInfo": _INFO}

REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("initialize", HELLO),
    ("ping", {}),
    ("server/discover", {}),
    ("tools/list", {}),
    ("tools/list", {"cursor": "MQ"}),
    *(
        ("tools/call", {"name": name, "arguments": arguments})
        for name, arguments in [
            ("echo", {"text": "x"}),
            ("add", {"a": 1, "b": 2}),
            ("speak", {"times": 3}),
            ("nap", {"seconds": 2}),
            ("fail", {"late": True}),
            ("ask", {"again": True}),
            ("work", {"asks": True}),
        ]
    ),
    ("resources/list", {}),
    ("resources/templates/list", {}),
    ("resources/read", {"uri": "res://a"}),
    ("resources/read", {"uri": "res://b/part?x=1"}),
    ("resources/subscribe", {"uri": "res://a"}),
    ("resources/unsubscribe", {"uri": "res://a"}),
    ("prompts/list", {}),
    ("prompts/get", {"name": "review", "arguments": {"code": "x"}}),
    (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "review"}, "argument": {"name": "code", "value": "x"}},
    ),
    (
        "completion/complete",
        {
            "ref": {"type": "ref/resource", "uri": "res://{name}/part{?x}"},
            "argument": {"name": "x", "value": ""},
            "context": {"arguments": {"name": "b"}},
        },
    ),
    ("logging/setLevel", {"level": "debug"}),
    (
        "subscriptions/listen",
        {"notifications": {"toolsListChanged": True, "resourceSubscriptions": ["res://a"], "taskIds": []}},
    ),
    ("tasks/get", {"taskId": "token-9"}),
    ("tasks/update", {"taskId": "token-9", "inputResponses": {"who": {"action": "cancel"}}}),
    ("tasks/cancel", {"taskId": "token-9"}),
    ("no/such", {}),
]
NOTIFICATIONS: list[tuple[str, dict[str, Any]]] = [
    ("notifications/initialized", {}),
    ("notifications/cancelled", {"requestId": 1, "reason": "why not"}),
    ("notifications/progress", {"progressToken": 1, "progress": 1}),
    ("notifications/roots/list_changed", {}),
]
assert METHODS.keys() <= {method for method, _ in REQUESTS}, "each method is to be fuzzed"

ODD: list[Any] = [
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        2.5,
        1e308,
        2**70,
        "",
        "x",
        "1",
        "\ud800",
        "a\0b",
        "(long)",
        "(deep)",
        [],
        {},
    ),
    *(
        [[]],
        [1, "a", None],
        {"": {}},
        {"a": {"b": [1]}},
        "res://a",
        "res://../x",
        "token-1",
        "who",
        "tools/call",
    ),
    *(
        CLAIM,
        {"type": "text", "text": "x"},
        {"action": "accept", "content": {"value": "x"}},
        float("nan"),
        MODERN,
    ),
]
KEYS = ["_meta", "cursor", "arguments", "task", "inputResponses", "requestState", "progressToken", "x", ""]
IDS = [1, 2, 3, "1", "a", 1.0, 1.5, 0, -1, 2**53, 2**70, "", None, True, [], {}]


@attrs.frozen
class Change:
    """One thing that is wrong with a message: somewhere in it something is left out, added, or another value.

    Attributes:
        verb: Which.
        place: Where, in the order of all its members; the count starts again at the end.
        key: What an added member is called.
        value: What it is, or the member that stood there.
    """

    verb: str
    place: int
    key: str
    value: Any


changes = st.builds(
    Change,
    st.sampled_from(["set", "set", "set", "drop", "add"]),
    st.integers(0, 40),
    st.sampled_from(KEYS),
    st.sampled_from(ODD),
)


def changed(message: dict[str, Any], wrong: list[Change]) -> dict[str, Any]:
    message = copy.deepcopy(message)
    for change in wrong:
        places = [*_places(message)]
        if not places:
            break
        parent, key = places[change.place % len(places)]
        value = copy.deepcopy(change.value)
        if change.verb == "set":
            parent[key] = value
        elif change.verb == "drop":
            del parent[key]
        elif isinstance(parent[key], dict):
            parent[key][change.key] = value
        elif isinstance(parent[key], list):
            parent[key].append(value)
    return message


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    members = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, member in [*members]:
        yield value, key
        yield from _places(member)


def encoded(message: Any) -> bytes:
    """As it goes over a wire; what is longer than one wants to read, in full."""
    text = json.dumps(message)
    return text.replace('"(long)"', f'"{"y" * 9000}"').replace('"(deep)"', "[" * 600 + "]" * 600).encode()
