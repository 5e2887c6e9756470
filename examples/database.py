"""A database explorer over SQLite, whose clients hear of changes: ``FILE=books.db python examples/database.py``."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from mcpbus import Depends, ResourceNotFoundError, Server, SyncContext, ToolAnnotations, ToolError

FILE = os.environ.get("FILE", "explored.db")
WRITING = {sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE}

server = Server("database", instructions="Read db://tables first. Write SQL as SQLite has it.")


def connect() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(FILE)) as database:
        yield database


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
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


@server.tool
def change(sql: str, ctx: SyncContext, database: sqlite3.Connection = Depends(connect)) -> int:
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
        ctx.bus.resource_updated(f"db://tables/{table}")
    return rows


@server.resource("db://tables")
def tables(database: sqlite3.Connection = Depends(connect)) -> list[str]:
    """The names of the tables."""
    return [name for (name,) in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]


@server.resource("db://tables/{name}")
def table(name: str, database: sqlite3.Connection = Depends(connect)) -> dict[str, Any]:
    """A table: its columns with their types, and how many rows it has."""
    columns = {row[1]: row[2] for row in database.execute("SELECT * FROM pragma_table_info(?)", [name])}
    if not columns:
        raise ResourceNotFoundError(f"there is no table {name!r}")
    quoted = name.replace('"', '""')
    [rows] = database.execute(f'SELECT count(*) FROM "{quoted}"').fetchone()  # noqa: S608 - it is there, and quoted
    return {"columns": columns, "rows": rows}


if __name__ == "__main__":
    server.run()
