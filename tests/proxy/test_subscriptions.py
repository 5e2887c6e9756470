"""Resources that clients want to hear of, at other servers that refuse, say nothing, come later, or have a bound."""

from contextlib import AsyncExitStack
from types import SimpleNamespace
from unittest import mock

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from scripted import Scripted, listen
from upstreams import NEW, OLD

from mcpbus import Server
from mcpbus.protocol.meta import SUBSCRIPTION_ID
from mcpbus.testing import open_bus, open_client
from mcpbus.upstream import monitor as wishes_module
from mcpbus.upstream.connection import PLAIN, ConnectionKey
from mcpbus.upstream.monitor import MOST_URIS, SubscriptionSelector
from mcpbus.upstream.proxy_runtime import ProxyRuntime

UPDATED = "notifications/resources/updated"


def nothing(_wire, _request, _params):
    """Leave a request unanswered."""


def refusing(*bad):
    """Refuse a listen for any of these."""

    def answer(wire, request, params):
        if set(bad) & {*params["notifications"]["resourceSubscriptions"]}:
            wire.refuse(request, -32602, "no such resource")
        else:
            listen(wire, request, params)

    return answer


def listening(scripted):
    """What the other server has confirmed last to tell of."""
    return [*scripted.listens.values()][-1]


async def test_what_is_refused_to_one_client_is_not_refused_to_the_others(autojump_clock, caplog):
    bad = {"d://3", "d://7"}
    scripted = Scripted(NEW, subscriptions_listen=refusing(*bad))
    async with open_bus(scripted.proxy()) as bus, bus.connect() as ada, bus.connect() as eve:
        good = [f"d://{number}" for number in range(10) if f"d://{number}" not in bad]
        async with ada.listen(uris=["d://a"]):
            began = trio.current_time()
            async with eve.listen(uris=[*good, *bad]):
                assert trio.current_time() - began < 1
                assert listening(scripted) == sorted(["d://a", *good])
            await trio.sleep(1)
            assert listening(scripted) == ["d://a"]
            asked = len(scripted.heard)
            await trio.sleep(600)
            assert len(scripted.heard) == asked, "it is asked again and again"
    for uri in bad:
        assert caplog.text.count(f"'{uri}' is not subscribed to: upstream refused that") == 1


async def test_a_server_that_takes_back_what_it_has_confirmed_is_asked_no_more(autojump_clock, caplog):
    scripted = Scripted(NEW)
    async with open_client(scripted.proxy()) as client:
        async with client.listen(uris=["d://a"]):
            scripted.answers["subscriptions_listen"] = lambda wire, request, _: wire.refuse(
                request, -32603, "no"
            )
        await trio.sleep(600)
        assert len(scripted.asked("subscriptions/listen")) == 3
    assert "upstream tells of no changes: no" in caplog.text


@pytest.mark.parametrize("there", [OLD, NEW])
async def test_a_subscription_that_is_not_answered_does_not_hold_up_others_for_ever(
    there, autojump_clock, caplog
):
    method = {OLD: "resources_subscribe", NEW: "subscriptions_listen"}[there]
    scripted = Scripted(there)
    async with open_client(scripted.proxy(), revision=OLD) as client:
        answer, scripted.answers[method] = scripted.answers[method], nothing
        began = trio.current_time()
        await client.request("resources/subscribe", {"uri": "d://a"})
        assert trio.current_time() - began == pytest.approx(5)
        scripted.answers[method] = answer
        await trio.sleep(60)
        began = trio.current_time()
        await client.request("resources/subscribe", {"uri": "d://b"})
        assert trio.current_time() - began < 1
    assert " within " in caplog.text


async def test_what_was_too_much_is_subscribed_to_once_there_is_room(autojump_clock):
    scripted = Scripted(NEW)
    async with (
        open_bus(scripted.proxy()) as bus,
        bus.connect() as ada,
        bus.connect() as eve,
        AsyncExitStack() as stack,
    ):
        await stack.enter_async_context(eve.listen(uris=[f"d://{number}" for number in range(MOST_URIS)]))
        async with ada.listen(uris=["d://more"]):
            assert len(listening(scripted)) == MOST_URIS
            await stack.aclose()
            await trio.sleep(1)
            assert listening(scripted) == ["d://more"]


@pytest.mark.parametrize("there", [OLD, NEW])
async def test_what_was_subscribed_to_before_there_was_a_server_is_heard_of_once_there_is(
    there, autojump_clock
):
    scripted = Scripted(there)
    scripted.down = "it is being made"
    async with (
        open_client(scripted.proxy(optional=True)) as client,
        client.listen(uris=["d://a", "other://b"]) as changes,
    ):
        scripted.down = None
        await trio.sleep(60)
        if there == OLD:
            assert scripted.asked("resources/subscribe") == [{"uri": "d://a"}]
            scripted.wires[-1].say(UPDATED, {"uri": "d://a"})
        else:
            assert listening(scripted) == ["d://a"]
            stamp = {"_meta": {SUBSCRIPTION_ID: [*scripted.listens][-1]}}
            scripted.wires[-1].say(UPDATED, {"uri": "d://a", **stamp})
        with trio.fail_after(1):
            assert (await anext(changes))[1]["uri"] == "d://a"


async def test_a_process_that_hears_of_changes_for_one_client_serves_no_other_one(autojump_clock, caplog):
    scripted = Scripted(OLD)
    async with (
        open_bus(scripted.proxy(program=True)) as bus,
        bus.connect(revision=NEW) as client,
        client.listen(uris=["d://a"]),
    ):
        async with bus.connect(revision=OLD) as ada:
            await ada.call_tool("t")
            assert len(scripted.wires) == scripted.connected == 2
        await trio.sleep(0.1)
        assert scripted.connected == 1
        assert len(scripted.asked("resources/subscribe")) == 1
    assert "cannot be reached" not in caplog.text


async def test_several_servers_that_do_not_confirm_are_waited_for_at_the_same_time(autojump_clock):
    desk = Server("desk")
    for letter in "bcd":
        listed = {"resources": [{"uri": f"{letter}://", "name": letter}]}
        scripted = Scripted(OLD, resources_subscribe=nothing, resources_list=listed)
        desk.mount(scripted.proxy(), prefix=letter)
    async with open_client(desk) as client:
        began = trio.current_time()
        async with client.listen(uris=[f"{letter}://" for letter in "bcd"]):
            assert trio.current_time() - began == pytest.approx(5)


@pytest.mark.parametrize("there", [OLD, NEW])
async def test_who_may_have_missed_a_change_while_the_server_was_lost_is_told_so(there, autojump_clock):
    scripted = Scripted(there)
    async with (
        open_client(scripted.proxy()) as client,
        client.listen(uris=["d://a"]) as changes,
    ):
        async with client.listen(uris=["d://b"]):
            pass
        await trio.sleep(1)
        for wire in [*scripted.wires]:
            wire.client.disconnected("it was cut")
        await trio.sleep(5)
        heard = []
        with trio.move_on_after(1):
            async for _, params in changes:
                heard.append(params["uri"])
    assert heard == ["d://a"]


async def test_a_server_that_returns_without_resources_is_asked_for_none(autojump_clock):
    scripted = Scripted(NEW)
    async with open_client(scripted.proxy()) as client, client.listen(uris=["d://a"]):
        assert listening(scripted) == ["d://a"]
        scripted.capabilities = {"tools": {"listChanged": True}}
        scripted.wires[-1].client.disconnected("a version without resources replaces it")
        await trio.sleep(5)
        assert len(scripted.wires) == 2
        assert listening(scripted) == []


@pytest.mark.parametrize("there", [OLD, NEW])
@pytest.mark.parametrize("here", [OLD, NEW])
async def test_the_other_server_is_asked_for_a_resource_as_it_spells_it(here, there, autojump_clock):
    listed = {"resources": [{"uri": "d://größe", "name": "a"}]}
    read = {"contents": [{"uri": "d://größe", "text": "XL"}]}
    scripted = Scripted(there, resources_list=listed, resources_read=read)
    async with open_bus(scripted.proxy()) as bus, bus.connect(revision=here) as client:
        began = trio.current_time()
        async with client.listen(uris=["D://gr%c3%b6%C3%9Fe"]), client.listen(uris=["d://gr%C3%B6ße"]):
            assert trio.current_time() - began < 1, "the second one is heard of already"
            if there == NEW:
                assert listening(scripted) == ["d://größe"]
            else:
                assert scripted.asked("resources/subscribe") == [{"uri": "d://größe"}]
            assert (await client.read_resource("d://gr%C3%B6%c3%9Fe"))[0]["text"] == "XL"
    assert [params["uri"] for params in scripted.asked("resources/read")] == ["d://größe"]


async def test_a_resource_that_is_listed_in_two_spellings_is_one_and_may_change_its_spelling(
    autojump_clock, caplog
):
    listed = {"resources": [{"uri": uri, "name": "a"} for uri in ("d://é", "d://%C3%A9", "d://b")]}
    scripted = Scripted(NEW, resources_list=listed)
    async with open_client(scripted.proxy()) as client:
        assert [each["uri"] for each in await client.list_resources()] == ["d://é", "d://b"]
        assert "lists the resource 'd://%C3%A9' twice; the second one is left out" in caplog.text
        scripted.answers["resources_list"] = {"resources": [{"uri": "D://%c3%a9", "name": "a"}]}
        for wire in scripted.wires:
            wire.say("notifications/resources/list_changed")
        await trio.sleep(60)
        assert [each["uri"] for each in await client.list_resources()] == ["D://%c3%a9"]


def test_wishes_beyond_the_bound_come_in_their_turn_and_what_is_not_known_once_it_is():
    known = {str(number) for number in range(MOST_URIS + 3)}
    wishes = SubscriptionSelector(known.__contains__)
    for number in range(MOST_URIS + 3):
        wishes.add(str(number), "ada")
    wishes.add("later", "ada")
    assert wishes.selected(known) == {str(number) for number in range(MOST_URIS)}
    wishes.discard(str(MOST_URIS), "ada")
    wishes.discard("0", "ada")
    wishes.discard("later than that", "ada")
    assert str(MOST_URIS + 1) in wishes.chosen
    assert len(wishes.chosen) == MOST_URIS
    known.add("later")
    wishes.discard("1", "ada")
    wishes.look_again()
    assert len(wishes.chosen) == MOST_URIS
    wishes.discard("2", "ada")
    assert "later" in wishes.chosen


def test_an_owner_that_wants_little_takes_a_place_of_the_one_that_has_most():
    wishes = SubscriptionSelector(lambda _uri: True)
    for number in range(2 * MOST_URIS):
        wishes.add(f"eve{number}", "eve")
    wishes.add("ada1", "ada")
    wishes.add("ada2", "ada")
    assert {"ada1", "ada2"} <= wishes.chosen
    assert len(wishes.chosen) == MOST_URIS
    wishes.discard("ada1", "ada")
    assert "ada1" not in wishes.chosen
    assert len(wishes.chosen) == MOST_URIS  # the place is eve's again


def test_two_owners_that_want_all_there_is_have_half_of_it_each():
    wishes = SubscriptionSelector(lambda _uri: True)
    for number in range(MOST_URIS):
        wishes.add(f"eve{number}", "eve")
    for number in range(MOST_URIS):
        wishes.add(f"ada{number}", "ada")
    counted = [sum(uri.startswith(owner) for uri in wishes.chosen) for owner in ("eve", "ada")]
    assert sum(counted) == MOST_URIS
    assert abs(counted[0] - counted[1]) <= 1


def test_a_resource_that_two_owners_want_stays_for_the_second_one():
    wishes = SubscriptionSelector(lambda _uri: True)
    wishes.add("a", "eve")
    wishes.add("a", "ada")
    wishes.discard("a", "eve")
    assert (wishes.chosen, wishes.wanted("a")) == ({"a"}, True)
    wishes.discard("a", "ada")
    assert (wishes.chosen, wishes.wanted("a")) == (set(), False)


steps = st.lists(st.tuples(st.booleans(), st.sampled_from("abcdefg"), st.sampled_from("xyz")), max_size=60)


@given(steps)
def test_wishes_subscribe_to_all_that_is_wanted_up_to_the_bound(program):
    with mock.patch.object(wishes_module, "MOST_URIS", 4):
        wishes, plain = SubscriptionSelector("abcdef".__contains__), set()
        for wanted, uri, owner in program:
            (wishes.add if wanted else wishes.discard)(uri, owner)
            (plain.add if wanted else plain.discard)((uri, owner))
            known = {each for each, _ in plain} - {"g"}
            assert wishes.chosen <= known
            assert len(wishes.chosen) == min(4, len(known))
            assert {each for each in "abcdefg" if wishes.wanted(each)} == {each for each, _ in plain}
    for uri, owner in plain:
        wishes.discard(uri, owner)
    assert (wishes.chosen, len(wishes._shares), wishes._beyond, wishes._unknown) == (set(), 0, {}, {})


# -- over connections of their own ----------------------------------------------------------------


def subscribed(wire):
    """The resources that a connection is subscribed to, as the other server has it."""
    found = []
    for method, uri in wire.subscribed:
        if method == "resources/subscribe":
            found.append(uri)
        else:
            found.remove(uri)
    return found


def noting(method):
    def answer(wire, _request, params):
        if not hasattr(wire, "subscribed"):
            wire.subscribed = []
        wire.subscribed.append((method, params["uri"]))
        return {}

    return answer


def noting_server(**options):
    methods = ("resources/subscribe", "resources/unsubscribe")
    return Scripted(OLD, **{each.replace("/", "_"): noting(each) for each in methods}, **options)


async def all_of(changes):
    found = []
    with trio.move_on_after(1):
        async for _, params in changes:
            found.append(params["uri"])
    return found


@pytest.mark.parametrize("program", [False, True])
@pytest.mark.parametrize("mounted", [False, True])
async def test_each_client_hears_of_what_its_own_connection_reports(program, mounted, autojump_clock):
    """Two sessions of one principal, its clients without sessions, and another: each sees contents of its own."""
    scripted = noting_server()
    made = scripted.proxy(program=program)
    if mounted:
        desk = Server("desk")
        desk.mount(made, prefix="s")
        made = desk
    async with open_bus(made) as bus, AsyncExitStack() as stack:
        clients, streams = {}, {}
        for name, revision, principal in (
            ("one", OLD, "ada"),
            ("two", OLD, "ada"),
            ("all", NEW, "ada"),
            ("cid", NEW, "cid"),
        ):
            connecting = bus.connect(revision=revision, principal=principal)
            client = clients[name] = await stack.enter_async_context(connecting)
            streams[name] = await stack.enter_async_context(client.listen(uris=["d://a"]))
        wires = [wire for wire in scripted.wires if hasattr(wire, "subscribed")]
        assert [subscribed(wire) for wire in wires] == [["d://a"]] * 4
        for number, (wire, name) in enumerate(zip(wires, clients, strict=True)):
            for _ in range(number):
                wire.say(UPDATED, {"uri": "d://a"})
                await trio.sleep(0.1)
            heard = {each: await all_of(changes) for each, changes in streams.items()}
            assert heard == {each: ["d://a"] * number if each == name else [] for each in clients}
        await stack.aclose()
        await trio.sleep(1)
        assert all(subscribed(wire) == [] or wire.client._gone for wire in wires)


async def test_a_connection_with_a_subscription_stays_and_one_without_does_not(autojump_clock):
    scripted = noting_server()
    async with open_bus(scripted.proxy(program=True)) as bus, bus.connect(revision=OLD) as client:
        async with client.listen(uris=["d://a"]):
            await trio.sleep(3 * 300)
            assert scripted.connected == 1
            assert len(scripted.asked("resources/subscribe")) == 1
        await trio.sleep(1)
        assert len(scripted.asked("resources/unsubscribe")) == 1
        await trio.sleep(301)
        assert scripted.connected == 0


@pytest.mark.parametrize("revision", [OLD, NEW])
async def test_a_listen_of_a_client_that_wants_nothing_more_ends_and_so_does_its_connection(
    revision, autojump_clock
):
    scripted = Scripted(NEW)
    proxy = scripted.proxy(program=True)
    async with open_bus(proxy) as bus, bus.connect(revision=revision) as client:
        async with client.listen(uris=["d://a"]):
            await trio.sleep(3 * 300)
            assert len(proxy.connection._client_subscriptions) == 1
            connected = scripted.connected
        await trio.sleep(5)
        assert not proxy.connection._client_subscriptions
        await trio.sleep(301)
        assert scripted.connected == connected - 1


async def test_a_client_whose_own_connection_is_lost_is_subscribed_again_and_told_so(autojump_clock, caplog):
    scripted = noting_server()
    async with (
        open_bus(scripted.proxy(program=True)) as bus,
        bus.connect(revision=OLD) as client,
        client.listen(uris=["d://a"]) as changes,
    ):
        for number in range(2):
            scripted.wires[-1].client.disconnected("it has ended")
            await trio.sleep(5)
            assert len(scripted.wires) == number + 2
            assert await all_of(changes) == ["d://a"]
    assert "subscriptions of one client at upstream rest for 1 s" in caplog.text


def ending(seconds, most):
    """Confirm a listen, and end it after so many seconds; so many of them."""

    def answer(wire, request, params):
        async def end():
            await trio.sleep(seconds)
            wire.reply(request, {})

        listen(wire, request, params)
        if len(wire.server.asked("subscriptions/listen")) > most:
            return
        if seconds:
            wire.soon(end)
        else:
            wire.reply(request, {})

    return answer


@pytest.mark.parametrize("program", [False, True])
@pytest.mark.parametrize("revision", [OLD, NEW])
async def test_a_listen_that_the_server_ends_each_time_is_begun_again_after_longer_and_longer_pauses(
    revision, program, autojump_clock
):
    scripted = Scripted(NEW, subscriptions_listen=ending(0, 500))
    async with (
        open_bus(scripted.proxy(program=program)) as bus,
        bus.connect(revision=revision) as client,
        client.listen(uris=["d://a"]),
    ):
        await trio.sleep(1 + 2 + 4 + 8 + 16 + 32 + 10 * 60)
        # Of the connection that keeps in touch, of one of the client's own, and of the lists there: a pause may follow two of them.
        assert 10 < len(scripted.asked("subscriptions/listen")) <= 3 * 2 * (6 + 11)


async def test_a_listen_that_has_lasted_is_begun_again_soon(autojump_clock):
    """As where a server limits how long a listen lasts."""
    scripted = Scripted(NEW, subscriptions_listen=ending(1800, 500))
    async with (
        open_bus(scripted.proxy(program=True)) as bus,
        bus.connect(revision=NEW) as client,
        client.listen(uris=["d://a"]) as changes,
    ):
        await trio.sleep(6 * 1800)
        asked = len(scripted.asked("subscriptions/listen"))
        assert 3 * 6 <= asked <= 2 * 3 * 7
        assert await all_of(changes) == ["d://a"] * 5, "a change that may have been missed is reported"


async def test_what_the_upstream_server_does_not_list_opens_no_connection(autojump_clock):
    scripted = noting_server()
    async with (
        open_bus(scripted.proxy()) as bus,
        bus.connect(revision=OLD) as client,
        client.listen(uris=["file:///etc/passwd"]),
    ):
        await trio.sleep(10)
        assert len(scripted.wires) == 1
        scripted.answers["resources_list"] = {"resources": [{"uri": "file:///etc/passwd", "name": "x"}]}
        scripted.wires[0].say("notifications/resources/list_changed")
        await trio.sleep(10)
        assert subscribed(scripted.wires[1]) == ["file:///etc/passwd"]


@pytest.mark.parametrize("own", [False, True])
async def test_what_a_server_has_forgotten_with_its_stream_is_subscribed_to_again(own, autojump_clock):
    """Over HTTP the stream alone may be lost, and the session with it, while the connection stays."""
    scripted = noting_server(scoped=True)
    options = {} if own else {"isolation": "none"}
    async with (
        open_bus(scripted.proxy(**options)) as bus,
        bus.connect(revision=OLD) as client,
        client.listen(uris=["d://a"]) as changes,
    ):
        [wire] = [wire for wire in scripted.wires if hasattr(wire, "subscribed")]
        wire.client.unheard("the session was lost")
        await trio.sleep(2)
        assert subscribed(wire) == ["d://a", "d://a"]
        assert await all_of(changes) == ["d://a"]


ADA, EVE = ConnectionKey("ada"), ConnectionKey("eve")


@pytest.mark.parametrize(
    ("reporting", "uses", "notified"),
    [
        (ADA, {"ada": ADA, "bob": None}, ["ada"]),
        (ADA, {"ada": ADA, "eve": EVE}, ["ada"]),
        (ADA, {"bob": None}, ["ada"]),
        (PLAIN, {"ada": ADA, "bob": None}, ["bob"]),
        (PLAIN, {"bob": PLAIN, "cid": PLAIN}, ["all"]),
        (PLAIN, {"bob": None}, ["all"]),
    ],
)
def test_an_update_reaches_only_the_clients_of_the_connection_that_reports_it(reporting, uses, notified):
    """Clients with a connection of their own, beside clients that subscribe over the shared one."""
    found = []
    live = SimpleNamespace(
        _pool=SimpleNamespace(use_of=uses.get),
        _client_subscriptions={key: SimpleNamespace(requester=key) for key, use in uses.items() if use},
        _subscribed={(key, "d://a"): bool(use) for key, use in uses.items()},
        _clients=SimpleNamespace(
            updated=lambda _uri: found.append("all"), updated_for=lambda key, _uri: found.append(key)
        ),
    )
    ProxyRuntime._told_updated(live, SimpleNamespace(use=reporting), "d://a")
    assert found == notified


def test_owners_take_turns_at_places_that_become_free():
    wishes = SubscriptionSelector(lambda _uri: True)
    for number in range(MOST_URIS):
        wishes.add(f"first{number}", number)
    for number in range(3):
        for owner in ("eve", "ada"):
            wishes.add(f"{owner}{number}", owner)
    assert not {"eve0", "ada0"} & wishes.chosen
    for number in range(4):
        wishes.discard(f"first{number}", number)
    assert {uri for uri in wishes.chosen if not uri.startswith("first")} == {"eve0", "eve1", "ada0", "ada1"}
