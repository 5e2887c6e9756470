"""Nine tools of well-known public servers, written as functions of Python with types.

Parameters and their rules follow the tools' public documentation. Bodies work on data in memory.
"""

# The parameters and defaults are those of the tools.
# ruff: noqa: B006, B008, N803, PLR0917

import datetime as dt
import difflib
import enum
import sqlite3
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

import pydantic as p
from pydantic.alias_generators import to_camel
from typing_extensions import TypedDict

from mcpbus import Server, ToolError


class Edit(p.BaseModel):
    """One replacement of a text."""

    model_config = p.ConfigDict(alias_generator=to_camel)

    old_text: str = p.Field(min_length=1, description="Text to search for, which must match exactly")
    new_text: str = p.Field(description="Text to replace it with")


class Entity(TypedDict):
    name: Annotated[str, p.Field(description="The name of the entity", min_length=1)]
    entityType: Annotated[str, p.Field(description="The type of the entity")]
    observations: Annotated[list[str], p.Field(description="Texts about the entity")]


class Text(p.BaseModel):
    type: Literal["text"]
    text: str


class Image(p.BaseModel):
    type: Literal["image"]
    data: p.Base64Bytes
    mime_type: Annotated[str, p.Field(alias="mimeType", pattern="^image/")] = "image/png"


class Link(p.BaseModel):
    type: Literal["resource_link"]
    uri: p.AnyUrl
    name: str | None = None


Block = Annotated[Text | Image | Link, p.Field(discriminator="type")]


class Role(enum.StrEnum):
    USER = "user"
    ASSISTANT = "assistant"


@dataclass
class ChatMessage:
    """A message of a chat.

    Args:
        role: The author of the message
        content: The text, or the blocks of it
        at: The time at which it was sent
    """

    role: Role
    content: str | list[Block]
    at: p.AwareDatetime | None = None


class Closed(p.BaseModel):
    state: Literal["closed"]
    reason: Literal["completed", "not_planned", "duplicate"] = "completed"
    duplicate_of: p.PositiveInt | None = None

    @p.model_validator(mode="after")
    def names_the_other(self) -> "Closed":
        if (self.reason == "duplicate") != (self.duplicate_of is not None):
            raise ValueError("duplicate_of belongs to the reason duplicate")
        return self


class Open(p.BaseModel):
    state: Literal["open"] = "open"


def one_statement(query: str) -> str:
    """Return a query that only reads."""
    if not query.lstrip().upper().startswith(("SELECT", "WITH")):
        raise ValueError("only SELECT statements are allowed")
    return query


FILES = {"notes.txt": "one\ntwo\nthree\n"}
GRAPH: dict[str, Entity] = {}
PAGE = "".join(f"line {i}\n" for i in range(1, 11))
DATABASE = sqlite3.connect(":memory:", check_same_thread=False)
DATABASE.executescript("create table cities (name text, people integer)")
DATABASE.executemany("insert into cities values (?, ?)", [("Bergen", 286930), ("Oslo", 709037)])


async def edit_file(
    path: PurePosixPath,
    edits: Annotated[list[Edit], p.Field(min_length=1)],
    dryRun: Annotated[bool, p.Field(description="Preview changes as a diff")] = False,
) -> str:
    """Make edits to a text file, and return a diff."""
    before = after = FILES[str(path)]
    for edit in edits:
        if edit.old_text not in after:
            raise ToolError(f"the file does not contain {edit.old_text!r}")
        after = after.replace(edit.old_text, edit.new_text, 1)
    if not dryRun:
        FILES[str(path)] = after
    return "".join(difflib.unified_diff(before.splitlines(keepends=True), after.splitlines(keepends=True)))


async def create_entities(entities: list[Entity]) -> list[Entity]:
    """Create entities in a graph of knowledge, and return those of these names."""
    return [GRAPH.setdefault(entity["name"], entity) for entity in entities]


async def sequentialthinking(
    thought: str,
    nextThoughtNeeded: bool,
    thoughtNumber: Annotated[int, p.Field(ge=1)],
    totalThoughts: Annotated[int, p.Field(ge=1)],
    isRevision: bool | None = None,
    revisesThought: Annotated[int | None, p.Field(ge=1)] = None,
    branchId: str | None = None,
) -> dict[str, Any]:
    """Think in steps.

    Args:
        thought: The current step
        nextThoughtNeeded: Whether another step follows
        thoughtNumber: The number of this step
        totalThoughts: An estimate of the number of steps
        isRevision: Whether this step revises an earlier one
        revisesThought: The number of the step that is revised
        branchId: The name of the branch
    """
    return {
        "thoughtNumber": thoughtNumber,
        "totalThoughts": max(thoughtNumber, totalThoughts),
        "nextThoughtNeeded": nextThoughtNeeded,
        "revises": revisesThought,
    }


async def read_query(
    query: Annotated[
        str, p.Field(description="SELECT statement to execute"), p.AfterValidator(one_statement)
    ],
    parameters: list[str | int | float | None] | dict[str, str | int | float | None] = [],
) -> list[dict[str, Any]]:
    """Run a query that reads, and return its rows."""
    found = DATABASE.execute(query, parameters)
    names = [column[0] for column in found.description]
    return [dict(zip(names, row, strict=True)) for row in found]


async def fetch(
    url: p.HttpUrl,
    max_length: Annotated[int, p.Field(gt=0, lt=1_000_000)] = 5000,
    start_index: Annotated[int, p.Field(ge=0)] = 0,
    raw: bool = False,
) -> str:
    """Fetch a page and return a part of it."""
    return f"{url.host}: {PAGE[start_index : start_index + max_length]}" + (" (raw)" if raw else "")


async def render(content: list[Block]) -> list[str]:
    """Render blocks of content, each as a line."""
    lines = {
        "text": lambda b: b.text,
        "image": lambda b: f"{b.mime_type}, {len(b.data)} bytes",
        "resource_link": lambda b: str(b.uri),
    }
    return [lines[block.type](block) for block in content]


async def summarize(
    history: list[ChatMessage], since: dt.date | None = None, limit: Annotated[int, p.Field(le=100)] = 10
) -> dict[str, int]:
    """Count the messages of each role in a history."""
    wanted = [m for m in history if since is None or (m.at is not None and m.at.date() >= since)][:limit]
    return {role.value: sum(m.role is role for m in wanted) for role in Role}


async def issue_write(
    method: Literal["create", "update"],
    title: Annotated[str, p.StringConstraints(strip_whitespace=True, min_length=1, max_length=256)],
    labels: set[str] = set(),
    priority: Literal["urgent", "high", "normal", "low"] = "normal",
    number: p.PositiveInt | None = None,
    status: Annotated[Open | Closed, p.Field(discriminator="state")] = Open(),
    assignee: p.EmailStr | None = None,
) -> dict[str, Any]:
    """Create or update an issue."""
    if method == "update" and number is None:
        raise ToolError("an update needs a number")
    return {
        "title": title,
        "labels": sorted(labels),
        "priority": priority,
        "status": status,
        "assignee": assignee,
    }


async def browser_click(
    element: Annotated[str, p.Field(description="Description of the element")],
    ref: Annotated[
        str,
        p.Field(description="Reference to the element in the snapshot of the page", pattern=r"^e\d+$"),
    ],
    doubleClick: bool = False,
    button: Literal["left", "right", "middle"] | None = None,
    modifiers: list[Literal["Alt", "Control", "ControlOrMeta", "Meta", "Shift"]] | None = None,
    position: tuple[float, float] | None = None,
) -> str:
    """Click on an element of a page."""
    keys = "+".join([*(modifiers or ()), button or "left"])
    return f"{'double click' if doubleClick else 'click'} {keys} on {ref} ({element}) at {position}"


TOOLS = [
    edit_file,
    create_entities,
    sequentialthinking,
    read_query,
    fetch,
    render,
    summarize,
    issue_write,
    browser_click,
]


def make_server() -> Server:
    """Return a new server with the nine tools."""
    server = Server("known")
    for tool in TOOLS:
        server.tool(tool)
    return server
