"""What the server refuses, in both eras: each row of the table of bad input, over a real socket.

Nothing is allocated for it: afterwards the bus has the same actors, sessions and requests as before.
"""

import json

import attrs
import pytest
from wire import CLAIM, LEGACY, MODERN, call, initialize, message, modernized, serving

from mcpbus import HttpOptions, ProtocolError, ResourceNotFoundError, Server, UnauthorizedError

PING = message("ping", id=1)
VERSION = "io.modelcontextprotocol/protocolVersion"
UNKNOWN_SESSION = {"mcp-session-id": "no-such-session"}
BODY_LIMIT = 4096


@attrs.frozen
class Row:
    """One bad request, and how it is to be answered.

    Attributes:
        name: What is wrong.
        body: What is sent: JSON, or bytes as they are.
        status: The HTTP status.
        code: The JSON-RPC error code; None where the answer has no error.
        headers: What differs from a right request; None leaves a header out.
        verb: The HTTP method.
        session: Whether a legacy request names its session.
        answers: The id that the error carries; None for an error without one.
    """

    name: str
    body: object
    status: int
    code: int | None
    headers: dict[str, str | None] = attrs.field(factory=dict, kw_only=True)
    verb: str = attrs.field(default="POST", kw_only=True)
    session: bool = attrs.field(default=True, kw_only=True)
    answers: object = attrs.field(default=None, kw_only=True)

    def __str__(self):
        return self.name


def row(name, body, status, code, **rest):
    return pytest.param(Row(name, body, status, code, **rest), id=name.replace(" ", "-"))


def modern(name, body, status, code, headers=(), *, meta=None, **rest):
    """A row whose request is a modern one, but for `headers` and `meta`."""
    body, mirrored = modernized(body)
    if meta is not None:
        body["params"]["_meta"] = meta
    return row(name, body, status, code, headers=mirrored | dict(headers), session=False, **rest)


def make_server(**options):
    server = Server("strict", **options)

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.tool(
        input_schema={"type": "object", "properties": {"n": {"type": "integer", "x-mcp-header": "N"}}}
    )
    async def mirror(arguments: dict) -> str:
        return str(arguments)

    @server.tool
    async def demand() -> str:
        raise ProtocolError(-32021, "This tool needs a client that can sample")

    @server.resource("crash://now")
    async def crash() -> str:
        raise RuntimeError("secret")

    @server.resource("missing://{name}")
    async def missing(name: str) -> str:
        raise ResourceNotFoundError(name)

    @server.prompt
    async def greet(name: str) -> str:
        return name

    return server


# Told by the head alone, or before the era is: the same in both.
COMMON = [
    row("foreign origin", PING, 403, -32600, headers={"origin": "https://evil.example"}),
    row("opaque origin", PING, 403, -32600, headers={"origin": "null"}),
    row("foreign host", PING, 403, -32600, headers={"host": "evil.example"}),
    row("not json", b"{nope", 400, -32700),
    row("empty body", b"", 400, -32700),
    row("not utf-8", b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', 400, -32700),
    row("nested too deep", b"[" * 2000, 400, -32700),
    row("no message", {}, 400, -32600),
    row("null", b"null", 400, -32600),
    row("a string", b'"ping"', 400, -32600),
    row("a number", b"7", 400, -32600),
    row("array", [PING], 400, -32600),
    row("empty array", [], 400, -32600),
    row("wrong jsonrpc", PING | {"jsonrpc": "1.0"}, 400, -32600, answers=1),
    row("no jsonrpc", {"id": 1, "method": "ping"}, 400, -32600, answers=1),
    row("null id", PING | {"id": None}, 400, -32600),
    row("boolean id", PING | {"id": True}, 400, -32600),
    row("fractional id", PING | {"id": 1.5}, 400, -32600),
    row("method no string", PING | {"method": 7}, 400, -32600, answers=1),
    row("params an array", PING | {"params": [1]}, 400, -32600, answers=1),
    row("accept neither", PING, 406, -32600, headers={"accept": "text/html"}),
    row("content type text", PING, 415, -32600, headers={"content-type": "text/plain"}),
    row("no content type", PING, 415, -32600, headers={"content-type": None}),
    row("body too long", b" " * (BODY_LIMIT + 1), 413, -32600),
    row("verb", PING, 405, -32600, verb="PUT"),
]

IN_SESSION = [
    row("version unknown", PING, 400, -32000, headers={"mcp-protocol-version": "1999-01-01"}, answers=1),
    row("method unknown", message("no/such", id="a"), 200, -32601, answers="a"),
    row("modern method", message("server/discover", id=1), 200, -32601, answers=1),
    row("tool unknown", call("nothing", id=1), 200, -32602, answers=1),
    row("prompt unknown", message("prompts/get", {"name": "nothing"}, 1), 200, -32602, answers=1),
    row("prompt arguments missing", message("prompts/get", {"name": "greet"}, 1), 200, -32602, answers=1),
    row("params wrong", message("tools/call", {"name": 7}, 1), 200, -32602, answers=1),
    row("params missing", message("tools/call", None, 1), 200, -32602, answers=1),
    row("cursor made up", message("tools/list", {"cursor": ""}, 1), 200, -32602, answers=1),
    row("level unknown", message("logging/setLevel", {"level": "loud"}, 1), 200, -32602, answers=1),
    row("resource unknown", message("resources/read", {"uri": "no://where"}, 1), 200, -32002, answers=1),
    row("resource missing", message("resources/read", {"uri": "missing://x"}, 1), 200, -32002, answers=1),
    row("crash", message("resources/read", {"uri": "crash://now"}, 1), 200, -32603, answers=1),
    row("capability missing", call("demand", id=1), 200, -32021, answers=1),
    row("initialized twice", initialize(), 400, -32600, answers="init"),
    row("response unmatched", {"jsonrpc": "2.0", "id": 99, "result": {}}, 202, None),
    row("notification unknown", message("notifications/nothing"), 202, None),
    row("cancel of nothing", message("notifications/cancelled", {"requestId": 99}), 202, None),
    row("cancel malformed", message("notifications/cancelled", {"requestId": []}), 202, None),
    row("get that takes no stream", None, 406, -32600, verb="GET", headers={"accept": "application/json"}),
    row("get that resumes", None, 400, -32600, verb="GET", headers={"last-event-id": "7"}),
]

WITHOUT_SESSION = [
    row("session unnamed", PING, 400, -32000, session=False, answers=1),
    row("session unknown", PING, 404, -32000, session=False, headers=UNKNOWN_SESSION, answers=1),
    row(
        "session unknown to a notification",
        message("notifications/initialized"),
        404,
        -32000,
        session=False,
        headers=UNKNOWN_SESSION,
    ),
    row(
        "session unknown to a response",
        {"jsonrpc": "2.0", "id": 99, "result": {}},
        404,
        -32000,
        session=False,
        headers=UNKNOWN_SESSION,
    ),
    row("get unnamed", None, 400, -32000, session=False, verb="GET"),
    row("get unknown", None, 404, -32000, session=False, verb="GET", headers=UNKNOWN_SESSION),
    row("delete unnamed", None, 400, -32000, session=False, verb="DELETE"),
    row("delete unknown", None, 404, -32000, session=False, verb="DELETE", headers=UNKNOWN_SESSION),
    row(
        "initialize wrong",
        message("initialize", {"capabilities": {}}, 1),
        200,
        -32602,
        session=False,
        answers=1,
    ),
    row("initialize without params", message("initialize", None, 1), 200, -32602, session=False, answers=1),
]

ECHO = call("echo", {"text": "x"}, id=1)
DISCOVER = message("server/discover", {}, 1)
READ = "resources/read"
WITHOUT_CAPABILITIES = {key: value for key, value in CLAIM.items() if "Capabilities" not in key}

IN_MODERN = [
    modern("version header missing", ECHO, 400, -32020, {"mcp-protocol-version": None}, answers=1),
    modern("version header differs", ECHO, 400, -32020, {"mcp-protocol-version": LEGACY}, answers=1),
    modern(
        "version unsupported",
        ECHO,
        400,
        -32022,
        {"mcp-protocol-version": "2099-01-01"},
        meta=CLAIM | {VERSION: "2099-01-01"},
        answers=1,
    ),
    modern("version header alone", DISCOVER, 400, -32602, meta={}, answers=1),
    modern("capabilities missing", ECHO, 400, -32602, meta=WITHOUT_CAPABILITIES, answers=1),
    modern("version not in meta", ECHO, 400, -32602, meta=dict(list(CLAIM.items())[1:]), answers=1),
    modern("method header missing", ECHO, 400, -32020, {"mcp-method": None}, answers=1),
    modern("method header differs", ECHO, 400, -32020, {"mcp-method": "tools/list"}, answers=1),
    modern("method header in capitals", ECHO, 400, -32020, {"mcp-method": "TOOLS/CALL"}, answers=1),
    modern("name header missing", ECHO, 400, -32020, {"mcp-name": None}, answers=1),
    modern("name header differs", ECHO, 400, -32020, {"mcp-name": "other"}, answers=1),
    modern("name header undecodable", ECHO, 400, -32020, {"mcp-name": "=?base64?!!?="}, answers=1),
    modern("param header missing", call("mirror", {"n": 1}, id=1), 400, -32020, answers=1),
    modern(
        "param header differs", call("mirror", {"n": 1}, id=1), 400, -32020, {"mcp-param-n": "2"}, answers=1
    ),
    modern("param header of nothing", call("mirror", {}, id=1), 400, -32020, {"mcp-param-n": "2"}, answers=1),
    modern("capability missing", call("demand", id=1), 400, -32021, answers=1),
    modern("method unknown", message("no/such", {}, "a"), 404, -32601, answers="a"),
    modern("legacy initialize", message("initialize", {}, 1), 404, -32601, answers=1),
    modern("legacy ping", message("ping", {}, 1), 404, -32601, answers=1),
    modern("legacy subscribe", message("resources/subscribe", {"uri": "a://b"}, 1), 404, -32601, answers=1),
    modern("tool unknown", call("nothing", id=1), 400, -32602, answers=1),
    modern("prompt unknown", message("prompts/get", {"name": "nothing"}, 1), 400, -32602, answers=1),
    modern("params wrong", message("tools/call", {"name": 7}, 1), 400, -32602, {"mcp-name": None}, answers=1),
    modern("listen wrong", message("subscriptions/listen", {"notifications": 7}, 1), 400, -32602, answers=1),
    modern(
        "listen without sse",
        message("subscriptions/listen", {"notifications": {}}, 1),
        406,
        -32600,
        {"accept": "application/json"},
        answers=1,
    ),
    modern("resource unknown", message(READ, {"uri": "no://where"}, 1), 400, -32602, answers=1),
    modern("resource missing", message(READ, {"uri": "missing://x"}, 1), 400, -32602, answers=1),
    modern("crash", message(READ, {"uri": "crash://now"}, 1), 200, -32603, answers=1),
    row(
        "modern response",
        {"jsonrpc": "2.0", "id": 99, "result": {}},
        400,
        -32600,
        headers={"mcp-protocol-version": MODERN},
        session=False,
    ),
    row("modern get", None, 405, -32600, verb="GET", headers={"mcp-protocol-version": MODERN}),
    row("modern delete", None, 405, -32600, verb="DELETE", headers={"mcp-protocol-version": MODERN}),
    modern("session ignored", ECHO, 200, None, UNKNOWN_SESSION),
    modern("last event ignored", ECHO, 200, None, {"last-event-id": "7"}),
]


@pytest.mark.parametrize("wrong", COMMON + IN_SESSION + WITHOUT_SESSION + IN_MODERN)
async def test_each_is_answered_as_the_table_has_it(wrong):
    async with serving(make_server(), max_body_bytes=BODY_LIMIT) as served:
        peer = await served.peer()
        session = await peer.open_session()
        before = served.bus.statistics()
        headers = (session if wrong.session else {}) | wrong.headers
        answered = await peer.exchange(wrong.body, headers, wrong.verb)
        assert answered.status == wrong.status, answered
        if wrong.code is not None:
            error = answered.json
            assert error["error"]["code"] == wrong.code, error
            assert "secret" not in error["error"]["message"]
            assert error.get("id") == wrong.answers
            assert ("id" in error) == (wrong.answers is not None)
        after = await served.quiet(before.actors)
        assert (after.actors, after.sessions, after.requests) == (
            before.actors,
            before.sessions,
            before.requests,
        )
        # The session is none the worse for it.
        assert (await peer.exchange(PING, session)).json["result"] == {}


async def test_what_some_refusals_say_besides():
    async with serving(make_server()) as served:
        peer = await served.peer()
        refused = await peer.exchange(PING, verb="PUT")
        assert refused.headers["allow"] == "POST, GET, DELETE"
        refused = await peer.exchange(PING, {"mcp-protocol-version": MODERN}, verb="PUT")
        assert refused.headers["allow"] == "POST"
        body, headers = modernized(DISCOVER)
        body["params"]["_meta"] = CLAIM | {VERSION: "2099-01-01"}
        refused = await peer.exchange(body, headers | {"mcp-protocol-version": "2099-01-01"})
        assert refused.json["error"]["data"] == {"supported": [MODERN], "requested": "2099-01-01"}
        for uri in ("no://where", "missing://x"):
            refused = await peer.modern(message(READ, {"uri": uri}, 1))
            assert refused.json["error"]["data"] == {"uri": uri}
        wrong_path = await (await served.peer(path="/elsewhere")).exchange(PING, {"host": peer.host})
        assert wrong_path.status == 404
        assert wrong_path.headers["content-type"] == "text/plain"


async def test_a_chunked_body_that_is_too_long_is_refused_too():
    async with serving(make_server(), max_body_bytes=BODY_LIMIT) as served:
        peer = await served.peer()
        headers = {"transfer-encoding": "chunked", "content-length": None}
        assert (await peer.exchange(b" " * BODY_LIMIT + json.dumps(PING).encode(), headers)).status == 413


@pytest.mark.parametrize(
    ("status", "challenge"), [(401, "Bearer"), (403, 'Bearer error="insufficient_scope"')]
)
async def test_who_may_not_come_in_is_challenged(status, challenge):
    async def authenticate(head):
        if head.headers.get(b"authorization") is None:
            raise UnauthorizedError(challenge, status=status)
        return head.headers.get(b"authorization")

    async with serving(make_server(authenticate=authenticate)) as served:
        peer = await served.peer()
        for body in (initialize(), PING, modernized(ECHO)[0]):
            refused = await peer.exchange(body)
            assert (refused.status, refused.headers["www-authenticate"]) == (status, challenge)
        assert served.bus.statistics().actors == 0


async def test_a_session_is_not_there_for_another_principal():
    async def authenticate(head):
        return head.headers.get(b"authorization")

    async with serving(make_server(authenticate=authenticate)) as served:
        peer = await served.peer()
        opened = await peer.exchange(initialize(), {"authorization": "alice"})
        session = {"mcp-session-id": opened.headers["mcp-session-id"]}
        for verb, body in (("POST", PING), ("GET", None), ("DELETE", None)):
            refused = await peer.exchange(body, session | {"authorization": "mallory"}, verb)
            assert refused.status == 404
        assert (await peer.exchange(PING, session | {"authorization": "alice"})).status == 200


async def test_a_page_of_an_allowed_origin_can_read_what_went_wrong():
    origin = {"origin": "https://app.example"}
    async with serving(make_server(), allowed_origins=["https://app.example"]) as served:
        peer = await served.peer()
        for body, headers in ((b"{nope", {}), (PING, UNKNOWN_SESSION)):
            refused = await peer.exchange(body, origin | headers)
            assert refused.headers["access-control-allow-origin"] == "https://app.example"
            assert "Mcp-Session-Id" in refused.headers["access-control-expose-headers"]


def test_options_that_cannot_be_right_are_refused():
    with pytest.raises(ValueError, match="path"):
        HttpOptions(path="mcp")
