"""Each kind of question: what it needs of a client, what goes out, and what an answer means."""

from typing import Literal

import pytest

from mcpbus import Audio, Context, Server
from mcpbus.asking import (
    AcceptedElicitation,
    CancelledElicitation,
    DeclinedElicitation,
    Elicit,
    ElicitUrl,
    InputRequired,
    InvalidInputError,
    ListRoots,
    Root,
    Sample,
)
from mcpbus.features.input_requests.interface import InputRequests
from mcpbus.protocol.messages import ImageContent, TextContent
from mcpbus.protocol.revisions import REVISIONS
from mcpbus.testing import open_bus

A, B, C, D, E = REVISIONS.values()
FORM = Elicit("?", str)
URL = ElicitUrl("?", "https://a.example", "id-1")
SAMPLE = Sample("?")
TOOLS = Sample("?", tools=[{"name": "t", "inputSchema": {"type": "object"}}])
CHOICE = Sample("?", tool_choice={"mode": "auto"})
CONTEXT = Sample("?", include_context="thisServer")
USED = Sample(
    [
        {"role": "assistant", "content": {"type": "tool_use", "id": "u", "name": "t", "input": {}}},
        {"role": "user", "content": {"type": "tool_result", "toolUseId": "u", "content": []}},
    ]
)
SPOKEN = Sample(Audio(b"wav"))
SEVERAL = Elicit("?", list[Literal["a", "b"]])
BOTH = Sample("?", include_context="allServers", tools=[])
ROOTS = ListRoots()

NO_FORM = {"elicitation": {"form": {}}}
NO_URL = {"elicitation": {"url": {}}}
NO_SAMPLING = {"sampling": {}}
NO_TOOLS = {"sampling": {"tools": {}}}
NO_CONTEXT = {"sampling": {"context": {}}}
NOTHING = {}

LACKS = [
    # the question, what the client declares, and what it lacks in each revision
    (FORM, {}, [NO_FORM] * 5),
    (FORM, {"elicitation": {}}, [NO_FORM, NO_FORM, NOTHING, NOTHING, NOTHING]),
    (FORM, {"elicitation": {"form": {}}}, [NO_FORM, NO_FORM, NOTHING, NOTHING, NOTHING]),
    (FORM, {"elicitation": {"form": {}, "url": {}}}, [NO_FORM, NO_FORM, NOTHING, NOTHING, NOTHING]),
    (FORM, {"elicitation": {"url": {}}}, [NO_FORM] * 5),
    (FORM, {"elicitation": None}, [NO_FORM] * 5),
    (FORM, {"elicitation": True}, [NO_FORM] * 5),
    (URL, {}, [NO_URL] * 5),
    (URL, {"elicitation": {}}, [NO_URL] * 5),
    (URL, {"elicitation": {"form": {}}}, [NO_URL] * 5),
    (URL, {"elicitation": {"url": {}}}, [NO_URL, NO_URL, NO_URL, NOTHING, NOTHING]),
    (SAMPLE, {}, [NO_SAMPLING] * 5),
    (SAMPLE, {"sampling": {}}, [NOTHING] * 5),
    (SAMPLE, {"sampling": "yes"}, [NO_SAMPLING] * 5),
    (Sample("?", include_context="none"), {"sampling": {}}, [NOTHING] * 5),
    (TOOLS, {"sampling": {}}, [NO_TOOLS] * 5),
    (TOOLS, {"sampling": {"tools": {}}}, [NO_TOOLS, NO_TOOLS, NO_TOOLS, NOTHING, NOTHING]),
    (CHOICE, {"sampling": {"context": {}}}, [NO_TOOLS] * 5),
    (CHOICE, {"sampling": {"tools": {}}}, [NO_TOOLS, NO_TOOLS, NO_TOOLS, NOTHING, NOTHING]),
    # What the model is told of tools that it used before wants them as well.
    (USED, {"sampling": {}}, [NO_TOOLS] * 5),
    (USED, {"sampling": {"tools": {}}}, [NO_TOOLS, NO_TOOLS, NO_TOOLS, NOTHING, NOTHING]),
    # Before 2025-11-25 a client could not say that it takes context, and was free to ignore the wish.
    (CONTEXT, {"sampling": {}}, [NOTHING, NOTHING, NOTHING, NO_CONTEXT, NO_CONTEXT]),
    (CONTEXT, {"sampling": {"context": {}}}, [NOTHING] * 5),
    (BOTH, {"sampling": {"context": {}, "tools": {}}}, [NO_TOOLS, NO_TOOLS, NO_TOOLS, NOTHING, NOTHING]),
    (ROOTS, {}, [{"roots": {}}] * 5),
    (ROOTS, {"roots": {}}, [NOTHING] * 5),
    (ROOTS, {"roots": {"listChanged": True}}, [NOTHING] * 5),
    (ROOTS, {"roots": False}, [{"roots": {}}] * 5),
]


@pytest.mark.parametrize(("question", "declared", "lacking"), LACKS)
def test_what_a_client_lacks_in_each_revision(question, declared, lacking):  # E-2, E-3, L-18, Y-1, Y-2, Y-4
    found = [question.lacks(declared, revision) for revision in REVISIONS.values()]
    assert found == lacking


@pytest.mark.parametrize(
    ("question", "foreign"),
    [
        (FORM, ["elicitation", "elicitation", None, None, None]),
        (URL, ["elicitation by URL"] * 3 + [None, None]),
        (SAMPLE, [None] * 5),
        (CONTEXT, [None] * 5),
        (TOOLS, ["tools in sampling"] * 3 + [None, None]),
        (CHOICE, ["tools in sampling"] * 3 + [None, None]),
        (USED, ["tools in sampling"] * 3 + [None, None]),
        (SPOKEN, ["audio in sampling"] + [None] * 4),
        (SEVERAL, ["elicitation", "elicitation", "lists in forms", None, None]),
        (ROOTS, [None] * 5),
    ],
)
def test_what_a_revision_does_not_have(question, foreign):  # E-1, E-4, Y-2
    assert [question.foreign(revision) for revision in REVISIONS.values()] == foreign


@pytest.mark.parametrize("revision", [D, E])
def test_all_that_is_lacking_is_told_at_once(revision):
    assert BOTH.lacks({}, revision) == {"sampling": {"tools": {}, "context": {}}}


def test_an_elicitation_by_url_has_an_id_in_2025_11_25_alone():  # E-12
    url = {"mode": "url", "message": "?", "url": "https://a.example"}
    assert URL.params(D) == {**url, "elicitationId": "id-1"}
    assert URL.params(E) == url


def test_ids_of_elicitations_by_url_are_made_and_differ():
    ids = {ElicitUrl("?", "https://a.example").elicitation_id for _ in range(100)}
    assert len(ids) == 100
    assert min(map(len, ids)) >= 16


@pytest.mark.parametrize(
    "url",
    [
        "",
        "pay",
        "/pay?id=1",
        "//a.example/pay",
        "https://a.example/a b",
        "https://a.example/%zz",
        " https://a.example",
    ],
)
def test_a_page_that_no_client_could_open_is_the_authors_error(url):
    with pytest.raises(ValueError, match=r"ElicitUrl: .* (is not an absolute URI|holds characters)"):
        ElicitUrl("?", url)


def test_a_page_has_any_url_that_is_one():
    assert (
        ElicitUrl("?", "https://a.example/it's?b=(c)&d=%27#e").params(E)["url"]
        == "https://a.example/it's?b=(c)&d=%27#e"
    )


def test_a_sample_sends_what_was_given_and_no_more():  # Y-5
    assert Sample("Hi", max_tokens=5).params(E) == {
        "messages": [{"role": "user", "content": {"type": "text", "text": "Hi"}}],
        "maxTokens": 5,
    }
    given = {
        "messages": [{"role": "user", "content": {"type": "text", "text": "Hi"}}],
        "max_tokens": 1,
        "system_prompt": "s",
        "temperature": 0.0,
        "stop_sequences": ["."],
        "include_context": "none",
        "model_preferences": {"hints": [{"name": "m"}]},
        "metadata": {"k": 1},
        "tools": [],
        "tool_choice": {"mode": "none"},
    }
    assert Sample(**given).params(E) == {
        "messages": given["messages"],
        "maxTokens": 1,
        "systemPrompt": "s",
        "temperature": 0.0,
        "stopSequences": ["."],
        "includeContext": "none",
        "modelPreferences": {"hints": [{"name": "m"}]},
        "metadata": {"k": 1},
        "tools": [],
        "toolChoice": {"mode": "none"},
    }


@pytest.mark.parametrize("question", [FORM, URL])
@pytest.mark.parametrize(
    ("answer", "read"),
    [
        ({"action": "decline"}, DeclinedElicitation()),
        ({"action": "cancel"}, CancelledElicitation()),
        ({"action": "decline", "content": {"value": 1}}, DeclinedElicitation()),
        ({"action": "cancel", "_meta": {"x": 1}}, CancelledElicitation()),
    ],
)
def test_a_user_may_refuse(question, answer, read):
    assert question.read(answer) == read


def test_an_accepted_form_has_its_value_and_an_accepted_page_none():
    assert FORM.read({"action": "accept", "content": {"value": "x"}}) == AcceptedElicitation("x")
    assert URL.read({"action": "accept"}) == AcceptedElicitation(None)
    assert URL.read({"action": "accept", "content": {"ignored": 1}}) == AcceptedElicitation(None)


SAMPLED = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "yo"}}


def test_one_block_of_a_sample_is_a_list_of_one():
    sampled = SAMPLE.read({**SAMPLED, "stopReason": "endTurn"})
    assert (sampled.content, sampled.text, sampled.model) == ([TextContent("yo")], "yo", "m")
    assert sampled.stop_reason == "endTurn"


def test_a_sample_may_have_several_blocks_of_several_kinds():
    image = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
    use = {"type": "tool_use", "id": "u1", "name": "t", "input": {"a": 1}}
    result = {"type": "tool_result", "toolUseId": "u1", "content": []}
    text = {"type": "text", "text": "b"}
    sampled = TOOLS.read({**SAMPLED, "content": [text, image, use, result, text], "stopReason": "toolUse"})
    assert sampled.text == "bb"
    assert isinstance(sampled.content[1], ImageContent)
    assert (sampled.content[2].name, sampled.content[2].input) == ("t", {"a": 1})
    assert sampled.content[3].tool_use_id == "u1"


def test_roots_are_read_with_and_without_names():
    answer = {"roots": [{"uri": "file:///a", "name": "A"}, {"uri": "file:///b"}]}
    assert ROOTS.read(answer) == [Root("file:///a", "A"), Root("file:///b")]


@pytest.mark.parametrize(
    "questions", [[FORM], FORM, None, {"a": "x"}, {"a": Elicit}, {1: FORM}, {None: FORM}]
)
async def test_what_is_no_question_is_the_authors_error(questions):
    for ask in (InputRequired, lambda asked: InputRequests.ask_all(None, asked)):
        with pytest.raises(
            TypeError, match=r"questions are given by key|one of Elicit, ElicitUrl, Sample and ListRoots"
        ):
            await ask(questions)


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"timeout": "5"}, "what is asked: timeout is a number, not '5'"),
        ({"key": 3}, "what is asked: key is a text, and this is of type int"),
    ],
)
async def test_what_is_asked_with_something_of_another_kind_is_refused(revision, given, told):
    server = Server("s", version="1")

    @server.tool
    async def ask(ctx: Context) -> str:
        with pytest.raises(TypeError) as refused:
            await ctx.elicit("?", str, **given)
        return str(refused.value)

    able = {"elicitation": {}}
    async with open_bus(server) as bus, bus.connect(revision=revision, capabilities=able) as client:
        assert (await client.call_tool("ask"))["content"][0]["text"] == told


INVALID = [
    *[(question, answer) for question in (FORM, URL, SAMPLE, ROOTS) for answer in (None, 1, "x", [], {})],
    (FORM, {"action": "maybe"}),
    (FORM, {"action": "accept"}),
    (FORM, {"action": "accept", "content": []}),
    (FORM, {"action": "accept", "content": {"value": 1}}),
    (URL, {"action": "accept", "content": "x"}),
    (SAMPLE, {**SAMPLED, "role": "god"}),
    (SAMPLE, {**SAMPLED, "content": "yo"}),
    (SAMPLE, {**SAMPLED, "content": {"type": "smell"}}),
    (SAMPLE, {"role": "assistant", "content": SAMPLED["content"]}),
    (ROOTS, {"roots": None}),
    (ROOTS, {"roots": [{"name": "no uri"}]}),
]


@pytest.mark.parametrize(("question", "answer"), INVALID)
def test_an_answer_of_the_wrong_form_is_refused(question, answer):
    with pytest.raises(InvalidInputError, match="The client's answer cannot be used: "):
        question.read(answer)
