"""What serving relies on in hypercorn and does not find in its documentation.

If one of these fails after an upgrade, the part has moved: read hypercorn's source, then mend `mcpbus/serving/`.
"""

import inspect

import hypercorn
from hypercorn.protocol import http_stream, ws_stream

from mcpbus.serving import ServeOptions
from mcpbus.serving import hypercorn as parts
from mcpbus.serving.app_tasks import Tasks

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


def test_a_protocol_is_made_from_these_arguments_and_driven_by_initiate_and_handle():
    assert arguments(parts.H11Protocol) == PROTOCOL_ARGUMENTS
    assert arguments(parts.H11Protocol.initiate) == []
    assert arguments(parts.H11Protocol.handle) == ["event"]


def test_http1_has_the_method_that_decides_who_reads_on():
    assert arguments(parts.H11Protocol._check_protocol) == ["event"]
    assert "self._check_protocol(" in inspect.getsource(parts.H11Protocol)


def test_http1_has_the_method_that_the_guard_replaces():
    assert arguments(parts.H11Protocol._send_h11_event) == ["event"]
    assert "self._send_h11_event(" in inspect.getsource(parts.H11Protocol.stream_send)


def test_streams_want_of_a_task_group_only_what_ours_has():
    used = set()
    for module in (http_stream, ws_stream):
        source = inspect.getsource(module)
        used |= {name for name in ("spawn", "spawn_app", "_nursery") if f"task_group.{name}(" in source}
    assert used == {"spawn", "spawn_app"}
    assert used <= public(Tasks)


def test_events_have_the_fields_that_are_read():
    assert parts.RawData(data=b"x").data == b"x"
    assert parts.Updated(idle=True).idle
    assert parts.EndBody(stream_id=1).stream_id == 1
    assert arguments(parts.H2ProtocolAssumedError) == ["data"]


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
