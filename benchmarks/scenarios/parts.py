"""The parts of what the real world's calls are, each alone: one row for each."""

from functools import partial

import attrs

from benchmarks.answers import FIRST_NUMBER, words
from benchmarks.calls import Call
from benchmarks.dialect import BENCH, uuid
from benchmarks.load_http2 import repeat_http2
from benchmarks.load_http_sse import repeat_http_sse
from benchmarks.load_lines import repeat_lines
from benchmarks.load_websocket import repeat_websocket
from benchmarks.mixture import CLIENTS, proxy_fields, tool_name, traceparent
from benchmarks.peers.peer import Ability, Setting
from benchmarks.scenarios.part import Part
from benchmarks.servers.parts import ALIKE
from benchmarks.tokens import make_issuer, make_token
from benchmarks.traffic import CONNECTIONS, InTwo, OverWire, Reconnecting, Traffic

LATER, IN_A_THREAD = tool_name(0), tool_name(5)
USERS = 1_000
SESSIONS_EACH = 32
TEN = 10

_STREAMS = {Setting.STREAMS: "1"}
_AUTHORIZATION = {Setting.AUTHORIZATION: "1"}
_TLS = {Setting.TLS: "1"}
_IN_MEMORY = {**_STREAMS, Setting.RESUMPTION: "1"}
_IN_SQLITE = {**_STREAMS, Setting.RESUMPTION: "sqlite"}


def _one(call: Call) -> Traffic:
    """Return one call, again and again."""
    return Traffic(calls=(call,))


def _in_sessions(call: Call, each: int = 1) -> Traffic:
    """Return a call that is made in sessions, so many for each connection, in turn."""
    calls = [attrs.evolve(call, pool=number) for number in range(each)]
    return Traffic(calls=calls, sessions=[BENCH] * each)


def _authorized(users: int) -> Traffic:
    """Return calls with a signed token of 1 kB each, of so many users in turn."""
    issuer = make_issuer()
    fields = (f"Authorization: Bearer {make_token(issuer, user)}" for user in range(users))
    return Traffic(calls=[Call(fields=(field,)) for field in fields])


def _saying(count: int, tool: str = "chatter") -> Call:
    """Return a call with notifications before its reply."""
    return Call(
        tool=tool,
        text=None,
        arguments={"count": count},
        meta={"progressToken": uuid(FIRST_NUMBER)},
        notifications=count,
    )


def _of_bytes(size: int) -> Call:
    """Return a call with an argument of a size."""
    return Call(text=words(FIRST_NUMBER).ljust(size, "."))


PARTS = (
    Part(
        "unique-header",
        "a header that is unique to each request",
        _one(Call(fields=(f"X-Request-Id: {uuid(FIRST_NUMBER)}",))),
        aim=1.3,
    ),
    Part(
        "proxy-headers",
        "eight headers of a proxy, two of them unique",
        _one(Call(fields=proxy_fields())),
        aim=1.3,
        peers={"rmcp": 1.0},
    ),
    Part(
        "token",
        "a signed token of 1 kB that was seen before",
        _authorized(1),
        environment=_AUTHORIZATION,
        aim=1.15,
    ),
    Part(
        "tokens",
        "signed tokens of 1 kB, of a thousand users in turn",
        _authorized(USERS),
        environment=_AUTHORIZATION,
        aim=1.25,
    ),
    Part("trace", "a `traceparent` in `_meta`", _one(Call(meta={"traceparent": traceparent()})), aim=1.3),
    Part(
        "progress-token",
        "a progress token, unique, that nobody uses",
        _one(Call(meta={"progressToken": uuid(FIRST_NUMBER)})),
        aim=1.3,
    ),
    Part(
        "tools",
        f"{ALIKE} tools",
        Traffic(calls=[Call(tool=f"echo_{number:02}") for number in range(ALIKE)]),
        aim=1.3,
    ),
    Part(
        "clients",
        f"{len(CLIENTS)} kinds of clients",
        Traffic(calls=[Call(client=client) for client in CLIENTS]),
        aim=1.3,
    ),
    Part(
        "sessions",
        f"{CONNECTIONS * SESSIONS_EACH:,} sessions of 2025-11-25",
        _in_sessions(Call(), SESSIONS_EACH),
        aim=1.3,
    ),
    Part("chunked", "a chunked body", _one(Call(chunked=True)), aim=1.5),
    Part("two-packets", "head and body in a packet each", Traffic(calls=(Call(),), asks=InTwo), aim=1.5),
    Part("reconnecting", "a connection for each call", Traffic(calls=(Call(),), asks=Reconnecting)),
    Part("await", "a handler that awaits once", _one(Call(tool=LATER)), aim=2.0, peers={"rmcp": 0.6}),
    Part("await-1ms", "a handler that awaits 1 ms", _one(Call(tool="after_1_ms")), aim=2.5),
    Part(
        "await-in-session",
        f"a handler that awaits once, in {CONNECTIONS} sessions of 2025-11-25",
        _in_sessions(Call(tool=LATER)),
        aim=2.5,
    ),
    Part("thread", "a plain function in a thread", _one(Call(tool=IN_A_THREAD)), aim=3.5),
    Part("notification", "a notification", _one(_saying(1)), environment=_STREAMS),
    Part(
        "notifications",
        f"{TEN} notifications",
        _one(_saying(TEN)),
        environment=_STREAMS,
        aim=3.0,
        peers={"rmcp": 1.5},
    ),
    Part(
        "notifications-1ms-apart",
        f"{TEN} notifications, 1 ms apart",
        _one(_saying(TEN, "chatter_1_ms_apart")),
        environment=_STREAMS,
        aim=10.0,
    ),
    Part(
        "notifications-from-thread",
        f"{TEN} notifications from a thread",
        _one(_saying(TEN, "chatter_from_a_thread")),
        environment=_STREAMS,
        aim=10.0,
    ),
    Part(
        "notifications-in-memory",
        f"{TEN} notifications that an event store in memory keeps, in {CONNECTIONS} sessions of 2025-11-25",
        _in_sessions(_saying(TEN)),
        environment=_IN_MEMORY,
    ),
    Part(
        "notifications-in-sqlite",
        f"{TEN} notifications that an event store in SQLite keeps, in {CONNECTIONS} sessions of 2025-11-25",
        _in_sessions(_saying(TEN)),
        environment=_IN_SQLITE,
        aim=5.0,
    ),
    Part("argument-10kb", "an argument of 10 kB", _one(_of_bytes(10_000)), aim=1.5),
    Part("argument-50kb", "an argument of 50 kB", _one(_of_bytes(50_000)), aim=3.0, peers={"rmcp": 0.9}),
    Part(
        "http2",
        "HTTP/2",
        OverWire(partial(repeat_http2, connections=CONNECTIONS)),
        needs=Ability.HTTP2,
        in_quick=False,
        aim=3.0,
    ),
    Part(
        "http2-streams",
        f"{CONNECTIONS} streams of one connection of HTTP/2",
        OverWire(partial(repeat_http2, connections=1, at_once=CONNECTIONS)),
        needs=Ability.HTTP2,
        in_quick=False,
        aim=3.0,
    ),
    Part(
        "tls",
        "TLS",
        Traffic(calls=(Call(),), tls="http/1.1"),
        environment=_TLS,
        seconds=0.6,
        in_quick=False,
        aim=1.3,
    ),
    Part(
        "http2-tls",
        "HTTP/2 over TLS",
        OverWire(partial(repeat_http2, connections=CONNECTIONS, tls="h2")),
        environment=_TLS,
        seconds=0.6,
        against=(
            OverWire(partial(repeat_http2, connections=CONNECTIONS)),
            "the call over HTTP/2 in cleartext",
        ),
        in_quick=False,
        aim=1.4,
    ),
    Part(
        "websocket",
        "WebSocket",
        OverWire(partial(repeat_websocket, connections=CONNECTIONS)),
        in_quick=False,
        aim=2.0,
    ),
    Part(
        "http-sse",
        "HTTP+SSE",
        OverWire(partial(repeat_http_sse, clients=CONNECTIONS)),
        environment={Setting.HTTP_SSE: "1"},
        needs=Ability.HTTP_SSE,
        in_quick=False,
        aim=2.5,
    ),
    Part(
        "stdio",
        f"stdio, {CONNECTIONS} at a time",
        OverWire(partial(repeat_lines, at_once=CONNECTIONS)),
        environment={Setting.STDIO: "1"},
        needs=Ability.STDIO,
        in_quick=False,
        aim=1.5,
    ),
)
"""What is measured, in the order of the report. Aims are of a call's processor time over the uniform one's."""
