"""Code that fails while it serves a request: the log says why, the client does not learn it, everything else goes on."""

import logging

import pytest
import trio
from wire import LEGACY, MODERN, call, initialize, message, modernized, serving

from mcpbus import Context, Server

SECRET = "postgres://user:swordfish@db"
ERAS = pytest.mark.parametrize("era", [LEGACY, MODERN])


class LeakError(Exception):
    """An exception whose text is nobody else's business."""


def make_server():
    server = Server("faulty")

    @server.tool
    async def crash(ctx: Context, late: bool = False) -> str:
        if late:
            await ctx.progress(1)
        raise LeakError(SECRET)

    @server.tool
    def crash_in_thread() -> str:
        raise LeakError(SECRET)

    @server.tool
    async def crash_together() -> str:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_leak)
        return "unreached"

    @server.tool
    async def unserializable() -> dict:
        return {"key": object()}

    @server.resource("crash://now")
    async def resource() -> str:
        raise LeakError(SECRET)

    @server.prompt
    async def review(code: str) -> str:
        raise LeakError(SECRET)

    @server.completion("review", "code")
    async def complete(value: str) -> list[str]:
        raise LeakError(SECRET)

    @server.tool
    async def echo(text: str) -> str:
        return text

    return server


async def _leak():
    raise LeakError(SECRET)


CRASHES = {
    "tool": call("crash", id=1),
    "tool in a thread": call("crash_in_thread", id=1),
    "tool with a nursery": call("crash_together", id=1),
    "resource": message("resources/read", {"uri": "crash://now"}, 1),
    "prompt": message("prompts/get", {"name": "review", "arguments": {"code": "x"}}, 1),
    "completion": message(
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "review"}, "argument": {"name": "code", "value": ""}},
        1,
    ),
}


@ERAS
@pytest.mark.parametrize("what", CRASHES)
async def test_the_text_of_a_crash_stays_in_the_log(what, era, caplog):
    async with serving(make_server()) as served:
        peer = await served.peer()
        if era == LEGACY:
            session = await peer.open_session()
            answered = await peer.exchange(CRASHES[what], session)
        else:
            answered = await peer.modern(CRASHES[what])
        assert answered.status == 200
        assert b"swordfish" not in answered.body
        if "tool" in what:
            assert answered.json["result"]["isError"] is True
        else:
            assert answered.json["error"] == {"code": -32603, "message": "Internal error"}
        (record,) = [one for one in caplog.records if one.levelno >= logging.ERROR]
        assert record.name == "mcpbus"
        assert SECRET in caplog.text
        assert "raise LeakError(SECRET)" in caplog.text
        assert (await peer.modern(call("echo", {"text": "well"}, id=1))).status == 200


@ERAS
async def test_a_crash_after_something_was_said_ends_the_stream(era):
    async with serving(make_server()) as served:
        peer = await served.peer()
        session = await (await served.peer()).open_session()
        body, headers = call("crash", {"late": True}, id=1, token=1), session
        if era == MODERN:
            body, headers = modernized(body)
        await peer.send(body, headers)
        await peer.head()
        assert (await peer.said())["method"] == "notifications/progress"
        assert (await peer.said())["result"]["isError"] is True
        assert await peer.said() is None


async def test_a_result_that_is_no_json_is_the_servers_fault(caplog):
    async with serving(make_server()) as served:
        answered = await (await served.peer()).modern(call("unserializable", id=1))
        assert answered.json["result"]["isError"] is True
        assert "object" in caplog.text


async def test_a_hook_that_raises_refuses_the_session(caplog):
    server = make_server()

    @server.on_session
    async def hook(session):
        raise LeakError(SECRET)

    async with serving(server) as served:
        refused = await (await served.peer()).exchange(initialize())
        assert refused.json["error"]["code"] == -32603
        assert b"swordfish" not in refused.body
        assert "mcp-session-id" not in refused.headers
        assert SECRET in caplog.text
        assert (await served.quiet()).sessions == 0


async def test_an_authenticate_that_raises_lets_nobody_in(caplog):
    async def authenticate(head):
        raise LeakError(SECRET)

    async with serving(Server("closed", authenticate=authenticate)) as served:
        refused = await (await served.peer()).exchange(initialize())
        assert refused.status == 500
        assert b"swordfish" not in refused.body
        assert SECRET in caplog.text
        assert (await (await served.peer()).exchange(initialize())).status == 500
        assert served.bus.statistics().actors == 0


async def test_a_handler_that_cancels_itself_answers_all_the_same(caplog):
    server = make_server()

    @server.tool
    async def gives_up() -> str:
        with trio.fail_after(0):
            await trio.sleep_forever()
        return "unreached"

    async with serving(server) as served:
        answered = await (await served.peer()).modern(call("gives_up", id=1))
        assert answered.json["result"]["isError"] is True
        assert "TooSlowError" in caplog.text
