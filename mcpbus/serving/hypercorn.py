"""All that serving uses of hypercorn 0.18, in one place.

hypercorn's configuration is public. Its protocols and events are not: they are the shells around h11 and
wsproto, which we keep, while the accept loop, the connection and the application's task are ours (see `connection`
and `tasks`). `tests/serving/test_hypercorn_parts.py` names what must be true of them, so that an upgrade that moves
one fails there, in words, and not in a client's connection.
"""

import logging

from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol.events import EndBody
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.h11 import H2ProtocolAssumedError, H11Protocol
from hypercorn.protocol.ws_stream import FrameTooLargeError, WebsocketBuffer, WSStream
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import AppWrapper, ConnectionState, H11SendableEvent, TaskGroup
from hypercorn.utils import parse_socket_addr

from mcpbus.serving.options import ServeOptions

__all__ = [
    "AppWrapper",
    "Closed",
    "Config",
    "ConnectionState",
    "EndBody",
    "Event",
    "FrameTooLargeError",
    "H2ProtocolAssumedError",
    "H11Protocol",
    "H11SendableEvent",
    "Held",
    "RawData",
    "StreamEvent",
    "TaskGroup",
    "Updated",
    "WSStream",
    "WebsocketBuffer",
    "WorkerContext",
    "configure",
    "parse_socket_addr",
]

# hypercorn ends a connection after so many requests.
_NO_LIMIT = 2**63


class Held(RawData):
    """Bytes for the connection that may wait for the next ones, but not for the next turn of the scheduler."""


def configure(options: ServeOptions) -> Config:
    """Say our options in hypercorn's words, and switch off what would harm long streams."""
    config = Config()
    config.certfile = options.certfile
    config.keyfile = options.keyfile
    config.keep_alive_max_requests = _NO_LIMIT
    config.websocket_ping_interval = options.websocket_ping_seconds
    config.include_server_header = False
    config.errorlog = logging.getLogger("mcpbus.serving")
    return config
