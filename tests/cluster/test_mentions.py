"""What a request names, and which ones surely name nothing."""

import pytest

from mcpbus.cluster.affinity import has_no_target
from mcpbus.protocol.http.headers import Headers

VERSION = (b"mcp-protocol-version", b"2026-07-28")
CALL = (b"mcp-method", b"tools/call")
SESSION = (b"mcp-session-id", b"one")


@pytest.mark.parametrize(
    ("fields", "body", "told"),
    [
        ([VERSION, CALL], b"{}", True),
        ([VERSION, CALL, SESSION], b"{}", True),  # a modern request is in no session
        ([VERSION, CALL], b'{"requestState": "x"}', False),
        ([VERSION, (b"mcp-method", b"tasks/get")], b"{}", False),
        ([VERSION, (b"mcp-method", b"subscriptions/listen")], b"{}", False),
        ([VERSION, CALL, CALL], b"{}", False),
        ([VERSION], b"{}", False),
        ([(b"mcp-protocol-version", b"2025-11-25"), CALL, SESSION], b"{}", False),
        ([VERSION, VERSION, CALL, SESSION], b"{}", False),
        ([CALL, SESSION], b"{}", False),
    ],
)
def test_which_requests_surely_name_nothing(fields, body, told):
    assert has_no_target(Headers(fields), body) is told
