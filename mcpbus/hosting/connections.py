"""What the SDK of a hosted server keeps for a client: its `Connection`."""

import copy
from collections.abc import Mapping
from typing import Any

import msgspec
from mcp.server.connection import Connection

from mcpbus.core.sessions.session import Session, SessionStage
from mcpbus.hosting.home import Home
from mcpbus.hosting.outbound import RequestOutbound, SessionOutbound, StrayOutbound
from mcpbus.protocol.meta import CLIENT_CAPABILITIES, CLIENT_INFO
from mcpbus.protocol.revisions import Revision
from mcpbus.protocol.routes import TransportKind


class HostedSession:
    """The connection of a legacy session; the `backend_state` of that. Create it in the home.

    A process that takes over the session of another one makes it again. The state that its author stored in the
    connection is lost then.

    Args:
        home: The home of the server.
        session: The session.
        filtered: As for `SessionOutbound`.

    Attributes:
        session: The session.
        outbound: Its channel.
        connection: The connection.
        result: The encoded result of `initialize`, until it is taken.
    """

    def __init__(self, home: Home, session: Session, *, filtered: bool) -> None:
        self.session = session
        self.outbound = SessionOutbound(home, session, filtered=filtered)
        session_id = None if session.transport is TransportKind.DUPLEX else session.id
        self.connection = Connection.for_loop(self.outbound, session_id=session_id)
        self.result = b"{}"

    def initialize_params(self) -> dict[str, Any]:
        """Return the params of `initialize`, as the session stores them."""
        session = self.session
        assert session.revision is not None  # noqa: S101 - it registers
        return {
            "protocolVersion": session.revision.name,
            "capabilities": msgspec.to_builtins(session.client_capabilities),
            "clientInfo": msgspec.to_builtins(session.client_info),
        }

    def take_result(self) -> bytes:
        """Return the result of `initialize`, and free it: the encoder allots 4 KiB."""
        result, self.result = self.result, b"{}"
        return result

    def note_initialized(self) -> None:
        """Set that the client sent `initialized`, perhaps to another process."""
        if self.session.stage is SessionStage.READY and not self.connection.initialized.is_set():
            self.connection.initialized.set()

    def of_request(self, outbound: StrayOutbound) -> Connection:
        """Return the connection as one request has it: with a channel of its own, and all else shared."""
        self.note_initialized()
        connection = copy.copy(self.connection)
        connection.outbound = outbound
        return connection


def enveloped_connection(
    revision: Revision, params: Mapping[str, Any] | None, outbound: StrayOutbound | RequestOutbound
) -> Connection:
    """Return the connection of a request that has no session: a modern one, or one of stateless serving."""
    meta = (params or {}).get("_meta")
    envelope: Mapping[str, Any] = meta if isinstance(meta, Mapping) else {}
    return Connection.from_envelope(
        revision.name, envelope.get(CLIENT_INFO), envelope.get(CLIENT_CAPABILITIES), outbound=outbound
    )
