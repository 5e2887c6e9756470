"""One server for many others, by the file in which MCP clients name them: each is a `Proxy`, and its names begin with its own."""

import json
import os
import re
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import msgspec

from mcpbus.client.oauth.grant import Grant
from mcpbus.features.errors import RegistrationError
from mcpbus.features.keywords import check_kinds
from mcpbus.proxy import Proxy
from mcpbus.server import Server
from mcpbus.upstream.pool import Isolation

_MEMBERS: Final = ("mcpServers", "servers")
"""Under which the servers are: as most clients have it, and as VS Code has."""
_REFERENCE: Final = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_OTHER_REFERENCE: Final = re.compile(r"\$\{(?!env:)[A-Za-z]+:(?!-)[^}]*\}")
_NO_PREFIX: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_COMMENT: Final = re.compile(r'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_LAST_COMMA: Final = re.compile(r'("(?:[^"\\]|\\.)*")|,(?=\s*[}\]])')
_HTTP: Final = {"http", "streamable-http", "streamableHttp"}


class _Entry(msgspec.Struct):
    """What of an entry is looked at: what clients have in it, the `revision` and the `isolation`; clients have more in it, which is theirs."""

    type: str | None = None
    command: str | None = None
    args: list[str] = []
    env: dict[str, str] = {}
    cwd: str | None = None
    url: str | None = None
    headers: dict[str, str] = {}
    revision: str | None = None
    isolation: Isolation = "client"
    disabled: bool = False

    def __post_init__(self) -> None:
        """Refuse what names no server.

        Raises:
            ValueError: Which msgspec turns into its ValidationError.
        """
        if self.url is None and self.command is None:
            raise ValueError('it has neither "command" nor "url"')
        if self.url is not None and self.type is not None and self.type not in _HTTP:
            raise ValueError(
                f"type is {self.type!r}: at a URL only Streamable HTTP is spoken, which is called http; has the server an endpoint "
                f'of that, such as /mcp? If not, write "disabled": true'
            )


def gateway(
    servers: str | os.PathLike[str] | Mapping[str, Any], *, name: str = "gateway", **options: Any
) -> Server[None]:
    """Make a server that offers what others do: a tool ``now`` of the server ``weather`` is ``weather_now``, and so are prompts.

    URIs stay as they are, unless several servers have them. A server that cannot be reached is left out until it can, and one that is
    ``disabled`` is left out. Where one at a URL asks for a login, what ``mcpbus login URL`` has kept is used. In each text ``${NAME}`` stands
    for a variable of the environment, and ``${NAME:-text}`` for one that need not be there. A file may have comments.

    Args:
        servers: The file in which a client has them, ``{"mcpServers": {"weather": {"command": ..., "args": [...]}}}`` or
            ``{"url": ..., "headers": {...}}``; or what it holds.
        name: What clients call it.
        **options: As for `Server`.

    Raises:
        ValueError: The file cannot be used; the message names the server and what is wrong.
        OSError: It cannot be read.
        TypeError: An option is not known.
    """
    check_kinds("gateway()", {"name": name})
    made: Server[None] = Server(name, capabilities=("tools", "prompts", "resources"), **options)
    prefixes: dict[str, str] = {}
    for key, entry in _entries(servers).items():
        if entry.disabled:
            continue
        prefix = _NO_PREFIX.sub("_", key)
        if (other := prefixes.setdefault(prefix, key)) != key:
            raise ValueError(
                f"servers {other!r} and {key!r} would both have the prefix {prefix!r}, of letters, digits, '_', '-' and '.'; rename one"
            )
        try:
            made.mount(_proxy(key, entry), prefix=prefix)
        except RegistrationError as fault:
            raise ValueError(f"server {key!r}: {fault}") from None
    return made


def _entries(servers: str | os.PathLike[str] | Mapping[str, Any]) -> dict[str, _Entry]:
    where = "what is given"
    if not isinstance(servers, Mapping):
        where = str(servers)
        try:
            servers = _decode(Path(servers).read_text("utf-8-sig"))
        except (ValueError, RecursionError) as fault:
            raise ValueError(f"{where} cannot be read: {fault}") from None
    found = next(
        (servers[member] for member in _MEMBERS if isinstance(servers, dict) and member in servers), servers
    )
    if not isinstance(found, Mapping) or not found:
        raise ValueError(
            f'{where} names no servers: it has them as {{"mcpServers": {{"weather": {{"command": ...}}}}}}'
        )
    return {key: _read(str(key), value, where) for key, value in found.items()}


def _decode(text: str) -> Any:
    """Read JSON in which there may be comments, and commas before closing brackets, as VS Code has it.

    Raises:
        ValueError: It is none, or names something twice.
    """
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


def _read(key: str, value: Any, where: str) -> _Entry:
    try:
        return msgspec.convert(_expanded(value), _Entry)
    except RecursionError:
        raise ValueError(f"{where}, server {key!r}: it is nested too deeply") from None
    except (msgspec.ValidationError, LookupError) as fault:
        raise ValueError(f"{where}, server {key!r}: {fault.args[0]}") from None


def _expanded(value: Any) -> Any:
    """Put in what variables of the environment have.

    Raises:
        LookupError: There is no such variable.
    """
    if isinstance(value, str):
        if (other := _OTHER_REFERENCE.search(value)) is not None:
            raise LookupError(
                f"{other[0]} is known to some clients alone: write a variable of the environment, ${{NAME}}"
            )
        return _REFERENCE.sub(_variable, value)
    if isinstance(value, Mapping):
        return {key: _expanded(each) for key, each in value.items()}
    return [_expanded(each) for each in value] if isinstance(value, list) else value


def _variable(found: re.Match[str]) -> str:
    name, otherwise = found.groups()
    value = os.environ.get(name, otherwise)
    if value is None:
        raise LookupError(
            f"there is no {name} in the environment; write ${{{name}:-text}} if it need not be there"
        )
    return value


def _proxy(key: str, entry: _Entry) -> Proxy:
    try:
        if entry.url is not None:
            return Proxy(
                entry.url,
                name=key,
                headers=entry.headers,
                login=_kept_login(),
                revision=entry.revision,
                isolation=entry.isolation,
                optional=True,
            )
        command = [str(entry.command), *entry.args]
        return Proxy(
            command,
            name=key,
            env=entry.env,
            cwd=entry.cwd,
            revision=entry.revision,
            isolation=entry.isolation,
            optional=True,
        )
    except (TypeError, ValueError) as fault:
        raise ValueError(f"server {key!r}: {fault}") from None


def _kept_login() -> Grant | None:
    """Return how to use logins that `mcpbus login` has kept: of several servers that ask for one at once, none opens a page."""
    try:
        client = import_module("mcpbus.client")
        kept: Grant = client.OAuth(store=client.FileStore(), open_page=None)
    except ImportError:  # what speaks HTTP is not installed, as the proxy says better
        return None
    return kept
