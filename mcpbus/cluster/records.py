"""What is kept of a session, so that another process can go on with it."""

import logging
from typing import Any

import msgspec

from mcpbus.cluster.directory import Directory
from mcpbus.core.session import Session, Stage
from mcpbus.protocol.levels import LogLevel
from mcpbus.protocol.principals import digest_of

_log = logging.getLogger("mcpbus")


class SessionRecord(msgspec.Struct, array_like=True, frozen=True):
    """A session of Streamable HTTP, without what it has in flight, and what is held for its client.

    Attributes:
        transport: How its client is connected.
        revision: The revision that it negotiated.
        client_info: What the client said of itself.
        client_capabilities: Likewise.
        principal: A digest of whose it is.
        initialized: Whether the client has sent that.
        level: From which level it is sent log lines.
        subscriptions: The URIs that it subscribed to.
    """

    transport: str
    revision: str
    client_info: dict[str, Any]
    client_capabilities: dict[str, Any]
    principal: bytes
    initialized: bool
    level: LogLevel | None
    subscriptions: list[str]


_encode = msgspec.msgpack.Encoder().encode
decode_record = msgspec.msgpack.Decoder(SessionRecord).decode


class Records:
    """Keeps the sessions of one process in the directory; see `mcpbus.core.hub.SessionRecords`.

    Where that fails, the session goes on, and ends with the process.

    Args:
        directory: Keeps them.
        home: The process.
    """

    def __init__(self, directory: Directory, home: str) -> None:
        self._directory = directory
        self._home = home

    def keep(self, session: Session) -> None:
        """See `SessionRecords`."""
        assert session.revision is not None  # noqa: S101 - it is registered
        record = SessionRecord(
            session.transport.name,
            session.revision.name,
            session.client_info,
            session.client_capabilities,
            digest_of(session.principal),
            session.stage is Stage.READY,
            session.threshold.level,
            sorted(session.subscriptions),
        )
        try:
            self._directory.keep(self._home, session.id, _encode(record))
        except OSError:
            _log.exception("a session could not be kept, and ends with this process")

    def drop(self, session: Session) -> None:
        """See `SessionRecords`."""
        try:
            self._directory.drop(self._home, session.id)
        except OSError:
            _log.exception("a session that has ended could not be forgotten")
