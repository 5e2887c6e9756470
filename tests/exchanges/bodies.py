"""Exchanges whose bodies are unusual: cut, paused, empty, too long, not JSON, not UTF-8, no message, or several messages."""

from tests.exchanges.house import BODY_LIMIT
from tests.exchanges.steps import (
    MODERN,
    Exchange,
    ask,
    claim,
    encode,
    legacy,
    modern,
    post,
    rpc,
    session,
    table,
    tool,
)

WAYS = ("http1 pieces", "http1 behind", "http2 whole", "http2 pieces", "asgi pieces", "link whole")
_FEW_WAYS = ("http1 behind", "http2 whole", "asgi whole")
_HEAD = {"mcp_protocol_version": MODERN, "mcp_method": "tools/call", "mcp_name": "echo"}
_LEGACY = {"mcp_session_id": "$session", "mcp_protocol_version": "2025-11-25"}


def _echo(text: str, size: int | None = None, **how):
    """Return a call of echo whose body is padded to a size."""
    params = {**tool("echo", text=text), "_meta": claim()}
    body = encode(rpc("tools/call", params))
    if size is not None:
        body += b" " * (size - len(body))
    return post(body, how=how, **_HEAD)


_SHORT = encode(rpc("ping", id=7))
_WIDE = encode(rpc("x/é😀", id="ü"))
CUTS = [
    *(
        Exchange(
            f"cut: a ping at byte {at}",
            (*session(), *ask(post(_SHORT, how={"cuts": (at,)}, **_LEGACY))),
            ways=("http1 pieces", "http2 pieces", "http2 expecting", "asgi pieces"),
        )
        for at in range(1, len(_SHORT))
    ),
    *(
        Exchange(
            f"cut: half a character at byte {at}",
            (*session(), *ask(post(_WIDE, how={"cuts": (at,)}, **_LEGACY))),
            ways=(
                "http1 pieces",
                "tls1 pieces",
                "http2 pieces",
                "http2 expecting",
                "asgi pieces",
                "link pieces",
            ),
        )
        for at in range(len(_WIDE) - 14, len(_WIDE))
    ),
    *(
        Exchange(
            f"cut: byte for byte, {framing}", ask(_echo("é", framing=framing, cuts=tuple(range(1, 120))))
        )
        for framing in ("length", "chunked", "trailers")
    ),
]
LENGTHS = [
    Exchange(f"length: {size} bytes, {framing}", ask(_echo("hi", size, framing=framing)))
    for framing in ("length", "chunked", "trailers")
    for size in (None, 16 * 1024, 16 * 1024 + 1, 30_000, BODY_LIMIT, BODY_LIMIT + 1, 2 * BODY_LIMIT)
]
_BODIES = {
    "empty": b"",
    "a space": b" ",
    "an object": b"{}",
    "a list": b"[]",
    "null": b"null",
    "a number": b"1",
    "a text": b'"ping"',
    "cut off": b'{"jsonrpc":"2.0","id":1,"meth',
    "two messages": b'{"jsonrpc":"2.0","id":1,"method":"ping"}{"jsonrpc":"2.0","id":2,"method":"ping"}',
    "trailing comma": b'{"jsonrpc":"2.0","id":1,"method":"ping",}',
    "a comment": b'{"jsonrpc":"2.0","id":1,"method":"ping"} // x',
    "NaN": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":NaN}}',
    "a byte order mark": b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"ping"}',
    "UTF-16": '{"jsonrpc":"2.0","id":1,"method":"ping"}'.encode("utf-16"),
    "not UTF-8": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"\xff"}}',
    "half a character": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"\xe2\x82"}}',
    "overlong": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"\xc0\xaf"}}',
    "half a surrogate pair": rb'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"\ud800"}}',
    "a surrogate pair": rb'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"\ud83d\ude00"}}',
    "a control character": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"\x01"}}',
    "a null byte": b'{"jsonrpc":"2.0","id":1,"method":"ping"}\x00',
    "spaces around": b' \r\n\t{ "jsonrpc" : "2.0", "id" : 1, "method" : "ping" } \r\n',
    "deep": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":' + b"[" * 200 + b"]" * 200 + b"}}",
    "a member twice": b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}',
    "members backwards": b'{"params":{},"method":"ping","id":1,"jsonrpc":"2.0"}',
    "an escaped method": rb'{"jsonrpc":"2.0","id":1,"method":"\u0070ing"}',
    "a large id": b'{"jsonrpc":"2.0","id":123456789012345678901234567890,"method":"ping"}',
    "a float id": b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}',
    "a whole float id": b'{"jsonrpc":"2.0","id":1.0,"method":"ping"}',
    "a null id": b'{"jsonrpc":"2.0","id":null,"method":"ping"}',
    "a list id": b'{"jsonrpc":"2.0","id":[1],"method":"ping"}',
    "an empty text as id": b'{"jsonrpc":"2.0","id":"","method":"ping"}',
    "no version": b'{"id":1,"method":"ping"}',
    "version 1.0": b'{"jsonrpc":"1.0","id":1,"method":"ping"}',
    "version 2": b'{"jsonrpc":2,"id":1,"method":"ping"}',
    "no method": b'{"jsonrpc":"2.0","id":1}',
    "an empty method": b'{"jsonrpc":"2.0","id":1,"method":""}',
    "a method that is a number": b'{"jsonrpc":"2.0","id":1,"method":5}',
    "params are a list": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[1]}',
    "params are a text": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":"x"}',
    "params are null": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":null}',
    "a result and an error": b'{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":"x"}}',
    "a method and a result": b'{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}',
    "a response to nothing": b'{"jsonrpc":"2.0","id":99,"result":{}}',
    "an error to nothing": b'{"jsonrpc":"2.0","id":99,"error":{"code":1,"message":"x"}}',
    "a response without an id": b'{"jsonrpc":"2.0","result":{}}',
    "an error without an id": b'{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"x"}}',
    "an error that is a text": b'{"jsonrpc":"2.0","id":1,"error":"x"}',
    "an unknown method": b'{"jsonrpc":"2.0","id":1,"method":"no/such"}',
    "an unknown notification": b'{"jsonrpc":"2.0","method":"notifications/no/such"}',
    "a notification that is a request": b'{"jsonrpc":"2.0","id":1,"method":"notifications/initialized"}',
    "a request that is a notification": b'{"jsonrpc":"2.0","method":"tools/list"}',
    "a further member": b'{"jsonrpc":"2.0","id":1,"method":"ping","x":1}',
}
CONTENTS = [
    *(Exchange(f"body: {name}", (*session(), *ask(post(body, **_LEGACY)))) for name, body in _BODIES.items()),
    *(
        Exchange(f"modern body: {name}", ask(post(body, **{**_HEAD, "mcp_method": "ping"})), ways=_FEW_WAYS)
        for name, body in _BODIES.items()
    ),
]
_ARGUMENTS = {
    "missing": tool("echo"),
    "another type": tool("echo", text=5),
    "unknown": tool("echo", text="x", more=1),
    "no arguments": {"name": "echo"},
    "arguments are a list": {"name": "echo", "arguments": []},
    "no name": {"arguments": {}},
    "an unknown tool": tool("no_such"),
    "a name that is a number": {"name": 5},
    "wide characters": tool("echo", text="é😀\u2028"),
    "half a surrogate pair": tool("echo", text="\\ud800"),
    "failing": tool("fail"),
    "crashing": tool("crash"),
    "crashing after words": tool("crash", words=1),
    "long result": tool("large"),
}
ARGUMENTS = [
    *table("modern arguments", [(name, modern("tools/call", params)) for name, params in _ARGUMENTS.items()]),
    *(
        Exchange(f"legacy arguments: {name}", (*session(), *ask(legacy("tools/call", params))))
        for name, params in _ARGUMENTS.items()
    ),
    *(
        Exchange(f"{name}, {era}", (*steps, *ask(request)))
        for era, steps, make in (
            (MODERN, (), modern),
            ("2025-11-25", session(), legacy),
        )
        for name, request in (
            ("tools/list", make("tools/list")),
            ("tools/list with a cursor that is none", make("tools/list", {"cursor": "x"})),
            ("resources/read", make("resources/read", {"uri": "note://a"})),
            ("resources/read of nothing", make("resources/read", {"uri": "note://none"})),
            ("prompts/get", make("prompts/get", {"name": "greet", "arguments": {"who": "Ann"}})),
            ("prompts/get without arguments", make("prompts/get", {"name": "greet"})),
            ("logging/setLevel", make("logging/setLevel", {"level": "error"})),
            (
                "completion/complete",
                make(
                    "completion/complete",
                    {
                        "ref": {"type": "ref/prompt", "name": "greet"},
                        "argument": {"name": "who", "value": ""},
                    },
                ),
            ),
        )
    ),
]
_OLD = "2025-03-26"
_PING, _NOTE = rpc("ping", id=1), rpc("notifications/x", id=None)
_BATCHES = {
    "empty": [],
    "one request": [_PING],
    "two requests": [_PING, rpc("ping", id=2)],
    "twenty requests": [rpc("ping", id=n) for n in range(20)],
    "notifications": [_NOTE, _NOTE],
    "a notification and a request": [_NOTE, _PING],
    "responses": [{"jsonrpc": "2.0", "id": 9, "result": {}}],
    "a response and a request": [{"jsonrpc": "2.0", "id": 9, "result": {}}, _PING],
    "numbers": [1, 2],
    "a number and a request": [1, _PING],
    "the same id twice": [_PING, _PING],
    "initialize": [rpc("initialize", {})],
    "a list within": [[_PING]],
    "a burst": [rpc("tools/call", tool("burst", 1), 1), _PING],
    "a nap and a ping": [rpc("tools/call", tool("nap"), 1), rpc("ping", id=2)],
    "two naps": [
        rpc("tools/call", tool("nap", seconds=0.5), 1),
        rpc("tools/call", tool("nap", seconds=0.2), 2),
    ],
    "errors": [rpc("no/such", id=1), rpc("tools/call", tool("no_such"), 2)],
    "a crash": [rpc("tools/call", tool("crash"), 1), _PING],
    "a modern request": [rpc("ping", {"_meta": claim()}, 1)],
    "a nap that is cancelled": [
        rpc("tools/call", tool("hold"), 1),
        rpc("notifications/cancelled", {"requestId": 1}, None),
    ],
}


def _batch(members, **named):
    return post(members, **{"mcp_session_id": "$session", "mcp_protocol_version": _OLD, **named})


BATCHES = [
    *(
        Exchange(f"batch: {name}", (*session(_OLD), *ask(_batch(members))))
        for name, members in _BATCHES.items()
    ),
    *(
        Exchange(f"batch as {accept}: {name}", (*session(_OLD), *ask(_batch(_BATCHES[name], accept=accept))))
        for accept in ("application/json", "text/event-stream")
        for name in ("two requests", "a burst", "a nap and a ping", "notifications", "errors")
    ),
    *(
        Exchange(
            f"batch in {era}: {name}", (*session(era), *ask(_batch(_BATCHES[name], mcp_protocol_version=era)))
        )
        for era in ("2024-11-05", "2025-06-18", "2025-11-25")
        for name in ("two requests", "notifications", "empty")
    ),
    *table(
        "batch of 2026-07-28",
        [
            (name, post(_BATCHES[name], mcp_protocol_version=MODERN))
            for name in ("two requests", "notifications", "empty")
        ],
    ),
    *(
        Exchange(
            f"batch without a session at {place}: {name}",
            ask(_batch(_BATCHES[name], mcp_session_id=None)),
            place,
        )
        for place in ("plain", "stateless")
        for name in ("two requests", "notifications")
    ),
]
EXCHANGES = [*CUTS, *LENGTHS, *CONTENTS, *ARGUMENTS, *BATCHES]
