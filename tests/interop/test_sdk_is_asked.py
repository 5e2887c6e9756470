"""The official SDK's client is asked: by requests up to 2025-11-25, by `input_required` results since."""

import json
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from mcp import Client, MCPError, types
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from sdk_client import DEADLINE, MODERN, REVISIONS, TOLERATED, connected, served, stdio_program

from tests.typescript.asking_server import make_server

pytestmark = TOLERATED

FORMS = {"2025-06-18", "2025-11-25", MODERN}
NEW = {"2025-11-25", MODERN}
WHO = 'accepted {"name":"Ada","age":36,"size":"large"}'
ADA = types.ElicitResult(action="accept", content={"name": "Ada", "age": 36, "size": "large"})
ABLE = types.ClientCapabilities(
    elicitation=types.ElicitationCapability(
        form=types.FormElicitationCapability(), url=types.UrlElicitationCapability()
    ),
    sampling=types.SamplingCapability(tools=types.SamplingToolsCapability()),
    roots=types.RootsCapability(),
)


class User:
    """Answers what a client is asked, and notes it."""

    def __init__(self):
        self.asked = []
        self.answers = []
        self.has_model = True
        self.waiting = trio.Event()
        self.gone = trio.Event()

    async def elicit(self, _context, params):
        self.asked.append(params)
        if not self.answers:
            self.waiting.set()
            try:
                await trio.sleep_forever()
            finally:
                self.gone.set()
        return self.answers.pop(0)

    async def sample(self, _context, params):
        if not self.has_model:
            return types.ErrorData(code=-32000, message="no model at hand")
        self.asked.append(params)
        if params.tools:
            use = types.ToolUseContent(type="tool_use", id="use-1", name="weather", input={"city": "Bern"})
            return types.CreateMessageResultWithTools(
                role="assistant", model="m-1", stop_reason="toolUse", content=[use]
            )
        content = types.TextContent(type="text", text="Lima")
        return types.CreateMessageResult(
            role="assistant", model="m-1", stop_reason="endTurn", content=content
        )

    async def list_roots(self, _context):
        return types.ListRootsResult(roots=[types.Root(uri="file:///home/ada", name="Home")])


@attrs.frozen
class Asked:
    """A connected client, and who answers for it."""

    client: object
    user: User
    revision: str

    async def text(self, tool, **options):
        (block,) = (await self.client.call_tool(tool, {}, **options)).content
        return block.text

    async def refused(self, tool):
        with pytest.raises(MCPError) as caught:
            await self.client.call_tool(tool, {})
        assert caught.value.code == (-32021 if self.revision == MODERN else -32603)
        assert self.user.asked == []


@asynccontextmanager
async def target(transport):
    """What a client connects to, for either of the SDK's clients."""
    if transport == "stdio":
        program = stdio_program("-m", "tests.typescript.asking_server")
        yield program, lambda: stdio_client(program)
    else:
        async with served(make_server()) as server:
            yield server.url, lambda: streamable_http_client(server.url)


@asynccontextmanager
async def asked(transport, revision, *, able=True):
    user = User()
    callbacks = {
        "elicitation_callback": user.elicit,
        "sampling_callback": user.sample,
        "list_roots_callback": user.list_roots,
    }
    with trio.fail_after(DEADLINE):
        async with target(transport) as (where, open_streams):
            if revision != MODERN:
                # The session of the SDK offers no revision but its latest one; what it answers is the same in all.
                declared = ABLE if able else None
                streams = open_streams()
                async with connected(
                    transport, streams, revision, capabilities=declared, **callbacks
                ) as link:
                    yield Asked(link.session, user, revision)
            else:
                options = callbacks | {"sampling_capabilities": ABLE.sampling} if able else {}
                async with Client(where, mode=MODERN, **options) as client:
                    yield Asked(client, user, revision)


async def a_user(it):
    if it.revision not in FORMS:
        await it.refused("ask_person")
        return
    it.user.answers = [ADA, types.ElicitResult(action="decline"), types.ElicitResult(action="cancel")]
    assert await it.text("ask_person") == WHO
    assert await it.text("ask_person") == "declined"
    assert await it.text("ask_person") == "cancelled"
    form = it.user.asked[0]
    assert form.message == "Who are you?"
    assert list(form.requested_schema["properties"]) == ["name", "age", "size"]
    assert form.requested_schema["required"] == ["name"]


async def a_page(it):
    if it.revision not in NEW:
        await it.refused("ask_page")
        return
    it.user.answers = [types.ElicitResult(action="accept")]
    assert await it.text("ask_page") == "accepted null"
    assert (it.user.asked[0].mode, it.user.asked[0].url) == ("url", "https://sign.in/here")


async def a_model(it):
    assert await it.text("ask_model") == "m-1 says Lima and stops at endTurn"
    assert (it.user.asked[0].max_tokens, it.user.asked[0].system_prompt) == (7, "Be brief.")


async def a_model_with_tools(it):
    if it.revision not in NEW:
        await it.refused("ask_model_with_tools")
        return
    [use] = json.loads(await it.text("ask_model_with_tools"))
    assert (use["type"], use["id"], use["name"]) == ("tool_use", "use-1", "weather")


async def roots(it):
    assert await it.text("ask_roots") == "Home: file:///home/ada"


async def several_at_once_then_one_more(it):
    if it.revision not in FORMS:
        return
    it.user.answers = [ADA, types.ElicitResult(action="decline")]
    assert await it.text("ask_everything") == f"{WHO}, Lima, 1, declined"
    assert len(it.user.asked) == 3


async def prompts_and_resources(it):
    if it.revision not in FORMS:
        return
    it.user.answers = [ADA, ADA]
    prompt = await it.client.get_prompt("introduce")
    assert prompt.messages[0].content.text == f"This is {WHO}"
    resource = await it.client.read_resource("user://current")
    assert resource.contents[0].text == WHO


async def an_error_of_the_clients(it):
    it.user.has_model = False
    with pytest.raises(MCPError, match="no model at hand"):
        await it.client.call_tool("ask_model", {})
    it.user.has_model = True
    await a_model(it)


CHECKS = [
    a_user,
    a_page,
    a_model,
    a_model_with_tools,
    roots,
    several_at_once_then_one_more,
    prompts_and_resources,
    an_error_of_the_clients,
]
everywhere = pytest.mark.parametrize("transport", ["http", "stdio"])


@pytest.mark.parametrize("revision", REVISIONS)
@everywhere
async def test_a_client_is_asked(transport, revision):
    async with asked(transport, revision) as it:
        for check in CHECKS:
            it.user.asked.clear()
            await check(it)


@pytest.mark.parametrize("revision", REVISIONS)
@everywhere
async def test_a_client_that_declared_nothing_is_asked_nothing(transport, revision):
    async with asked(transport, revision, able=False) as it:
        for tool in ("ask_person", "ask_page", "ask_model", "ask_model_with_tools", "ask_roots"):
            await it.refused(tool)


@everywhere
@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25"])
async def test_a_call_that_is_cancelled_takes_its_question_with_it(transport, revision):
    """The callback that still waits for its user is cancelled by the server's notification."""
    async with asked(transport, revision) as it:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(it.client.call_tool, "ask_until_cancelled", {})
            await it.user.waiting.wait()
            nursery.cancel_scope.cancel()
        await it.user.gone.wait()
        assert await it.text("question_ended") == "true"
