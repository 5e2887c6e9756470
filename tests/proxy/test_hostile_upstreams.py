"""Other servers that are broken, or mean it: what they say harms nobody but who called them."""

from contextlib import suppress

import msgspec
import pytest
import trio
from scripted import SAID, Scripted
from upstreams import NEW, OLD

from mcpbus import ProtocolError
from mcpbus.testing import open_client
from mcpbus.upstream.target import UpstreamError

ANY = [None, True, 5, "x", [], [1], {}, {"x": 1}]


@pytest.mark.parametrize("there", [OLD, NEW])
@pytest.mark.parametrize("name", [None, "tools", "prompts", "resources", "logging"])
async def test_capabilities_may_be_anything(there, name, autojump_clock):
    for odd in ANY:
        scripted = Scripted(there, capabilities=odd if name is None else {"tools": {}, name: odd})
        async with open_client(scripted.proxy(optional=True), revision=OLD) as client:
            for method, params in (
                ("logging/setLevel", {"level": "debug"}),
                ("resources/subscribe", {"uri": "d://a"}),
            ):
                with suppress(ProtocolError):
                    await client.request(method, params)
            if name is not None:
                assert (await client.call_tool("t"))["content"] == SAID["content"]


ODD_NOTIFICATIONS = [
    ("notifications/cancelled", {"requestId": 99}),
    ("notifications/initialized", {}),
    ("notifications/tasks", {"taskId": "1"}),
    ("notifications/resources/updated", {"uri": 5}),
    ("notifications/elicitation/complete", {}),
    ("notifications/roots/list_changed", {}),
    ("notifications/message", {"level": "loud", "data": 1}),
    ("notifications/message", {"level": ["info"]}),
    ("notifications/progress", {"progress": "half"}),
    ("notifications/progress", {"progress": 10**400}),
    ("acme", {"a": 1}),
    ("", {}),
]


@pytest.mark.parametrize("there", [OLD, NEW])
@pytest.mark.parametrize("scoped", [False, True])
@pytest.mark.parametrize(("method", "params"), ODD_NOTIFICATIONS)
async def test_what_no_server_says_is_dropped_and_the_call_goes_on(
    *, there, scoped, method, params, autojump_clock
):
    """The first is no more than a question that was withdrawn as its answer was on its way."""

    def call(wire, request, asked):
        token = {"progressToken": asked["_meta"]["progressToken"]}
        for within in (request, None):
            wire.say(method, params | (token if "progress" in params else {}), within=within)
        return SAID

    scripted = Scripted(there, scoped=scoped, tools_call=call)
    async with open_client(scripted.proxy(), revision=OLD) as client:
        said = []
        result = await client.call_tool("t", on_notification=lambda *each: said.append(each))
        assert (result["content"], said, [*client.notifications]) == (SAID["content"], [], [])


@pytest.mark.parametrize(
    "result",
    [
        {"resultType": "task", "task": {"taskId": "1"}},
        {"resultType": "acme"},
        {"resultType": 5},
        {"content": 5},
        {"content": [], "isError": "yes"},
        {"content": [], "_meta": 5},
        [],
        5,
    ],
)
async def test_what_is_no_result_fails_its_call_and_the_next_one_works(result, autojump_clock, caplog):
    scripted = Scripted(NEW, tools_call=result)
    async with open_client(scripted.proxy()) as client:
        with pytest.raises(ProtocolError, match=r"answers is no result|did not answer"):
            await client.call_tool("t")
        assert "Traceback" not in caplog.text
        scripted.answers["tools_call"] = SAID
        assert (await client.call_tool("t"))["content"] == SAID["content"]


@pytest.mark.parametrize(
    "block",
    [{"type": "smell"}, {"type": "text"}, {"type": "image", "data": 5, "mimeType": "image/png"}, 5, None],
)
async def test_what_is_no_block_is_passed_on_as_text(block, autojump_clock, caplog):
    scripted = Scripted(NEW, tools_call={"resultType": "complete", "content": [block]})
    async with open_client(scripted.proxy()) as client:
        (passed_on,) = (await client.call_tool("t"))["content"]
    assert (passed_on["type"], msgspec.json.decode(passed_on["text"])) == ("text", block)
    assert "is no content block, and becomes text" in caplog.text


def nothing(_wire, _request, _params):
    """Leave a request unanswered."""


LISTS = ["tools_list", "prompts_list", "resources_list", "resources_templates_list"]
SILENCES = [
    (OLD, "initialize"),
    (NEW, "server_discover"),
    *((there, each) for there in (OLD, NEW) for each in LISTS),
]


@pytest.mark.parametrize(("there", "silent"), SILENCES)
async def test_a_server_that_falls_silent_is_not_waited_for_without_end(there, silent, autojump_clock):
    scripted = Scripted(there, **{silent: nothing})
    began = trio.current_time()
    with pytest.raises(UpstreamError, match=r"upstream cannot be reached: .* within 30 s"):
        async with scripted.proxy().open():
            pass
    assert trio.current_time() - began == pytest.approx(30)
    async with open_client(scripted.proxy(optional=True)) as client:
        assert trio.current_time() - began == pytest.approx(31.5)
        scripted.answers |= Scripted().answers
        await trio.sleep(60)
        assert [tool["name"] for tool in await client.list_tools()] == ["t"]


async def test_a_connection_that_does_not_open_is_not_waited_for_by_who_comes_later(autojump_clock):
    scripted = Scripted(OLD)
    async with open_client(scripted.proxy(), revision=OLD) as client:
        initialize, scripted.answers["initialize"] = scripted.answers["initialize"], nothing
        with pytest.raises(ProtocolError, match="did not answer"):
            await client.call_tool("t")
        scripted.answers["initialize"] = initialize
        await trio.sleep(1)
        assert (await client.call_tool("t"))["content"] == SAID["content"]


@pytest.mark.parametrize("here", [OLD, NEW])
@pytest.mark.parametrize("there", [OLD, NEW])
@pytest.mark.parametrize(
    ("declared", "method", "params"),
    [
        ({}, "elicitation/create", {"message": "?"}),
        ({}, "sampling/createMessage", {}),
        ({}, "roots/list", {}),
        ({"elicitation": {}}, "elicitation/create", {"message": "?", "mode": "url"}),
        ({"elicitation": {}}, "elicitation/create", {"message": "?", "mode": [5]}),
        ({"sampling": {}}, "sampling/createMessage", {"tools": []}),
        ({"elicitation": {}}, "acme/ask", {}),
    ],
)
async def test_what_a_client_did_not_declare_it_is_not_asked(
    *, here, there, declared, method, params, autojump_clock
):
    asked, answers = [], []

    def call(wire, request, _params):
        if wire.client.revision.name == NEW:
            return {
                "resultType": "input_required",
                "inputRequests": {"q": {"method": method, "params": params}},
            }

        async def ask():
            answers.append(await wire.ask("q", method, **params))
            wire.refuse(request, -32000, "cannot be asked")

        wire.soon(ask)
        return None

    async def answer(*question):
        asked.append(question)
        return {}

    scripted = Scripted(there, tools_call=call)
    given = {"capabilities": declared, "on_input_request": answer}
    async with open_client(scripted.proxy(), revision=here, **given) as client:
        with pytest.raises(ProtocolError, match=r"cannot be asked|declare"):
            await client.call_tool("t")
    assert asked == []
    assert all("error" in each for each in answers)


@pytest.mark.parametrize("code", [-32020, -32022])
async def test_what_is_wrong_between_proxy_and_server_is_not_told_to_a_client_who_would_call_again(
    code, autojump_clock
):
    scripted = Scripted(NEW, tools_call=lambda wire, request, _: wire.refuse(request, code, "no"))
    async with open_client(scripted.proxy()) as client:
        with pytest.raises(ProtocolError, match="did not answer"):
            await client.call_tool("t")
        scripted.answers["tools_call"] = lambda wire, request, _: wire.refuse(request, -32021, "no")
        with pytest.raises(ProtocolError, match="no") as refused:
            await client.call_tool("t")
        assert refused.value.code == -32021


async def test_no_server_writes_lines_of_the_log(autojump_clock, caplog):
    text = "no\n2026-01-01 ERROR mcpbus: all is lost\x1b[2J" + "!" * 100_000

    def refuse(wire, request, _params):
        wire.refuse(request, -32603, text)

    methods = ("initialize", "tools_list", "resources_subscribe")
    for method in methods:
        scripted = Scripted(OLD, **{method: refuse})
        async with open_client(scripted.proxy(optional=True), revision=OLD) as client:
            await client.request("resources/subscribe", {"uri": "d://a"})
            with suppress(ProtocolError):
                await client.call_tool("t")
    told = [record.getMessage() for record in caplog.records]
    assert len(told) >= len(methods)
    assert all(each.isprintable() and len(each) < 2_000 for each in told)
