"""A program over standard input and output gets nothing of HTTP, and the log states that where it is served over HTTP."""

import logging
import sys

import pytest
from upstreams import proxy_of, upstream, weather

from mcpbus import Proxy, Server

NOT_CARRIED = "HTTP does not reach a program over standard input and output ({}): no tokens, no header fields, no get_access_token(), "


async def somebody(headers):
    return "somebody"


async def opened_over_http(server):
    async with server.open() as bus:
        bus.asgi()


@pytest.mark.parametrize("mounted", [False, True])
async def test_the_log_states_what_http_does_not_carry_to_a_program(mounted, caplog):
    server = Proxy([sys.executable, "-c", "raise SystemExit"], name="files", optional=True)
    if mounted:
        server, proxy = Server("desk"), server
        server.mount(proxy, prefix="a")
    await opened_over_http(server)
    lines = [line for line in caplog.messages if "HTTP does not reach" in line]
    assert lines == [
        NOT_CARRIED.format("files")
        + "no custom routes. This server checks no tokens either: --resource and --issuer, or auth=, have it check them."
    ]


async def test_the_log_states_that_a_server_checks_tokens_in_front_of_a_program(caplog):
    caplog.set_level(logging.INFO)
    server = Proxy(["no-such-program"], name="files", optional=True, authenticate=somebody)
    await opened_over_http(server)
    assert (
        f"{NOT_CARRIED.format('files')}no custom routes. This server checks who its clients are."
        in caplog.messages
    )


async def test_the_log_has_nothing_of_programs_where_there_is_none(caplog):
    async with upstream(weather()) as reached:
        await opened_over_http(proxy_of(reached))
    await opened_over_http(Proxy("http://127.0.0.1:9/mcp", optional=True))
    assert "HTTP does not reach" not in caplog.text
