"""The lifespan of an application that is served: entered before the first request, left after the last one."""

import pytest
import trio
from peers import get, respond, serving

from mcpbus.serving import LifespanError, ServeOptions, serve
from mcpbus.serving.lifespan import lifespan


class App:
    """An application whose lifespan does what a test wants."""

    def __init__(self, live):
        self.live = live

    async def __call__(self, scope, receive, send):
        if scope["type"] == "lifespan":
            await self.live(scope, receive, send)
        else:
            await respond(send, scope["state"].get("greeting", b"no state"))


async def obedient(scope, receive, send):
    for phase in ("startup", "shutdown"):
        assert (await receive())["type"] == f"lifespan.{phase}"
        await send({"type": f"lifespan.{phase}.complete"})


async def raises_at_once(scope, receive, send):
    raise NotImplementedError


async def raises_on_startup(scope, receive, send):
    (await receive())["body"]


async def returns_at_once(scope, receive, send):
    pass


async def fails_to_start(scope, receive, send):
    await receive()
    await send({"type": "lifespan.startup.failed", "message": "no database"})
    raise RuntimeError


async def fails_to_stop(scope, receive, send):
    await receive()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    raise RuntimeError("the database was already gone")


async def never_starts(scope, receive, send):
    await trio.sleep_forever()


async def test_requests_come_between_startup_and_shutdown():
    steps = []

    async def live(scope, receive, send):
        await receive()
        scope["state"]["greeting"] = b"hello from the lifespan"
        steps.append("started")
        await send({"type": "lifespan.startup.complete"})
        await receive()
        steps.append("stopped")
        await send({"type": "lifespan.shutdown.complete"})

    async with serving(App(live)) as served:
        assert steps == ["started"]
        assert b"hello from the lifespan" in await get(await served.connect())
        served.shutdown.set()
        await served.ended.wait()
    assert steps == ["started", "stopped"]


@pytest.mark.parametrize("live", [raises_at_once, raises_on_startup, returns_at_once, obedient])
async def test_an_application_without_a_lifespan_is_served(live):
    async with serving(App(live)) as served:
        assert b"no state" in await get(await served.connect())
        served.shutdown.set()
        await served.ended.wait()


@pytest.mark.parametrize(
    ("live", "message"),
    [(fails_to_start, "startup failed: no database"), (never_starts, "startup took more than 60 s")],
)
async def test_an_application_that_cannot_start_is_not_served(live, message, autojump_clock):
    with pytest.raises(LifespanError, match=message):
        await serve(App(live), ServeOptions(bind="127.0.0.1:0"))


async def test_a_failed_stop_is_told():
    with pytest.raises(LifespanError, match="the database was already gone"):
        async with lifespan(App(fails_to_stop)):
            pass


async def test_a_lifespan_that_dies_ends_the_server():
    die = trio.Event()

    async def dies(scope, receive, send):
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await die.wait()
        raise RuntimeError("the bus crashed")

    with pytest.RaisesGroup(pytest.RaisesExc(RuntimeError, match="the bus crashed"), flatten_subgroups=True):
        async with serving(App(dies)) as served:
            die.set()
            await served.ended.wait()
