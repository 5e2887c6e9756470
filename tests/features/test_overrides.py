"""Functions that others depend on, replaced for a test."""

from contextlib import asynccontextmanager

import pytest

from mcpbus import Context, Depends, RegistrationError, Server
from mcpbus.testing import open_bus, open_client


def address() -> str:
    return "real"


def connect(at: str = Depends(address)) -> str:
    return f"database at {at}"


def library() -> Server:
    server = Server("library")

    @server.tool
    async def borrow(database: str = Depends(connect), at: str = Depends(address)) -> str:
        return f"{database}, {at}"

    @server.tool
    def count(database: str = Depends(connect)) -> str:
        return database

    @server.prompt
    async def ask(at: str = Depends(address)) -> str:
        return at

    return server


async def text(client, tool):
    return (await client.call_tool(tool))["content"][0]["text"]


async def test_it_is_replaced_wherever_it_is_asked_for_until_the_block_ends(autojump_clock):
    server = library()
    async with open_client(server, overrides={address: lambda: "fake"}) as client:
        assert await text(client, "borrow") == "database at fake, fake"
        assert await text(client, "count") == "database at fake"
        assert (await client.get_prompt("ask"))[0]["content"]["text"] == "fake"
    async with open_client(server) as client:
        assert await text(client, "borrow") == "database at real, real"


async def test_what_is_called_instead_may_be_of_any_kind_and_depend_on_others(autojump_clock):
    happened = []

    @asynccontextmanager
    async def connected(ctx: Context, at: str = Depends(address)):
        happened.append(f"opened at {at}")
        yield f"fake of {ctx.session is None}"
        happened.append("closed")

    async with open_client(library(), overrides={connect: connected}) as client:
        assert await text(client, "borrow") == "fake of True, real"
        assert await text(client, "count") == "fake of True"
    assert happened == ["opened at real", "closed"] * 2


async def test_a_server_that_is_mounted_is_tested_with_the_one_above(autojump_clock):
    above = Server("above")
    above.mount(library(), prefix="lib")
    async with open_client(above, overrides={connect: lambda: "fake"}) as client:
        assert await text(client, "lib_count") == "fake"


async def test_a_method_is_replaced_too(autojump_clock):
    class Pool:
        def take(self) -> str:
            return "real"

    pool, server = Pool(), Server("s")

    @server.tool
    async def use(connection: str = Depends(pool.take)) -> str:
        return connection

    async with open_client(server, overrides={pool.take: lambda: "fake"}) as client:
        assert await text(client, "use") == "fake"


def needy(name: str) -> str:
    return name


def circular(again: str = Depends(connect)) -> str:
    return again


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ({needy: address}, "nothing of 'library' depends on <function needy"),
        ({connect: needy}, "'needy': nobody fills its parameter 'name'"),
        ({connect: circular}, "depends on itself"),
    ],
)
async def test_what_cannot_be_replaced_is_refused_before_the_server_is_open(overrides, sentence):
    server = library()
    with pytest.raises(RegistrationError, match=sentence):
        async with open_bus(server, overrides=overrides):
            pass
    assert server.runner.overrides == {}
