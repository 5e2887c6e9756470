"""Whatever is given for any option that an author or a client's author writes: it is taken, or told by the name of the option.

The sentences themselves are in `test_mistakes`.
"""

import inspect
import math
from functools import partial

import attrs
import pytest
import trio
from trio.testing import MockClock

from mcpbus import HttpOptions, Limits, ServeOptions, Server
from mcpbus.client import connect_http, connect_process
from mcpbus.cluster import RedisReplicas
from mcpbus.testing import open_bus, open_client


def parameters(called, *without):
    names = [each.name for each in inspect.signature(called).parameters.values()]
    return [name for name in names if name not in {"self", "server", "http", "task_status", *without}]


def fields(options):
    return [field.name for field in attrs.fields(options)]


@attrs.frozen
class Opened:
    """Calls and enters; nothing that is opened stays so."""

    open: object

    def __call__(self, **options):
        trio.run(self._enter, options, clock=MockClock(autojump_threshold=0))

    async def _enter(self, options):
        with trio.move_on_after(1):
            async with self.open(**options):
                pass


@attrs.frozen
class Awaited:
    """Calls and awaits; nothing that is served stays so."""

    serve: object

    def __call__(self, **options):
        trio.run(self._wait, options, clock=MockClock(autojump_threshold=0))

    async def _wait(self, options):
        with trio.move_on_after(1):
            await self.serve(**{"bind": "127.0.0.1:0", **options})


def make(**options):
    return Server(**{"name": "s", **options})


def asgi(**options):
    make().asgi(**options)


def opening(**options):
    return make().open(**options)


def serving(**options):
    return make().serve(**options)


CALLED = {
    "Server": (make, parameters(Server)),
    "Limits": (Limits, fields(Limits)),
    "ServeOptions": (ServeOptions, fields(ServeOptions)),
    "HttpOptions": (HttpOptions, fields(HttpOptions)),
    "RedisReplicas": (
        lambda **options: RedisReplicas(**{"url": "redis://a", **options}),
        fields(RedisReplicas),
    ),
    "server.asgi()": (asgi, [*parameters(Server.asgi), *fields(HttpOptions)]),
    "server.open()": (Opened(opening), parameters(Server.open)),
    "server.serve()": (Awaited(serving), parameters(Server.serve)),
    "open_bus()": (Opened(partial(open_bus, Server("s"))), parameters(open_bus)),
    # Anything may be a principal.
    "open_client()": (Opened(partial(open_client, Server("s"))), parameters(open_client, "principal")),
    "connect_http()": (
        Opened(lambda **options: connect_http(**{"url": "http://127.0.0.1:9/", **options})),
        parameters(connect_http),
    ),
    "connect_process()": (
        Opened(lambda **options: connect_process(**{"command": ["true"], **options})),
        parameters(connect_process),
    ),
}
OPTIONS = [(owner, name) for owner, (_, names) in CALLED.items() for name in names]
SECRET = object()
ODD = [5, -1, 2.5, math.nan, 10**400, True, "x", "\ud800", b"x", ["x"], [5], [None], {"a": 1}, {5}, int]


def told(owner, name, value):
    """What is said of a value; None if it is taken."""
    try:
        CALLED[owner][0](**{name: value})
    except (TypeError, ValueError) as error:
        return str(error)
    return None


@pytest.mark.parametrize(("owner", "name"), OPTIONS)
def test_no_option_takes_what_is_nothing_at_all(owner, name):
    said = told(owner, name, SECRET)
    assert said is not None
    assert name in said or "not a log level" in said or said.startswith(("cannot bind to", "header "))
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize(("owner", "name"), [row for row in OPTIONS if row[0] in {"Server", "server.asgi()"}])
def test_what_is_odd_is_told_by_name(owner, name):
    for value in ODD:
        said = told(owner, name, value)
        assert said is None or name in said, value


@pytest.mark.parametrize("options", [Limits, ServeOptions, HttpOptions])
def test_a_count_is_whole_and_no_number_is_beyond_reckoning(options):
    for field in attrs.fields(options):
        if field.type in {int, int | None}:
            with pytest.raises(TypeError, match=f"{field.name} is a whole number, not 2.5"):
                options(**{field.name: 2.5})
        if field.type in {int, int | None, float}:
            with pytest.raises(ValueError, match=field.name):
                options(**{field.name: 10**400})
            with pytest.raises((TypeError, ValueError), match=field.name):
                options(**{field.name: math.nan})
