"""Figures for Prometheus: all that are counted, at an address of their own, until the drain is over."""

import logging
import re
from contextlib import asynccontextmanager, suppress
from functools import partial

import pytest
import trio
from wire import DEADLINE, Served, call, modernized

from mcpbus import Context, ServeOptions, Server
from mcpbus.core.statistics import Statistics
from mcpbus.metrics import MOST_READERS, OF_A_BUS, OF_CONNECTIONS, address_of, addresses_of, exposition
from mcpbus.serving import CannotListenError, ServerCounters
from mcpbus.testing import open_bus

LINE = re.compile(r'(mcpbus_[a-z0-9_]+)(?:\{[a-z]+="([a-z_]+)"\})? (\d+)')

WEBSOCKET = b"\r\n".join(
    (
        b"GET /metrics HTTP/1.1",
        b"host: h",
        b"connection: upgrade",
        b"upgrade: websocket",
        b"sec-websocket-version: 13",
        b"sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==",
        b"",
        b"",
    )
)


def read(page):
    """The figures of a page, each by its name and the value of its label."""
    figures, kinds, meant = {}, {}, []
    for line in page.decode().splitlines():
        if line.startswith("# HELP "):
            name, meaning = line.removeprefix("# HELP ").split(" ", 1)
            assert re.fullmatch(r"[A-Z][^\\]+\.", meaning)
            meant.append(name)
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in kinds
            assert name == meant[-1]
            assert kind == ("counter" if name.endswith("_total") else "gauge")
            kinds[name] = kind
        else:
            name, value, number = LINE.fullmatch(line).groups()
            assert name in kinds
            assert (name, value) not in figures
            figures[name, value] = int(number)
    assert meant == [*kinds]
    return figures


async def ask(figures):
    """The figures as they are now."""
    answer = await (await figures.peer()).exchange(verb="GET")
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert answer.headers["cache-control"] == "no-store"
    return read(answer.body)


def make_server(released=None):
    server = Server("measured")

    @server.tool
    async def talk(ctx: Context) -> str:
        await ctx.progress(1)
        await ctx.info("for those who asked for it")
        return "done"

    @server.tool
    async def wait(ctx: Context) -> str:
        await ctx.progress(1)
        await released.wait()
        return "released"

    return server


@asynccontextmanager
async def measured(server, caplog, **options):
    """Serve a server; yields what reaches it, and what reaches its figures."""
    caplog.set_level(logging.INFO, "mcpbus")
    options = {"bind": "127.0.0.1:0", "metrics": "127.0.0.1:0", **options}
    async with server.open() as bus, trio.open_nursery() as nursery:
        with trio.fail_after(DEADLINE):
            (url,) = await nursery.start(partial(bus.serve, **options))
            (there,) = re.findall(r"figures are at (\S+)", caplog.text)
            served, figures = Served(bus, url), Served(None, there)
            try:
                yield served, figures
            finally:
                served.close()
                figures.close()
                nursery.cancel_scope.cancel()


def test_all_that_is_counted_is_among_them():
    assert {figure.source for figure in OF_A_BUS} == {*Statistics.__struct_fields__}
    assert {figure.source for figure in OF_CONNECTIONS} == {*ServerCounters.__struct_fields__}


async def test_the_books_balance_on_the_page_and_what_never_was_is_there_with_0(autojump_clock):
    async with open_bus(make_server()) as bus, bus.connect() as client:
        await client.call_tool("talk")
        found = read(exposition(bus.statistics()))
    assert found["mcpbus_messages_discarded_total", "no_token"] == 1
    assert found["mcpbus_messages_discarded_total", "filtered"] == 1
    assert found["mcpbus_messages_discarded_total", "overflow"] == 0
    assert found["mcpbus_messages_pending", "outbox"] == 0
    books = dict.fromkeys((name for name, _ in found if name.startswith("mcpbus_messages_")), 0)
    for (name, _), number in found.items():
        if name in books:
            books[name] += number
    made = books.pop("mcpbus_messages_emitted_total") + books.pop("mcpbus_messages_adopted_total")
    assert made == sum(books.values()) == 3


async def test_a_limit_that_was_reached_is_there_by_its_name(autojump_clock):
    async with open_bus(make_server()) as bus:
        bus.limit_monitor.note("max_sessions", "somebody", "one was refused")
        assert read(exposition(bus.statistics()))["mcpbus_limits_reached_total", "max_sessions"] == 1


async def test_they_are_at_an_address_of_their_own_where_nothing_else_is(caplog):
    async with measured(make_server(), caplog) as (served, figures):
        peer = await served.peer()
        assert (await peer.modern(call("talk", id=1))).status == 200
        found = await ask(figures)
        assert found["mcpbus_messages_delivered_total", None] == 1
        assert found["mcpbus_connections", None] == found["mcpbus_connections_accepted_total", None] == 1
        for elsewhere in (
            await figures.peer(path=figures.url.replace("/metrics", "/mcp")),
            await served.peer(path=served.url.replace("/mcp", "/metrics")),
        ):
            assert (await elsewhere.exchange(verb="GET")).status == 404


async def test_they_can_be_read_and_nothing_else(caplog):
    async with measured(make_server(), caplog) as (_, figures):
        peer = await figures.peer()
        refused = await peer.exchange(b"x" * 1000, verb="POST")
        assert (refused.status, refused.headers["allow"]) == (405, "GET, HEAD")
        await peer.stream.send_all(b"HEAD /metrics HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n")
        head, _, body = b"".join([data async for data in peer.stream]).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        assert not body
        upgrade = await figures.peer()
        await upgrade.stream.send_all(WEBSOCKET)
        answer = b"".join([data async for data in upgrade.stream])
        assert answer.startswith(b"HTTP/1.1 501 ")
    assert "raised" not in caplog.text


@pytest.mark.parametrize(("bind", "is_told"), [("127.0.0.1:0", False), ("0.0.0.0:0", True)])
async def test_that_they_can_be_read_from_elsewhere_is_told(bind, is_told, caplog):
    async with measured(make_server(), caplog, metrics=bind) as (_, figures):
        host = figures.url.removesuffix("/metrics")
    told = f"figures at {host} are told without authorization: whoever reaches it may read them"
    assert (told in caplog.messages) == is_told


async def test_readers_who_stall_hold_up_neither_calls_nor_the_end(caplog):
    caplog.set_level(logging.INFO, "mcpbus")
    shutdown, options = trio.Event(), ServeOptions(drain_timeout=4 * DEADLINE)
    with trio.fail_after(DEADLINE):
        async with make_server().open() as bus, trio.open_nursery() as nursery:
            start = partial(bus.serve, bind="127.0.0.1:0", metrics="127.0.0.1:0", options=options)
            (url,) = await nursery.start(partial(start, shutdown=shutdown))
            (there,) = re.findall(r"figures are at (\S+)", caplog.text)
            served, figures = Served(bus, url), Served(None, there)
            for number in range(MOST_READERS + 10):
                reader = await figures.peer(receive_buffer=4096)
                page = reader.request(verb="GET")
                # One after the other says nothing, half a request, or many requests whose pages it does not read.
                with suppress(OSError):
                    await reader.stream.socket.send((b"", page[:20], page * 200)[number % 3])
            peer = await served.peer()
            assert (await peer.modern(call("talk", id=1))).status == 200
            served.close()
            shutdown.set()
    figures.close()


async def test_they_can_be_read_until_the_drain_is_over(caplog):
    shutdown, released = trio.Event(), trio.Event()
    async with measured(make_server(released), caplog, shutdown=shutdown) as (served, figures):
        peer = await served.peer()
        await peer.send(*modernized(call("wait", id=1, token="t")))
        assert (await peer.head())[0] == 200
        assert (await peer.said())["method"] == "notifications/progress"
        shutdown.set()
        while not served.bus.admission.closed:
            await trio.lowlevel.checkpoint()
        assert (await ask(figures))["mcpbus_requests", None] == 1
        released.set()
        assert (await peer.said())["result"]["content"][0]["text"] == "released"


@pytest.mark.parametrize(
    ("bind", "number", "place"),
    [
        ("127.0.0.1:9464", 0, "127.0.0.1:9464"),
        ("127.0.0.1:9464", 3, "127.0.0.1:9467"),
        ("[::1]:9464", 1, "[::1]:9465"),
        ("127.0.0.1:0", 3, "127.0.0.1:0"),
        ("unix:/run/figures", 0, "unix:/run/figures"),
        ("unix:/run/figures", 3, "unix:/run/figures.3"),
    ],
)
def test_each_worker_has_them_at_a_place_of_its_own(bind, number, place):
    assert address_of(bind, number) == place


@pytest.mark.parametrize("metrics", ["9464", 9464, True, ""])
async def test_what_is_no_address_is_refused_by_the_name_of_the_option_before_anything_is_opened(metrics):
    @asynccontextmanager
    async def never(_):
        raise AssertionError
        yield

    server = Server("unmeasured", lifespan=never)
    refused = partial(pytest.raises, ValueError, match=f"metrics is {metrics!r}: write HOST:PORT")
    with refused():
        await server.serve(bind="127.0.0.1:0", metrics=metrics)
    with refused():
        await trio.to_thread.run_sync(partial(server.run, bind="127.0.0.1:0", metrics=metrics))


def test_each_worker_has_room_for_its_own_and_who_takes_its_place_too():
    assert addresses_of("h:65533", 2) == ["h:65533", "h:65534", "h:65535"]
    assert addresses_of("h:65535") == ["h:65535"]
    for metrics, why in (
        ("h:65534", "and 2 workers need 3 ports"),
        ("fd://3", "one socket, and each worker"),
    ):
        with pytest.raises(ValueError, match=f"metrics is '{metrics}', {why}"):
            addresses_of(metrics, 2)


async def test_they_cannot_be_where_the_endpoint_is():
    with pytest.raises(CannotListenError, match=r"metrics: cannot listen on .*: the endpoint is there"):
        await make_server().serve(bind=["127.0.0.1:0", "127.0.0.1:9"], metrics="127.0.0.1:9")


async def test_where_they_cannot_be_nothing_is_served():
    with trio.socket.socket() as taken:
        await taken.bind(("127.0.0.1", 0))
        taken.listen()
        at = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(CannotListenError, match=f"metrics: cannot listen on {at}"):
            await make_server().serve(bind="127.0.0.1:0", metrics=at)
