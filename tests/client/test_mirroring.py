"""What a client over HTTP keeps of the tools that it has listed: their mirrored parameters, for as long as they are there."""

import msgspec

from mcpbus.client.http_connection import MirroredTools
from mcpbus.protocol.jsonrpc import JsonRpcRequest
from mcpbus.protocol.revisions import LATEST


def page(*names, more=None):
    schema = {"type": "object", "properties": {"city": {"type": "string", "x-mcp-header": "City"}}}
    found = {"tools": [{"name": name, "inputSchema": schema} for name in names]}
    result = found if more is None else {**found, "nextCursor": more}
    return msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "result": result})


def repeats(tools, name):
    """Whether a call of a tool repeats its parameter."""
    params = b'{"name":"%b","arguments":{"city":"Oslo"}}' % name.encode()
    return "Mcp-Param-City" in tools.headers(JsonRpcRequest(1, "tools/call", params), LATEST)


def test_a_tool_is_known_from_its_page_on_and_forgotten_once_a_whole_list_has_it_no_more():
    tools = MirroredTools()
    tools.learn(page("a", more="2"))
    assert repeats(tools, "a")
    tools.learn(page("b"))
    assert (repeats(tools, "a"), repeats(tools, "b")) == (True, True)
    tools.learn(page("c", more="2"))
    assert (repeats(tools, "a"), repeats(tools, "b"), repeats(tools, "c")) == (True, True, True)
    tools.learn(page("d"))
    assert [name for name in "abcd" if repeats(tools, name)] == ["c", "d"]


def test_a_page_without_mirrored_parameters_stays_as_it_is_and_forgets_them():
    tools = MirroredTools()
    tools.learn(page("a"))
    plain = b'{"jsonrpc":"2.0", "id":1, "result":{"tools":[{"name":"a"}]}}'
    assert tools.learn(plain) is plain
    assert not repeats(tools, "a")
