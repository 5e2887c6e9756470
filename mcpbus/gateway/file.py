"""The file in which a client has its servers: what it holds, before any entry is looked at."""

import json
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

_MEMBERS: Final = ("mcpServers", "servers", "context_servers", "mcp_servers")
"""The members that hold the servers: those of most clients, of VS Code, of Zed and of Codex."""
_FILTERS: Final = ("allowMCPServers", "excludeMCPServers", "mcp.allowed", "mcp.excluded")
"""What Gemini CLI has beside them, to leave servers out."""
_COMMENT: Final = re.compile(r'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_LAST_COMMA: Final = re.compile(r'("(?:[^"\\]|\\.)*")|,(?=\s*[}\]])')
_EDITORS: Final = {".vscode", ".cursor"}


def read_servers(file: str | os.PathLike[str]) -> Any:
    """Return what a file holds.

    Args:
        file: JSON, with comments and commas before closing brackets, or TOML if its name ends in ``.toml``.

    Raises:
        OSError: It cannot be read.
        ValueError: It is neither, or names something twice.
    """
    text = Path(file).read_text("utf-8-sig")
    try:
        return tomllib.loads(text) if Path(file).suffix == ".toml" else _decode(text)
    except (ValueError, RecursionError) as fault:
        raise ValueError(f"{file} cannot be read: {fault}") from None


def find_servers(document: Any, where: str) -> Mapping[str, Any]:
    """Return the entries that a document holds, by the names of the servers.

    Args:
        document: What a file holds; one without a member for the servers is taken to hold them itself.
        where: What to call it in messages.

    Raises:
        ValueError: It names no servers, or has what would have no effect on them.
    """
    held = document if isinstance(document, Mapping) else {}
    members = [member for member in _MEMBERS if member in held]
    if len(members) > 1:
        raise ValueError(f"{where} has servers in {' and in '.join(members)}: put all into one of them")
    for name in _FILTERS if members else ():
        found: Any = held
        for part in name.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
        if found is not None:
            raise ValueError(
                f'{where} has {name!r} of Gemini CLI: write "disabled": true into each server to leave out'
            )
    servers = held[members[0]] if members else document
    if not isinstance(servers, Mapping) or not servers:
        raise ValueError(
            f'{where} names no servers: it has them as {{"mcpServers": {{"weather": {{"command": ...}}}}}}'
        )
    return servers


def workspace_of(file: str | os.PathLike[str]) -> Path:
    """Return the folder that ``${workspaceFolder}`` stands for: the one of the file, or above it if that is an editor's own."""
    folder = Path(file).absolute().parent
    return folder.parent if folder.name in _EDITORS else folder


def _decode(text: str) -> Any:
    for surplus in (_COMMENT, _LAST_COMMA):
        text = surplus.sub(lambda found: found[1] or " ", text)
    return json.loads(text, object_pairs_hook=_once)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"it has {twice!r} twice in one place")
    return made
