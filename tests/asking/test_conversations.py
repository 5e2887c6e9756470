"""What a model is told: the shapes of messages, the balance of tools and their results, and each revision's form."""

import pytest
from interview import EVERYTHING, interviewed

from mcpbus.asking import Sample, SamplingResult, ToolUse, ToolUseResult
from mcpbus.features.content import Audio, File, Image, PromptMessage
from mcpbus.protocol.messages import ImageContent, TextContent
from mcpbus.protocol.revisions import REVISIONS

A, B, C, D, E = REVISIONS.values()
TEXT = {"type": "text", "text": "x"}
USE, OTHER_USE = ({"type": "tool_use", "id": name, "name": "t", "input": {}} for name in "ab")
RESULT, OTHER_RESULT = ({"type": "tool_result", "toolUseId": name, "content": []} for name in "ab")


def user(*content):
    return {"role": "user", "content": list(content)}


def model(*content):
    return {"role": "assistant", "content": list(content)}


def sent(messages, revision=E):
    return Sample(messages).params(revision)["messages"]


@pytest.mark.parametrize("revision", [A, B, C, D, E])
@pytest.mark.parametrize(
    "given",
    [
        "x",
        ["x"],
        [{"role": "user", "content": TEXT}],
        [{"role": "user", "content": [TEXT]}],
        [{"role": "user", "content": TextContent("x")}],
        [PromptMessage("user", TextContent("x"))],
        (PromptMessage("user", TextContent("x")),),
        [PromptMessage("user", "x")],
        [{"role": "user", "content": "x"}],
        [{"role": "user", "content": ["x"]}],
        [{"role": "user", "content": ("x",)}],
    ],
)
def test_a_text_may_be_said_in_many_ways_and_is_one_block(given, revision):
    assert sent(given, revision) == [{"role": "user", "content": TEXT}]


IMAGE = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
AUDIO = {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"}


@pytest.mark.parametrize(
    ("given", "messages"),
    [
        (Image(b"hi"), [user(IMAGE)]),
        ([Audio(b"hi")], [user(AUDIO)]),
        (["x", Image(b"hi")], [user(TEXT), user(IMAGE)]),
        ([{"role": "assistant", "content": Image(b"hi")}], [model(IMAGE)]),
        ([{"role": "user", "content": ["x", Image(b"hi")]}], [user(TEXT, IMAGE)]),
        ([PromptMessage("assistant", Image(b"hi"))], [model(IMAGE)]),
    ],
)
def test_what_is_no_text_is_said_as_a_tool_returns_it(given, messages):
    fitted = [
        {**message, "content": message["content"][0]} if len(message["content"]) == 1 else message
        for message in messages
    ]
    assert sent(given) == fitted


def test_what_the_model_said_before_is_said_as_it_was():
    answer = SamplingResult("assistant", [TextContent("y"), ToolUse("a", "t", {"n": 1})], "m", "toolUse")
    messages = ["x", answer, user(*[use.result("sun") for use in answer.tool_uses])]
    assert sent(messages) == [
        {"role": "user", "content": TEXT},
        model({"type": "text", "text": "y"}, {"type": "tool_use", "id": "a", "name": "t", "input": {"n": 1}}),
        {
            "role": "user",
            "content": {
                "type": "tool_result",
                "toolUseId": "a",
                "content": [{"type": "text", "text": "sun"}],
            },
        },
    ]


def test_a_result_may_be_blocks_and_may_be_a_failure():
    image = ImageContent("aGk=", "image/png")
    assert ToolUse("a", "t", {}).result([image]) == ToolUseResult("a", [image])
    assert ToolUse("a", "t", {}).result("no", is_error=True).is_error is True


def test_a_revision_that_has_one_block_in_a_message_gets_several_messages():
    image = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
    messages = [{**user(TEXT, image), "_meta": {"k": 1}}, model(TEXT)]
    for revision in (A, B, C):
        assert sent(messages, revision) == [
            {"role": "user", "content": TEXT},
            {"role": "user", "content": image},
            {"role": "assistant", "content": TEXT},
        ]
    for revision in (D, E):
        assert sent(messages, revision) == [messages[0], {"role": "assistant", "content": TEXT}]


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [user()],
        [user(TEXT), model(USE), user(RESULT)],
        [user(TEXT), model(TEXT, USE, OTHER_USE), user(OTHER_RESULT, RESULT), model(TEXT), user(TEXT)],
        [model(USE), user(RESULT), model(USE), user(RESULT)],
    ],
)
def test_a_conversation_in_balance_is_sent(messages):
    assert Sample(messages).params(E)


def test_a_message_by_itself_is_a_conversation():
    assert Sample(user(TEXT)).params(E) == Sample([user(TEXT)]).params(E)


MISSING = "after the last message results are missing: a"


@pytest.mark.parametrize(
    ("messages", "fault"),
    [
        ([5], "a message is a text or has a role and content, unlike 5"),
        (5, "a message is a text or has a role and content, unlike 5"),
        (model(USE), MISSING),
        ([[]], "a message is a text or has a role and content"),
        ([{"content": TEXT}], r"messages\[0\]: .*`role`"),
        (["x", {"role": "system", "content": TEXT}], r"messages\[1\]: Invalid enum value 'system'"),
        ([{"role": "user", "content": 5}], r"messages\[0\]: Expected `object`, got `int`"),
        ([user(File("x", uri="x://a"))], r"messages\[0\]: Invalid value 'resource'"),
        ([user({"type": "smell"})], r"messages\[0\]: Invalid value 'smell'"),
        ([user({"type": "image", "data": ""})], r"messages\[0\]: .*`mimeType`"),
        ([model(USE)], MISSING),
        ([user(TEXT), model(USE), user(RESULT), model(USE)], MISSING),
        ([model(USE), user(TEXT)], r"messages\[1\] must have results .*: a"),
        ([model(USE, OTHER_USE), user(RESULT)], r"messages\[1\] must have results .*: a, b"),
        ([model(USE), user(RESULT, OTHER_RESULT)], r"messages\[1\] must have results .*: a"),
        ([user(RESULT)], r"messages\[0\] must have results .*: none"),
        ([model(USE), user(RESULT), user(RESULT)], r"messages\[2\] must have results .*: none"),
        ([model(USE), user(RESULT, TEXT)], r"messages\[1\]: beside the result of a tool"),
    ],
)
def test_what_is_no_conversation_is_the_authors_error(messages, fault):  # Y-3
    with pytest.raises(ValueError, match=fault):
        Sample(messages)


@pytest.mark.parametrize(
    "tool", [{}, "t", {"name": "t"}, {"name": "t", "inputSchema": True}, {"inputSchema": {}}]
)
def test_a_tool_that_is_not_described_is_the_authors_error(tool):
    with pytest.raises(ValueError, match="a tool is described as in tools/list"):
        Sample("x", tools=[tool])


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_a_model_uses_tools_until_it_has_said_all(revision, autojump_clock):
    tools = [{"name": "double", "inputSchema": {"type": "object"}}]

    async def agent(ctx):
        messages = ["How much is 2 * 3 * 2?"]
        while (said := await ctx.sample(messages, tools=tools)).tool_uses:
            results = [use.result(str(2 * use.input["n"])) for use in said.tool_uses]
            messages += [said, {"role": "user", "content": results}]
        return said.text

    async def answer(method, params):
        last = params["messages"][-1]["content"]
        if isinstance(last, list):
            told = [result["content"][0]["text"] for result in last]
            return {"role": "assistant", "content": {"type": "text", "text": " ".join(told)}, "model": "m"}
        uses = [{"type": "tool_use", "id": str(n), "name": "double", "input": {"n": n}} for n in (2, 3)]
        return {**model(*uses), "model": "m", "stopReason": "toolUse"}

    async with (
        interviewed(agent) as it,
        it.bus.connect(revision=revision, capabilities=EVERYTHING, on_input_request=answer) as client,
    ):
        await client.call_tool("ask")
        assert it.outcomes == ["4 6"]


DATED = {"audience": ["user"], "priority": 0.5, "lastModified": "2026-01-01T00:00:00Z"}
SAID = {**TEXT, "annotations": DATED, "_meta": {"a": 1}}
UNDATED = {**TEXT, "annotations": {"audience": ["user"], "priority": 0.5}}


@pytest.mark.parametrize(
    ("revision", "block", "meta"),
    [
        (A, UNDATED, {}),
        (B, UNDATED, {}),
        (C, SAID, {}),
        (D, SAID, {"_meta": {"b": 2}}),
        (E, SAID, {"_meta": {"b": 2}}),
    ],
)
def test_a_client_is_told_nothing_that_its_revision_does_not_have(revision, block, meta):  # R-8, L-19
    said = {"role": "user", "content": SAID, "_meta": {"b": 2}}
    assert sent([said], revision) == [{"role": "user", "content": block, **meta}]


def test_a_message_of_nothing_is_as_it_was():
    assert sent([user()], E) == [user()]
    assert sent([user()], C) == []
