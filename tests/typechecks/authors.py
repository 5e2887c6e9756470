"""What type checkers see of what authors write: checked by `make lint`, and never run."""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any, assert_type

from mcpbus import Bus, Client, Context, Depends, Proxy, Receipt, Server, Session, SyncContext, Tool
from mcpbus.auth import Principal
from mcpbus.client import (
    ClientCredentials,
    FileTokenStorage,
    MemoryTokenStorage,
    OAuth,
    TokenStorage,
    connect_http,
)


class Database:
    """What handlers share."""

    name: str = "db"


@asynccontextmanager
async def lifespan(server: Server) -> AsyncIterator[Database]:
    assert_type(server.bus.state, Any)
    yield Database()


server = Server("typed", lifespan=lifespan)
named = Server[Database]("named", lifespan=lifespan)
bare = Server("bare")
assert_type(server, Server[Database])
assert_type(named, Server[Database])
assert_type(bare, Server[Any])


def connect() -> Database:
    return Database()


async def connect_async() -> Database:
    return Database()


def generate() -> Iterator[Database]:
    yield Database()


async def generate_async() -> AsyncIterator[Database]:
    yield Database()


entered = asynccontextmanager(generate_async)


@server.tool
async def find(
    word: str,
    ctx: Context[Database],
    *,
    a: Database = Depends(connect),
    b: Database = Depends(connect_async),
    c: Database = Depends(generate),
    d: Database = Depends(generate_async),
    e: Database = Depends(entered),
    f: Annotated[Database | None, Depends(connect)] = None,
) -> str:
    assert_type(ctx.state, Database)
    return word + ctx.state.name


assert_type(Depends(Database), Database)
wrong: int = Depends(connect)  # type: ignore[assignment]


@server.tool(tags=["typed"])
def find_plainly(word: str, ctx: SyncContext[Database]) -> str:
    assert_type(ctx.state, Database)
    ctx.bus.resource_updated("a://b")
    return word


@server.tool
async def whose(ctx: Context[Database, Principal]) -> str:
    assert_type(ctx.state, Database)
    assert_type(ctx.principal, Principal)
    return ctx.principal.subject


@server.tool
def whose_plainly(ctx: SyncContext[Database, Principal]) -> str:
    assert_type(ctx.principal, Principal)
    return ctx.principal.subject


@server.tool
async def any_state(ctx: Context) -> None:
    assert_type(ctx.state, Any)
    assert_type(ctx.principal, Any)


assert_type(server.add_tool(find, name="again"), Tool)


@server.on_request("com.example/search")
async def search(words: str, ctx: Context) -> dict[str, list[str]]:
    assert_type(ctx.client.extension("com.example/search"), Mapping[str, Any] | None)
    return {"found": [words]}


@server.on_session_end
async def leave(session: Session) -> None:
    assert_type(session.state, dict[str, Any])


async def main() -> None:
    async with server.open() as bus:
        assert_type(bus, Bus[Database])
        assert_type(bus.state, Database)
        told = bus.resource_updated("weather://oslo")
        assert_type(told[0], Receipt)
        assert_type(told[:2], Sequence[Receipt])


async def show(page: str) -> str | None:
    return page


stores: list[TokenStorage] = [MemoryTokenStorage(), FileTokenStorage("logins")]


async def log_in(url: str) -> None:
    by_person = OAuth(scopes=["files:read"], store=stores[0], open_page=show)
    by_itself = ClientCredentials(client_id="me", client_secret="...", store=stores[1])
    for auth in (by_person, by_itself):
        async with connect_http(url, auth=auth) as client:
            assert_type(client, Client)
    Proxy(url, login=OAuth(open_page=print, redirect=8123))
