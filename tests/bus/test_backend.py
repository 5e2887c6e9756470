"""A backend that has no features: what answers need not be what an author registered with decorators."""

import json
from contextlib import asynccontextmanager

import pytest
import trio
from staging import settle

from mcpbus import FateKind, Limits, Reason, RegistrationError, Server, UnauthorizedError
from mcpbus.bus import Bus
from mcpbus.core.hub import open_hub
from mcpbus.core.receipt import Location
from mcpbus.core.session import SessionStage
from mcpbus.protocol.messages import Implementation, SubscriptionFilter
from mcpbus.protocol.request_state import StateSealer
from mcpbus.protocol.results import tail_for
from mcpbus.protocol.revisions import REVISIONS
from mcpbus.testing import InMemoryIssuer, open_bus, open_probe

UPDATED = "notifications/resources/updated"


class Echo:
    """Answers with what was asked."""

    replayable = False
    rounds = False
    task_support = None

    async def run(self, call):
        principal = repr(call.context.principal)
        return json.dumps({"asked": json.loads(bytes(call.context.request.params)), "by": principal}).encode()


class Acme:
    """Answers two methods of its own, and nothing else."""

    name = "acme"
    registers = True
    hears_elsewhere = False

    def __init__(self, auth=None, authenticate=None):
        self.auth = auth
        self.authenticate = authenticate
        self.tails = {row: tail_for(Implementation("acme", "1"), row) for row in REVISIONS.values()}
        self.seen = []
        self.heard = trio.Event()

    @asynccontextmanager
    async def open(self, bus):
        self.seen.append("opened")
        yield
        self.seen.append(f"left with {bus.statistics().requests} requests")

    def open_to_all(self):
        if self.auth is not None:
            raise RegistrationError("nobody would be asked")

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

    def needed_scopes(self, request, routing, session, principal):
        return ("acme:now",) if request.method == "acme/now" else ()

    def opened(self, session):
        self.seen.append(session.stage)

    def initialize(self, revision, session):
        info = {"name": "acme", "version": "1"}
        return json.dumps({"protocolVersion": revision.name, "capabilities": {}, "serverInfo": info}).encode()

    async def register(self, session):
        self.seen.append(session.client_info["name"])

    def farewell(self, session):
        async def wave():
            self.seen.append(f"{session.client_info['name']} has gone")

        return wave

    def listener(self, method):
        async def hear(told):
            self.seen.append(told.method)

        return hear

    async def until_heard(self, uris, key):
        self.seen.append(list(uris))
        await self.heard.wait()

    def may_subscribe(self, session):
        return "deaf" not in session.client_capabilities

    def grant(self, asked, context):
        return SubscriptionFilter(
            prompts_list_changed=asked.prompts_list_changed,
            resource_subscriptions=asked.resource_subscriptions,
        )


@asynccontextmanager
async def served(shell=None, limits=None, **backend):
    backend = Acme(**backend)
    stores = {"event_store": None, "task_store": None}
    async with (
        open_hub(
            Bus, backend, limits or Limits(), None, sealer=StateSealer(()), **stores, drain_seconds=1
        ) as bus,
        open_probe(bus.asgi(), shell=shell) as probe,
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


async def test_it_is_opened_first_says_what_an_initialize_is_answered_and_is_left_after_the_drain(
    autojump_clock,
):
    async with served() as (backend, bus, probe):
        session = await probe.initialize()
        assert session.initialize_result["serverInfo"] == {"name": "acme", "version": "1"}
        await session.notify("notifications/acme").ended()
        await settle(bus)
        assert backend.seen == [
            "opened",
            SessionStage.REGISTERING,
            "mcpbus test client",
            "notifications/acme",
        ]
    assert backend.seen[-2:] == ["mcpbus test client has gone", "left with 0 requests"]


async def test_it_says_what_a_listen_is_granted_and_its_name_ends_the_result(autojump_clock):
    async with served() as (_, bus, probe):
        wanted = {
            "toolsListChanged": True,
            "promptsListChanged": True,
            "resourceSubscriptions": ["acme://a"],
        }
        listen = probe.request("subscriptions/listen", {"notifications": wanted})
        granted = (await listen.message())["params"]["notifications"]
        assert granted == {"promptsListChanged": True, "resourceSubscriptions": ["acme://a"]}
        bus.resource_updated("acme://a")
        assert (await listen.message())["method"] == UPDATED
        await bus.drain(0)
        result = (await listen.message())["result"]
        assert result["_meta"]["io.modelcontextprotocol/serverInfo"] == {"name": "acme", "version": "1"}


async def test_it_says_which_legacy_clients_may_subscribe(autojump_clock):
    async with served() as (_, bus, probe):
        session, stranger = await probe.initialize(), await probe.initialize(capabilities={"deaf": {}})
        asked = {"uri": "acme://a"}
        assert (await session.request("resources/subscribe", asked).reply())["result"] == {}
        for method in ("resources/subscribe", "resources/unsubscribe"):
            assert (await stranger.request(method, asked).reply())["error"]["code"] == -32601
        stream = session.get()
        assert len(bus.resource_updated("acme://a")) == 1
        assert (await stream.message())["method"] == UPDATED


LISTEN = {"notifications": {"promptsListChanged": True, "resourceSubscriptions": ["acme://a"]}}


def told(message):
    params = message.get("params", {})
    return message.get("method"), params.get("uri")


async def test_a_listen_is_confirmed_once_changes_are_heard_of_elsewhere_and_what_came_first_comes_behind(
    autojump_clock,
):
    async with served() as (backend, bus, probe):
        backend.hears_elsewhere = True
        listen = probe.request("subscriptions/listen", LISTEN)
        await settle(bus)
        assert backend.seen[-1] == ["acme://a"]
        for _ in range(3):
            bus.resource_updated("acme://a")
            bus.prompts_changed()
        assert bus.statistics().discarded == {Reason.SUPERSEDED: 4}
        backend.heard.set()
        assert [told(await listen.message()) for _ in range(3)] == [
            ("notifications/subscriptions/acknowledged", None),
            (UPDATED, "acme://a"),
            ("notifications/prompts/list_changed", None),
        ]
        bus.resource_updated("acme://a")
        assert told(await listen.message()) == (UPDATED, "acme://a")


@pytest.mark.parametrize(
    ("limits", "kept"),
    [
        (Limits(outbox_items=3), 3),
        (Limits(outbox_bytes=1_000), 11),
    ],
)
async def test_no_more_is_kept_for_a_listen_that_is_not_confirmed_than_for_any_stream(
    limits, kept, autojump_clock
):
    async with served(limits=limits) as (backend, bus, probe):
        backend.hears_elsewhere = True
        probe.request("subscriptions/listen", LISTEN)
        await settle(bus)
        for _ in range(2):
            for number in range(100):
                bus.resource_updated(f"acme://a/{number}")
        counts = bus.statistics()
        assert counts.pending == {Location.MAILBOX: kept}
        assert counts.discarded == {Reason.SUPERSEDED: kept, Reason.OVERFLOW: 200 - 2 * kept}


@pytest.mark.parametrize("end", ["client", "drain"])
async def test_a_listen_that_ends_before_it_is_confirmed_leaves_nothing_open(end, autojump_clock):
    async with served() as (backend, bus, probe):
        backend.hears_elsewhere = True
        listen = probe.request("subscriptions/listen", LISTEN)
        await settle(bus)
        receipts = [*bus.resource_updated("acme://a"), *bus.prompts_changed()]
        if end == "client":
            listen.disconnect()
            await settle(bus)
        else:
            await bus.drain(0)
            assert told(await listen.message()) == ("notifications/subscriptions/acknowledged", None)
            assert "result" in await listen.message()
        assert [receipt.fate.verdict for receipt in receipts] == [FateKind.DISCARDED] * 2
        assert bus.statistics().pending == {}
        assert len(bus.topics) == 0


async def test_a_listen_that_names_no_resources_waits_for_nothing(autojump_clock):
    async with served() as (backend, _, probe):
        backend.hears_elsewhere = True
        listen = probe.request("subscriptions/listen", {"notifications": {"promptsListChanged": True}})
        assert told(await listen.message()) == ("notifications/subscriptions/acknowledged", None)


async def test_a_subscription_is_answered_once_changes_are_heard_of_elsewhere(autojump_clock):
    async with served() as (backend, bus, probe):
        backend.hears_elsewhere = True
        session = await probe.initialize()
        subscribing = session.request("resources/subscribe", {"uri": "acme://a"})
        await settle(bus)
        assert backend.seen[-1] == ["acme://a"]
        assert bus.topics.uris == ["acme://a"], "it is told of changes from now on"
        assert subscribing.status is None
        backend.heard.set()
        assert (await subscribing.reply())["result"] == {}


@pytest.mark.parametrize("shell", ["asgi", "http1"])
async def test_its_authenticate_is_asked_who_is_behind_a_request(shell, autojump_clock):
    async def authenticate(head):
        if head.headers.get("x-name") is None:
            raise UnauthorizedError
        return head.headers.get("x-name")

    async with served(shell, authenticate=authenticate) as (_, _, probe):
        assert (await probe.request("acme/echo").ended()).status == 401
        answer = await probe.request("acme/echo", headers={"x-name": "ada"}).reply()
        assert answer["result"]["by"] == "'ada'"


async def test_its_auth_is_asked_for_tokens_and_it_says_which_scopes_are_needed(autojump_clock):
    issuer = InMemoryIssuer()
    async with served(auth=issuer.protect(scopes=["acme"])) as (_, _, probe):
        assert (await probe.request("acme/now").ended()).status == 401
        token = issuer.bearer("ada", ["acme"])
        echoed = await probe.request("acme/echo", headers=token).reply()
        assert echoed["result"]["by"].startswith("Principal(issuer=")
        refused = await probe.request("acme/now", headers=token).ended()
        assert refused.status == 403
        assert 'scope="acme acme:now"' in refused.headers["www-authenticate"]


async def test_a_session_of_it_has_no_features(autojump_clock):
    async with served() as (_, bus, probe):
        session = bus.sessions[(await probe.initialize()).id]
        with pytest.raises(RegistrationError, match=r"no mcpbus\.Server"):
            session.add_tool(lambda: 1, name="a")
        with pytest.raises(RegistrationError, match=r"no mcpbus\.Server"):
            session.remove_tool("a")


async def test_only_a_server_of_features_is_one(autojump_clock):
    async with served() as (_, bus, _):
        assert bus.name == "acme"
        with pytest.raises(AttributeError, match=r"'acme' is not a mcpbus\.Server"):
            _ = bus.server
    server = Server("features")
    async with open_bus(server) as bus:
        assert (bus.name, bus.server) == ("features", server)


async def test_a_state_and_answers_that_it_asked_for_itself_are_its_own_affair(autojump_clock):
    async with served() as (_, _, probe):
        brought = {"requestState": "sealed elsewhere", "inputResponses": {"a": 1}}
        asked = (await probe.request("acme/echo", brought).reply())["result"]["asked"]
        assert {name: asked[name] for name in brought} == brought
