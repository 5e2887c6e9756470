"""A backend that has no features: what answers need not be what an author registered with decorators."""

import json
from contextlib import asynccontextmanager

import pytest
from staging import settle

from mcpbus import Limits, Server
from mcpbus.bus import Bus
from mcpbus.core.hub import open_hub
from mcpbus.core.session import Stage
from mcpbus.protocol.messages import SubscriptionFilter
from mcpbus.testing import open_probe


class Echo:
    """Answers with what was asked."""

    replayable = False
    rounds = False
    task_support = None

    async def run(self, call):
        return json.dumps({"asked": json.loads(bytes(call.context.request.params))}).encode()


class Acme:
    """Answers two methods of its own, and nothing else."""

    registers = True

    def __init__(self):
        self.seen = []

    def offers(self, method, era):
        return method in {"acme/echo", "acme/now", "subscriptions/listen"}

    def mirrored_parameters(self, tool, principal):
        return ()

    def may_wait(self, method, name, era):
        return method == "acme/echo"

    def begin(self, context):
        match context.request.method:
            case "acme/echo":
                return Echo()
            case "acme/now":
                return b'{"now":1}'
        return None

    def initialize(self, revision, session):
        info = {"name": "acme", "version": "1"}
        return json.dumps({"protocolVersion": revision.name, "capabilities": {}, "serverInfo": info}).encode()

    async def register(self, session):
        self.seen.append(session.stage)

    def listener(self, method):
        async def hear(told):
            self.seen.append(told.method)

        return hear

    def grant(self, asked, context):
        return SubscriptionFilter(prompts_list_changed=asked.prompts_list_changed)


@asynccontextmanager
async def served():
    backend = Acme()
    async with (
        open_hub(
            Bus, Server("acme"), backend, Limits(), None, event_store=None, task_store=None, drain_seconds=1
        ) as bus,
        open_probe(bus.asgi()) as probe,
    ):
        yield backend, bus, probe


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_its_own_methods_are_answered_and_no_others(era, autojump_clock):
    async with served() as (_, _, probe):
        caller = probe if era == "modern" else await probe.initialize()
        assert (await caller.request("acme/now").reply())["result"] == {"now": 1}
        echoed = (await caller.request("acme/echo", {"x": [1]}).reply())["result"]
        assert echoed["asked"]["x"] == [1]
        for method, code in {"tools/list": -32601, "acme/other": -32601}.items():
            assert (await caller.request(method).reply())["error"]["code"] == code


async def test_it_says_what_an_initialize_is_answered_and_hears_of_the_session_before(autojump_clock):
    async with served() as (backend, bus, probe):
        session = await probe.initialize()
        assert session.initialize_result["serverInfo"] == {"name": "acme", "version": "1"}
        await session.notify("notifications/acme").ended()
        await settle(bus)
        assert backend.seen == [Stage.REGISTERING, "notifications/acme"]


async def test_it_says_what_a_listen_is_granted(autojump_clock):
    async with served() as (_, _, probe):
        wanted = {"notifications": {"toolsListChanged": True, "promptsListChanged": True}}
        granted = (await probe.request("subscriptions/listen", wanted).message())["params"]["notifications"]
        assert granted == {"promptsListChanged": True}


async def test_a_state_and_answers_that_it_asked_for_itself_are_its_own_affair(autojump_clock):
    async with served() as (_, _, probe):
        brought = {"requestState": "sealed elsewhere", "inputResponses": {"a": 1}}
        asked = (await probe.request("acme/echo", brought).reply())["result"]["asked"]
        assert {name: asked[name] for name in brought} == brought
