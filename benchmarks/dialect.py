"""How a server is spoken to: requests of its revision, as bytes."""

from typing import Any

import attrs
import msgspec

from benchmarks.answers import FIRST_NUMBER, words
from benchmarks.peers.peer import HOST, PATH

MODERN = "2026-07-28"
CHANGED_URI = "bench://value"

_CLIENT = {"name": "bench", "version": "1"}
_META = "io.modelcontextprotocol/"


@attrs.frozen
class Dialect:
    """Requests to one server in one revision.

    Attributes:
        port: Where the server listens.
        revision: The protocol revision.
        session: The session that they belong to, if any.
    """

    port: int
    revision: str
    session: bytes | None = None

    @property
    def is_modern(self) -> bool:
        """Whether each request stands alone."""
        return self.revision >= MODERN

    def call(self, number: int, *, tool: str, **arguments: object) -> bytes:
        """Return a call of a tool, which asks for progress and for every log line."""
        meta: dict[str, Any] = {"progressToken": number}
        if self.is_modern:
            meta[f"{_META}logLevel"] = "debug"
        return self.request("tools/call", {"name": tool, "arguments": arguments, "_meta": meta}, number)

    def echo(self, number: int) -> bytes:
        """Return the short call: nothing is asked for but its answer."""
        return self.post(self.echo_message(number))

    def echo_message(self, number: int) -> dict[str, Any]:
        """Return the message of the short call."""
        return self.message("tools/call", {"name": "echo", "arguments": {"text": words(number)}}, number)

    def listen(self) -> bytes:
        """Return a subscription to every change that a server may announce."""
        wanted = {"toolsListChanged": True, "resourceSubscriptions": [CHANGED_URI]}
        return self.request("subscriptions/listen", {"notifications": wanted})

    def initialize(self) -> bytes:
        """Return the first request of a session."""
        params = {"protocolVersion": self.revision, "capabilities": {}, "clientInfo": _CLIENT}
        return self.request("initialize", params)

    def initialized(self) -> bytes:
        """Return the notification that completes the handshake."""
        return self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def get(self, last_event_id: bytes | None = None) -> bytes:
        """Return a request for the session's stream, or for what was missed of another."""
        lines = ["Accept: text/event-stream"]
        if last_event_id is not None:
            lines.append(f"Last-Event-ID: {last_event_id.decode()}")
        return self._head("GET", lines)

    def delete(self) -> bytes:
        """Return the end of the session."""
        return self._head("DELETE", [])

    def request(self, method: str, params: dict[str, Any], request_id: int = FIRST_NUMBER) -> bytes:
        """Return any request."""
        return self.post(self.message(method, params, request_id))

    def message(self, method: str, params: dict[str, Any], request_id: int = FIRST_NUMBER) -> dict[str, Any]:
        """Return the message of a request; in the modern era it says who asks, and in which revision."""
        if self.is_modern:
            claim = {
                f"{_META}protocolVersion": self.revision,
                f"{_META}clientCapabilities": {},
                f"{_META}clientInfo": _CLIENT,
            }
            params = {**params, "_meta": {**claim, **params.get("_meta", {})}}
        return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}

    def post(self, message: dict[str, Any]) -> bytes:
        """Return a message as an HTTP request."""
        body = msgspec.json.encode(message)
        lines = [
            "Accept: application/json, text/event-stream",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
        ]
        if self.is_modern:
            lines.append(f"Mcp-Method: {message['method']}")
            if "name" in message["params"]:
                lines.append(f"Mcp-Name: {message['params']['name']}")
        return self._head("POST", lines) + body

    def _head(self, verb: str, lines: list[str]) -> bytes:
        lines = [f"{verb} {PATH} HTTP/1.1", f"Host: {HOST}:{self.port}", *lines]
        if self.session is not None:
            lines.append(f"Mcp-Session-Id: {self.session.decode()}")
        if self.is_modern or self.session is not None:
            lines.append(f"MCP-Protocol-Version: {self.revision}")
        return "\r\n".join([*lines, "", ""]).encode()
