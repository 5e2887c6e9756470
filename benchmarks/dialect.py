"""How a server is spoken to: requests of its revision, as bytes."""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import msgspec

from benchmarks.answers import FIRST_NUMBER, words
from benchmarks.peers.peer import HOST, PATH

MODERN = "2026-07-28"
CHANGED_URI = "bench://value"
_EVERY_CHANGE = {"notifications": {"toolsListChanged": True, "resourceSubscriptions": [CHANGED_URI]}}

INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}
"""The message that completes the handshake."""

_META = "io.modelcontextprotocol/"


@attrs.frozen
class Client:
    """Who asks.

    Attributes:
        name: What it calls itself.
        version: Its own version.
        capabilities: What it declares.
        fields: The lines of its HTTP library, in the head of every request.
        lowercase: Whether it writes the names of all fields so.
        uuids: Whether its requests have UUIDs for ids, and not numbers.
    """

    name: str = "bench"
    version: str = "1"
    capabilities: Mapping[str, Any] = attrs.field(factory=dict)
    fields: tuple[str, ...] = ()
    lowercase: bool = False
    uuids: bool = False

    def request_id(self, number: int) -> int | str:
        """Return the id of its request with a number."""
        return uuid(number) if self.uuids else number

    @property
    def info(self) -> dict[str, str]:
        """What it says of itself."""
        return {"name": self.name, "version": self.version}


BENCH = Client()
"""The client of all scenarios but those whose subject is that there are several."""


def uuid(number: int, group: int = 0) -> str:
    """Return a UUID with the ten digits of a number in it, one of 65,536 groups of them."""
    return f"6ba7b810-{group:04x}-4d1d-80b4-00{number}"


@attrs.frozen
class Dialect:
    """Requests to one server in one revision.

    Attributes:
        port: Where the server listens.
        revision: The protocol revision.
        session: The session that they belong to, if any.
        client: Who asks.
    """

    port: int
    revision: str
    session: bytes | None = None
    client: Client = BENCH

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
        return self.request("subscriptions/listen", _EVERY_CHANGE)

    def listen_message(self) -> dict[str, Any]:
        """Return the message that subscribes to them."""
        return self.message("subscriptions/listen", _EVERY_CHANGE, 1)

    def initialize(self) -> bytes:
        """Return the first request of a session."""
        return self.post(self.initialize_message())

    def initialize_message(self) -> dict[str, Any]:
        """Return the first message of a session."""
        params = {
            "protocolVersion": self.revision,
            "capabilities": self.client.capabilities,
            "clientInfo": self.client.info,
        }
        return self.message("initialize", params)

    def initialized(self) -> bytes:
        """Return the notification that completes the handshake."""
        return self.post(INITIALIZED)

    def get(self, last_event_id: bytes | None = None) -> bytes:
        """Return a request for the session's stream, or for what was missed of another."""
        lines = ["Accept: text/event-stream"]
        if last_event_id is not None:
            lines.append(f"Last-Event-ID: {last_event_id.decode()}")
        return self._head("GET", lines)

    def delete(self) -> bytes:
        """Return the end of the session."""
        return self._head("DELETE", [])

    def request(self, method: str, params: dict[str, Any], request_id: int | str = FIRST_NUMBER) -> bytes:
        """Return any request."""
        return self.post(self.message(method, params, request_id))

    def message(
        self, method: str, params: dict[str, Any], request_id: int | str = FIRST_NUMBER
    ) -> dict[str, Any]:
        """Return the message of a request; in the modern era it says who asks, and in which revision."""
        if self.is_modern:
            claim = {
                f"{_META}protocolVersion": self.revision,
                f"{_META}clientCapabilities": self.client.capabilities,
                f"{_META}clientInfo": self.client.info,
            }
            params = {**params, "_meta": {**claim, **params.get("_meta", {})}}
        return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}

    def post(self, message: dict[str, Any], fields: Sequence[str] = (), *, chunked: bool = False) -> bytes:
        """Return a message as an HTTP request.

        Args:
            message: What it is.
            fields: More lines of its head.
            chunked: Whether the body comes in two chunks, and does not say before how long it is.
        """
        body = msgspec.json.encode(message)
        lines = [
            "Accept: application/json, text/event-stream",
            "Content-Type: application/json",
            "Transfer-Encoding: chunked" if chunked else f"Content-Length: {len(body)}",
            *fields,
        ]
        if self.is_modern:
            lines.append(f"Mcp-Method: {message['method']}")
            if "name" in message["params"]:
                lines.append(f"Mcp-Name: {message['params']['name']}")
        return self._head("POST", lines) + (_in_chunks(body) if chunked else body)

    def _head(self, verb: str, lines: list[str]) -> bytes:
        lines = [f"Host: {HOST}:{self.port}", *self.client.fields, *lines]
        if self.session is not None:
            lines.append(f"Mcp-Session-Id: {self.session.decode()}")
        if self.is_modern or self.session is not None:
            lines.append(f"MCP-Protocol-Version: {self.revision}")
        if self.client.lowercase:
            lines = [
                name.lower() + colon + value for name, colon, value in (line.partition(":") for line in lines)
            ]
        return "\r\n".join([f"{verb} {PATH} HTTP/1.1", *lines, "", ""]).encode()


def _in_chunks(body: bytes) -> bytes:
    middle = len(body) // 2
    return b"%x\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n" % (middle, body[:middle], len(body) - middle, body[middle:])
