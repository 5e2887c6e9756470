"""A request that is read in one go is what it is when it is read step by step; all that is not in order is left to that."""

import msgspec
import pytest

from mcpbus.protocol.errors import ProtocolError
from mcpbus.protocol.jsonrpc import LONGEST_ID, JsonRpcRequest, Undecodable, decode
from mcpbus.protocol.meta import read_request, read_routing


def message(params=b"{}", **members):
    """A message; what is given takes the place of what it has, or goes if it is None."""
    members = {"jsonrpc": b'"2.0"', "id": b"1", "method": b'"tools/call"', "params": params} | members
    parts = [b'"%b":%b' % (name.encode(), text) for name, text in members.items() if text is not None]
    return b"{%b}" % b",".join(parts)


READ = {
    "a call": message(b'{"name":"echo","arguments":{"text":"hi"},"_meta":{"progressToken":1}}'),
    "line breaks": message(b'\n{ "name" :\t"echo",\r\n"arguments": {"a": [1,\n2]} }\n'),
    "nothing in it": message(),
    "arguments that are none": message(b'{"name":"echo","arguments":null}'),
    "arguments of another kind": message(b'{"name":"echo","arguments":[1]}'),
    "a resource": message(b'{"uri":"a:b"}', method=b'"resources/read"', id=b'"x"'),
    "a retry": message(b'{"name":"echo","inputResponses":{"a":{}},"requestState":"s"}'),
    "a task": message(b'{"taskId":"t"}'),
    "members that nobody knows": message(b'{"other":[1,{}]}', other=b"[]"),
    "text beyond ASCII": message('{"name":"\u00e9","arguments":{"a":"\u6771"}}'.encode()),
    "members twice": message(b'{"name":"a","name":"b"}', **{"params\\u0000": b"1"}),
    "the claim of a client": message(b'{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}'),
}
LEFT = {
    "no JSON": b"{",
    "no object": b"[]",
    "another version": message(jsonrpc=b'"1.0"'),
    "no version": message(jsonrpc=None),
    "a notification": message(id=None),
    "an id that is null": message(id=b"null"),
    "an id that is true": message(id=b"true"),
    "an id that is a fraction": message(id=b"1.5"),
    "a long id": message(id=b'"%b"' % (b"x" * (LONGEST_ID + 1))),
    "a response": message(None, method=None, result=b"{}"),
    "a method and a result": message(result=b"{}"),
    "a method and an error": message(error=b'{"code":1,"message":""}'),
    "no params": message(None),
    "params that are null": message(b"null"),
    "params that are a list": message(b"[]"),
    "a name that is a number": message(b'{"name":1,"arguments":{}}'),
    "_meta that is a list": message(b'{"_meta":[]}'),
    "a long progress token": message(b'{"_meta":{"progressToken":"%b"}}' % (b"x" * (LONGEST_ID + 1))),
    "bytes that are no UTF-8": message(b'{"name":"\xff"}'),
    "bytes that are no UTF-8 where nobody looks": message(b'{"arguments":{"a":"\xff"}}'),
    "nested too deeply": message(b'{"arguments":%b}' % (b"[" * 1_000_000 + b"]" * 1_000_000)),
}


def told(request, routing):
    arguments, meta = bytes(routing.arguments), routing.meta.values
    retry = bytes(msgspec.json.encode(routing.retry)) if routing.retry else None
    named = routing.name, routing.uri, routing.task_id
    return request.id, request.method, bytes(request.params), named, arguments, meta, retry


@pytest.mark.parametrize("data", READ.values(), ids=READ)
def test_what_is_in_order_is_read_in_one_go_as_it_would_be_step_by_step(data):
    read = read_request(data)
    assert read is not None
    stepwise = decode(data)
    assert told(*read) == told(stepwise, read_routing(stepwise.params))
    assert bytes(stepwise.text) == bytes(stepwise.params) == bytes(read[0].text)
    assert read_request(data)[0].text == data, "as long as nobody asked for the params"


@pytest.mark.parametrize("data", LEFT.values(), ids=LEFT)
def test_what_is_not_in_order_is_left(data):
    assert read_request(data) is None


def test_each_that_is_left_is_something_else_or_wrong_or_unusual():
    usual = []
    for name, data in LEFT.items():
        try:
            stepwise = decode(data)
            if isinstance(stepwise, JsonRpcRequest):
                read_routing(stepwise.params)
                usual.append(name)
        except (Undecodable, ProtocolError):
            pass
    assert usual == ["no params", "a name that is a number"]
