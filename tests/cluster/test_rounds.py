"""Rounds of calls whose process has ended: each is used once, in whatever process."""

import pytest
from several import kill, open_buses, quiet
from test_forwarding import ANSWER, FORM, text

from mcpbus import Context, Elicit, InputRequired, Server
from mcpbus.testing import MemoryDirectory

DECLARED = {"elicitation": {}}


def make(ran):
    """A server that asks, and notes what runs after the answer."""
    server = Server("rounds")

    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("who?", FORM, key="who")
        ran.append("asked")
        return answer.data["name"]

    server.add_tool(ask, name="anew", replay=True)
    server.add_tool(ask, name="once")

    @server.tool
    async def in_two(ctx: Context) -> str | InputRequired:
        if ctx.round_state is None:
            return InputRequired({"who": Elicit("who?", FORM)}, state=1)
        ran.append("second")
        return (await ctx.elicit("who?", FORM, key="who")).data["name"]

    return server


async def ask(probe, name):
    """Call a tool, and return the request that brings the answer back."""
    params = {"name": name, "arguments": {}}
    asked = (await probe.request("tools/call", params, capabilities=DECLARED).reply())["result"]
    return {**params, "inputResponses": {"who": ANSWER}, "requestState": asked["requestState"]}


async def retry(probe, params):
    """Bring an answer; returns what is said after it, or the error's code."""
    reply = (await probe.request("tools/call", params, capabilities=DECLARED).ended()).messages[0]
    return text(reply) if "result" in reply else reply["error"]["code"]


@pytest.mark.parametrize(
    ("name", "said", "runs"),
    [("anew", ["Ada", -32602], 1), ("once", [-32602] * 2, 0), ("in_two", ["Ada", -32602], 1)],
)
async def test_a_call_whose_process_has_ended_is_run_anew_at_most_once(name, said, runs, autojump_clock):
    ran, directory = [], MemoryDirectory()
    async with open_buses(lambda: make(ran), 3, directory=directory) as (buses, probes):
        params = await ask(probes[0], name)
        await kill(buses[0], directory)
        assert [await retry(probe, params) for probe in probes[1:]] == said
        assert len(ran) == runs


@pytest.mark.parametrize("name", ["anew", "once", "in_two"])
async def test_a_round_that_was_used_before_its_process_ended_is_used_up(name, autojump_clock):
    ran, directory = [], MemoryDirectory()
    async with open_buses(lambda: make(ran), directory=directory) as (buses, probes):
        params = await ask(probes[0], name)
        assert await retry(probes[0], params) == "Ada"
        await quiet(buses)
        await kill(buses[0], directory)
        assert await retry(probes[1], params) == -32602
        assert len(ran) == 1


async def test_a_round_can_be_used_later_where_it_is_not_known_whether_it_was(autojump_clock, monkeypatch):
    ran, directory = [], MemoryDirectory()
    async with open_buses(lambda: make(ran), directory=directory) as (_, probes):
        params = await ask(probes[0], "in_two")

        async def fail(*_):
            raise OSError("down")

        with monkeypatch.context() as patch:
            patch.setattr(directory, "claim_round", fail)
            assert await retry(probes[0], params) == -32603
        assert ran == []
        assert await retry(probes[0], params) == "Ada"
