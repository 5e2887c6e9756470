"""A backend that has no features: what answers need not be what an author registered with decorators."""

import json
import math
from contextlib import asynccontextmanager

import pytest
import trio
from staging import wait_until_idle

from mcpbus import (
    Context,
    FateKind,
    InputTimeoutError,
    Limits,
    ListRoots,
    ProtocolError,
    Reason,
    RegistrationError,
    Server,
    UnauthorizedError,
)
from mcpbus.bus import Bus
from mcpbus.core.hub import open_hub
from mcpbus.core.outbound import relayed
from mcpbus.core.receipt import Location
from mcpbus.core.sessions.session import SessionStage
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
    own_rounds = False
    task_support = None

    async def run(self, call):
        principal = repr(call.context.principal)
        return json.dumps({"asked": json.loads(bytes(call.context.request.params)), "by": principal}).encode()


class SealsItself(Echo):
    """Asks with a state of the bus first, and takes what other states there are for its own."""

    rounds = True
    own_rounds = True

    async def run(self, call):
        if call.context.routing.retry is None:
            await Context(call).list_roots()
            return b'{"asked":"by the bus"}'
        return await super().run(call)


class Roots(Echo):
    """Asks for roots, within the request or outside, for three seconds."""

    async def run(self, call):
        reports = []
        within = json.loads(bytes(call.context.request.params))["within"]
        asker = Context(call) if within == "request" else call.context.legacy_session
        asked = {None: ListRoots()}
        try:
            [roots] = await asker.relay_questions(asked, 3, lambda *report: reports.append(report[0]))
        except InputTimeoutError:
            return b'{"roots":null}'
        return json.dumps({"roots": [root.uri for root in roots], "reports": reports}).encode()


class Acme:
    """Answers two methods of its own, and nothing else."""

    name = "acme"
    has_session_hooks = True
    has_upstream_subscriptions = False

    def __init__(self, auth=None, authenticate=None):
        self.auth = auth
        self.authenticate = authenticate
        self.tails = {row: tail_for(Implementation("acme", "1"), row) for row in REVISIONS.values()}
        self.seen = []
        self.handshakes = []
        self.heard = trio.Event()
        self.tokens_last = math.inf

    @asynccontextmanager
    async def open(self, bus):
        self.seen.append("opened")
        yield
        self.seen.append(f"left with {bus.statistics().requests} requests")

    def open_to_all(self):
        if self.auth is not None:
            raise RegistrationError("nobody would be asked")

    def offers(self, method, era):
        return method != "acme/other"

    def mirrored_parameters(self, tool, principal):
        return ()

    def may_wait(self, method, name, era):
        return method != "acme/now"

    def begin(self, context):
        match context.request.method:
            case "acme/echo":
                return Echo()
            case "acme/sealed":
                return SealsItself()
            case "acme/roots":
                return Roots()
            case "acme/now":
                return b'{"now":1}'
        return None

    def needed_scopes(self, request, routing, session, principal):
        return ("acme:now",) if request.method == "acme/now" else ()

    def seconds_left(self, principal):
        return self.tokens_last if self.auth is None else self.auth.seconds_left(principal)

    def opened(self, session):
        self.seen.append(session.stage)

    def initialize(self, revision, session):
        info = {"name": "acme", "version": "1"}
        return json.dumps({"protocolVersion": revision.name, "capabilities": {}, "serverInfo": info}).encode()

    async def register(self, session, context):
        self.seen.append(session.client_info["name"])
        self.handshakes.append(context)
        if "stateful" in session.client_capabilities:
            session.backend_state = "opened"
            raise ProtocolError(-32603, "not today")

    def session_end_hook(self, session):
        async def wave():
            self.seen.append(f"{session.client_info['name']} has gone")

        return wave

    def notification_hook(self, method):
        async def hear(told):
            self.seen.append(told.method)

        return hear

    async def wait_subscribed(self, uris, key):
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
            Bus, backend, limits or Limits(), None, sealer=StateSealer(()), **stores, drain_timeout=1
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
        await wait_until_idle(bus)
        assert backend.seen == [
            "opened",
            SessionStage.REGISTERING,
            "mcpbus test client",
            "notifications/initialized",
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
        backend.has_upstream_subscriptions = True
        listen = probe.request("subscriptions/listen", LISTEN)
        await wait_until_idle(bus)
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
        backend.has_upstream_subscriptions = True
        probe.request("subscriptions/listen", LISTEN)
        await wait_until_idle(bus)
        for _ in range(2):
            for number in range(100):
                bus.resource_updated(f"acme://a/{number}")
        counts = bus.statistics()
        assert counts.pending == {Location.MAILBOX: kept}
        assert counts.discarded == {Reason.SUPERSEDED: kept, Reason.OVERFLOW: 200 - 2 * kept}


@pytest.mark.parametrize("end", ["client", "drain"])
async def test_a_listen_that_ends_before_it_is_confirmed_leaves_nothing_open(end, autojump_clock):
    async with served() as (backend, bus, probe):
        backend.has_upstream_subscriptions = True
        listen = probe.request("subscriptions/listen", LISTEN)
        await wait_until_idle(bus)
        receipts = [*bus.resource_updated("acme://a"), *bus.prompts_changed()]
        if end == "client":
            listen.disconnect()
            await wait_until_idle(bus)
        else:
            await bus.drain(0)
            assert told(await listen.message()) == ("notifications/subscriptions/acknowledged", None)
            assert "result" in await listen.message()
        assert [receipt.fate.kind for receipt in receipts] == [FateKind.DISCARDED] * 2
        assert bus.statistics().pending == {}
        assert len(bus.topics) == 0


@pytest.mark.failing
async def test_a_listen_whose_resources_cannot_be_heard_of_is_answered_with_an_error(autojump_clock):
    async with served() as (backend, bus, probe):
        backend.has_upstream_subscriptions = True
        backend.heard = None  # waiting for it fails
        listen = probe.request("subscriptions/listen", LISTEN)
        assert (await listen.reply())["error"]["code"] == -32603
        assert len(bus.topics) == 0


async def test_a_listen_that_names_no_resources_waits_for_nothing(autojump_clock):
    async with served() as (backend, _, probe):
        backend.has_upstream_subscriptions = True
        listen = probe.request("subscriptions/listen", {"notifications": {"promptsListChanged": True}})
        assert told(await listen.message()) == ("notifications/subscriptions/acknowledged", None)


async def test_a_subscription_is_answered_once_changes_are_heard_of_elsewhere(autojump_clock):
    async with served() as (backend, bus, probe):
        backend.has_upstream_subscriptions = True
        session = await probe.initialize()
        subscribing = session.request("resources/subscribe", {"uri": "acme://a"})
        await wait_until_idle(bus)
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


@pytest.mark.parametrize("brought", [{"requestState": "sealed elsewhere"}, {"inputResponses": {"a": 1}}])
async def test_a_handler_that_seals_states_of_its_own_gets_them_back_beside_those_of_the_bus(
    brought, autojump_clock
):
    roots = {"capabilities": {"roots": {}}}
    async with served() as (_, bus, probe):
        asked = (await probe.request("acme/sealed", brought, **roots).reply())["result"]["asked"]
        assert {name: asked[name] for name in brought} == brought
        first = (await probe.request("acme/sealed", **roots).reply())["result"]
        [key] = first["inputRequests"]
        answers = {"requestState": first["requestState"], "inputResponses": {key: {"roots": []}}}
        result = (await probe.request("acme/sealed", answers, **roots).reply())["result"]
        assert result == {"asked": "by the bus"}
        used = await probe.request("acme/sealed", answers, **roots).reply()
        assert used["error"]["code"] == -32602, "a state of the bus can be used once"
        assert len(bus.parked_calls) == 0


async def test_it_is_given_the_initialize_request_with_its_head(autojump_clock):
    async with served() as (backend, _, probe):
        await probe.initialize(headers={"x-name": "ada"})
        [context] = backend.handshakes
        assert json.loads(bytes(context.request.params))["clientInfo"]["name"] == "mcpbus test client"
        assert (context.head.verb, context.head.path, context.headers.get("x-name")) == (
            "POST",
            "/mcp",
            "ada",
        )


@pytest.mark.parametrize("within", ["request", "session"])
async def test_what_it_relays_to_a_client_has_a_time_limit_and_reports_of_progress(within, autojump_clock):
    async with served() as (_, bus, probe):
        session = await probe.initialize(capabilities={"roots": {}})
        stream = session.get()
        for answered in (True, False):
            call = session.request("acme/roots", {"within": within})
            question = await (call if within == "request" else stream).message()
            if answered:
                token = question["params"]["_meta"]["progressToken"]
                report = {"progressToken": token, "progress": 1}
                await session.notify("notifications/progress", report).ended()
                await wait_until_idle(bus)
                await session.answer(question["id"], {"roots": [{"uri": "file:///a"}]}).ended()
                expected = {"roots": ["file:///a"], "reports": [1]}
            else:
                began = trio.current_time()
                withdrawn = await (call if within == "request" else stream).message()
                assert withdrawn["method"] == "notifications/cancelled"
                assert trio.current_time() - began == 3
                expected = {"roots": None}
            assert (await call.reply())["result"] == expected


async def test_it_says_how_long_a_token_lasts(autojump_clock):
    async def authenticate(_head):
        return "ada"

    async with served(authenticate=authenticate) as (backend, _, probe):
        backend.tokens_last = 2
        began = trio.current_time()
        listen = probe.request("subscriptions/listen", {"notifications": {"promptsListChanged": True}})
        await listen.message()
        assert "result" in await listen.message()
        assert trio.current_time() - began == 2


async def test_a_session_passes_on_what_was_drafted(autojump_clock):
    async with served() as (_, bus, probe):
        client = await probe.initialize()
        stream = client.get()
        await wait_until_idle(bus)
        session, meta = bus.sessions[client.id], {"com.example/trace": 1}
        for method, params in {
            "notifications/message": {"level": "error", "data": "x", "_meta": meta},
            "notifications/acme": {"y": 1, "_meta": meta},
        }.items():
            receipt = session.pass_on(relayed(bus.ledger, method, params, in_request=False))
            said = await stream.message()
            assert (said["method"], said["params"]) == (method, params)
            assert (await receipt.settled()).kind is FateKind.DELIVERED


async def test_a_session_with_a_state_of_the_backend_is_ended_there_though_it_was_refused(autojump_clock):
    async with served() as (backend, bus, probe):
        info = {"name": "c", "version": "1"}
        hello = {"protocolVersion": "2025-11-25", "capabilities": {"stateful": {}}, "clientInfo": info}
        post = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
        assert (await probe.post(post).reply())["error"]["message"] == "not today"
        await wait_until_idle(bus)
        assert backend.seen[-1] == "c has gone"
