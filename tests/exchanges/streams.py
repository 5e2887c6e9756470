"""Exchanges over time: calls that report progress, wait, ask, are cancelled or abandoned; GET streams; resumption; listens."""

from tests.exchanges.steps import (
    LEGACY,
    MODERN,
    Began,
    Do,
    Ended,
    Exchange,
    Got,
    Leave,
    Pass,
    Send,
    ask,
    call,
    claim,
    delete,
    get,
    legacy,
    modern,
    opened,
    post,
    rpc,
    session,
    tool,
)

ERAS = ("2024-11-05", "2025-03-26", "2025-06-18", LEGACY, MODERN)
WAYS = ("http1 behind", "tls1 whole", "http2 whole", "http2 expecting", "asgi whole", "link whole")
_FEW_WAYS = ("http1 behind", "http2 whole", "http2 expecting", "asgi whole")
_ACCEPT = {"both": None, "JSON": "application/json", "SSE": "text/event-stream"}


def _named(accept: str) -> dict[str, str]:
    return {} if _ACCEPT[accept] is None else {"accept": _ACCEPT[accept]}


_CALLS = {
    "echo": ("echo", None, {"text": "hi"}),
    "a burst": ("burst", 1, {}),
    "a burst without a token": ("burst", None, {}),
    "a burst with a text as token": ("burst", "token", {"steps": 1}),
    "a long burst": ("burst", 1, {"steps": 40}),
    "steps": ("steps", 1, {}),
    "steps without a pause": ("steps", 1, {"seconds": 0}),
    "steps without a token": ("steps", None, {}),
    "a nap": ("nap", None, {}),
    "a nap of no time": ("nap", None, {"seconds": 0}),
    "a long nap": ("nap", None, {"seconds": 16}),
    "a failure": ("fail", None, {}),
    "a crash": ("crash", None, {}),
    "a crash after words": ("crash", 1, {"words": 2}),
    "a large result": ("large", None, {}),
}
CALLS = [
    *(
        Exchange(f"call: {name}, {era}", (*opened(era), *ask(call(era, tool_, token=token, **arguments))))
        for name, (tool_, token, arguments) in _CALLS.items()
        for era in (LEGACY, MODERN)
    ),
    *(
        Exchange(f"call: {name}, {era}", (*opened(era), *ask(call(era, tool_, token=token, **arguments))))
        for name, (tool_, token, arguments) in _CALLS.items()
        for era in ("2024-11-05", "2025-03-26", "2025-06-18")
        if name in {"echo", "a burst", "steps", "a crash"}
    ),
    *(
        Exchange(
            f"call as {accept} at {place}: {name}, {era}",
            (
                *opened(era),
                *ask(
                    call(era, _CALLS[name][0], token=_CALLS[name][1], named=_named(accept), **_CALLS[name][2])
                ),
            ),
            place,
            _FEW_WAYS,
        )
        for accept, place in (
            ("JSON", "plain"),
            ("SSE", "plain"),
            ("both", "json"),
            ("both", "sse"),
            ("SSE", "json"),
            ("JSON", "sse"),
        )
        for name in ("echo", "a burst", "steps", "a nap", "a crash", "a crash after words")
        for era in (LEGACY, MODERN)
    ),
    *(
        Exchange(
            f"stateless call: {name}",
            ask(call(LEGACY, tool_, token=token, named={"mcp_session_id": None}, **arguments)),
            "stateless",
        )
        for name, (tool_, token, arguments) in _CALLS.items()
        if name in {"echo", "a burst", "steps", "a nap", "a crash"}
    ),
    *(
        Exchange(
            f"call at a server that keeps events: {name}",
            (*session(), *ask(call(LEGACY, tool_, token=token, **arguments))),
            "kept",
        )
        for name, (tool_, token, arguments) in _CALLS.items()
    ),
]
_HELLO = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
_HELLOS = {
    "as usual": _HELLO,
    "an unknown revision": {**_HELLO, "protocolVersion": "1999-01-01"},
    "a modern revision": {**_HELLO, "protocolVersion": MODERN},
    "no revision": {"capabilities": {}, "clientInfo": {"name": "c", "version": "1"}},
    "no params": None,
    "no client": {"protocolVersion": LEGACY, "capabilities": {}},
    "a revision that is a number": {**_HELLO, "protocolVersion": 1},
    "a progress token": {**_HELLO, "_meta": {"progressToken": 1}},
    **{f"revision {era}": {**_HELLO, "protocolVersion": era} for era in ERAS[:3]},
}
HANDSHAKES = [
    *(
        Exchange(f"initialize at {place}: {name}", ask(post(rpc("initialize", params))), place)
        for place in ("plain", "stateless", "kept")
        for name, params in _HELLOS.items()
        if place == "plain" or name in {"as usual", "an unknown revision", "no params"}
    ),
    *(
        Exchange(f"initialize as {accept}", ask(post(rpc("initialize", _HELLO), **_named(accept))))
        for accept in ("JSON", "SSE")
    ),
    Exchange("initialize within a session", (*session(), *ask(legacy("initialize", _HELLO)))),
    Exchange("initialize with a wrong session", ask(legacy("initialize", _HELLO, mcp_session_id="wrong"))),
    Exchange(
        "a request before initialized",
        (Send("h", post(rpc("initialize", _HELLO))), Ended("h"), *ask(legacy("tools/list"))),
    ),
    Exchange("initialized twice", (*session(), *ask(legacy("notifications/initialized", id=None)))),
]
_CANCEL = rpc("notifications/cancelled", {"requestId": 1, "reason": "enough"}, None)


def _cancel(request_id=1):
    return legacy("notifications/cancelled", {"requestId": request_id}, None)


CANCELLING = [
    *(
        Exchange(
            f"cancelled: {name} at {place}",
            (
                *session(),
                Send("a", call(LEGACY, "hold", token=1, words=words, named=named)),
                *wait,
                *ask(_cancel(), "c"),
                Ended("a"),
            ),
            place,
        )
        for place in ("plain", "kept")
        for name, words, named, wait in (
            ("before a word", 0, {}, (Pass(0.5),)),
            ("after words", 2, {}, (Got("a", 2),)),
            ("as JSON", 2, {"accept": "application/json"}, (Pass(0.5),)),
            ("as SSE", 0, {"accept": "text/event-stream"}, (Pass(0.5),)),
        )
    ),
    Exchange("cancelled: an unknown request", (*session(), *ask(_cancel(99)))),
    Exchange(
        "cancelled: one of two",
        (
            *session(),
            Send("a", call(LEGACY, "hold", key="a")),
            Send("b", call(LEGACY, "hold", id=2, key="b")),
            *ask(_cancel(1), "c"),
            Ended("a"),
            Do("go"),
            Ended("b"),
        ),
    ),
    Exchange("cancelled: after its end", (*session(), *ask(legacy("ping")), *ask(_cancel(), "c"))),
    Exchange("cancelled: without an id", (*session(), *ask(legacy("notifications/cancelled", {}, None)))),
    Exchange(
        "cancelled: a modern call by a notification",
        (
            Send("a", call(MODERN, "hold", token=1)),
            Pass(0.5),
            *ask(post(_CANCEL, mcp_protocol_version=MODERN), "c"),
            Do("go"),
            Ended("a"),
        ),
    ),
    *(
        Exchange(
            f"left: {name}, {era} at {place}",
            (
                *opened(era),
                Send("a", call(era, "hold", token=1, words=words, named=named)),
                *wait,
                Leave("a"),
                Pass(seconds),
                Do("go"),
                Pass(0.5),
            ),
            place,
        )
        for era in (LEGACY, MODERN)
        for place in ("plain", "kept", "brief")
        for name, words, named, wait, seconds in (
            ("before a word", 0, {}, (Pass(0.5),), 0.5),
            ("after words", 2, {}, (Got("a", 2),), 0.5),
            ("as JSON", 0, {"accept": "application/json"}, (Pass(0.5),), 0.5),
            ("for long", 1, {}, (Got("a", 1),), 5),
        )
    ),
    *(
        Exchange(
            f"quiet for long: {name}, {era}",
            (
                *opened(era),
                Send("a", call(era, "hold", token=1, words=words, named=_named(accept))),
                Pass(5),
                Do("go"),
                Ended("a"),
            ),
            "brief",
        )
        for era in (LEGACY, MODERN)
        for name, words, accept in (
            ("before a word", 0, "both"),
            ("after words", 1, "both"),
            ("as JSON", 0, "JSON"),
            ("as SSE", 0, "SSE"),
        )
    ),
    Exchange(
        "two calls at once",
        (
            *session(),
            Send("a", call(LEGACY, "hold", token=1, words=1)),
            Send("b", call(LEGACY, "steps", token=2, id=2)),
            Ended("b"),
            Do("go"),
            Ended("a"),
        ),
    ),
    Exchange(
        "two calls with one id",
        (
            *session(),
            Send("a", call(LEGACY, "hold", token=1, words=1)),
            Got("a"),
            *ask(legacy("ping"), "b"),
            Do("go"),
            Ended("a"),
        ),
    ),
    Exchange(
        "the session ends during a call",
        (
            *session(),
            Send("a", call(LEGACY, "hold", token=1, words=1)),
            Got("a"),
            *ask(delete(), "d"),
            Ended("a"),
        ),
    ),
    Exchange(
        "the session ends during a quiet call",
        (*session(), Send("a", call(LEGACY, "hold")), Pass(0.5), *ask(delete(), "d"), Ended("a")),
    ),
]
_ACCEPTED = {"action": "accept", "content": {"value": "Ann"}}


def _answer(result, **members):
    body = {"jsonrpc": "2.0", "id": "$question", **members}
    if result is not None:
        body["result"] = result
    return post(body, mcp_session_id="$session", mcp_protocol_version=LEGACY)


def _retry(result, state="$state", tool_="ask"):
    params = {
        **tool(tool_),
        "_meta": claim({"elicitation": {"form": {}}}),
        "requestState": state,
        "inputResponses": {"k": result},
    }
    return modern("tools/call", params, 2, meta=params["_meta"])


ASKING = [
    *(
        Exchange(
            f"asked: {name} at {place}",
            (
                *session(),
                Send("a", call(LEGACY, tool_, token=1)),
                Got("a", count),
                Send("b", answer),
                Ended("b"),
                Pass(0.5),
                Do("go"),
                Pass(wait),
            ),
            place,
        )
        for place in ("plain", "kept", "brief")
        for name, tool_, count, answer, wait in (
            ("accepted", "ask", 1, _answer(_ACCEPTED), 0.5),
            ("after a word", "ask_late", 2, _answer(_ACCEPTED), 0.5),
            ("declined", "ask", 1, _answer({"action": "decline"}), 0.5),
            ("an error", "ask", 1, _answer(None, error={"code": -1, "message": "no"}), 0.5),
            ("no result", "ask", 1, _answer({"action": "perhaps"}), 0.5),
            ("a wrong type", "ask", 1, _answer({"action": "accept", "content": {"value": 5}}), 0.5),
        )
    ),
    Exchange(
        "asked: answered twice",
        (
            *session(),
            Send("a", call(LEGACY, "ask")),
            Got("a"),
            *ask(_answer(_ACCEPTED), "b"),
            *ask(_answer(_ACCEPTED), "c"),
            Ended("a"),
        ),
    ),
    Exchange("asked: no answer", (*session(), Send("a", call(LEGACY, "ask")), Got("a"), Pass(4)), "brief"),
    Exchange(
        "asked: a call as JSON",
        (*session(), Send("a", call(LEGACY, "ask", named={"accept": "application/json"})), Pass(0.5)),
    ),
    Exchange(
        "asked: a call as JSON with a GET stream",
        (
            *session(),
            Send("g", get()),
            Began("g"),
            Send("a", call(LEGACY, "ask", named={"accept": "application/json"})),
            Got("g"),
            *ask(_answer(_ACCEPTED), "b"),
            Ended("a"),
        ),
    ),
    Exchange(
        "asked: the client leaves",
        (
            *session(),
            Send("a", call(LEGACY, "ask")),
            Got("a"),
            Leave("a"),
            Pass(0.5),
            *ask(_answer(_ACCEPTED), "b"),
        ),
    ),
    *(
        Exchange(
            f"asked in 2026-07-28: {name}",
            (Send("a", call(MODERN, tool_, token=1)), Ended("a"), *ask(retry, "b")),
        )
        for name, tool_, retry in (
            ("accepted", "ask", _retry(_ACCEPTED)),
            ("after a word", "ask_late", _retry(_ACCEPTED, tool_="ask_late")),
            ("declined", "ask", _retry({"action": "decline"})),
            ("a wrong state", "ask", _retry(_ACCEPTED, "wrong")),
            ("another tool", "ask", _retry(_ACCEPTED, tool_="ask_late")),
            ("a wrong type", "ask", _retry({"action": "accept", "content": {"value": 5}})),
        )
    ),
    Exchange(
        "asked in 2026-07-28: the same state twice",
        (
            Send("a", call(MODERN, "ask")),
            Ended("a"),
            *ask(_retry(_ACCEPTED), "b"),
            *ask(_retry(_ACCEPTED), "c"),
        ),
    ),
    Exchange("asked in 2026-07-28: without the capability", ask(modern("tools/call", tool("ask")))),
]
_REMEMBER = (Send("r", call(LEGACY, "remember"), True), Ended("r"))
GET = [
    *(
        Exchange(f"GET stream: {name} at {place}", steps, place)
        for place in ("plain", "kept")
        for name, steps in (
            ("quiet", (*session(), Send("g", get()), Began("g"), Pass(1))),
            ("news", (*session(), *_REMEMBER, Send("g", get()), Began("g"), Do("news"), Got("g"))),
            ("news before", (*session(), *_REMEMBER, Do("news"), Send("g", get()), Got("g"))),
            ("news without a stream", (*session(), *_REMEMBER, Do("news"))),
            (
                "an update",
                (
                    *session(),
                    *ask(legacy("resources/subscribe", {"uri": "note://a"}), "s"),
                    Send("g", get()),
                    Began("g"),
                    Do("update"),
                    Got("g"),
                ),
            ),
            (
                "an update after it was unsubscribed",
                (
                    *session(),
                    *ask(legacy("resources/subscribe", {"uri": "note://a"}), "s"),
                    *ask(legacy("resources/unsubscribe", {"uri": "note://a"}), "u"),
                    Send("g", get()),
                    Began("g"),
                    Do("update"),
                    Pass(0.5),
                ),
            ),
            (
                "a second one",
                (
                    *session(),
                    *_REMEMBER,
                    Send("g", get()),
                    Began("g"),
                    Send("h", get()),
                    Began("h"),
                    Do("news"),
                    Pass(0.5),
                ),
            ),
            (
                "left",
                (
                    *session(),
                    *_REMEMBER,
                    Send("g", get()),
                    Began("g"),
                    Leave("g"),
                    Pass(0.1),
                    Do("news"),
                    Send("h", get()),
                    Got("h"),
                ),
            ),
            (
                "the session ends",
                (
                    *session(),
                    Send("g", get()),
                    Began("g"),
                    *ask(delete(), "d"),
                    Ended("g"),
                    *ask(legacy("ping")),
                ),
            ),
            (
                "during a call",
                (
                    *session(),
                    *_REMEMBER,
                    Send("g", get()),
                    Began("g"),
                    Send("a", call(LEGACY, "hold", token=1, words=1)),
                    Got("a"),
                    Do("news"),
                    Got("g"),
                    Do("go"),
                    Ended("a"),
                ),
            ),
        )
    ),
    Exchange("GET stream: where there are none", (*session(), *ask(get())), "no GET"),
    Exchange("GET stream: without sessions", ask(get(mcp_session_id=None)), "stateless"),
    Exchange("GET stream: keep-alive", (*session(), Send("g", get()), Began("g"), Pass(5)), "brief"),
    Exchange("DELETE twice", (*session(), *ask(delete(), "d"), *ask(delete(), "e"))),
    Exchange("DELETE without sessions", ask(delete(mcp_session_id=None)), "stateless"),
]
_EVENTS = {
    "an empty id": "",
    "no id of ours": "x",
    "a negative number": "-1",
    "a large number": "9" * 40,
    "a wide character": "é",
}
RESUMPTION = [
    *(
        Exchange(
            f"Last-Event-ID is {name} at {place}",
            (*session(), Send("g", get(last_event_id=value)), Pass(0.5)),
            place,
        )
        for place in ("plain", "kept")
        for name, value in _EVENTS.items()
    ),
    *(
        Exchange(f"resumed: {name}", steps, "kept")
        for name, steps in (
            (
                "a call that has ended",
                (
                    *session(),
                    Send("a", call(LEGACY, "hold", token=1, words=2)),
                    Got("a", 2),
                    Leave("a"),
                    Do("go"),
                    Pass(0.5),
                    Send("g", get(last_event_id="$a.event1")),
                    Ended("g"),
                ),
            ),
            (
                "a call that runs",
                (
                    *session(),
                    Send("a", call(LEGACY, "hold", token=1, words=2)),
                    Got("a", 2),
                    Leave("a"),
                    Pass(0.1),
                    Send("g", get(last_event_id="$a.event2")),
                    Began("g"),
                    Pass(0.1),
                    Do("go"),
                    Ended("g"),
                ),
            ),
            (
                "a call whose client is still there",
                (
                    *session(),
                    Send("a", call(LEGACY, "hold", token=1, words=2)),
                    Got("a", 2),
                    Send("g", get(last_event_id="$a.event1")),
                    Began("g"),
                    Do("go"),
                    Pass(0.5),
                ),
            ),
            (
                "a whole call",
                (
                    *session(),
                    Send("a", call(LEGACY, "burst", token=1)),
                    Ended("a"),
                    Send("g", get(last_event_id="$a.event2")),
                    Pass(0.5),
                ),
            ),
            (
                "after its last event",
                (
                    *session(),
                    Send("a", call(LEGACY, "steps", token=1)),
                    Ended("a"),
                    Send("g", get(last_event_id="$a.event4")),
                    Pass(0.5),
                ),
            ),
            (
                "twice",
                (
                    *session(),
                    Send("a", call(LEGACY, "hold", token=1, words=2)),
                    Got("a", 2),
                    Leave("a"),
                    Do("go"),
                    Pass(0.5),
                    Send("g", get(last_event_id="$a.event1")),
                    Ended("g"),
                    Send("h", get(last_event_id="$a.event1")),
                    Ended("h"),
                ),
            ),
            (
                "a GET stream",
                (
                    *session(),
                    *_REMEMBER,
                    Send("g", get()),
                    Began("g"),
                    Do("news"),
                    Got("g"),
                    Leave("g"),
                    Do("news"),
                    Send("h", get(last_event_id="$g.event1")),
                    Pass(0.5),
                    Do("news"),
                    Pass(0.5),
                ),
            ),
            (
                "by another session",
                (
                    *session(),
                    Send("a", call(LEGACY, "hold", token=1, words=2)),
                    Got("a", 2),
                    Leave("a"),
                    *session(),
                    Send("g", get(last_event_id="$a.event1")),
                    Pass(0.5),
                ),
            ),
            (
                "an ask",
                (
                    *session(),
                    Send("a", call(LEGACY, "ask_late", token=1)),
                    Got("a", 2),
                    Leave("a"),
                    Pass(0.1),
                    Send("g", get(last_event_id="$a.event1")),
                    Got("g"),
                    *ask(_answer(_ACCEPTED), "b"),
                    Ended("g"),
                ),
            ),
        )
    ),
]


def _listen(**notifications):
    return modern("subscriptions/listen", {"notifications": notifications}, "L")


LISTENS = [
    Exchange(f"listen: {name}", steps, place)
    for name, steps, place in (
        ("to nothing", (Send("l", _listen()), Got("l"), Pass(0.5)), "plain"),
        (
            "to a resource",
            (Send("l", _listen(resourceSubscriptions=["note://a"])), Got("l"), Do("update"), Got("l", 2)),
            "plain",
        ),
        (
            "to a list",
            (Send("l", _listen(toolsListChanged=True)), Got("l"), Do("update"), Pass(0.5)),
            "plain",
        ),
        (
            "as JSON",
            ask(modern("subscriptions/listen", {"notifications": {}}, accept="application/json")),
            "plain",
        ),
        (
            "left",
            (
                Send("l", _listen(resourceSubscriptions=["note://a"])),
                Got("l"),
                Leave("l"),
                Do("update"),
                Pass(0.5),
            ),
            "plain",
        ),
        ("quiet for long", (Send("l", _listen()), Got("l"), Pass(5)), "brief"),
        ("one too many", (Send("l", _listen()), Got("l"), *ask(_listen(), "m")), "few listens"),
        ("wrong params", ask(modern("subscriptions/listen", {"notifications": []})), "plain"),
    )
]
EXCHANGES = [*CALLS, *HANDSHAKES, *CANCELLING, *ASKING, *GET, *RESUMPTION, *LISTENS]
