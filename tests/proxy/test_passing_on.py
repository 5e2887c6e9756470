"""What clients get of a server that stands for another one: the same as of that, whatever the revisions on either side."""

import json

import pytest
import trio
from scripted import SAID, TOOLS, Scripted, in_a_second
from upstreams import ELICITATION, NEW, OLD, proxy_of, upstream, weather

from mcpbus import Context, ProtocolError, Server
from mcpbus.client import session
from mcpbus.protocol.meta import CLIENT_INFO
from mcpbus.protocol.revisions import REVISIONS
from mcpbus.testing import open_bus, open_client

UPSTREAMS = pytest.mark.parametrize("there", [OLD, NEW])
CLIENTS = pytest.mark.parametrize("here", REVISIONS)
BOTH = pytest.mark.parametrize("here", [OLD, NEW])


class Person:
    """Answers what is asked."""

    def __init__(self, answer="Ada"):
        self.asked = []
        self._answer = answer

    async def __call__(self, method, params):
        self.asked.append((method, params["message"]))
        if isinstance(self._answer, Exception):
            raise self._answer
        return {"action": "accept", "content": {"value": self._answer}}


async def transcript(client):
    """All that a client of a weather server can see."""
    said = []
    described = await client.describe()
    seen = {
        "server": (described.name, described.version, described.instructions),
        "identity": described.identity,
        "tools": await client.list_tools(),
        "prompts": await client.list_prompts(),
        "resources": await client.list_resources(),
        "templates": await client.list_resource_templates(),
        "call": await client.call_tool(
            "forecast",
            {"city": "Oslo"},
            on_notification=lambda method, params: said.append((method, {**params, "progressToken": 0})),
            log_level="info",
        ),
        "said": said,
        "prompt": await client.request("prompts/get", {"name": "pack", "arguments": {"city": "Oslo"}}),
        "read": await client.request("resources/read", {"uri": "data://cities"}),
        "read by template": await client.request("resources/read", {"uri": "data://Bergen/now"}),
        "completed": await client.request(
            "completion/complete",
            {
                "ref": {"type": "ref/prompt", "name": "pack"},
                "argument": {"name": "city", "value": "O"},
                "context": {"arguments": {"days": "3"}},
            },
        ),
    }
    for name, (method, params) in {
        "no such tool": ("tools/call", {"name": "none", "arguments": {}}),
        "no such prompt": ("prompts/get", {"name": "none"}),
        "no such resource": ("resources/read", {"uri": "data://Atlantis/now"}),
    }.items():
        with pytest.raises(ProtocolError) as raised:
            await client.request(method, params)
        seen[name] = raised.value.code
    seen["bad arguments"] = (
        await client.call_tool("forecast", {"town": "Oslo"}) if here_is_new(client) else None
    )
    return seen


def here_is_new(client):
    return client.revision.name >= OLD


@CLIENTS
async def test_a_client_sees_what_the_other_server_would_show_it(here, autojump_clock):
    async with open_client(weather(), revision=here) as client:
        direct = await transcript(client)
    there = NEW if here == NEW else OLD
    async with upstream(weather(), there) as reached, open_client(proxy_of(reached), revision=here) as client:
        assert await transcript(client) == direct


CITY = {"city": "Oslo"}
ASKED = {
    "tools/call": {"name": "who"},
    "prompts/get": {"name": "pack", "arguments": CITY},
    "resources/read": {"uri": "data://cities"},
}


async def answered(method, result, revision):
    """What a client gets where the other server answers with `result`."""
    async with upstream(weather(), revision) as reached:
        reached.results[method] = result
        async with open_client(proxy_of(reached), revision=revision) as client:
            return await client.request(method, ASKED[method])


@pytest.mark.parametrize(
    ("method", "result"),
    [
        ("tools/call", {"content": []}),
        ("tools/call", {"content": [], "structuredContent": {"n": 1}}),
        ("prompts/get", {"description": "What to pack.", "messages": []}),
        ("resources/read", {"contents": []}),
    ],
)
async def test_where_the_other_server_says_nothing_a_client_reads_nothing(method, result, autojump_clock):
    assert await answered(method, result, OLD) == result


async def test_a_prompt_is_described_as_its_server_does_it_this_time(autojump_clock):
    pack = {"role": "user", "content": {"type": "text", "text": "Pack an umbrella."}}
    said = {"description": "For Oslo.", "messages": [pack], "_meta": {"acme": [1, None]}}
    assert await answered("prompts/get", said, OLD) == said


async def test_a_prompt_has_no_description_where_its_server_sends_none_this_time(autojump_clock):
    pack = {"role": "user", "content": {"type": "text", "text": "Pack an umbrella."}}
    prompts = {"prompts": [{"name": "pack", "description": "That of the list."}]}
    scripted = Scripted(OLD, prompts_list=prompts, prompts_get={"messages": [pack]})
    async with open_client(scripted.proxy(), revision=OLD) as client:
        assert (await client.list_prompts())[0]["description"] == "That of the list."
        assert await client.request("prompts/get", {"name": "pack"}) == {"messages": [pack]}


@UPSTREAMS
async def test_that_there_is_no_such_resource_is_said_once(there, autojump_clock):
    async with upstream(weather(), there) as reached, open_client(proxy_of(reached), revision=OLD) as client:
        for message, told in {
            "Resource not found": "Resource not found: 'data://x/y/z'",
            "Unknown resource: data://x/y/z": "Resource not found: 'data://x/y/z'",
            "It sank": "Resource not found: 'data://x/y/z': It sank",
        }.items():
            reached.results["resources/read"] = ProtocolError(-32602, message)
            with pytest.raises(ProtocolError) as raised:
                await client.read_resource("data://x/y/z")
            assert (raised.value.code, raised.value.message) == (-32002, told)


async def test_what_a_server_leaves_out_may_be_null(autojump_clock):
    text = {"type": "text", "text": "rain"}
    nulls = {"content": [{**text, "annotations": None, "_meta": None}], "isError": None, "_meta": None}
    assert await answered("tools/call", nulls, OLD) == {"content": [text]}
    assert await answered("tools/call", {"content": None}, OLD) == {"content": []}
    contents = [{"uri": "data://cities", "text": None, "blob": "T3Nsbw==", "mimeType": None}]
    assert await answered("resources/read", {"contents": contents}, OLD) == {
        "contents": [{"uri": "data://cities", "blob": "T3Nsbw=="}]
    }


@pytest.mark.parametrize(
    "block",
    [
        {"type": "hologram", "data": 1},
        {"type": "image", "data": "AAE="},
        {"type": "resource", "resource": {"uri": "data://cities"}},
        "rain",
    ],
)
async def test_what_is_no_content_that_is_known_becomes_text_and_the_rest_stays(
    block, autojump_clock, caplog
):
    told, rest = (
        {"type": "text", "text": json.dumps(block, separators=(",", ":"))},
        {"type": "text", "text": "snow"},
    )
    assert await answered("tools/call", {"content": [block, rest]}, OLD) == {"content": [told, rest]}
    message = {"role": "user", "content": block}
    assert await answered("prompts/get", {"messages": [message]}, OLD) == {
        "messages": [{"role": "user", "content": told}]
    }
    assert "is no content block, and becomes text" in caplog.text.replace("upstream", "weather")


async def test_a_result_is_not_held_against_the_other_servers_schema(autojump_clock):
    unstructured = {"content": [{"type": "text", "text": "rain"}]}
    async with upstream(weather(), OLD) as reached:
        reached.results["tools/call"] = unstructured
        async with open_client(proxy_of(reached), revision=OLD) as client:
            assert "outputSchema" in (await client.list_tools())[0]
            assert await client.call_tool("forecast", CITY) == unstructured


@UPSTREAMS
@CLIENTS
async def test_what_is_said_in_a_call_is_said_in_that_and_before_its_result(here, there, autojump_clock):
    said = []
    async with upstream(weather(), there) as reached, open_client(proxy_of(reached), revision=here) as client:
        result = await client.call_tool(
            "forecast", {"city": "Oslo"}, on_notification=lambda *each: said.append(each), log_level="info"
        )
        said += client.notifications
        bus = reached.bus
    assert result["content"] == [{"type": "text", "text": '["rain","rain"]'}]
    assert [params.get("progress", params.get("data")) for _, params in said[:3]] == [
        1,
        2,
        "forecast for Oslo",
    ]
    assert said[3:] == [("notifications/acme", {"city": "Oslo"})]
    assert bus.statistics().pending == {}


@UPSTREAMS
@BOTH
@pytest.mark.parametrize("scoped", [True, False])
async def test_what_is_asked_in_a_call_is_asked_in_that(*, here, there, scoped, autojump_clock):
    person = Person()
    async with upstream(weather(), there) as reached:
        reached.scoped = scoped
        given = {"capabilities": ELICITATION, "on_input_request": person}
        async with open_client(proxy_of(reached), revision=here, **given) as client:
            result = await client.call_tool("ask", {"times": 3})
    assert result["content"][0]["text"] == "Ada Ada Ada"
    assert person.asked == [("elicitation/create", f"Question {n}?") for n in (1, 2, 3)]


@UPSTREAMS
@BOTH
async def test_what_is_asked_together_is_asked_together(here, there, autojump_clock):
    person = Person()
    async with upstream(weather(), there) as reached:
        given = {"capabilities": ELICITATION, "on_input_request": person}
        async with open_client(proxy_of(reached), revision=here, **given) as client:
            result = await client.call_tool("ask_twice_at_once")
            assert result["content"][0]["text"] == "Ada Ada"
            if here == there == NEW:
                rounds = client._ids  # the call, and one retry
                assert next(rounds) == 3
    assert sorted(message for _, message in person.asked) == ["A?", "B?"]


@UPSTREAMS
@BOTH
async def test_a_page_that_somebody_is_asked_to_visit_has_an_id_where_the_clients_revision_has_one(
    here, there, autojump_clock
):
    server, asked = Server("pages"), []

    @server.tool
    async def visit(ctx: Context) -> str:
        return type(await ctx.elicit_url("Please sign in.", "https://sign.in/here")).__name__

    async def answer(_method, params):
        asked.append(params)
        return {"action": "accept"}

    given = {"capabilities": {"elicitation": {"url": {}}}, "on_input_request": answer}
    async with (
        upstream(server, there) as reached,
        open_client(proxy_of(reached), revision=here, **given) as client,
    ):
        assert (await client.call_tool("visit"))["content"][0]["text"] == "AcceptedElicitation"
    [params] = asked
    assert bool(params.pop("elicitationId", None)) is (here == OLD)
    assert params == {"mode": "url", "message": "Please sign in.", "url": "https://sign.in/here"}


@BOTH
async def test_what_a_client_refuses_the_other_server_is_told(here, autojump_clock):
    person = Person(ProtocolError(-1, "not today", {"why": "rain"}))
    async with upstream(weather(), OLD) as reached:
        given = {"capabilities": ELICITATION, "on_input_request": person}
        async with open_client(proxy_of(reached), revision=here, **given) as client:
            with pytest.raises(ProtocolError, match="not today"):
                await client.call_tool("ask")


@UPSTREAMS
@BOTH
async def test_a_client_that_cannot_be_asked_is_not_asked(here, there, autojump_clock):
    async with upstream(weather(), there) as reached, open_client(proxy_of(reached), revision=here) as client:
        with pytest.raises(ProtocolError, match="elicitation"):
            await client.call_tool("ask")
        assert reached.declared == [{}] * len(reached.clients)


async def test_nobody_of_a_revision_without_forms_is_declared_to_fill_them_in(autojump_clock):
    given = {"capabilities": {"elicitation": {"url": {}}, "sampling": {"tools": {}}, "roots": {}, "acme": {}}}
    told = {}
    for here in REVISIONS:
        async with (
            upstream(weather(), OLD) as reached,
            open_client(proxy_of(reached), revision=here, **given) as client,
        ):
            await client.call_tool("who")
            told[here] = reached.declared[-1]
    before = {"sampling": {}, "roots": {}}
    assert told == {
        "2024-11-05": before,
        "2025-03-26": before,
        "2025-06-18": {"elicitation": {}, **before},
        "2025-11-25": {"elicitation": {"url": {}}, "sampling": {"tools": {}}, "roots": {}},
        "2026-07-28": {"elicitation": {"url": {}}, "sampling": {"tools": {}}, "roots": {}},
    }


@UPSTREAMS
@BOTH
async def test_a_call_that_its_client_cancels_is_cancelled_there(here, there, autojump_clock):
    server = weather()
    async with upstream(server, there) as reached, open_client(proxy_of(reached), revision=here) as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "hang")
            await server.begun.wait()
            nursery.cancel_scope.cancel()
        with trio.fail_after(1):
            await server.cancelled.wait()


@UPSTREAMS
@BOTH
async def test_what_a_client_says_of_its_call_is_passed_on_but_for_what_is_between_it_and_the_proxy(
    here, there, autojump_clock
):
    async with upstream(weather(), there) as reached, open_client(proxy_of(reached), revision=here) as client:
        meta = {
            "traceparent": "00-1-2-01",
            "acme/x": 1,
            "progressToken": "mine",
            "io.modelcontextprotocol/x": 1,
        }
        result = await client.request("tools/call", {"name": "meta", "arguments": {}, "_meta": meta})
    seen = result["content"][0]["text"]
    assert '"traceparent":"00-1-2-01"' in seen
    assert '"acme/x":1' in seen
    assert "mine" not in seen


@UPSTREAMS
@pytest.mark.parametrize(
    ("level", "heard"),
    [
        (None, []),
        ("warning", []),
        ("info", ["forecast for Oslo"]),
        ("debug", ["forecast for Oslo", "only for who wants to know"]),
    ],
)
async def test_a_client_gets_log_lines_of_the_level_that_it_wants(*, there, level, heard, autojump_clock):
    async with upstream(weather(), there) as reached, open_client(proxy_of(reached), revision=NEW) as client:
        lines = []
        await client.call_tool(
            "forecast",
            {"city": "Oslo"},
            on_notification=lambda method, params: (
                lines.append(params["data"]) if method.endswith("message") else None
            ),
            log_level=level,
        )
    assert lines == heard


@UPSTREAMS
async def test_a_session_gets_log_lines_of_the_level_that_it_sets(there, autojump_clock):
    async with upstream(weather(), there) as reached, open_client(proxy_of(reached), revision=OLD) as client:
        heard = {}
        for level in ("debug", "error", "info"):
            await client.request("logging/setLevel", {"level": level})
            lines = heard[level] = []
            await client.call_tool(
                "forecast",
                {"city": "x"},
                on_notification=lambda _, said: lines.append(said.get("data")),  # noqa: B023
            )
            lines[:] = [each for each in lines if each is not None]
    assert heard == {
        "debug": ["forecast for x", "only for who wants to know"],
        "error": [],
        "info": ["forecast for x"],
    }


async def test_what_the_proxy_says_of_itself_comes_first(autojump_clock):
    async with upstream(weather()) as reached:
        proxy = proxy_of(reached, name="mine", version="7", instructions="Mine.")
        async with open_client(proxy, revision=OLD) as client:
            described = await client.describe()
    assert (described.name, described.version, described.instructions) == ("mine", "7", "Mine.")
    assert described.identity == {"name": "mine", "version": "7", "title": "The weather"}


async def test_a_proxy_that_is_closed_offers_nothing_and_may_be_opened_again(autojump_clock):
    async with upstream(weather()) as reached:
        proxy = proxy_of(reached)
        for _ in range(2):
            async with open_client(proxy) as client:
                assert len(await client.list_tools()) == 7
            assert (len(proxy.features.tools), proxy.features.completers, proxy.features.unlisted) == (
                0,
                {},
                [],
            )
        assert reached.connected == 0


async def test_a_proxy_may_have_tools_of_its_own_which_come_before_those_of_its_name(autojump_clock, caplog):
    async with upstream(weather()) as reached:
        proxy = proxy_of(reached)

        @proxy.tool
        async def who() -> str:
            return "the proxy"

        async with open_client(proxy) as client:
            assert (await client.call_tool("who"))["content"][0]["text"] == "the proxy"
            assert len(await client.list_tools()) == 7
    assert "what upstream offers is left out: tool 'who' is registered already" in caplog.text


@BOTH
async def test_the_books_of_the_proxy_balance_when_all_is_said(here, autojump_clock):
    async with upstream(weather(), OLD) as reached, open_bus(proxy_of(reached)) as bus:
        async with bus.connect(revision=here) as client:
            for _ in range(3):
                await client.call_tool(
                    "forecast", {"city": "Oslo"}, on_notification=lambda *_: None, log_level="debug"
                )
        told = bus.statistics()
    assert told.pending == {}
    assert told.emitted == told.delivered + sum(told.discarded.values()) + told.refused


@pytest.mark.parametrize("here", [OLD, NEW])
async def test_what_is_asked_in_a_call_while_lists_are_looked_at_is_asked_in_that_call(here, autojump_clock):
    """A tool that adds another one, and then asks for something, on a connection that does not say what belongs to what."""
    answers = []

    def call(wire, request, _params):
        async def change_and_ask():
            wire.say("notifications/tools/list_changed")
            await trio.sleep(0.5)
            answers.append(await wire.ask("q"))
            wire.reply(request, SAID)

        wire.soon(change_and_ask)

    scripted = Scripted(OLD, tools_call=call, tools_list=in_a_second(TOOLS))

    async def answer(_method, _params):
        return {"action": "decline"}

    given = {"capabilities": ELICITATION, "on_input_request": answer}
    async with open_client(scripted.proxy(), revision=here, **given) as client:
        await client.call_tool("t")
    assert [answer.get("result") for answer in answers] == [{"action": "decline"}]


async def test_a_server_that_has_ended_its_session_is_told_again_which_log_lines_are_wanted(autojump_clock):
    def call(wire, request, _params):
        wire.say("notifications/message", {"level": "info", "data": "hello"}, within=request)
        return SAID

    scripted = Scripted(OLD, scoped=True, tools_call=call)
    async with open_client(scripted.proxy()) as client:
        for _ in range(2):
            await client.call_tool("t", log_level="info")
        assert scripted.asked("logging/setLevel") == [{"level": "info"}]
        scripted.wires[-1].client.unheard("the session has ended")
        await client.call_tool("t", log_level="info")
        assert scripted.asked("logging/setLevel") == [{"level": "info"}] * 2


@BOTH
async def test_the_meta_of_a_notification_is_passed_on(here, autojump_clock):
    meta = {"com.example/trace": [1, "two"]}

    def call(wire, request, params):
        token = params["_meta"]["progressToken"]
        for method, own in {
            "notifications/message": {"level": "info", "data": "hello", "logger": "acme"},
            "notifications/progress": {"progressToken": token, "progress": 1, "total": 2, "message": "half"},
            "notifications/acme": {"x": 1},
        }.items():
            wire.say(method, own | {"_meta": meta}, within=request)
        return SAID

    said = []
    async with open_client(Scripted(OLD, scoped=True, tools_call=call).proxy(), revision=here) as client:
        await client.call_tool("t", on_notification=lambda *each: said.append(each), log_level="info")
    assert [(method, params["_meta"]) for method, params in said] == [
        ("notifications/message", meta),
        ("notifications/progress", meta),
        ("notifications/acme", meta),
    ]
    assert said[0][1] == {"level": "info", "data": "hello", "logger": "acme", "_meta": meta}


TEXT = {"content": [{"type": "text", "text": "5"}]}
OBJECT = {"type": "object", "properties": {"a": {"type": "integer"}}}


@pytest.mark.parametrize("there", [OLD, NEW])
@pytest.mark.parametrize("here", [OLD, NEW])
@pytest.mark.parametrize(
    ("schema", "result", "seen"),
    [
        (None, {"content": []}, {"content": []}),
        (None, {"content": [], "isError": True}, {"content": [], "isError": True}),
        (None, {**TEXT, "structuredContent": {"a": 1}}, {**TEXT, "structuredContent": {"a": 1}}),
        (OBJECT, TEXT, TEXT),
        (OBJECT, {"content": []}, {"content": []}),
        (OBJECT, {**TEXT, "structuredContent": {"a": "x"}}, {**TEXT, "structuredContent": {"a": "x"}}),
        (OBJECT, {**TEXT, "structuredContent": [5]}, {OLD: TEXT, NEW: {**TEXT, "structuredContent": [5]}}),
    ],
)
async def test_a_result_is_passed_on_as_it_is_whatever_was_promised(
    *, here, there, schema, result, seen, autojump_clock, caplog
):
    [tool] = TOOLS["tools"]
    described = tool if schema is None else {**tool, "outputSchema": schema}
    scripted = Scripted(there, tools_call=result, tools_list={"tools": [described]})
    async with open_client(scripted.proxy(), revision=here) as client:
        got = await client.call_tool("t")
    assert {name: got[name] for name in got if name in {"content", "structuredContent", "isError"}} == (
        seen.get(here, seen)
    )
    assert caplog.records == []


@pytest.mark.parametrize("there", [OLD, NEW])
async def test_a_prompt_without_messages_and_a_resource_without_contents_are_passed_on_as_they_are(
    there, autojump_clock
):
    scripted = Scripted(
        there,
        prompts_list={"prompts": [{"name": "p"}]},
        prompts_get={"messages": []},
        resources_read={"contents": []},
    )
    async with open_client(scripted.proxy()) as client:
        assert await client.get_prompt("p") == []
        assert await client.read_resource("d://a") == []


@pytest.mark.parametrize("here", [OLD, NEW])
@pytest.mark.parametrize("there", [OLD, NEW])
@pytest.mark.parametrize("given", [None, {}, {"city": "Oslo"}])
async def test_a_prompt_is_asked_for_with_the_arguments_that_the_client_gave_if_any(
    *, here, there, given, autojump_clock
):
    scripted = Scripted(there, prompts_list={"prompts": [{"name": "p"}]}, prompts_get={"messages": []})
    async with open_client(scripted.proxy(), revision=here) as client:
        await client.request("prompts/get", {"name": "p", **({} if given is None else {"arguments": given})})
    [params] = scripted.asked("prompts/get")
    assert params.get("arguments", None) == given
    assert ("arguments" in params) is (given is not None)


@pytest.mark.parametrize("here", [OLD, NEW])
async def test_the_arguments_of_a_prompt_are_described_as_its_server_does(here, autojump_clock):
    takes = [
        {"name": "a", "required": False, "title": "A", "description": "the first"},
        {"name": "b", "required": True},
        {"name": "c"},
    ]
    scripted = Scripted(OLD, prompts_list={"prompts": [{"name": "p", "arguments": takes}]})
    async with open_client(scripted.proxy(), revision=here) as client:
        [prompt] = await client.list_prompts()
    assert prompt["arguments"] == takes


@pytest.mark.parametrize("here", [OLD, NEW])
@pytest.mark.parametrize("there", [OLD, NEW])
@pytest.mark.parametrize("wanted", [False, True])
async def test_progress_is_asked_for_where_the_client_asks_for_it(*, here, there, wanted, autojump_clock):
    scripted = Scripted(there)
    async with open_client(scripted.proxy(), revision=here) as client:
        await client.call_tool("t", on_notification=print if wanted else None)
    [params] = scripted.asked("tools/call")
    assert ("progressToken" in params.get("_meta", {})) is wanted


@pytest.mark.parametrize("there", [OLD, NEW])
async def test_a_tool_whose_calls_are_always_tasks_is_not_listed_and_the_log_has_the_reason(
    there, autojump_clock, caplog
):
    [tool] = TOOLS["tools"]
    task = {"name": "task", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "required"}}
    may = {"name": "may", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "optional"}}
    scripted = Scripted(there, tools_list={"tools": [tool, task, may]})
    async with open_client(scripted.proxy()) as client:
        assert [each["name"] for each in await client.list_tools()] == ["t", "may"]
    assert "tool 'task': its calls are tasks always, which are not passed on" in caplog.text


async def test_other_tasks_run_while_a_long_list_is_taken(autojump_clock, monkeypatch):
    monkeypatch.setattr("mcpbus.client.yielding.SLICE_SECONDS", 0.0)
    tools = [{"name": f"t{number}", "inputSchema": {"type": "object"}} for number in range(300)]
    turns = 0

    async def count():
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count)
        async with open_client(Scripted(OLD, tools_list={"tools": tools}).proxy()) as client:
            assert len(await client.list_tools()) == 300
        nursery.cancel_scope.cancel()
    assert turns >= 600  # while it is decoded, and while tools are made of it


def reject(wire, request, _params):
    """Reject a request as a server does that has no such method."""
    wire.refuse(request, -32601, "Method not found: logging/setLevel")


def leave(_wire, _request, _params):
    """Leave a request unanswered."""


@pytest.mark.parametrize("here", [OLD, NEW])
@pytest.mark.parametrize("answer", [reject, leave])
async def test_a_server_that_rejects_a_level_of_log_lines_gets_calls_all_the_same_and_is_not_asked_again(
    here, answer, autojump_clock
):
    scripted = Scripted(OLD, logging_setLevel=answer)
    async with open_client(scripted.proxy(), revision=here) as client:
        for level in ("debug", "info"):
            if here == OLD:
                await client.request("logging/setLevel", {"level": level})
            wanted = {} if here == OLD else {"log_level": level}
            assert (await client.call_tool("t", **wanted))["content"] == SAID["content"]
    assert scripted.asked("logging/setLevel") == [{"level": "debug"}]


async def test_a_server_is_asked_for_no_level_that_the_client_has_not_chosen(autojump_clock):
    scripted = Scripted(OLD)
    async with open_client(scripted.proxy(), revision=OLD) as client:
        await client.call_tool("t")
        assert scripted.asked("logging/setLevel") == []
        await client.request("logging/setLevel", {"level": "error"})
        await client.call_tool("t")
    assert scripted.asked("logging/setLevel") == [{"level": "error"}]


@pytest.mark.parametrize("there", [OLD, NEW])
@pytest.mark.parametrize("program", [False, True])
async def test_the_upstream_server_sees_the_name_of_the_client(there, program, autojump_clock, monkeypatch):
    named = {"name": "agent", "version": "7", "title": "An agent"}
    scripted = Scripted(there)
    async with scripted.proxy(program=program, introduces=True).open() as bus:
        monkeypatch.setattr(session, "INFO", named)
        async with bus.connect(revision=OLD) as client:
            await client.call_tool("t")
    if there == OLD:
        assert scripted.asked("initialize")[-1]["clientInfo"] == named
    else:
        [params] = scripted.asked("tools/call")
        assert params["_meta"][CLIENT_INFO] == named


@pytest.mark.parametrize("there", [OLD, NEW])
@pytest.mark.parametrize("method", ["resources/templates/list", "resources/list", "server/discover"])
async def test_lists_of_an_upstream_server_are_for_the_client_alone_that_asks(there, method, autojump_clock):
    """As the upstream server says: it may show each client others."""
    gateway = Server("gateway")
    gateway.mount(Scripted(there).proxy(), prefix="a")
    for server, scope in (
        (Server("plain"), "public"),
        (Scripted(there).proxy(), "private"),
        (gateway, "private"),
    ):
        server.resource("data://x")(lambda: "x")
        async with open_client(server) as client:
            assert (await client.request(method))["cacheScope"] == scope
