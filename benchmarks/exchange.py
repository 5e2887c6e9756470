"""The exchange that is measured: one `tools/call` of revision 2026-07-28 and its JSON answer, as bytes."""

import msgspec

_META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
}
_CALL = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {"name": "echo", "arguments": {"text": "hello, world"}, "_meta": _META},
}
_BODY = msgspec.json.encode(_CALL)
_HEAD = (
    "POST /mcp HTTP/1.1\r\n"
    "Host: localhost\r\n"
    "Accept: application/json, text/event-stream\r\n"
    "Content-Type: application/json\r\n"
    "MCP-Protocol-Version: 2026-07-28\r\n"
    "Mcp-Method: tools/call\r\n"
    "Mcp-Name: echo\r\n"
    f"Content-Length: {len(_BODY)}\r\n\r\n"
)

REQUEST: bytes = _HEAD.encode() + _BODY
"""The whole HTTP request."""

RESULT: bytes = msgspec.json.encode(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "result": {
            "content": [{"type": "text", "text": "hello, world"}],
            "resultType": "complete",
            "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "bench", "version": "1"}},
        },
    }
)
"""The body of its answer."""
