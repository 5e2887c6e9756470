"""The official SDK's client with a proxy between it and our server, which the proxy reaches in process, over HTTP, or by a program."""

from contextlib import asynccontextmanager
from functools import partial

import interop_server
import pytest
from sdk_checks import CHECKS, wrong_calls
from sdk_client import REVISIONS, TOLERATED, served, stdio_program, to_url

from mcpbus.proxy import Proxy

pytestmark = TOLERATED

OLD, NEW = "2025-11-25", "2026-07-28"


@asynccontextmanager
async def in_process(there):
    async with interop_server.make_server().open() as bus:
        yield Proxy(partial(bus.connect, revision=there), page_size=4)


@asynccontextmanager
async def at_a_url(there):
    async with served() as server:
        yield Proxy(server.url, revision=there, page_size=4)


@asynccontextmanager
async def a_program(there):
    program = stdio_program()
    command = [program.command, *program.args]
    yield Proxy(command, env=program.env, cwd=program.cwd, revision=there, page_size=4)


# What is structured is shown to a client of 2026-07-28 as it is there: wrapped, by our server, where that speaks an older revision.
@pytest.mark.parametrize(
    ("revision", "there"),
    [(revision, there) for revision in REVISIONS for there in (OLD, NEW) if (revision, there) != (NEW, OLD)],
)
@pytest.mark.parametrize("reached", [in_process, at_a_url, a_program])
async def test_the_sdks_client_does_all_through_a_proxy(revision, reached, there):
    async with reached(there) as proxy, served(proxy) as server:
        for check in CHECKS:
            if check is wrong_calls and revision < OLD:
                continue  # bad arguments are told as the revision has it in which the other server is spoken to
            async with to_url(server.url, revision, log_level="warning") as link:
                await check(link)
