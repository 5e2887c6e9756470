"""Requests to be judged, and a directory that remembers what it was asked."""

import json

import attrs

from mcpbus.protocol.http.head_validation import HeadValidator
from mcpbus.protocol.http.headers import Headers
from mcpbus.protocol.http.messages import NeedsBody, Proceed, RequestHead
from mcpbus.protocol.http.mirrored_parameters import MirroredParameter
from mcpbus.protocol.http.options import HttpOptions
from mcpbus.protocol.http.validation import RequestValidator
from mcpbus.protocol.revisions import REVISIONS, Era

PREFIX = "io.modelcontextprotocol/"
E = "2026-07-28"
CLAIM = {PREFIX + "protocolVersion": E, PREFIX + "clientCapabilities": {}}
MODERN_METHODS = {
    "tools/call",
    "tools/list",
    "prompts/get",
    "resources/read",
    "server/discover",
    "subscriptions/listen",
}


@attrs.frozen
class FakeSession:
    revision: object


SESSION = FakeSession(REVISIONS["2025-06-18"])
MIRRORED = {
    "query": (
        MirroredParameter(("region",), "Mcp-Param-Region", "string"),
        MirroredParameter(("page", "size"), "Mcp-Param-Page-Size", "integer"),
        MirroredParameter(("dry",), "Mcp-Param-Dry", "boolean"),
    )
}


class Directory:
    """Knows one session, and remembers what it was asked."""

    def __init__(self):
        self.asked = []

    def find_local_session(self, id, principal):  # noqa: A002
        self.asked.append(("find_local_session", id, principal))
        return SESSION if (id, principal) == ("live", "alice") else None

    def offers(self, method, era):
        self.asked.append(("offers", method, era))
        return era is Era.MODERN and method in MODERN_METHODS

    def mirrored_parameters(self, tool, principal):
        self.asked.append(("mirrored_parameters", tool, principal))
        return MIRRORED.get(tool, ()) if principal == "alice" else ()

    def call_reader(self, tool):
        self.asked.append(("call_reader", tool))


def make_head(verb="POST", path="/mcp", **fields):
    """A head that nothing is wrong with, but for what is given: None takes a field out, a list repeats it."""
    plain = {"host": "localhost:8000", "accept": "application/json, text/event-stream"}
    if verb == "POST":
        plain["content_type"] = "application/json"
    found = []
    for name, value in {**plain, **fields}.items():
        values = value if isinstance(value, list) else [] if value is None else [value]
        found += [(name.replace("_", "-").encode(), each.encode("latin-1")) for each in values]
    return RequestHead(verb, path, Headers(found))


def judge(head, body=b"", *, directory=None, **options):
    """What a shell does, authorization aside: each judgement in turn, until one is not to go on."""
    heads = HeadValidator(HttpOptions(**options))
    exchange = RequestValidator(heads.options, directory or Directory())
    verdict = heads.validate_head(head)
    if isinstance(verdict, Proceed) and verdict.verb == "GET":
        return exchange.validate_get(head, "alice")
    if isinstance(verdict, Proceed) and verdict.verb == "DELETE":
        return exchange.validate_delete(head, "alice")
    if isinstance(verdict, Proceed):
        verdict = heads.validate_post(head)
    if isinstance(verdict, NeedsBody):
        verdict = (
            heads.too_large if len(body) > verdict.limit else exchange.validate_body(head, body, "alice")
        )
    return verdict


def body(**members):
    return json.dumps({"jsonrpc": "2.0", **members}).encode()


def request(method="tools/list", identity=1, **params):
    return body(id=identity, method=method, params=params)


def modern_head(method="tools/list", **fields):
    return make_head(**{"mcp_protocol_version": E, "mcp_method": method, **fields})


def modern_request(method="tools/list", identity=1, meta=CLAIM, **params):
    return request(method, identity, **params, _meta=meta)


def legacy_head(verb="POST", **fields):
    return make_head(verb, **{"mcp_session_id": "live", **fields})


HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
NOTE = body(method="notifications/initialized")
REPLY = body(id=1, result={})
