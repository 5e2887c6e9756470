"""Who is asked who sends a request: it may be known at once, or take a while; what comes of the request is the same."""

import contextvars
import gc
import weakref

import pytest
import trio
from staging import staged, tool

from mcpbus import Context, UnauthorizedError
from tests.at_home import CONTAINED

PATIENCE = [pytest.param(0, id="at once"), pytest.param(3, id="later")]
WHO = contextvars.ContextVar("who", default="nobody")


def asked(seconds):
    """What authenticates: everybody but mallory, after a while, and leaves a note in a context variable."""

    async def authenticate(head):
        if seconds:
            await trio.sleep(seconds)
        name = head.headers.get("Authorization")
        if name in {None, "mallory"}:
            raise UnauthorizedError
        WHO.set(name)
        return name

    return authenticate


def as_(name):
    return {"authorization": name}


@pytest.mark.parametrize("seconds", PATIENCE)
async def test_a_handler_sees_who_was_found_and_what_was_noted(seconds, autojump_clock):
    async with staged(authenticate=asked(seconds)) as stage:

        @stage.server.tool
        async def who(ctx: Context, patient: bool = False) -> str:
            if patient:
                await trio.sleep(1)
            return f"{ctx.principal} {WHO.get()}"

        for name in ("alice", "bob"):
            for patient in (False, True):
                params = {"name": "who", "arguments": {"patient": patient}}
                post = stage.probe.request("tools/call", params, headers=as_(name))
                reply = await post.reply()
                assert reply["result"]["content"][0]["text"] == f"{name} {name}"
        assert WHO.get() == "nobody"
        assert trio.current_time() == pytest.approx(4 * seconds + 2)
        await stage.assert_nothing_is_left()


@pytest.mark.parametrize("seconds", PATIENCE)
async def test_whoever_is_refused_is_told_so_and_runs_nothing(seconds, autojump_clock):
    async with staged(authenticate=asked(seconds)) as stage:
        for name in ("mallory", None):
            post = stage.probe.request("tools/call", tool(), headers={} if name is None else as_(name))
            await post.ended()
            assert post.status == 401
            assert "www-authenticate" in post.headers
        assert stage.calls == {}
        await stage.assert_nothing_is_left()


async def test_a_client_may_leave_while_it_is_asked_who_it_is(autojump_clock):
    async with staged(authenticate=asked(3)) as stage:
        post = stage.probe.request("tools/call", tool(), headers=as_("alice"))
        await trio.sleep(1)
        post.disconnect()
        await trio.sleep(5)
        await stage.quiet()
        await stage.assert_nothing_is_left()


async def test_others_are_served_while_one_is_asked(autojump_clock):
    waits, first = trio.Event(), []

    async def authenticate(head):
        if not first:
            first.append(head)
            await waits.wait()
        return "somebody"

    async with staged(authenticate=authenticate) as stage:
        slow = stage.probe.request("tools/list")
        await stage.quiet()
        assert (await stage.probe.request("tools/list").reply())["result"]["tools"]
        assert not slow.over
        waits.set()
        assert (await slow.reply())["result"]["tools"]


async def test_a_stream_is_opened_once_it_is_known_for_whom(autojump_clock):
    async with staged(authenticate=asked(3)) as stage:
        session = await stage.probe.initialize(headers=as_("alice"))
        get = session.get()
        await get.begun()
        stage.bus.tools_changed()
        assert (await get.message())["method"] == "notifications/tools/list_changed"
        assert (await session.delete().ended()).status == 204
        await get.ended()
        await stage.assert_nothing_is_left()


@pytest.mark.parametrize("seconds", PATIENCE)
@pytest.mark.parametrize(
    ("fault", "reported"),
    [
        (RuntimeError("the directory is on fire"), RuntimeError),
        (UnauthorizedError("Bearer realm=\u20ac"), UnicodeEncodeError),
    ],
    ids=["raises", "not latin"],
)
@CONTAINED
async def test_a_fault_of_whoever_is_asked_is_reported(fault, reported, seconds, autojump_clock):
    async def authenticate(head):
        if seconds:
            await trio.sleep(seconds)
        raise fault

    with pytest.raises(BaseExceptionGroup) as caught:
        async with staged(authenticate=authenticate) as stage:
            await stage.probe.request("tools/list").ended()
    assert caught.group_contains(reported)


@pytest.mark.parametrize("waits", [False, True])
async def test_a_principal_that_knows_its_calls_is_forgotten_with_them(waits, autojump_clock):
    class User:
        pass

    async def authenticate(head):
        return User()

    async with staged(authenticate=authenticate) as stage:
        users = []

        @stage.server.tool
        async def call(ctx: Context) -> str:
            users.append(weakref.ref(ctx.principal))
            ctx.principal.last_call = ctx
            if waits:
                await trio.sleep(1)
            return "done"

        await stage.probe.request("tools/call", {"name": "call", "arguments": {}}).ended()
        stage.probe.disconnect()
        await stage.assert_nothing_is_left()
        gc.collect()
        assert [user() for user in users] == [None]
