"""Where MCP clients read which servers there are, and how an entry looks in each.

Sources, as of November 2026:

- Claude Desktop: modelcontextprotocol.io, "Connect to local MCP servers" (macOS and Windows). Servers at a URL are connectors there, as
  "Connect to remote MCP servers" has it, and in its file programs that stand for them.
- Claude Code: code.claude.com/docs/en/mcp, "Project scope": ``.mcp.json`` at the root of the project.
- Cursor: cursor.com/docs/mcp, "Configuration locations": ``~/.cursor/mcp.json`` for all projects; it tells programs and URLs apart
  by their members.
- VS Code: code.visualstudio.com/docs/agents/reference/mcp-configuration: ``.vscode/mcp.json`` of the workspace, member ``servers``.
"""

import json
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Never, TypeAlias

import attrs

from mcpbus.protocol.private_files import PRIVATE, locked, replace

Entry: TypeAlias = dict[str, Any]

_SECRETS: Final = {"env", "headers"}
"""Members of an entry that can hold secrets."""


@attrs.frozen
class ClientFile:
    """The file of one client.

    Attributes:
        title: The client, as people call it.
        find: Returns where the file is, if it is known for this system.
        member: The member of the file that holds the servers.
        typed: Whether an entry says its ``type``.
        urls: Whether an entry may be a URL.
        then: What to do once it is written.
    """

    title: str
    find: Callable[[], Path | None]
    member: str = "mcpServers"
    typed: bool = True
    urls: bool = True
    then: str = ""


def _find_claude_desktop() -> Path | None:
    name = "claude_desktop_config.json"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "Claude" / name
    if "APPDATA" in os.environ:
        return Path(os.environ["APPDATA"]) / "Claude" / name
    return None


CLIENT_FILES: Final = {
    "claude-desktop": ClientFile(
        "Claude Desktop", _find_claude_desktop, typed=False, urls=False, then="Quit it and open it again."
    ),
    "claude-code": ClientFile(
        "Claude Code",
        lambda: Path.cwd() / ".mcp.json",
        then="It is for this folder's project; claude asks before it uses it.",
    ),
    "cursor": ClientFile(
        "Cursor", lambda: Path.home() / ".cursor" / "mcp.json", typed=False, then="Restart it."
    ),
    "vscode": ClientFile(
        "VS Code",
        lambda: Path.cwd() / ".vscode" / "mcp.json",
        member="servers",
        then="It is for this folder's workspace.",
    ),
}


def merge_entry(file: Path, member: str, name: str, entry: Entry) -> bool:
    """Put an entry into a file, and keep all else in it. Concurrent calls, also of other processes, come one after the other.

    The mode of a new file, and of one that gets secrets, is 0600. Another one keeps its mode.

    Args:
        file: The file; it need not be there yet. Where a link leads, is written.
        member: The member that holds the entries.
        name: The name of the entry; one of that name is replaced.
        entry: The entry.

    Returns:
        Whether there was one of that name.

    Raises:
        ValueError: The file is not what it should be, and was left as it is.
        OSError: It cannot be read or written.
    """
    file = Path(
        os.path.realpath(file)
    )  # `Path.resolve` raises a RuntimeError for links that lead in a circle
    file.parent.mkdir(exist_ok=True)
    with locked(file.parent):
        document = _read(file)
        entries = document.setdefault(member, {})
        if not isinstance(entries, dict):
            raise ValueError(f"its {member} is not an object")  # noqa: TRY004 - the file's fault
        replaced = name in entries
        entries[name] = entry
        text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        kept = file.exists() and not entry.keys() & _SECRETS
        replace(file, text.encode(), mode=file.stat().st_mode & 0o777 if kept else PRIVATE)
    return replaced


def _read(file: Path) -> dict[str, Any]:
    try:
        text = file.read_text("utf-8-sig")
        document = _decode(text) if text.strip() else {}
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError) as fault:
        raise ValueError(f"it is no JSON without comments: {fault}") from None
    if not isinstance(document, dict):
        raise ValueError("it is not an object")  # noqa: TRY004 - the file's fault
    return document


def _decode(text: str) -> Any:
    """Decode JSON that can be written again without a loss.

    Raises:
        ValueError: It is no JSON, or another number or less than all members would be written.
    """
    return json.loads(
        text, parse_constant=_refuse_constant, parse_float=_parse_float, object_pairs_hook=_parse_object
    )


def _refuse_constant(word: str) -> Never:
    raise ValueError(f"{word} is no number")


def _parse_float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text} is too large to be kept")
    return number


def _parse_object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(members)
    if len(document) < len(members):
        names = [name for name, _ in members]
        raise ValueError(f"it has two members {next(name for name in names if names.count(name) > 1)!r}")
    return document
