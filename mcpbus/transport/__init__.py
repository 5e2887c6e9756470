"""The ways in: how HTTP requests are judged, without any input or output, and the thin shells that carry it out."""

from mcpbus.transport.decisions import (
    ACCEPTED,
    AcceptNotification,
    Answer,
    DeliverResponse,
    Directory,
    EndSession,
    Head,
    Initialize,
    NeedsBody,
    OpenStream,
    Proceed,
    Serve,
    SessionRef,
    refusal,
    status_of,
)
from mcpbus.transport.exchange import Exchange, health
from mcpbus.transport.gate import HttpOptions
from mcpbus.transport.headers import Headers

__all__ = [
    "ACCEPTED",
    "AcceptNotification",
    "Answer",
    "DeliverResponse",
    "Directory",
    "EndSession",
    "Exchange",
    "Head",
    "Headers",
    "HttpOptions",
    "Initialize",
    "NeedsBody",
    "OpenStream",
    "Proceed",
    "Serve",
    "SessionRef",
    "health",
    "refusal",
    "status_of",
]
