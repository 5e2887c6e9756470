"""Bytes for the HTTP/1.1 server: requests as clients send them, broken in some places, cut anywhere, with pauses.

In one piece and in many, requests must be answered the same. Afterwards the server must serve the next client, owe nobody a message, and hold nothing.
"""

import itertools
import json
import re
from typing import Any

import attrs
import trio
from hypothesis import strategies as st

from tests.fuzz.fuzz_server import LIMITS, LONG, make_server
from tests.fuzz.fuzz_target import Drawn
from tests.fuzz.fuzz_virtual import assert_balanced, assert_empty, play

from lanes import House, open_lane  # isort: skip - `fuzz_target` knows where it is
from mcpbus.serving.http1.encoder import CONTINUE
from mcpbus.testing import open_bus

_META = "io.modelcontextprotocol/"
_CLAIM = {_META + "protocolVersion": "2026-07-28", _META + "clientCapabilities": {"elicitation": {}}}
_TYPES = (b"content-type: application/json", b"accept: application/json, text/event-stream")
_HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"elicitation": {}},
    "clientInfo": {"name": "f", "version": "1"},
}
_SESSION = b"mcp-session-id: token-1"


def post(
    method: str, params: dict[str, Any], *fields: bytes, id_: object = 1, path: bytes = b"/mcp"
) -> bytes:
    message = {"jsonrpc": "2.0", "method": method, "params": params} | ({} if id_ is None else {"id": id_})
    body = json.dumps(message).encode()
    return http(b"POST " + path, *_TYPES, b"content-length: %d" % len(body), *fields) + body


def http(line: bytes, *fields: bytes) -> bytes:
    return b"\r\n".join([line + b" HTTP/1.1", b"host: localhost", *fields, b"", b""])


def modern(method: str, **params: Any) -> bytes:
    name = params.get("name") or params.get("uri")
    fields = [b"mcp-protocol-version: 2026-07-28", b"mcp-method: " + method.encode()]
    fields += [b"mcp-name: " + name.encode()] if name else []
    return post(method, {**params, "_meta": {**_CLAIM, "progressToken": 1}}, *fields)


def chunked(request: bytes, size: int = 30) -> bytes:
    head, _, body = request.partition(b"\r\n\r\n")
    pieces = [body[n : n + size] for n in range(0, len(body), size)]
    head = re.sub(rb"content-length: \d+", b"transfer-encoding: chunked", head)
    return head + b"\r\n\r\n" + b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in [*pieces, b""])


REQUESTS = [
    modern("tools/call", name="echo", arguments={"text": "x"}),
    modern("tools/call", name="speak", arguments={}),
    modern("tools/call", name="nap", arguments={}),
    modern("tools/call", name="ask", arguments={}),
    modern("tools/call", name="fail", arguments={}),
    modern("tools/list"),
    modern("resources/read", uri="res://a"),
    modern("subscriptions/listen", notifications={"toolsListChanged": True}),
    chunked(modern("tools/call", name="echo", arguments={"text": "in pieces"})),
    modern("prompts/get", name="review", arguments={"code": "x" * 3000}),
    post("initialize", _HELLO),
    post("notifications/initialized", {}, _SESSION, id_=None),
    post("tools/call", {"name": "echo", "arguments": {"text": "y"}}, _SESSION, id_="a"),
    post("tools/call", {"name": "speak", "_meta": {"progressToken": 1}}, _SESSION, id_=2),
    post("tools/call", {"name": "ask"}, _SESSION, id_=3),
    post("ping", {}, _SESSION, b"expect: 100-continue"),
    post("ping", {}, _SESSION, b"connection: close"),
    chunked(post("resources/subscribe", {"uri": "res://a"}, _SESSION)),
    http(b"GET /mcp", b"accept: text/event-stream", _SESSION),
    http(b"GET /mcp", b"accept: text/event-stream", _SESSION, b"last-event-id: 1"),
    http(b"DELETE /mcp", _SESSION),
    http(b"GET /sse", b"accept: text/event-stream"),
    post("ping", {}, path=b"/sse?sessionId=token-1"),
    http(b"GET /health"),
    http(b"HEAD /health"),
    http(b"OPTIONS /mcp", b"origin: http://localhost", b"access-control-request-method: POST"),
    http(b"GET /nowhere"),
]
TOKENS = [
    *(
        b"\r\n",
        b"\n",
        b"\r",
        b"\0",
        b" ",
        b"\t",
        b":",
        b",",
        b'"',
        b"{",
        b"[",
        b"\xff",
        b"\r\n\r\n",
        b"0\r\n\r\n",
    ),
    *(
        b"transfer-encoding: chunked\r\n",
        b"content-length: 5\r\n",
        b"content-length: 99999999999999999999\r\n",
    ),
    *(
        b"content-length: -1\r\n",
        b"connection: close\r\n",
        b"connection: keep-alive\r\n",
        b"expect: 100-continue\r\n",
    ),
    *(
        b"upgrade: websocket\r\nconnection: upgrade\r\n",
        b"upgrade: h2c\r\nconnection: upgrade, http2-settings\r\n",
    ),
    *(b"host: evil.example\r\n", b"origin: http://evil.example\r\n", b"accept: application/json\r\n"),
    *(b"HTTP/1.0", b"HTTP/2.0", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"ffffffffffffffff\r\n", b"(long)"),
    *(b"\xed\xa0\x80", b"1e999", b"null", b"(deep)", b"%2e%2e/", b"?", b"#", b"mcp-session-id: \r\n"),
]
EXPANDED = {b"(long)": b"a" * 40_000, b"(deep)": b"[" * 2000}
"""What is longer than one wants to read."""

_positions = st.integers(0, 10_000)
_changes = st.one_of(
    st.tuples(st.just("insert"), _positions, st.sampled_from(TOKENS)),
    st.tuples(st.just("replace"), _positions, st.sampled_from(TOKENS) | st.binary(min_size=1, max_size=3)),
    st.tuples(st.just("remove"), _positions, st.integers(1, 60)),
    st.tuples(st.just("repeat"), _positions, st.integers(1, 60)),
    st.tuples(st.just("cut"), _positions, st.none()),
)


def changed(data: bytes, changes: list[tuple[str, int, Any]]) -> bytes:
    """Break a request in these places."""
    for verb, position, what in changes:
        at = position % (len(data) + 1)
        before, after = data[:at], data[at:]
        if verb == "insert":
            data = before + EXPANDED.get(what, what) + after
        elif verb == "replace":
            data = before + what + after[len(what) :]
        elif verb == "remove":
            data = before + after[what:]
        elif verb == "repeat":
            data = before + after[:what] + after
        else:
            data = before
    return data


@attrs.frozen
class Said:
    """What one client says.

    Attributes:
        data: All of it.
        cuts: The sizes of its pieces, over and over, each with the seconds after it.
        leaves: Whether it leaves as soon as it has said it.
    """

    data: bytes
    cuts: list[tuple[int, float]]
    leaves: bool

    def pieces(self) -> list[tuple[bytes, float]]:
        pieces, rest, turn = [], self.data, 0
        while rest:
            size, pause = self.cuts[turn % len(self.cuts)]
            # A long text in single bytes shows nothing that a short one does not.
            size = max(size, len(self.data) // 100)
            pieces.append((rest[:size], pause))
            rest, turn = rest[size:], turn + 1
        return pieces


_requests = st.sampled_from(REQUESTS)
_broken = st.builds(changed, _requests, st.lists(_changes, min_size=1, max_size=4))
_many = st.builds(lambda request, times: request * times, _requests, st.sampled_from([2, 10, 40]))
_texts = st.lists(
    _requests | _requests | _broken | _broken | _many | st.binary(max_size=50), min_size=1, max_size=6
).map(b"".join)
_cuts = st.tuples(st.sampled_from([1, 7, 50, 300, 2000, 10**6]), st.sampled_from([0, 0, 0.01, 3, 40]))
_cases = st.builds(Said, _texts, st.lists(_cuts, min_size=1, max_size=3), st.booleans())


def check(case: Said) -> None:
    heard: list[Any] = []
    for pieces in ([(case.data, 0)], [*case.pieces()]):
        play(_converse, case, pieces, heard)
    whole, cut = heard
    if any(pause >= 1 for _, pause in case.cuts) or any(head.startswith(b"HTTP/1.1 408") for head, _ in cut):
        # A request that comes too slowly is refused, or refused by its head meanwhile, and its connection ends. Time passes, in which
        # a stream may end, and the next request is answered.
        whole, cut = _as_far_as_both_go(whole, cut, before_refusal=True)
    elif b"expect" in case.data.lower():
        # A request that is refused by its head ends the connection if its body has not come.
        whole, cut = _as_far_as_both_go(whole, cut, before_refusal=False)
    assert whole == cut, f"whole it is answered {whole}, and in pieces {cut}"
    assert not [head for head, _ in heard[0] if head.startswith(b"HTTP/1.1 500")], heard[0]


def _as_far_as_both_go(*heard: list[Any], before_refusal: bool) -> list[list[Any]]:
    """Return the answers that both have, without what says that a connection or a stream ends."""
    both = []
    for each in heard:
        kept = itertools.takewhile(
            lambda answer: not (before_refusal and answer[0].startswith(b"HTTP/1.1 4")), each
        )
        both.append(
            [
                (head.replace(b"\r\nconnection: close", b""), body.removesuffix(_UNFINISHED))
                for head, body in kept
            ]
        )
    count = min(map(len, both))
    return [each[:count] for each in both]


async def _converse(case: Said, pieces: list[tuple[bytes, float]], heard: list[Any]) -> None:
    async with (
        open_bus(make_server(), limits=LIMITS) as bus,
        open_lane(app=bus.asgi()) as house,
        trio.open_nursery() as nursery,
    ):
        client = await house.connect()
        nursery.start_soon(_listen, client)
        for piece, pause in pieces:
            try:
                await client.say(piece)
            except trio.BrokenResourceError:
                break
            assert_balanced(bus)
            if pause:
                await trio.testing.wait_all_tasks_blocked()
                await trio.sleep(pause)
        if not case.leaves:
            await trio.sleep(100)
        heard.append([] if case.leaves else answers(client.data))
        client.stream.send_stream.close()
        await client.leave()
        await _ping(house)
        await trio.sleep(LONG)
        assert client.over.is_set(), "a connection is open though its client has left"
        assert_balanced(bus)
        assert_empty(bus)


async def _listen(client: Any) -> None:
    """Take what the server says, until it has no more to say."""
    try:
        while data := await client.stream.receive_some():
            client.data += data
    except (trio.ClosedResourceError, trio.BrokenResourceError):
        return  # the client itself has left


async def _ping(house: House) -> None:
    """The next client is served."""
    other = await house.connect()
    await other.say(REQUESTS[0])
    with trio.fail_after(1):
        status, _, _ = await other.answer()
    assert status in {200, 503}, status
    await other.leave()


_DIFFERING = re.compile(rb'"requestState":"[^"]*"|"id":\d{4,}|"requestId":\d{4,}|^:\n\n', re.MULTILINE)

_UNFINISHED = b" ..."
"""Stands for the rest of a body in chunks whose end has not come."""

_FRAMING = re.compile(rb"\r\n(content-length: \d+|transfer-encoding: chunked)")


def answers(data: bytes) -> list[tuple[bytes, bytes]]:
    """Read answers, each as its head and its body, without what may differ.

    That is the time, whether a stream is cut into chunks, and how, that it is kept alive, what is sealed, the numbers of questions, and whether a
    client whose body was there already is told to go on.

    Raises:
        AssertionError: It is not HTTP.
    """
    found, rest = [], data.replace(CONTINUE, b"")
    while rest:
        head, end, rest = rest.partition(b"\r\n\r\n")
        assert end, f"a head without its end: {head!r}"
        assert re.match(rb"HTTP/1\.1 \d{3} ", head), head
        head = re.sub(rb"\r\ndate: [^\r]*", b"", head)
        first, *fields = head.split(b"\r\n")
        head = b"\r\n".join([first, *sorted(fields)])  # in which order they come says nothing
        length = re.search(rb"\r\ncontent-length: (\d+)", head)
        if rest.startswith(b"HTTP/1.1 "):
            body = b""  # an answer to HEAD, or one without a body
        elif b"\r\ntransfer-encoding: chunked" in head:
            body, rest = _unchunked(rest)
        else:
            size = len(rest) if length is None else int(length[1])
            body, rest = rest[:size], rest[size:]
        if b"text/event-stream" in head:
            head = _FRAMING.sub(b"", head)
        found.append((head, _DIFFERING.sub(b"", body)))
    return found


def _unchunked(data: bytes) -> tuple[bytes, bytes]:
    """Join the chunks of a body, whose end may not have come, and return what follows it as well."""
    body = b""
    while data:
        size, _, data = data.partition(b"\r\n")
        piece, end, data = data[: int(size, 16)], data[int(size, 16) :][:2], data[int(size, 16) + 2 :]
        assert end == b"\r\n", (size, piece, end)
        if not piece:
            return body, data
        body += piece
    return body + _UNFINISHED, b""


LANE = Drawn("lane", _cases, check, 100)
