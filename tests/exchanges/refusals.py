"""Exchanges that a server refuses for who asks, for where, or for want of capacity."""

from tests.exchanges.steps import (
    LEGACY,
    MODERN,
    Began,
    Do,
    Ended,
    Exchange,
    Got,
    Pass,
    Request,
    Send,
    ask,
    call,
    get,
    legacy,
    modern,
    post,
    rpc,
    session,
    tool,
)

_NAMES = {
    "no name": None,
    "a right name": "Bearer ada",
    "a wrong name": "Bearer bob",
    "one that may not": "Bearer eve",
    "one that makes it crash": "Bearer crash",
    "empty": "",
    "twice": ["Bearer ada", "Bearer ada"],
}
_ASKED = {
    "a short call": lambda name: modern("server/discover", authorization=name),
    "a burst": lambda name: call(MODERN, "burst", token=1, named={"authorization": name}),
    "a nap": lambda name: call(MODERN, "nap", named={"authorization": name}),
    "initialize": lambda name: post(
        rpc(
            "initialize",
            {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}},
        ),
        authorization=name,
    ),
    "GET": lambda name: get(authorization=name, mcp_session_id="none"),
    "a wrong type": lambda name: modern("server/discover", authorization=name, content_type="text/plain"),
    "a wrong path": lambda name: Request(
        "POST", "/nowhere", modern("server/discover", authorization=name).fields
    ),
    "too long": lambda name: post(b" " * 50_000, authorization=name),
}
AUTHENTICATED = [
    Exchange(f"{place}: {name}, {what}", ask(make(value)), place)
    for place in ("quick names", "slow names")
    for name, value in _NAMES.items()
    for what, make in _ASKED.items()
    if what in {"a short call", "GET"} or name in {"no name", "a right name"}
]
_ADA, _EVE = {"authorization": "Bearer ada"}, {"authorization": "Bearer eve"}
OWNED = [
    Exchange(f"{place}: {name}", steps, place)
    for place in ("quick names", "slow names")
    for name, steps in (
        ("a session", (*session(**_ADA), *ask(legacy("ping", **_ADA)))),
        ("a session without a name", (*session(**_ADA), *ask(legacy("ping")))),
        ("a session with a wrong name", (*session(**_ADA), *ask(legacy("ping", **_EVE)))),
        ("a GET stream", (*session(**_ADA), Send("g", get(**_ADA)), Began("g"))),
        ("a call with progress", (*session(**_ADA), *ask(call(LEGACY, "steps", token=1, named=_ADA)))),
        (
            "a call that is cancelled",
            (
                *session(**_ADA),
                Send("a", call(LEGACY, "hold", token=1, words=1, named=_ADA)),
                Got("a"),
                *ask(legacy("notifications/cancelled", {"requestId": 1}, None, **_ADA), "c"),
                Ended("a"),
            ),
        ),
    )
]
_TOKENS = {
    "none": None,
    "a good one": "Bearer $writer",
    "one with other scopes": "Bearer $reader",
    "an expired one": "Bearer $expired",
    "no token": "Bearer",
    "no sense": "Bearer x.y.z",
    "Basic": "Basic YTpi",
    "lower case": "bearer $writer",
    "two": ["Bearer $writer", "Bearer $writer"],
    "with a comma": "Bearer $writer, Bearer $writer",
}
TOKENS = [
    *(
        Exchange(f"token: {name}, {what}", ask(make(value)), "tokens")
        for name, value in _TOKENS.items()
        for what, make in (
            ("a call", lambda value: modern("tools/call", tool("echo", text="hi"), authorization=value)),
            (
                "a call that needs more",
                lambda value: modern("tools/call", tool("scoped"), authorization=value),
            ),
        )
    ),
    *(
        Exchange(f"token: {name}", ask(request), "tokens")
        for name, request in (
            (
                "in the query",
                Request(
                    "POST",
                    "/mcp?access_token=$writer",
                    modern("server/discover").fields,
                    modern("server/discover").body,
                ),
            ),
            (
                "the metadata",
                Request(
                    "GET",
                    "/.well-known/oauth-protected-resource/mcp",
                    (("host", "localhost"),),
                    framing="none",
                ),
            ),
            (
                "the metadata of nothing",
                Request(
                    "GET", "/.well-known/oauth-protected-resource/x", (("host", "localhost"),), framing="none"
                ),
            ),
            (
                "the metadata by HEAD",
                Request(
                    "HEAD",
                    "/.well-known/oauth-protected-resource/mcp",
                    (("host", "localhost"),),
                    framing="none",
                ),
            ),
        )
    ),
]
_FULL = (Send("h", call(MODERN, "hold", key="first")), Pass(0.2))
CAPACITY = [
    Exchange(
        "one request: a second one", (*_FULL, *ask(call(MODERN, "nap")), Do("go"), Ended("h")), "one request"
    ),
    Exchange(
        "one request: a short one",
        (*_FULL, *ask(call(MODERN, "echo", text="x")), Do("go"), Ended("h")),
        "one request",
    ),
    Exchange(
        "one request: with words",
        (*_FULL, *ask(call(MODERN, "burst", token=1)), Do("go"), Ended("h")),
        "one request",
    ),
    Exchange(
        "one request: a notification",
        (
            *_FULL,
            *ask(post(rpc("notifications/x", id=None), mcp_protocol_version=MODERN)),
            Do("go"),
            Ended("h"),
        ),
        "one request",
    ),
    Exchange(
        "one request: initialize",
        (*_FULL, *ask(_ASKED["initialize"](None)), Do("go"), Ended("h")),
        "one request",
    ),
    Exchange("one session: a second one", (*session(), *ask(_ASKED["initialize"](None))), "one session"),
    Exchange(
        "one session: while it has a call",
        (
            *session(),
            Send("h", call(LEGACY, "hold", token=1, words=1)),
            Got("h"),
            *ask(_ASKED["initialize"](None)),
            Do("go"),
            Ended("h"),
        ),
        "one session",
    ),
    Exchange(
        "one session: a second call",
        (
            *session(),
            Send("h", call(LEGACY, "hold", token=1, words=1)),
            Got("h"),
            *ask(call(LEGACY, "echo", id=2, text="x")),
            Do("go"),
            Ended("h"),
        ),
        "one session",
    ),
    Exchange(
        "one session: the first one is gone",
        (*session(), *ask(_ASKED["initialize"](None)), *ask(legacy("ping", mcp_session_id="gone"), "b")),
        "one session",
    ),
]
WAYS = ("http1 pieces", "tls1 pieces", "http2 whole", "http2 expecting", "asgi pieces", "link whole")
EXCHANGES = [*AUTHENTICATED, *OWNED, *TOKENS, *CAPACITY]
