"""A hosted server that returns an `InputRequiredResult` of its own, and calls `ctx.elicit`: in one tool each, and in one tool together."""

import pytest
from hosted_clients import hosted, said_in
from mcp.server.mcpserver import Context, MCPServer
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult
from pydantic import BaseModel

from mcpbus import ProtocolError
from tests.hosting.fixtures import LEGACY, MODERN

pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")


class Name(BaseModel):
    name: str


SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}}
QUESTION = ElicitRequest(params=ElicitRequestFormParams(message="By hand?", requested_schema=SCHEMA))


def by_hand(ctx: Context) -> str | InputRequiredResult:
    """The response of the client to a question of the author's own; the question as long as there is none."""
    response = (ctx.input_responses or {}).get("own")
    if not isinstance(response, ElicitResult):
        return InputRequiredResult(input_requests={"own": QUESTION}, request_state="the author's")
    assert ctx.request_state == "the author's"
    return str(response.content["name"])


async def by_elicit(ctx: Context) -> str:
    return (await ctx.elicit("By elicit?", Name)).data.name


def make():
    mcp = MCPServer("rounds")

    @mcp.tool()
    async def own(ctx: Context) -> str | InputRequiredResult:
        return by_hand(ctx)

    @mcp.tool()
    async def elicit(ctx: Context) -> str:
        return await by_elicit(ctx)

    @mcp.tool()
    async def own_first(ctx: Context) -> str | InputRequiredResult:
        name = by_hand(ctx)
        return name if isinstance(name, InputRequiredResult) else f"{name} {await by_elicit(ctx)}"

    @mcp.tool()
    async def elicit_first(ctx: Context) -> str | InputRequiredResult:
        asked = await by_elicit(ctx)
        name = by_hand(ctx)
        return name if isinstance(name, InputRequiredResult) else f"{asked} {name}"

    return mcp


@pytest.mark.parametrize(
    ("tool", "asked", "text"),
    [
        ("own", 1, "Ada"),
        ("elicit", 1, "Ada"),
        ("own_first", 2, "Ada Ada"),
        # The retry of the author's own round runs the tool from its beginning, as the SDK does: it elicits again.
        ("elicit_first", 3, "Ada Ada"),
    ],
)
async def test_both_ways_to_ask_work_in_one_server_and_in_one_tool(loop, tool, asked, text):
    async with hosted(make(), MODERN, loop) as client:
        assert (await said_in(client, tool))[0] == text
        assert len(client.person.asked) == asked
        assert len(client.bus.parked_calls) == 0


async def test_a_legacy_client_gets_elicitations_and_an_error_for_a_result_that_its_revision_lacks(loop):
    async with hosted(make(), LEGACY, loop) as client:
        assert (await said_in(client, "elicit"))[0] == "Ada"
        for tool in ("own", "elicit_first"):
            with pytest.raises(ProtocolError, match="Handler returned an invalid result") as refused:
                await client.call_tool(tool)
            assert refused.value.code == -32603
