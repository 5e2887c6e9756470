"""Every limit of a bus that can be reached is counted when it is, and the log says through whom."""

import logging

import attrs
import pytest
import trio
from staging import HELLO, staged, tool

from mcpbus import Context, HttpOptions, InputTimeoutError, Limits
from mcpbus.stores import MemoryEventStore
from mcpbus.tasks import TASKS
from tests.at_home import RELAYED

NO_LIMIT = {
    "max_listen_seconds": "each listen ends so, in good order, and nothing is refused",
    "task_poll_interval": "an advice to clients",
    "keep_alive": "the pause after which something is said, so that no connection is taken for dead",
    "body_bytes_per_second": "what body_timeout is prolonged by; what runs out is counted as that",
    "store_pause": "follows store_deadline, which is counted, or a failure, which is logged",
    "log_level": "which lines are wanted",
    "stream_outlives_token": "what becomes of streams whose token expires, as it says",
}
"""Fields of `Limits` that nobody can reach, and why."""

USUAL = {"idle_timeout", "suspended_timeout", "held_timeout"}
"""What is reached as a rule when a client has gone, and worth no warning."""

BOB = {"authorization": "bob"}
INITIALIZE = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}

reaching = {}
"""How each limit is reached, on what stage, and who the log says it was."""


def reaches(limit, *, whom="bob", http=None, event_store=None, **bounds):
    """Enter how a limit is reached on a stage with these bounds."""

    def enter(function):
        reaching[limit] = function, whom, {"limits": bounds, "http": http, "event_store": event_store}
        return function

    return enter


def call(stage, name="hold", *, key="", **options):
    return stage.probe.request("tools/call", tool(key, name), headers=BOB, **options)


def listen(stage, **wanted):
    return stage.probe.request("subscriptions/listen", {"notifications": wanted}, headers=BOB)


def tasks(stage):
    return stage.bus.connect(principal="bob", capabilities={"extensions": {TASKS: {}}})


# -- how many ------------------------------------------------------------------------------------


@reaches("max_sessions", max_sessions=1)
async def open_two_sessions(stage):
    for _ in range(2):
        await stage.probe.initialize(headers=BOB)


@reaches("max_requests", max_requests=1)
async def call_twice(stage):
    call(stage)
    await stage.call()
    assert (await call(stage).ended()).status == 503


@reaches("max_listens", max_listens=1)
async def listen_twice(stage):
    await listen(stage, toolsListChanged=True).begun()
    refused = await listen(stage, toolsListChanged=True).ended()
    assert refused.status == 503
    assert refused.messages[0]["error"]["message"] == "Too many listens: at most 1 on this server"


@reaches("max_requests_per_session", max_requests_per_session=1)
async def call_twice_in_a_session(stage):
    session = await stage.probe.initialize(headers=BOB)
    session.request("tools/call", tool())
    await stage.call()
    assert (await session.request("tools/call", tool()).ended()).status == 429


@reaches("max_subscriptions_per_session", max_subscriptions_per_session=0)
async def subscribe(stage):
    session = await stage.probe.initialize(headers=BOB)
    assert (await session.request("resources/subscribe", {"uri": "res://a"}).ended()).status == 429


@reaches("max_listened_resources", max_listened_resources=1)
async def listen_to_two_resources(stage):
    refused = await listen(stage, resourceSubscriptions=["res://a", "res://b"]).ended()
    assert "error" in refused.messages[0]


@reaches("max_suspended_calls", max_suspended_calls=1)
async def ask_twice(stage):
    for key in "ab":
        answer = await call(stage, "ask", key=key, capabilities={"elicitation": {}}).ended()
        assert answer.messages[0]["result"]["resultType"] == "input_required"
    await stage.quiet()


@reaches("max_running_tasks", max_running_tasks=1)
async def begin_two_tasks(stage):
    async with tasks(stage) as client:
        assert (await client.call_tool("task"))["resultType"] == "task"
        assert (await client.call_tool("task", {"ends": True}))["resultType"] == "complete"


@reaches("max_tasks", max_tasks=1)
@reaches("task_bytes", task_bytes=1)
async def keep_a_result(stage):
    async with tasks(stage) as client:
        assert (await client.call_tool("task", {"ends": True}))["resultType"] == "task"
        await stage.quiet()
        assert (await client.call_tool("task", {"ends": True}))["resultType"] == "complete"


# -- how much ------------------------------------------------------------------------------------


@reaches("memory_bytes", memory_bytes=100_000)
async def bring_much(stage):
    assert "error" in (await call(stage, key=["x"] * 10_000).ended()).messages[0]


@reaches("max_body_bytes", http={"max_body_bytes": 100})
async def post_much(stage):
    assert (await call(stage, key="x" * 100).ended()).status == 413


@reaches("outbox_items", outbox_items=2)
@reaches("outbox_bytes", outbox_bytes=1_000)
async def say_much_to_a_client_that_does_not_read(stage):
    calling = call(stage, log_level="debug")
    running = await stage.call()
    calling.stall()
    for _ in range(10):
        await running.ctx.info("x" * 100)


@reaches("held_items", held_items=1)
async def hold_two(stage):
    inside = stage.bus.sessions[(await stage.probe.initialize(headers=BOB)).id]
    for _ in range(2):
        inside.notify("notifications/x")


# -- how long ------------------------------------------------------------------------------------


@reaches("held_timeout", held_timeout=10)
async def hold_for_long(stage):
    inside = stage.bus.sessions[(await stage.probe.initialize(headers=BOB)).id]
    inside.notify("notifications/x")
    await trio.sleep(11)


@reaches("idle_timeout", idle_timeout=10)
async def say_nothing(stage):
    await stage.probe.initialize(headers=BOB)
    await trio.sleep(stage.bus.limits.initialize_timeout + 1)
    assert not stage.bus.sessions


@reaches("initialize_timeout", initialize_timeout=10)
async def never_say_initialized(stage):
    await stage.probe.initialize(initialized=False, headers=BOB)
    await trio.sleep(11)
    assert not stage.bus.sessions


@reaches("on_session_timeout", on_session_timeout=10)
async def wait_in_a_hook(stage):
    @stage.server.on_session
    async def wait(_session):
        await trio.sleep_forever()

    refused = await stage.probe.post(INITIALIZE, BOB).ended()
    assert refused.messages[0]["error"]["message"] == "The session could not be registered in time"


@reaches("abandoned_timeout", abandoned_timeout=10)
async def leave_a_legacy_request(stage):
    session = await stage.probe.initialize(headers=BOB)
    calling = session.request("tools/call", tool())
    running = await stage.call()
    calling.disconnect()
    await trio.sleep(11)
    assert running.outcome == "cancelled"


@reaches("input_timeout", input_timeout=10)
async def answer_no_question(stage):
    session = await stage.probe.initialize(headers=BOB, capabilities={"elicitation": {}})
    session.request("tools/call", tool())
    running = await stage.call()
    with pytest.raises(InputTimeoutError):
        await running.ctx.elicit("?", str, timeout=60)


@reaches("suspended_timeout", suspended_timeout=10)
async def never_come_back(stage):
    await call(stage, "ask", capabilities={"elicitation": {}}).ended()
    await trio.sleep(11)


@reaches("task_ttl", task_ttl=10)
async def run_for_long(stage):
    async with tasks(stage) as client:
        await client.call_tool("task")
        await trio.sleep(11)


@reaches("body_timeout", whom="192.0.2.1", body_timeout=10)
async def send_no_body(stage):
    fields = [
        (b"host", b"localhost"),
        (b"content-type", b"application/json"),
        (b"accept", b"application/json"),
    ]
    scope = {"type": "http", "method": "POST", "path": "/mcp", "client": ("192.0.2.1", 1), "headers": fields}
    sent = []

    async def send(message):
        await trio.lowlevel.checkpoint()
        sent.append(message)

    await stage.bus.asgi()(scope, trio.sleep_forever, send)
    assert sent[0]["status"] == 408


@reaches("write_deadline", write_deadline=10)
async def read_nothing(stage):
    calling = call(stage, log_level="debug")
    running = await stage.call()
    calling.stall()
    await running.ctx.info("late")
    await trio.sleep(11)
    assert running.outcome == "cancelled"


class Hung(MemoryEventStore):
    async def append(self, *_, **__):
        await trio.sleep_forever()


@reaches("store_deadline", whom=None, event_store=Hung(), store_deadline=10)
async def keep_nothing(stage):
    session = await stage.probe.initialize(headers=BOB)
    session.request("tools/call", tool(), progress_token=1)
    running = await stage.call()
    await running.ctx.progress(1)
    await trio.sleep(11)


# -- the test ------------------------------------------------------------------------------------


def furnish(server):
    @server.tool
    async def ask(ctx: Context, key: str = "") -> str:
        return str(await ctx.elicit("?", str))

    @server.tool(task="optional")
    async def task(ends: bool = False) -> str:
        if not ends:
            await trio.sleep_forever()
        return "ended"


async def authenticate(head):
    await trio.lowlevel.checkpoint()
    return head.headers.get(b"authorization")


@pytest.mark.parametrize(
    "limit", [pytest.param(name, marks=RELAYED) if name == "memory_bytes" else name for name in reaching]
)
async def test_a_limit_that_is_reached_is_counted_and_the_log_says_through_whom(
    limit, autojump_clock, caplog
):
    caplog.set_level(logging.INFO, "mcpbus")
    reach, whom, options = reaching[limit]
    async with staged(authenticate=authenticate, **options) as stage:
        furnish(stage.server)
        assert limit not in stage.bus.statistics().limits_reached
        await reach(stage)
        assert stage.bus.statistics().limits_reached[limit] >= 1
        [said] = [record for record in caplog.records if record.message.startswith(f"{limit} was reached")]
        assert said.message.startswith(
            f"{limit} was reached by {whom}: " if whom else f"{limit} was reached: "
        )
        assert said.levelno == (logging.INFO if limit in USUAL else logging.WARNING)


async def say_much_on_a_listen(stage):
    uris = [f"res://{n}" for n in range(4)]
    stream = listen(stage, resourceSubscriptions=uris)
    await stream.message()
    stream.stall()
    for uri in uris:
        stage.bus.resource_updated(uri)
        await stage.quiet()


async def say_much_in_a_request(stage):
    stream = call(stage)
    running = await stage.call()
    stream.stall()
    for n in range(4):
        await running.ctx.notify("notifications/x", {"n": n})
        await stage.quiet()


@pytest.mark.parametrize(
    ("say_much", "stream", "method"),
    [
        (say_much_on_a_listen, "a listen", "notifications/resources/updated"),
        (say_much_in_a_request, "the answer to a request", "notifications/x"),
    ],
)
async def test_the_log_says_whose_stream_is_full_which_and_at_what(
    say_much, stream, method, autojump_clock, caplog
):
    async with staged(authenticate=authenticate, limits={"outbox_items": 1}) as stage:
        await say_much(stage)
        [said] = [line for line in caplog.messages if line.startswith("outbox_items")]
        assert said == (
            f"outbox_items was reached by bob: its client reads {stream} too slowly, "
            f"and something was discarded at {method}"
        )


def test_no_limit_is_left_out():
    fields = attrs.fields_dict(Limits).keys()
    assert fields == (reaching.keys() - attrs.fields_dict(HttpOptions).keys()) | NO_LIMIT.keys()
    assert not reaching.keys() & NO_LIMIT.keys()
