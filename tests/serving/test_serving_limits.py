"""Every limit of serving that can be reached is counted when it is, and the log says through whom."""

import attrs
import pytest
import trio
from houses import call, make_server
from peers import receive_all, serving
from test_tls import FILES

from mcpbus import HttpOptions, Limits
from mcpbus.serving import ServeOptions
from tests.at_home import A_MOMENT_LATER

NO_LIMIT = {
    "bind": "where to listen",
    "certfile": "a file",
    "keyfile": "a file",
    "ca_certs": "a file",
    "server": "who serves",
    "keep_alive_timeout": "a connection that nobody uses is closed, and nothing is lost with it",
    "websocket_ping_interval": "the pause after which a ping is sent",
    "unread_body_bytes": "a courtesy, for a request that has been answered",
    "unread_body_timeout": "likewise",
    "backlog": "the kernel's, who tells nobody",
}
"""Fields of `ServeOptions` that nobody can reach, or of which nobody need hear, and why."""

NO_HTTP_LIMIT = {
    "path": "an address",
    "allowed_hosts": "whom to serve",
    "allowed_origins": "whom to serve",
    "trusted_proxies": "whom to believe",
    "sessions": "a choice",
    "get_streams": "a choice",
    "http_sse": "a choice",
    "sse_path": "an address",
    "websocket": "a choice",
    "param_headers": "a choice",
    "root_path": "an address",
    "access_log": "a choice",
}
"""Likewise fields of `HttpOptions`."""

reaching = {}
"""How each limit is reached, with which options, and who the log says it was."""


def reaches(limit, whom="127.0.0.1", limits=None, http=None, **options):
    """Enter how a limit is reached by whoever is served with these options."""

    def enter(function):
        reaching[limit] = function, whom, limits or Limits(), http or {}, options
        return function

    return enter


@reaches("max_head_bytes", max_head_bytes=1024)
async def send_a_long_head(served):
    stream = await served.connect()
    await stream.send_all(b"GET / HTTP/1.1\r\nlong: " + b"x" * 1024)
    assert (await receive_all(stream)).startswith(b"HTTP/1.1 431")


@reaches("head_timeout", head_timeout=0.05)
async def send_half_a_head(served):
    stream = await served.connect()
    await stream.send_all(b"GET / HTTP/1.1\r\n")
    assert (await receive_all(stream)).startswith(b"HTTP/1.1 408")


@reaches("max_body_bytes", http={"max_body_bytes": 1000})
async def send_a_long_body(served):
    stream = await served.connect()
    await stream.send_all(call("echo", b"connection: close", text="x" * 1000))
    assert (await receive_all(stream)).startswith(b"HTTP/1.1 413")


@reaches("tls_handshake_timeout", tls_handshake_timeout=0.05, **FILES)
async def shake_no_hands(served):
    assert await receive_all(await served.connect()) == b""


@reaches("max_connections", max_connections=1)
async def connect_twice(served):
    first = await served.connect()
    await served.connect()
    assert await receive_all(first) == b""


@reaches("write_deadline", write_deadline=0.1)
async def read_nothing(served):
    stream = await served.connect(receive_buffer=4096)
    with pytest.raises(trio.BrokenResourceError):
        await stream.send_all(call("much") * 100_000)


@reaches("drain_timeout", whom=None, drain_timeout=0.05)
async def go_on_after_the_shutdown(served):
    stream = await served.connect()
    await stream.send_all(call("begin"))
    await served.begun.wait()
    served.shutdown.set()
    await served.ended.wait()


@pytest.mark.parametrize(
    "limit",
    [pytest.param(limit, marks=[A_MOMENT_LATER] if limit == "write_deadline" else []) for limit in reaching],
)
async def test_a_limit_that_is_reached_is_counted_and_the_log_says_through_whom(limit, caplog):
    reach, whom, limits, http, options = reaching[limit]
    server = make_server()

    @server.tool
    async def much() -> str:
        return "x" * 1_000_000

    @server.tool
    async def begin() -> None:
        served.begun.set()
        await trio.sleep_forever()

    async with (
        server.open(limits=limits, drain_timeout=0) as bus,
        serving(bus.asgi(**http), **options) as served,
    ):
        served.begun = trio.Event()
        await reach(served)
        assert bus.statistics().limits_reached[limit] >= 1
        said = [line for line in caplog.messages if line.startswith(f"{limit} was reached")]
        begins = f"{limit} was reached by {whom}: " if whom else f"{limit} was reached: "
        assert [line.startswith(begins) for line in said] == [True]


def test_no_limit_is_left_out():
    serve, http = attrs.fields_dict(ServeOptions).keys(), attrs.fields_dict(HttpOptions).keys()
    assert serve == reaching.keys() - http | NO_LIMIT.keys()
    assert http == reaching.keys() & http | NO_HTTP_LIMIT.keys()
    assert not reaching.keys() & (NO_LIMIT.keys() | NO_HTTP_LIMIT.keys())
