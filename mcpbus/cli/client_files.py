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
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs

Entry: TypeAlias = dict[str, Any]


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
    """Put an entry into a file, which keeps all else that it has; the file is there as a whole, before and after.

    Args:
        file: The file; it need not be there yet.
        member: The member that holds the entries.
        name: The name of the entry; one of that name is replaced.
        entry: The entry.

    Returns:
        Whether there was one of that name.

    Raises:
        ValueError: The file is not what it should be, and was left as it is.
        OSError: It cannot be read or written.
    """
    # What a link leads to is written, not the link.
    file = file.resolve()
    document = _read(file)
    entries = document.setdefault(member, {})
    if not isinstance(entries, dict):
        raise ValueError(f"its {member} is not an object")  # noqa: TRY004 - the file's fault
    replaced = name in entries
    entries[name] = entry
    _write(file, json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    return replaced


def _read(file: Path) -> dict[str, Any]:
    try:
        text = file.read_text("utf-8-sig")
        document = json.loads(text) if text.strip() else {}
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError) as fault:
        raise ValueError(f"it is no JSON without comments: {fault}") from None
    if not isinstance(document, dict):
        raise ValueError("it is not an object")  # noqa: TRY004 - the file's fault
    return document


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    written = Path(name)
    try:
        with open(handle, "w", encoding="utf-8") as stream:  # noqa: PTH123 - it is open already
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        if file.exists():
            written.chmod(file.stat().st_mode & 0o777)
        written.replace(file)
    except BaseException:
        written.unlink(missing_ok=True)
        raise
