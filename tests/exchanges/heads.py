"""Exchanges whose heads are unusual: the order, the case and the number of fields, whitespace, and fields that are missing or wrong."""

import attrs

from tests.exchanges.steps import (
    BOTH,
    LEGACY,
    MODERN,
    Exchange,
    Request,
    ask,
    call,
    claim,
    encode,
    get,
    legacy,
    modern,
    post,
    rpc,
    session,
    table,
    tool,
)

_PING = rpc("ping")
_DISCOVER = encode(rpc("server/discover", {"_meta": claim()}))
_MODERN_FIELDS = (
    ("host", "localhost"),
    ("content-type", "application/json"),
    ("accept", BOTH),
    ("mcp-protocol-version", MODERN),
    ("mcp-method", "server/discover"),
)


def _spelled(*lines: bytes, fields=_MODERN_FIELDS, **more) -> Request:
    """Return a modern request whose head HTTP/1.1 spells in these lines."""
    return Request("POST", fields=fields, lines=lines or None, body=_DISCOVER, **more)


def _lines(change) -> tuple[bytes, ...]:
    return tuple(change(name, value).encode() for name, value in _MODERN_FIELDS)


SPELLING = [
    Exchange(f"spelling: {name}", ask(request))
    for name, request in [
        ("as usual", _spelled()),
        ("upper case", _spelled(*_lines(lambda name, value: f"{name.upper()}: {value}"))),
        ("title case", _spelled(*_lines(lambda name, value: f"{name.title()}: {value}"))),
        ("no space", _spelled(*_lines(lambda name, value: f"{name}:{value}"))),
        ("tabs", _spelled(*_lines(lambda name, value: f"{name}:\t{value}\t"))),
        ("many spaces", _spelled(*_lines(lambda name, value: f"{name}:    {value}   "))),
        ("mixed case", _spelled(*_lines(lambda name, value: f"{name[:3].upper()}{name[3:]}: {value}"))),
        ("backwards", _spelled(fields=_MODERN_FIELDS[::-1])),
        ("host last", _spelled(fields=(*_MODERN_FIELDS[1:], _MODERN_FIELDS[0]))),
        (
            "further fields",
            _spelled(fields=(*_MODERN_FIELDS, ("x-a", "1"), ("x-a", "2"), ("user-agent", "t"))),
        ),
        ("an empty field", _spelled(fields=(*_MODERN_FIELDS, ("x-empty", "")))),
        ("a cookie twice", _spelled(fields=(*_MODERN_FIELDS, ("cookie", "a=1"), ("cookie", "b=2")))),
        ("Latin-1", _spelled(fields=(*_MODERN_FIELDS, ("x-name", "Zoë")))),
        ("sixty fields", _spelled(fields=(*_MODERN_FIELDS, *((f"x-{n}", str(n)) for n in range(60))))),
        ("a long field", _spelled(fields=(*_MODERN_FIELDS, ("x-long", "y" * 8000)))),
    ]
]

_ACCEPTS = {
    "none": None,
    "empty": "",
    "any": "*/*",
    "any application": "application/*",
    "JSON": "application/json",
    "SSE": "text/event-stream",
    "reversed": "text/event-stream, application/json",
    "upper case": "APPLICATION/JSON, TEXT/EVENT-STREAM",
    "with weights": "application/json;q=0.5, text/event-stream;q=0.9",
    "JSON not": "application/json;q=0, text/event-stream",
    "SSE not": "application/json, text/event-stream;q=0",
    "nothing": "application/json;q=0, text/event-stream;q=0",
    "HTML": "text/html",
    "HTML and any": "text/html, */*;q=0.1",
    "twice": ["application/json", "text/event-stream"],
    "twice the same": [BOTH, BOTH],
    "with parameters": "application/json; charset=utf-8, text/event-stream; x=y",
    "with empty members": ", application/json,, text/event-stream,",
    "no sense": ";;,/",
}
ACCEPT = [
    *(
        Exchange(f"accept: {name}, a short call", ask(modern("server/discover", accept=accept)))
        for name, accept in _ACCEPTS.items()
    ),
    *(
        Exchange(f"accept: {name}, a burst", ask(call(MODERN, "burst", token=1, named={"accept": accept})))
        for name, accept in _ACCEPTS.items()
    ),
    *(
        Exchange(f"accept: {name}, a GET stream", (*session(), *ask(get(accept=accept))))
        for name, accept in _ACCEPTS.items()
        if name in {"none", "any", "JSON", "SSE not", "upper case", "HTML"}
    ),
]
_TYPES = {
    "none": None,
    "empty": "",
    "upper case": "APPLICATION/JSON",
    "UTF-8": "application/json; charset=utf-8",
    "quoted": 'application/json; charset="UTF-8"',
    "UTF-16": "application/json; charset=utf-16",
    "no space": "application/json;charset=utf-8",
    "text": "text/plain",
    "a form": "application/x-www-form-urlencoded",
    "JSON-RPC": "application/json-rpc",
    "JSON suffix": "application/vnd.x+json",
    "twice the same": ["application/json", "application/json"],
    "twice": ["application/json", "text/plain"],
    "any": "*/*",
    "a semicolon": "application/json;",
}
CONTENT_TYPE = [
    Exchange(f"content type: {name}", ask(modern("server/discover", content_type=value)))
    for name, value in _TYPES.items()
]
_HOSTS = {
    "none": None,
    "empty": "",
    "twice": ["localhost", "localhost"],
    "two": ["localhost", "evil.example"],
    "with a port": "localhost:8000",
    "upper case": "LOCALHOST",
    "an address": "127.0.0.1",
    "an IPv6 address": "[::1]:80",
    "another address": "10.0.0.1",
    "another": "evil.example",
    "the other way round": "localhost.evil.example",
    "a user": "user@localhost",
    "a path": "localhost/x",
    "a port that is none": "localhost:http",
    "allowed": "api.example",
    "allowed, with a port": "api.example:8443",
}
HOST = [
    *table("host", [(name, modern("server/discover", host=host)) for name, host in _HOSTS.items()]),
    *table(
        "host at an open server",
        [
            (name, modern("server/discover", host=_HOSTS[name]))
            for name in ("another", "allowed", "allowed, with a port", "the other way round")
        ],
        place="open",
    ),
]
_ORIGINS = {
    "loopback": "http://localhost:3000",
    "loopback address": "https://127.0.0.1",
    "null": "null",
    "another": "https://evil.example",
    "allowed": "https://app.example",
    "allowed in upper case": "HTTPS://APP.EXAMPLE",
    "allowed with a port": "https://app.example:444",
    "twice": ["https://app.example", "https://app.example"],
    "empty": "",
    "no origin": "app.example",
}
ORIGIN = [
    exchange
    for place, prefix in (("plain", "origin"), ("open", "origin at an open server"))
    for exchange in table(
        prefix,
        [(name, modern("server/discover", origin=value)) for name, value in _ORIGINS.items()],
        place=place,
    )
]
SITE = table(
    "site",
    [
        (value, modern("server/discover", sec_fetch_site=value))
        for value in ("same-origin", "same-site", "cross-site", "none", "odd")
    ],
)
PREFLIGHT = [
    exchange
    for place in ("plain", "open")
    for exchange in table(
        f"preflight at {place}",
        [
            (
                f"{verb} from {origin}",
                Request(
                    "OPTIONS",
                    fields=(
                        ("host", "localhost"),
                        ("origin", origin),
                        ("access-control-request-method", verb),
                        ("access-control-request-headers", "content-type, mcp-method"),
                    ),
                ),
            )
            for verb in ("POST", "GET", "DELETE", "PUT")
            for origin in ("https://app.example", "http://localhost")
        ],
        place=place,
    )
]
_TARGETS = (
    "/mcp",
    "/mcp/",
    "/mcp?x=1",
    "/MCP",
    "/",
    "/health",
    "/healthz",
    "/sse",
    "/mcp/x",
    "//mcp",
    "/m%63p",
)
VERBS = [
    Exchange(
        f"verb: {verb} {target}",
        ask(Request(verb, target, (("host", "localhost"),), framing="none" if verb != "POST" else "length")),
    )
    for verb in ("GET", "HEAD", "OPTIONS", "DELETE", "PUT", "PATCH", "POST", "PROPFIND")
    for target in (_TARGETS if verb in {"GET", "POST"} else ("/mcp", "/health", "/nowhere"))
    if (verb, target) != ("GET", "/sse")
]
_GOOD = {"mcp_protocol_version": MODERN, "mcp_method": "tools/call", "mcp_name": "echo"}
_MIRRORED = {
    "no version": {"mcp_protocol_version": None},
    "a legacy version": {"mcp_protocol_version": LEGACY},
    "a future version": {"mcp_protocol_version": "2099-01-01"},
    "version twice": {"mcp_protocol_version": [MODERN, MODERN]},
    "an empty version": {"mcp_protocol_version": ""},
    "no method": {"mcp_method": None},
    "another method": {"mcp_method": "tools/list"},
    "method in upper case": {"mcp_method": "TOOLS/CALL"},
    "method twice": {"mcp_method": ["tools/call", "tools/call"]},
    "no name": {"mcp_name": None},
    "another name": {"mcp_name": "burst"},
    "an encoded name": {"mcp_name": "=?base64?ZWNobw==?="},
    "a wrongly encoded name": {"mcp_name": "=?base64?***?="},
    "name twice": {"mcp_name": ["echo", "echo"]},
    "a session id": {"mcp_session_id": "0123456789abcdef"},
    "an event id": {"last_event_id": "1"},
    "a parameter that is not mirrored": {"mcp_param_text": "hi"},
}
MIRRORED = [
    *table(
        "mirrored",
        [
            (name, modern("tools/call", tool("echo", text="hi"), **{**_GOOD, **change}))
            for name, change in _MIRRORED.items()
        ],
    ),
    *table(
        "mirrored parameter",
        [
            (name, modern("tools/call", tool("route", region="eu"), mcp_param_region=value))
            for name, value in (
                ("right", "eu"),
                ("missing", None),
                ("another", "us"),
                ("encoded", "=?base64?ZXU=?="),
                ("twice", ["eu", "eu"]),
                ("empty", ""),
            )
        ],
    ),
    *table(
        "claim",
        [
            ("empty", modern("server/discover", meta={})),
            (
                "no capabilities",
                modern("server/discover", meta={"io.modelcontextprotocol/protocolVersion": MODERN}),
            ),
            (
                "a legacy version",
                modern("server/discover", meta=claim(**{"io.modelcontextprotocol/protocolVersion": LEGACY})),
            ),
            (
                "another version",
                modern("server/discover", meta=claim(**{"io.modelcontextprotocol/protocolVersion": "1"})),
            ),
            (
                "capabilities are a list",
                modern("server/discover", meta=claim(**{"io.modelcontextprotocol/clientCapabilities": []})),
            ),
            ("a progress token that is an object", modern("server/discover", meta=claim(progressToken={}))),
            ("only in the body", post(rpc("server/discover", {"_meta": claim()}))),
            (
                "only in the head",
                post(rpc("server/discover", {}), mcp_protocol_version=MODERN, mcp_method="server/discover"),
            ),
            ("an unknown method", modern("no/such")),
            ("a legacy method", modern("ping")),
            ("initialize", modern("initialize")),
        ],
    ),
]
_SESSIONS = {
    "none": None,
    "empty": "",
    "unknown": "0123456789abcdef",
    "twice": ["$session", "$session"],
    "spaces": " $session ",
    "half": "$session-",
}
_VERSIONS = {
    "none": None,
    "another legacy one": "2025-06-18",
    "the first one": "2024-11-05",
    "unknown": "2020-01-01",
    "twice": [LEGACY, LEGACY],
    "empty": "",
    "modern": MODERN,
}
SESSION = [
    *(
        Exchange(f"session id: {name}, {what}", (*session(), *ask(request(value))))
        for name, value in _SESSIONS.items()
        for what, request in (
            ("a request", lambda value: legacy("ping", mcp_session_id=value)),
            ("a notification", lambda value: legacy("notifications/x", id=None, mcp_session_id=value)),
            ("GET", lambda value: get(mcp_session_id=value, last_event_id="" if value else None)),
            ("DELETE", lambda value: Request("DELETE", fields=get(mcp_session_id=value).fields)),
        )
        if not (what == "GET" and name == "spaces")
    ),
    *(
        Exchange(
            f"version of a session: {name}", (*session(), *ask(legacy("ping", mcp_protocol_version=value)))
        )
        for name, value in _VERSIONS.items()
    ),
    *(
        Exchange(
            f"stateless: {name}",
            ask(legacy("ping", mcp_session_id=None, mcp_protocol_version=value)),
            "stateless",
        )
        for name, value in _VERSIONS.items()
    ),
]
_EXPECTING_WAYS = ("http1 behind", "http2 whole", "http2 pieces", "asgi whole", "link whole")
EXPECT = table(
    "expect",
    [
        (f"{value}, {name}", request)
        for value in ("100-continue", "100-Continue", "200-ok")
        for name, request in (
            ("a short call", modern("server/discover", expect=value)),
            ("refused by its head", modern("server/discover", expect=value, content_type="text/plain")),
            ("without a body", Request("GET", "/health", (("host", "localhost"), ("expect", value)))),
        )
    ],
)
EXPECT = [attrs.evolve(each, ways=_EXPECTING_WAYS) for each in EXPECT]
LINES = [
    *table(
        "content encoding",
        [(value, modern("server/discover", content_encoding=value)) for value in ("identity", "gzip", "")],
    ),
    *table("content encoding of bytes", [("gzip", post(b"\x1f\x8b\x08\x00", content_encoding="gzip"))]),
]
WAYS = ("http1 behind", "http2 whole", "asgi whole")
_NAMED_WAYS = ("http1 behind", "http2 whole", "http2 expecting", "asgi whole", "link whole")
"""The ways of exchanges whose fields name a method or a session: a link forwards by these."""
EXCHANGES = [
    *SPELLING,
    *ACCEPT,
    *CONTENT_TYPE,
    *HOST,
    *ORIGIN,
    *SITE,
    *PREFLIGHT,
    *VERBS,
    *(attrs.evolve(each, ways=_NAMED_WAYS) for each in (*MIRRORED, *SESSION)),
    *EXPECT,
    *LINES,
]
