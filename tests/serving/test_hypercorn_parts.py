"""What serving relies on in hypercorn and does not find in its documentation.

If one of these fails after an upgrade, the part has moved: read hypercorn's source, then mend `mcpbus/serving/`.
"""

import inspect

import hypercorn
import pytest
from h2.config import H2Configuration
from h2.connection import ConnectionState, H2Connection
from h2.frame_buffer import FrameBuffer
from hypercorn.protocol import h2 as hypercorn_h2
from hypercorn.protocol import http_stream, ws_stream

from mcpbus.serving import ServeOptions
from mcpbus.serving import hypercorn as parts
from mcpbus.serving.app_tasks import Tasks
from mcpbus.serving.http2 import GuardedH2Protocol

PROTOCOL_ARGUMENTS = [
    "app",
    "config",
    "context",
    "task_group",
    "connection_state",
    "ssl",
    "client",
    "server",
    "send",
]


def arguments(callable_):
    return [name for name in inspect.signature(callable_).parameters if name != "self"]


def public(cls):
    return {name for name in vars(cls) if not name.startswith("_")}


def test_the_version_is_the_one_that_was_read():
    from importlib.metadata import version

    assert version("hypercorn").startswith("0.18."), (
        f"read {hypercorn.__path__} before you allow this version, and see which defects of test_defects.py it has"
    )


@pytest.mark.parametrize("protocol", [parts.H11Protocol, parts.H2Protocol])
def test_protocols_are_made_from_the_same_arguments(protocol):
    assert arguments(protocol) == PROTOCOL_ARGUMENTS


def test_protocols_are_driven_by_initiate_and_handle():
    assert arguments(parts.H11Protocol.initiate) == []
    assert arguments(parts.H2Protocol.initiate) == ["headers", "settings"]
    assert arguments(parts.H11Protocol.handle) == arguments(parts.H2Protocol.handle) == ["event"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("_close_stream", ["stream_id"]), ("_flush", []), ("stream_send", ["event"]), ("send_task", [])],
)
def test_http2_has_the_methods_that_the_guard_replaces_or_calls(name, expected):
    method = getattr(parts.H2Protocol, name, None)
    assert method is not None, f"H2Protocol has no {name} any more: see mcpbus/serving/http2.py"
    assert arguments(method) == expected
    assert inspect.iscoroutinefunction(method)
    assert "idle" in vars(parts.H2Protocol)


def test_http2_keeps_what_the_guard_reads():
    config = parts.configure(ServeOptions())
    protocol = parts.H2Protocol(None, config, parts.WorkerContext(None), None, None, False, None, None, None)
    for name in ("app", "client", "connection", "connection_state", "context", "server", "ssl", "streams"):
        assert hasattr(protocol, name), f"H2Protocol has no {name} any more: see mcpbus/serving/http2.py"
    assert config.h2_max_concurrent_streams == 100
    assert protocol.connection.local_settings.max_concurrent_streams == 100
    assert protocol.connection.local_settings.max_header_list_size == 64 * 1024


def test_http1_has_the_method_that_the_guard_replaces():
    assert arguments(parts.H11Protocol._send_h11_event) == ["event"]
    assert "self._send_h11_event(" in inspect.getsource(parts.H11Protocol.stream_send)


@pytest.mark.parametrize(
    ("cls", "name", "expected"),
    [
        (H2Connection, "_receive_frame", ["frame"]),
        (FrameBuffer, "_update_header_buffer", ["f"]),
    ],
)
def test_h2_has_the_private_methods_that_the_guard_replaces(cls, name, expected):
    method = getattr(cls, name, None)
    assert method is not None, (
        f"{cls.__name__} has no {name} any more: see mcpbus/serving/http2_connection.py"
    )
    assert arguments(method) == expected


def test_h2_keeps_what_the_guard_reads():
    buffer = FrameBuffer(server=True)
    assert buffer._headers_buffer == [], "see BoundedFrameBuffer in mcpbus/serving/http2_connection.py"
    connection = H2Connection(H2Configuration(client_side=False))
    assert connection.encoder.table_size_changes == []
    assert connection.streams == {}
    assert connection.highest_inbound_stream_id == 0
    assert connection.state_machine.state is ConnectionState.IDLE


def test_streams_want_of_a_task_group_only_what_ours_has():
    used = set()
    for module in (http_stream, ws_stream, hypercorn_h2):
        source = inspect.getsource(module)
        used |= {name for name in ("spawn", "spawn_app", "_nursery") if f"task_group.{name}(" in source}
    assert used == {"spawn", "spawn_app"}
    assert used <= public(Tasks)


def test_events_have_the_fields_that_are_read():
    assert parts.RawData(data=b"x").data == b"x"
    assert parts.Updated(idle=True).idle
    assert parts.Body(stream_id=1, data=b"x").stream_id == 1
    assert arguments(parts.H2ProtocolAssumedError) == ["data"]
    assert arguments(parts.H2CProtocolRequiredError) == ["data", "request"]


def test_a_websocket_has_what_the_guard_replaces_or_calls():
    stream = parts.WSStream(
        None, parts.configure(ServeOptions(websocket_ping_seconds=7)), None, None, False, None, None, None, 1
    )
    assert stream.config.websocket_ping_interval == 7
    assert stream.app_put is None
    assert stream.app_send.__self__ is stream
    assert type(stream.buffer) is parts.WebsocketBuffer
    assert (stream.buffer.length, stream.buffer.value, stream.buffer.max_length) == (
        0,
        None,
        16 * 1024 * 1024,
    )
    assert ws_stream.Handshake([], "1.1").accepted is False
    assert arguments(parts.WebsocketBuffer.extend) == ["event"]


def test_every_part_is_used_from_one_place():
    from pathlib import Path

    serving = Path(parts.__file__).parent
    elsewhere = [
        path.name
        for path in serving.glob("*.py")
        if path.name != "hypercorn.py" and "from hypercorn" in path.read_text()
    ]
    assert elsewhere == []


def test_the_configuration_says_what_we_were_told():
    config = parts.configure(ServeOptions(certfile="c.pem", keyfile="k.pem"))
    assert (config.certfile, config.keyfile) == ("c.pem", "k.pem")
    assert config.read_timeout is None


def test_the_guard_is_an_http2_protocol():
    assert issubclass(GuardedH2Protocol, parts.H2Protocol)
