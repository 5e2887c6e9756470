"""The fields that clients have in the entries of their files: each one is used here, left to the client, or refused with the reason.

Sources, as of November 2026: the configuration pages of Claude Code (code.claude.com/docs/en/mcp), Cursor (cursor.com/docs/mcp), VS Code
(code.visualstudio.com, "MCP configuration reference"), Codex (``mcp_servers`` of ``config.toml``), Zed (``context_servers`` of
``settings.json``), GitHub Copilot (``mcp-config.json``), Gemini CLI (``settings.json``), Kiro, Roo Code, Cline and Windsurf.

A field that is in no row is refused: it might be a filter, and a filter that has no effect opens what its author has closed.
"""

from difflib import get_close_matches
from typing import Any, Final

import attrs

from mcpbus.upstream.connection_pool import Isolation


@attrs.frozen
class Field:
    """One field of an entry.

    Attributes:
        clients: The clients that have it.
        meaning: Its meaning there.
        kind: The type of its value, if it is used.
        left: The reason why it has no effect here, where the client that calls the gateway has the matter in hand; else empty.
        refused: The reason why an entry with it is refused, and the way out; else empty.
    """

    clients: str
    meaning: str
    kind: Any = None
    left: str = ""
    refused: str = ""


_ASKS: Final = "the client that calls the gateway asks the user"
_LOGS_IN: Final = "`mcpbus login URL` logs in, with --client-id, --redirect and --scope"
_WAITS: Final = (
    "the client that calls the gateway has time limits of its own, and tool_timeout_sec limits each call here"
)
_SHOWN: Final = "it is for the client's own user interface"

FIELDS: Final = {
    # -- the server ------------------------------------------------------------------------------
    "type": Field(
        "Claude Code, Cursor, VS Code, Copilot", "stdio or local for a program, http for a URL", kind=str
    ),
    "transport": Field("Gemini CLI, Kiro", "the same as type", kind=str),
    "source": Field(
        "Zed", "custom for a server that the entry describes, extension for one of an extension", kind=str
    ),
    "command": Field("all", "the program", kind=str),
    "args": Field("all", "its arguments", kind=list[str]),
    "env": Field(
        "all",
        "variables of its environment; null takes one of envFile away",
        kind=dict[str, str | int | float | None],
    ),
    "envFile": Field("VS Code, Cursor", "a file with more variables; those of env come before", kind=str),
    "env_vars": Field(
        "Codex", "variables of the gateway's own environment that the program gets", kind=list[str]
    ),
    "cwd": Field("VS Code, Codex, Gemini CLI", "the folder that the program works in", kind=str),
    "url": Field("all but Claude Desktop", "the endpoint of Streamable HTTP", kind=str),
    "httpUrl": Field("Gemini CLI", "the same as url", kind=str),
    "serverUrl": Field("Windsurf", "the same as url", kind=str),
    "headers": Field(
        "Claude Code, Cursor, VS Code, Zed", "header fields of each request", kind=dict[str, str]
    ),
    "http_headers": Field("Codex", "the same as headers", kind=dict[str, str]),
    "env_http_headers": Field(
        "Codex", "header fields whose values are those of variables", kind=dict[str, str]
    ),
    "bearer_token_env_var": Field("Codex", "the variable that holds a bearer token", kind=str),
    "server": Field(
        "mcpbus", "a server in a Python file or a module, which runs in the process of the gateway", kind=str
    ),
    "revision": Field("mcpbus", "the only protocol revision to speak", kind=str),
    "isolation": Field("mcpbus", "the owner of a connection, as for Proxy", kind=Isolation),
    "login": Field("mcpbus", "the name of a login of mcpbus login URL --as NAME", kind=str),
    # -- whether it is offered, and how much of it ---------------------------------------------------
    "disabled": Field("Cline, Roo Code, Kiro, Windsurf", "the server is left out", kind=bool),
    "enabled": Field("Codex, Zed", "false leaves the server out", kind=bool),
    "required": Field("Codex", "the gateway does not start without it", kind=bool),
    "tools": Field(
        "Copilot, Codex", "the only tools to offer, or * for all", kind=list[str] | dict[str, dict[str, Any]]
    ),
    "includeTools": Field("Gemini CLI", "the only tools to offer", kind=list[str]),
    "enabled_tools": Field("Codex", "the only tools to offer", kind=list[str]),
    "excludeTools": Field("Gemini CLI", "tools that are not offered", kind=list[str]),
    "disabledTools": Field("Kiro, Roo Code, Windsurf", "tools that are not offered", kind=list[str]),
    "disabled_tools": Field("Codex", "tools that are not offered", kind=list[str]),
    "tool_timeout_sec": Field("Codex", "seconds after which a call fails", kind=float),
    # -- what the client in front of the gateway does ------------------------------------------------
    "alwaysAllow": Field("Roo Code", "tools that run without a question", left=_ASKS),
    "autoApprove": Field("Cline, Kiro", "tools that run without a question", left=_ASKS),
    "trust": Field("Gemini CLI", "all tools run without a question", left=_ASKS),
    "default_tools_approval_mode": Field("Codex", "when the user is asked", left=_ASKS),
    "timeout": Field("Claude Code, Cline, Gemini CLI, Zed", "a time limit, in several units", left=_WAITS),
    "startup_timeout_sec": Field("Codex", "a time limit for the start", left="the gateway starts without it"),
    "startup_timeout_ms": Field("Codex", "a time limit for the start", left="the gateway starts without it"),
    "supports_parallel_tool_calls": Field("Codex", "calls may overlap", left="calls always may"),
    "alwaysLoad": Field("Claude Code", "its tools are loaded at once", left=_SHOWN),
    "name": Field("Windsurf, Copilot", "a name for people", left=_SHOWN),
    "description": Field("Gemini CLI", "a description for people", left=_SHOWN),
    "icon": Field("several", "a picture", left=_SHOWN),
    "gallery": Field("VS Code", "where the entry comes from", left=_SHOWN),
    "version": Field("VS Code", "which version of it", left=_SHOWN),
    "dev": Field("VS Code", "development of the server", left="VS Code alone develops servers"),
    "watchPaths": Field("Roo Code", "files whose changes restart it", left="Roo Code alone restarts servers"),
    "remote": Field("Zed", "where an editor starts it", left="the gateway starts it on its own machine"),
    "oauth": Field("Claude Code, Codex, Gemini CLI", "how to log in", left=_LOGS_IN),
    "auth": Field("Cursor", "how to log in", left=_LOGS_IN),
    "scopes": Field("Codex", "what a login asks for", left=_LOGS_IN),
    "oauth_resource": Field("Codex", "what a login is for", left=_LOGS_IN),
    # -- what would have another effect than its author expects ----------------------------------------
    "headersHelper": Field(
        "Claude Code",
        "a command that prints header fields",
        refused="mcpbus runs no command for them: write headers with ${NAME}, or log in by `mcpbus login URL`",
    ),
    "sandboxEnabled": Field(
        "VS Code", "confine the program", refused="mcpbus confines no program: name one that does as command"
    ),
    "sandbox": Field(
        "VS Code",
        "how to confine the program",
        refused="mcpbus confines no program: name one that does as command",
    ),
    "settings": Field(
        "Zed",
        "settings of an extension",
        refused="mcpbus runs no extension of an editor: write command or url",
    ),
    "authProviderType": Field(
        "Gemini CLI", "credentials of Google's", refused="mcpbus has no such provider: write headers"
    ),
    "environment_id": Field(
        "Codex", "another machine to start it on", refused="mcpbus starts programs on its own machine alone"
    ),
}


def check_field(name: str, value: Any) -> None:
    """Refuse a field that no client is known to have, and one that cannot be honoured.

    Raises:
        ValueError: The message names the field and the reason.
    """
    field = FIELDS.get(name)
    if field is None:
        close = get_close_matches(name, FIELDS, 1)
        hint = f"did you mean {close[0]!r}?" if close else "take it out, or begin its name with '_'"
        raise ValueError(f"it has {name!r}, which mcpbus does not know and which might be a filter; {hint}")
    if field.refused and not is_plain(value):
        raise ValueError(f"it has {name!r} of {field.clients}: {field.refused}")


def is_comment(name: str) -> bool:
    """Whether a member of an object is a comment: authors begin names with ``_``, ``/``, ``#`` or ``$`` for want of comments in JSON."""
    return name.startswith(("_", "/", "#", "$"))


def is_plain(value: Any) -> bool:
    """Whether a value asks for nothing: null, false, or something empty."""
    return value is None or value is False or value in ("", [], {})
