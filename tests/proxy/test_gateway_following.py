"""A gateway that follows its file: servers come and go, and calls of the others go on."""

import json
import os
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import pytest
import trio
from upstreams import NEW, OLD, proxy_of, upstream

from mcpbus import ProtocolError, Server
from mcpbus.gateway import gateway
from mcpbus.gateway.following import Following
from mcpbus.gateway.server import read_gateway
from mcpbus.testing import open_client

BOTH = pytest.mark.parametrize("here", [OLD, NEW])


def site(name):
    server = Server(name)
    server.begun, server.go_on = trio.Event(), trio.Event()

    @server.tool
    async def who() -> str:
        return name

    @server.tool
    async def wait() -> str:
        server.begun.set()
        await server.go_on.wait()
        return f"{name} has waited"

    @server.resource(f"{name}://now")
    async def now() -> str:
        return name

    return server


class Desk:
    """A file of servers, whose commands name servers in this process."""

    def __init__(self, file):
        self.file = file
        self.sites = {}
        self.reached = {}
        self.made = []
        self.writes = 0

    def write(self, text=None, **servers):
        """Write the file, with a name for the program of each server, or a whole entry."""
        entries = {key: {"command": each} if isinstance(each, str) else each for key, each in servers.items()}
        self.file.write_text(json.dumps({"mcpServers": entries}) if text is None else text)
        self.writes += 1
        os.utime(self.file, (self.writes, self.writes))

    def make(self, entry):
        self.made.append(entry.name)
        reached = self.reached[entry.command[0]]
        return proxy_of(
            reached,
            name=entry.name,
            optional=not entry.required,
            include_tools=entry.only,
            exclude_tools=entry.without,
        )

    def server(self, **options):
        following = Following(
            self.file, partial(read_gateway, self.file), self.make, options.pop("lifespan", None)
        )
        return Server(
            "desk", capabilities=("tools", "prompts", "resources"), lifespan=following.lifespan, **options
        )


@asynccontextmanager
async def opened(tmp_path, there=NEW, **servers):
    desk = Desk(tmp_path / "desk.json")
    async with AsyncExitStack() as stack:
        for name in ("sun", "moon", "mars"):
            desk.sites[name] = site(name)
            desk.reached[name] = await stack.enter_async_context(upstream(desk.sites[name], there))
        desk.write(**servers)
        yield desk


async def names(client):
    return sorted(tool["name"] for tool in await client.list_tools())


async def said(client, tool):
    return (await client.call_tool(tool))["content"][0]["text"]


async def changed(client, change):
    """Change something, and wait until the client is notified of it."""
    with trio.fail_after(100):
        async with client.listen(tools=True) as changes:
            change()
            method, _ = await anext(changes)
            await trio.sleep(1)
    assert method == "notifications/tools/list_changed"


@BOTH
async def test_what_comes_into_the_file_is_offered_and_what_leaves_it_is_not(here, tmp_path, autojump_clock):
    async with (
        opened(tmp_path, a="sun", b="moon") as desk,
        open_client(desk.server(), revision=here) as client,
    ):
        assert await names(client) == ["a_wait", "a_who", "b_wait", "b_who"]
        await changed(client, lambda: desk.write(a="sun", c="mars"))
        assert await names(client) == ["a_wait", "a_who", "c_wait", "c_who"]
        assert await said(client, "c_who") == "mars"
        with pytest.raises(ProtocolError, match="unknown tool"):
            await client.call_tool("b_who")
        assert sorted(each["uri"] for each in await client.list_resources()) == ["mars://now", "sun://now"]
        assert desk.reached["moon"].connected == 0
        # One that stays as it is, is not made again.
        assert desk.made == ["a", "b", "c"]


@BOTH
async def test_an_entry_that_has_changed_is_another_server(here, tmp_path, autojump_clock):
    async with opened(tmp_path, a="sun") as desk, open_client(desk.server(), revision=here) as client:
        assert await said(client, "a_who") == "sun"
        await changed(client, lambda: desk.write(a="moon"))
        assert await said(client, "a_who") == "moon"
        await changed(client, lambda: desk.write(a={"command": "moon", "disabledTools": ["wait"]}))
        assert await names(client) == ["a_who"]
        await changed(client, lambda: desk.write(a={"command": "moon", "disabled": True}, b="sun"))
        assert await names(client) == ["b_wait", "b_who"]


@BOTH
@pytest.mark.parametrize("there", [OLD, NEW])
async def test_calls_of_other_servers_and_of_one_that_leaves_go_on(here, there, tmp_path, autojump_clock):
    async with (
        opened(tmp_path, there, a="sun", b="moon") as desk,
        open_client(desk.server(), revision=here) as client,
        trio.open_nursery() as nursery,
    ):
        results = {}

        async def call(tool):
            results[tool] = await said(client, tool)

        for name, tool in (("sun", "a_wait"), ("moon", "b_wait")):
            nursery.start_soon(call, tool)
            await desk.sites[name].begun.wait()
        await changed(client, lambda: desk.write(a="sun", c="mars"))
        assert await names(client) == ["a_wait", "a_who", "c_wait", "c_who"]
        assert results == {}
        desk.sites["sun"].go_on.set()
        desk.sites["moon"].go_on.set()
        await trio.sleep(5)
        assert results == {"a_wait": "sun has waited", "b_wait": "moon has waited"}
        assert desk.reached["moon"].connected == 0


async def test_a_call_that_does_not_end_keeps_no_server_for_ever(tmp_path, autojump_clock):
    async with opened(tmp_path, a="sun", b="moon") as desk, open_client(desk.server()) as client:
        async with trio.open_nursery() as nursery:

            async def call():
                with pytest.raises(ProtocolError, match="b did not answer"):
                    await client.call_tool("b_wait")

            nursery.start_soon(call)
            await desk.sites["moon"].begun.wait()
            await changed(client, lambda: desk.write(a="sun"))
            begun = trio.current_time()
        assert 25 <= trio.current_time() - begun <= 35
        assert await said(client, "a_who") == "sun"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{", "cannot be read"),
        ("{}", "names no servers"),
        ('{"mcpServers": {"a": {"command": "sun", "disabledTool": ["wait"]}}}', "has 'disabledTool', which"),
    ],
)
async def test_a_file_that_cannot_be_used_changes_nothing(text, fault, tmp_path, autojump_clock, caplog):
    async with opened(tmp_path, a="sun") as desk, open_client(desk.server()) as client:
        desk.write(text)
        await trio.sleep(10)
        assert await said(client, "a_who") == "sun"
        assert caplog.text.count("desk.json are not followed: ") == 1
        assert fault in caplog.text
        await changed(client, lambda: desk.write(b="moon"))
        assert await names(client) == ["b_wait", "b_who"]


async def test_a_file_that_is_gone_changes_nothing_until_it_is_back(tmp_path, autojump_clock, caplog):
    async with opened(tmp_path, a="sun") as desk, open_client(desk.server()) as client:
        desk.file.unlink()
        await trio.sleep(10)
        assert await said(client, "a_who") == "sun"
        assert "No such file" in caplog.text
        await changed(client, lambda: desk.write(b="moon"))
        assert await names(client) == ["b_wait", "b_who"]


async def test_a_file_of_variables_is_followed_too(tmp_path, autojump_clock):
    variables = tmp_path / ".env"
    variables.write_text("A=1")
    entry = {"command": "sun", "envFile": str(variables)}
    async with opened(tmp_path, a=entry) as desk, open_client(desk.server()) as client:
        await changed(client, lambda: variables.write_text("A=22"))
        assert desk.made == ["a", "a"]
        assert await said(client, "a_who") == "sun"


async def test_a_server_that_cannot_be_reached_keeps_nobody_from_the_others(tmp_path, autojump_clock, caplog):
    async with opened(tmp_path, a="sun") as desk, open_client(desk.server()) as client:
        desk.reached["moon"].down = "it is down"
        needed = {"command": "moon", "required": True}
        await changed(client, lambda: desk.write(a="sun", b=needed, c="mars"))
        assert await names(client) == ["a_wait", "a_who", "c_wait", "c_who"]
        assert "server 'b' of" in caplog.text
        assert "is not offered" in caplog.text
        # It is tried again when the file changes.
        desk.reached["moon"].down = None
        await changed(client, lambda: desk.write(a="sun", b=needed))
        assert await names(client) == ["a_wait", "a_who", "b_wait", "b_who"]


async def updates(changes):
    """The resources whose updates a client gets within a minute."""
    found = []
    with trio.move_on_after(60):
        async for method, params in changes:
            if method == "notifications/resources/updated":
                found.append(params["uri"])
    return found


@BOTH
@pytest.mark.parametrize("there", [OLD, NEW])
@pytest.mark.parametrize("within", [False, True])
async def test_what_clients_subscribed_to_is_subscribed_to_at_a_server_that_comes_or_changes(
    within, there, here, tmp_path, autojump_clock
):
    async with opened(tmp_path, there, a="sun", b="moon") as desk:
        server, place = desk.server(), "now"
        if within:
            below, server, place = server, Server("above"), "desk/now"
            server.mount(below, prefix="desk")
        async with (
            open_client(server, revision=here) as client,
            client.listen(uris=[f"{each}://{place}" for each in ("sun", "moon", "mars")]) as changes,
        ):
            # One stays, one gets another entry, and one is new.
            desk.write(a="sun", b={"command": "moon", "disabledTools": ["who"]}, c="mars")
            await trio.sleep(30)
            await updates(changes)
            for name in ("sun", "moon", "mars"):
                desk.sites[name].resource_updated(f"{name}://now")
            assert sorted(await updates(changes)) == [f"mars://{place}", f"moon://{place}", f"sun://{place}"]


@pytest.mark.parametrize("there", [OLD, NEW])
async def test_the_end_of_a_subscription_reaches_each_server_that_got_it(there, tmp_path, autojump_clock):
    """Also one that has come since, and one to which the URI did not belong any more."""
    async with opened(tmp_path, there, a="sun") as desk, open_client(server := desk.server()) as client:
        async with client.listen(uris=["moon://now", "sun://now", "x://b/now"]):
            desk.write(a="sun", b="moon")
            await trio.sleep(30)
            lives = [each.connection for each in server.mounted()]
            assert len(lives) == 2
        await trio.sleep(5)
        for live in lives:
            assert not live._subscribed
            assert not live._owners
            assert not live._client_subscriptions


async def test_it_is_opened_again_with_what_the_file_has_then(tmp_path, autojump_clock):
    async with opened(tmp_path, a="sun") as desk:
        server = desk.server()
        async with open_client(server) as client:
            assert await names(client) == ["a_wait", "a_who"]
        assert server.mounted() == []
        desk.write(b="moon")
        async with open_client(server) as client:
            assert await names(client) == ["b_wait", "b_who"]
    assert desk.reached["sun"].connected == desk.reached["moon"].connected == 0


async def test_a_gateway_within_another_server_follows_its_file(tmp_path, autojump_clock):
    async with opened(tmp_path, a="sun") as desk:
        above = Server("above")
        above.mount(desk.server(), prefix="desk")
        async with open_client(above) as client:
            assert await said(client, "desk_a_who") == "sun"
            await changed(client, lambda: desk.write(b="moon"))
            assert await names(client) == ["desk_b_wait", "desk_b_who"]
            assert await said(client, "desk_b_who") == "moon"


async def test_its_own_lifespan_is_around_all_of_it(tmp_path, autojump_clock):
    seen = []

    @asynccontextmanager
    async def lifespan(server):
        seen.append(len(server.mounted()))
        yield "state"
        seen.append(len(server.mounted()))

    async with opened(tmp_path, a="sun") as desk, desk.server(lifespan=lifespan).open() as bus:
        assert bus.state == "state"
        assert len(bus.server.mounted()) == 1
    assert seen == [0, 0]


async def test_a_server_may_be_mounted_while_another_one_is_open(autojump_clock):
    server, other = Server("desk"), site("sun")
    async with open_client(server) as client:
        with pytest.raises(
            RuntimeError, match=r"is open: mount others before it is opened, or by server\.mounting\(\)"
        ):
            server.mount(other)
        async with server.mounting(other, prefix="a") as detach:
            assert await said(client, "a_who") == "sun"
            detach()
            assert await names(client) == []
            detach()
        assert server.mounted() == []
        assert server.bus.mounted_states == {}


def test_only_a_file_can_be_followed(tmp_path):
    with pytest.raises(TypeError, match="follow is for a file"):
        gateway({"a": {"command": "x"}}, follow=True)
    (tmp_path / "a.json").write_text("{}")
    with pytest.raises(ValueError, match="names no servers"):
        gateway(tmp_path / "a.json", follow=True)


async def test_names_and_uris_stay_apart_as_servers_come_and_go(tmp_path, autojump_clock, caplog):
    async with opened(tmp_path, git="sun") as desk, open_client(desk.server()) as client:
        assert await names(client) == ["git_wait", "git_who"]
        # Two programs of one server have the same URI, and prefixes of which one extends the other.
        await changed(client, lambda: desk.write(git="sun", git_hub="sun"))
        await trio.sleep(5)
        assert await names(client) == ["git__wait", "git__who", "git_hub_wait", "git_hub_who"]
        uris = sorted(each["uri"] for each in await client.list_resources())
        assert uris == ["sun://git/now", "sun://git_hub/now"]
        await changed(client, lambda: desk.write(git="sun"))
        await trio.sleep(5)
        assert await names(client) == ["git_wait", "git_who"]
        assert [each["uri"] for each in await client.list_resources()] == ["sun://now"]
        # What cannot be told apart is not added, and changes nothing.
        desk.write(git="sun", git_="moon")
        await trio.sleep(5)
        assert "server 'git_' of" in caplog.text
        assert await names(client) == ["git_wait", "git_who"]
        assert await said(client, "git_who") == "sun"
        await changed(client, lambda: desk.write(git_="moon"))
        await trio.sleep(5)
        assert await said(client, "git__who") == "moon"
