"""Whatever one client does, within what it may have or past it, another one is served within a second."""

import threading

import pytest
import trio
from trio.testing import wait_all_tasks_blocked
from wire import DEADLINE, call, initialize, message, modernized, serving

from mcpbus import Context, Limits, ServeOptions, Server
from mcpbus.tasks import TASKS

LIMITS = Limits(
    max_sessions=20,
    max_requests=20,
    max_listens=20,
    max_suspended_calls=20,
    max_running_tasks=20,
    max_tasks=30,
    task_bytes=100_000,
)
MANY = 40
META = {
    "_meta": {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}, "extensions": {TASKS: {}}}}
}
LISTEN = message("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, 1)


def modern(tool, **params):
    """A call of a tool by a client that can be asked, and knows tasks."""
    return modernized(message("tools/call", {"name": tool, "arguments": {}, **META, **params}, 1))


class Client:
    """One of the two.

    Args:
        served: The server.
        who: What its requests carry to say who it is.
        source: The address that it connects from.
    """

    def __init__(self, served, who, source):
        self._served = served
        self.who = who
        self._source = source

    async def connect(self, path=None):
        return await self._served.peer(source=self._source, path=path)

    async def send(self, body, headers=(), verb="POST", path=None):
        """Send something on a connection of its own."""
        peer = await self.connect(path)
        await peer.send(body, dict(headers) | self.who, verb)
        return peer

    async def ask(self, peer, body, headers=()):
        """Ask something, and read the whole answer."""
        return await peer.exchange(body, dict(headers) | self.who)

    async def open_session(self, peer):
        opened = await self.ask(peer, initialize())
        if opened.status != 200:
            return None
        session = {"mcp-session-id": opened.headers["mcp-session-id"]} | self.who
        await peer.exchange(message("notifications/initialized"), session)
        return session


async def sessions(bob):
    peer = await bob.connect()
    for _ in range(MANY):
        await bob.open_session(peer)


async def streams(bob):
    peer = await bob.connect()
    for _ in range(MANY):
        session = await bob.open_session(peer)
        if session is not None:
            await bob.send(None, session | {"accept": "text/event-stream"}, "GET")


async def requests(bob):
    for _ in range(MANY):
        await bob.send(*modern("hold"))


async def requests_in_a_session(bob):
    session = await bob.open_session(await bob.connect())
    for number in range(MANY):
        await bob.send(call("hold", id=number), session)


async def listens(bob):
    for _ in range(MANY):
        await bob.send(*modernized(LISTEN))


async def channels(bob):
    for _ in range(MANY):
        await bob.send(None, {"accept": "text/event-stream"}, "GET", "http://localhost/sse")


async def questions(bob):
    peer = await bob.connect()
    for _ in range(MANY):
        await bob.ask(peer, *modern("wonder"))


async def tasks(bob):
    peer = await bob.connect()
    for _ in range(LIMITS.max_running_tasks - 2):
        await bob.ask(peer, *modern("labour"))
    for _ in range(MANY):
        await bob.send(*modern("labour"))


async def results(bob):
    peer = await bob.connect()
    for _ in range(MANY):
        await bob.ask(peer, *modern("report"))


async def threads(bob):
    for _ in range(18):
        await bob.send(*modern("block"))


async def connections(bob):
    for _ in range(100):
        await bob.connect()


async def connections_at_work(bob):
    for _ in range(100):
        peer = await bob.connect()
        await peer.stream.send_all(peer.request(*modernized(LISTEN)))


async def halves_of_heads(bob):
    for _ in range(100):
        peer = await bob.connect()
        await peer.stream.send_all(b"POST /mcp HTTP/1.1\r\nhost:")


ATTACKS = [
    sessions,
    streams,
    requests,
    requests_in_a_session,
    listens,
    channels,
    questions,
    tasks,
    results,
    threads,
]
OF_CONNECTIONS = [connections, connections_at_work, halves_of_heads]


def make_server(release, **options):
    server = Server("two", version="1", max_threads=10, **options)

    @server.tool
    async def hold() -> None:
        await trio.sleep_forever()

    @server.tool
    def block() -> str:
        release.wait(30)
        return "free"

    @server.tool
    def think() -> str:
        return "thought"

    @server.tool
    async def quick() -> str:
        return "done"

    @server.tool
    async def wonder(ctx: Context) -> str:
        return (await ctx.elicit("?", str, key="k")).data

    @server.tool(task="optional")
    async def labour() -> None:
        await trio.sleep_forever()

    @server.tool(task="optional")
    async def report() -> str:
        return "x" * 20_000

    return server


async def use(alice):
    """Do one of each, all of which are served."""
    peer = await alice.connect()
    session = await alice.open_session(peer)
    for asked in (
        (call("quick", id=2), session),
        (call("think", id=3), session),
        modern("quick"),
        modern("think"),
    ):
        assert "result" in (await alice.ask(peer, *asked)).json
    listening = await alice.send(*modernized(LISTEN))
    assert (await listening.head())[0] == 200
    assert (await listening.said())["method"] == "notifications/subscriptions/acknowledged"
    asked = (await alice.ask(peer, *modern("wonder"))).json["result"]
    assert list(asked["inputRequests"]) == ["k"]
    answers = {"k": {"action": "accept", "content": {"value": "so"}}}
    retry = modern("wonder", inputResponses=answers, requestState=asked["requestState"])
    assert (await alice.ask(peer, *retry)).json["result"]["content"][0]["text"] == "so"
    assert (await alice.ask(peer, *modern("report"))).json["result"]["resultType"] == "task"
    channel = await alice.send(None, {"accept": "text/event-stream"}, "GET", "http://localhost/sse")
    assert (await channel.head())[0] == 200


async def authenticate(head):
    return head.headers.get("authorization")


BY_PRINCIPAL = {"options": {"authenticate": authenticate}, "bob": {"authorization": "bob"}, "source": None}
BY_ADDRESS = {"options": {}, "bob": {}, "source": "127.0.0.2"}


@pytest.mark.parametrize(
    ("attack", "who", "most"),
    [
        *((attack, who, None) for attack in ATTACKS for who in (BY_PRINCIPAL, BY_ADDRESS)),
        *((attack, BY_ADDRESS, 40) for attack in OF_CONNECTIONS),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_one_client_harms_no_other(attack, who, most):
    release = threading.Event()
    options = ServeOptions(max_connections=most)
    try:
        async with serving(make_server(release, **who["options"]), limits=LIMITS, options=options) as served:
            bob = Client(served, who["bob"], who["source"])
            alice = Client(served, {"authorization": "alice"}, None)
            await attack(bob)
            with trio.fail_after(DEADLINE):
                while not served.bus.statistics().limits_reached:  # as the attack means to
                    await wait_all_tasks_blocked(0.02)
            await wait_all_tasks_blocked(0.02)
            with trio.fail_after(DEADLINE):
                await use(alice)
            health = await alice.send(None, verb="GET", path="http://localhost/health")
            with trio.fail_after(DEADLINE):
                assert (await health.response()).status == 200
    finally:
        release.set()
