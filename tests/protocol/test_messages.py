"""The shapes of MCP: params as they are read, descriptions and content as they are written."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbus.protocol import messages as wire
from mcpbus.protocol.enums import LogLevel
from mcpbus.protocol.errors import INVALID_PARAMS, ProtocolError
from mcpbus.protocol.messages import decode_initialize, decode_params

INFO = {"name": "c", "version": "1"}


def raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(json.dumps(value).encode())


READ = [
    (
        wire.InitializeParams,
        {"protocolVersion": "v", "capabilities": {"roots": {}}, "clientInfo": INFO, "extra": 1},
        wire.InitializeParams("v", {"roots": {}}, wire.Implementation("c", "1")),
    ),
    (wire.ListParams, {}, wire.ListParams(None)),
    (wire.ListParams, {"cursor": None}, wire.ListParams(None)),
    (wire.ListParams, {"cursor": ""}, wire.ListParams("")),
    (wire.CallToolParams, {"name": "t"}, wire.CallToolParams("t", msgspec.Raw(b"{}"))),
    (wire.CallToolParams, {"name": "t", "arguments": None}, wire.CallToolParams("t", msgspec.Raw(b"{}"))),
    (
        wire.CallToolParams,
        {"name": "t", "arguments": {"a": 1}},
        wire.CallToolParams("t", msgspec.Raw(b'{"a": 1}')),
    ),
    (wire.GetPromptParams, {"name": "p", "arguments": {"a": "b"}}, wire.GetPromptParams("p", {"a": "b"})),
    (wire.ReadResourceParams, {"uri": "a://b"}, wire.ReadResourceParams("a://b")),
    (wire.SubscribeParams, {"uri": "a://b"}, wire.SubscribeParams("a://b")),
    (
        wire.CompleteParams,
        {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": "v"}},
        wire.CompleteParams(wire.PromptReference("p"), wire.CompletionArgument("a", "v")),
    ),
    (
        wire.CompleteParams,
        {
            "ref": {"type": "ref/resource", "uri": "a://{b}"},
            "argument": {"name": "b", "value": ""},
            "context": {"arguments": {"c": "d"}},
        },
        wire.CompleteParams(
            wire.ResourceTemplateReference("a://{b}"),
            wire.CompletionArgument("b", ""),
            wire.CompletionContext({"c": "d"}),
        ),
    ),
    (wire.SetLevelParams, {"level": "alert"}, wire.SetLevelParams(LogLevel.ALERT)),
    (wire.ListenParams, {"notifications": {}}, wire.ListenParams(wire.SubscriptionFilter())),
    (
        wire.ListenParams,
        {"notifications": {"toolsListChanged": True, "resourceSubscriptions": ["a://b"], "taskIds": ["t"]}},
        wire.ListenParams(
            wire.SubscriptionFilter(
                tools_list_changed=True, resource_subscriptions=("a://b",), task_ids=("t",)
            )
        ),
    ),
    (wire.CancelledParams, {"requestId": 0, "reason": "why"}, wire.CancelledParams(0, "why")),
    (wire.CancelledParams, {"requestId": "0"}, wire.CancelledParams("0")),
]


@pytest.mark.parametrize(("params_type", "params", "read"), READ)
def test_params_are_read(params_type, params, read):
    assert decode_params(params_type, raw(params)) == read


LONG_URI = "a:" + "x" * 8191
REFUSED = [
    # rule, type, params, path, what else the message names
    ("L-1", wire.InitializeParams, {"capabilities": {}, "clientInfo": INFO}, "`params`", "protocolVersion"),
    (
        "L-1",
        wire.InitializeParams,
        {"protocolVersion": "v", "capabilities": {}, "clientInfo": {"name": "c"}},
        "`params.clientInfo`",
        "version",
    ),
    ("F-14", wire.CallToolParams, {}, "`params`", "name"),
    ("F-14", wire.CallToolParams, {"name": 5}, "`params.name`", "str"),
    ("F-14", wire.CallToolParams, {"name": "t", "arguments": []}, "`params.arguments`", "object"),
    ("F-14", wire.CallToolParams, {"name": "t", "arguments": "x"}, "`params.arguments`", "object"),
    ("O-2", wire.GetPromptParams, {"name": "p", "arguments": {"a": 1}}, "`params.arguments[...]`", "str"),
    ("Q-5", wire.CompleteParams, {"ref": {"type": "x"}}, "`params.ref.type`", "ref/prompt, ref/resource"),
    ("Q-5", wire.CompleteParams, {"ref": {"type": "ref/prompt"}}, "`params.ref`", "name"),
    ("G-3", wire.SetLevelParams, {"level": "loud"}, "`params.level`", "debug, info"),
    ("S-5", wire.ListenParams, {}, "`params`", "notifications"),
    ("S-5", wire.ListenParams, {"notifications": []}, "`params.notifications`", "object"),
    (
        "S-5",
        wire.ListenParams,
        {"notifications": {"resourceSubscriptions": [1]}},
        "resourceSubscriptions[",
        "str",
    ),
    ("C-4", wire.CancelledParams, {"requestId": 1.0}, "`params.requestId`", "int"),
    ("C-4", wire.CancelledParams, {"requestId": True}, "`params.requestId`", "int"),
    ("C-4", wire.CancelledParams, {"requestId": "i" * 1025}, "`params.requestId`", "length <= 1024"),
    ("I-3", wire.ListParams, {"cursor": 5}, "`params.cursor`", "str"),
    # What is kept for a client, or looked for at length, is bounded.
    ("R-7", wire.ReadResourceParams, {"uri": LONG_URI}, "`params.uri`", "length <= 8192"),
    ("R-9", wire.SubscribeParams, {"uri": LONG_URI}, "`params.uri`", "length <= 8192"),
    (
        "Q-5",
        wire.CompleteParams,
        {"ref": {"type": "ref/resource", "uri": LONG_URI}},
        "`params.ref.uri`",
        "8192",
    ),
    (
        "S-5",
        wire.ListenParams,
        {"notifications": {"resourceSubscriptions": ["a://b", LONG_URI]}},
        "`params.notifications.resourceSubscriptions[1]`",
        "length <= 8192",
    ),
    ("TX-12", wire.ListenParams, {"notifications": {"taskIds": ["t" * 1025]}}, "taskIds[0]`", "<= 1024"),
]


@pytest.mark.parametrize(("rule", "params_type", "params", "path", "names"), REFUSED)
def test_bad_params_are_told_what_is_wrong_and_where(rule, params_type, params, path, names):
    with pytest.raises(ProtocolError) as caught:
        decode_params(params_type, raw(params))
    assert caught.value.code == INVALID_PARAMS, rule
    assert path in caught.value.message
    assert names in caught.value.message


def test_what_is_kept_of_an_initialize_is_bounded():
    with pytest.raises(ProtocolError, match="at most 65536 bytes, got 65545 - at `params`") as caught:
        decode_initialize(raw({"x": "x" * 65_536}))
    assert caught.value.code == INVALID_PARAMS


PARAMS_TYPES = sorted(
    {params_type for params_type, _, _ in READ}, key=lambda params_type: params_type.__name__
)


@given(st.sampled_from(PARAMS_TYPES), st.binary())
def test_arbitrary_params_are_read_or_refused(params_type, data):
    try:
        params = decode_params(params_type, msgspec.Raw(data))
    except ProtocolError as error:
        params = error
    assert isinstance(params, params_type) or params.code == INVALID_PARAMS


def test_deep_nesting_is_refused_like_any_other_fault():  # F-5
    deep = msgspec.Raw(b'{"name":"p","arguments":' + b'{"a":' * 5000 + b"1" + b"}" * 5000 + b"}")
    with pytest.raises(ProtocolError):
        decode_params(wire.GetPromptParams, deep)


def test_an_empty_filter_asks_for_nothing():  # S-8
    empty = decode_params(wire.ListenParams, raw({"notifications": {}})).notifications
    assert not any(msgspec.structs.astuple(empty))


WRITTEN = [
    (wire.ToolDescription("t", {"type": "object"}), {"name": "t", "inputSchema": {"type": "object"}}),
    (
        wire.ToolDescription("t", msgspec.Raw(b"{}"), meta={"a": 1}),
        {"name": "t", "inputSchema": {}, "_meta": {"a": 1}},
    ),
    (
        wire.ToolDescription(
            "t", {}, annotations=wire.ToolAnnotations(read_only_hint=False), output_schema={}
        ),
        {"name": "t", "inputSchema": {}, "outputSchema": {}, "annotations": {"readOnlyHint": False}},
    ),
    (wire.ResourceDescription("a://b", "n", size=0), {"uri": "a://b", "name": "n", "size": 0}),
    (
        wire.ResourceTemplate("a://{b}", "n", mime_type="a/b"),
        {"uriTemplate": "a://{b}", "name": "n", "mimeType": "a/b"},
    ),
    (
        wire.PromptDescription(
            "p",
            arguments=[wire.PromptArgument("a", required=True)],
            icons=[wire.Icon("https://a", sizes=["any"])],
        ),
        {
            "name": "p",
            "arguments": [{"name": "a", "required": True}],
            "icons": [{"src": "https://a", "sizes": ["any"]}],
        },
    ),
    (wire.TextContent(""), {"type": "text", "text": ""}),
    (wire.ImageContent("AA==", "image/png"), {"type": "image", "data": "AA==", "mimeType": "image/png"}),
    (wire.AudioContent("AA==", "audio/wav"), {"type": "audio", "data": "AA==", "mimeType": "audio/wav"}),
    (wire.ResourceLink("a://b", "n"), {"type": "resource_link", "uri": "a://b", "name": "n"}),
    (
        wire.EmbeddedResource(wire.BlobResourceContents("a://b", "AA==")),
        {"type": "resource", "resource": {"uri": "a://b", "blob": "AA=="}},
    ),
    (
        wire.WirePromptMessage(
            "user",
            wire.TextContent("x", wire.Annotations(["user"], priority=0.0, last_modified="2026-01-01")),
        ),
        {
            "role": "user",
            "content": {
                "type": "text",
                "text": "x",
                "annotations": {"audience": ["user"], "priority": 0.0, "lastModified": "2026-01-01"},
            },
        },
    ),
    (
        wire.Implementation("s", "1", website_url="https://a"),
        {"name": "s", "version": "1", "websiteUrl": "https://a"},
    ),
    (wire.SubscriptionFilter(prompts_list_changed=True), {"promptsListChanged": True}),
    (wire.SubscriptionFilter(), {}),
]


@pytest.mark.parametrize(("shape", "written"), WRITTEN)
def test_a_shape_is_written_as_the_schemas_have_it(shape, written):
    assert json.loads(msgspec.json.encode(shape)) == written
