"""A gateway of servers that hang, flood their standard error or stop reading, and what its other clients notice of them."""

import time
from contextlib import AsyncExitStack
from functools import partial

import pytest
import trio

from mcpbus import ProtocolError
from mcpbus.client import ClientError, connect_http
from tests.gateways.seen import all_listed
from tests.gateways.upstreams import awkward, gateway, hanging, program, write_file

pytestmark = pytest.mark.xdist_group("gateways")
ATTEMPTS = 5
"""How often a time is measured that a busy machine may prolong: a fault prolongs each of them."""
SECONDS = 90
MEGABYTES_3 = "x" * 3_000_000


async def seconds_to_start(file):
    """Start a gateway; return the seconds until it has answered a client's first request."""
    began = time.perf_counter()
    async with gateway(file) as running, connect_http(running.url, revision="2025-11-25"):
        return time.perf_counter() - began


async def test_a_gateway_starts_within_two_seconds_although_servers_hang(tmp_path):
    with hanging() as nowhere, trio.fail_after(SECONDS):
        broken = write_file(
            tmp_path / "broken.json", {"hangs": {"url": nowhere}, "silent": awkward("silent")}
        )
        # The time in which this machine starts a gateway that waits for nothing is not the gateway's.
        sound = write_file(tmp_path / "sound.json", {"gone": program("no-such-program")})
        for _ in range(ATTEMPTS):
            if await seconds_to_start(broken) - await seconds_to_start(sound) < 2:
                return
    pytest.fail("each start took two seconds longer with servers that hang")


async def test_others_get_answers_within_a_second_while_servers_hang_flood_and_stop_reading(tmp_path):
    with hanging() as nowhere, trio.fail_after(SECONDS):
        entries = {name: awkward(name) for name in ("plain", "floods", "deaf", "silent")}
        file = write_file(tmp_path / "desk.json", entries | {"hangs": {"url": nowhere}})
        async with gateway(file) as running, AsyncExitStack() as stack:
            await all_listed(running.url, ["plain", "floods", "deaf"])

            async def connect(number, **options):
                address = {"x-forwarded-for": f"192.0.2.{number}"}
                return await stack.enter_async_context(connect_http(running.url, headers=address, **options))

            attacker = await connect(1, revision="2025-11-25")
            others = [await connect(2, revision="2025-11-25"), await connect(3, revision="2026-07-28")]
            await attacker.call_tool("deaf_echo")
            for other in others:  # the processes that are theirs have started then
                for server in ("plain", "floods", "deaf"):
                    await other.call_tool(f"{server}_echo", {"text": "x"})
                await other.list_tools()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(fails, attacker, "deaf_deafen", {})
                for _ in range(10):
                    nursery.start_soon(fails, attacker, "deaf_echo", {"text": MEGABYTES_3})
                nursery.start_soon(fails, attacker, "silent_echo", {})
                nursery.start_soon(fails, attacker, "hangs_echo", {})
                times = [await worst_of_a_round(others) for _ in range(ATTEMPTS)]
                nursery.cancel_scope.cancel()
            assert min(times) < 1, f"each of {ATTEMPTS} rounds had an answer that took longer: {times}"

            flood = [line for line in running.log.lines if "31mflood" in line]
            assert flood
            assert not [line for line in flood if "\x1b" in line or "\x07" in line or "floods: " not in line]


async def fails(client, tool, arguments):
    """Call a tool that does not answer: the call ends with the test, or with an error."""
    try:
        await client.call_tool(tool, arguments)
    except (ClientError, ProtocolError):
        return


async def worst_of_a_round(clients):
    """Have each client list and call at the same time as the others; return the seconds that the slowest answer took."""
    took = []

    async def run(client):
        for server in ("plain", "floods", "deaf"):
            for ask in (client.list_tools, partial(client.call_tool, f"{server}_echo", {"text": "x"})):
                began = time.perf_counter()
                await ask()
                took.append(time.perf_counter() - began)

    async with trio.open_nursery() as nursery:
        for client in clients:
            nursery.start_soon(run, client)
    return max(took)
