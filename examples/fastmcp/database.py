"""The database explorer with FastMCP 4.1; a client hears of the changes that it makes itself."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from fastmcp import Context, FastMCP
from fastmcp.dependencies import Depends
from fastmcp.exceptions import ResourceError, ToolError
from mcp.types import ResourceUpdatedNotification, ResourceUpdatedNotificationParams, ToolAnnotations

FILE = os.environ.get("FILE", "explored.db")
WRITING = {sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE}

mcp = FastMCP("database", instructions="Read db://tables first. Write SQL as SQLite has it.")


@contextmanager
def connect() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(FILE, check_same_thread=False)) as database:
        yield database


@mcp.tool(annotations=ToolAnnotations(read_only_hint=True))
def query(
    sql: str, limit: int = 100, database: sqlite3.Connection = Depends(connect)
) -> list[dict[str, Any]]:
    """Ask the database, by a SELECT."""
    database.execute("PRAGMA query_only = on")
    try:
        rows = database.execute(sql)
    except sqlite3.Error as error:
        raise ToolError(str(error)) from error
    names = [column[0] for column in rows.description or ()]
    return [dict(zip(names, row, strict=True)) for row in rows.fetchmany(limit)]


@mcp.tool
async def change(sql: str, ctx: Context, database: sqlite3.Connection = Depends(connect)) -> int:
    """Change the database, and return how many rows were; whoever watches a table of these is told."""
    changed = set()

    def note(action: int, table: str | None, *_: str | None) -> int:
        if action in WRITING:
            changed.add(table)
        return sqlite3.SQLITE_OK

    database.set_authorizer(note)
    try:
        with database:
            rows = database.execute(sql).rowcount
    except sqlite3.Error as error:
        raise ToolError(str(error)) from error
    for table in changed:
        params = ResourceUpdatedNotificationParams(uri=f"db://tables/{table}")
        await ctx.send_notification(ResourceUpdatedNotification(params=params))
    return rows


@mcp.resource("db://tables", mime_type="application/json")
def tables(database: sqlite3.Connection = Depends(connect)) -> list[str]:
    """The names of the tables."""
    return [name for (name,) in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]


@mcp.resource("db://tables/{name}", mime_type="application/json")
def table(name: str, database: sqlite3.Connection = Depends(connect)) -> dict[str, Any]:
    """A table: its columns with their types, and how many rows it has."""
    columns = {row[1]: row[2] for row in database.execute("SELECT * FROM pragma_table_info(?)", [name])}
    if not columns:
        raise ResourceError(f"there is no table {name!r}")
    quoted = name.replace('"', '""')
    [rows] = database.execute(f'SELECT count(*) FROM "{quoted}"').fetchone()  # noqa: S608 - it is there, and quoted
    return {"columns": columns, "rows": rows}


if __name__ == "__main__":
    mcp.run(transport="http")
