"""One server for many others, by the file in which MCP clients name them: each is a `Proxy`, and its names begin with its own."""

import logging
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from importlib import import_module
from typing import Any, Final

import attrs

from mcpbus.client.oauth.discovery import server_uri
from mcpbus.client.oauth.flow import AuthFlow
from mcpbus.features.catalogue import Capability
from mcpbus.features.errors import RegistrationError
from mcpbus.features.option_types import check_kinds
from mcpbus.gateway.entry import Entry, read_entry
from mcpbus.gateway.file import find_servers, read_servers, workspace_of
from mcpbus.gateway.following import Following
from mcpbus.proxy import Proxy
from mcpbus.server import Server, check_lifespan

_log = logging.getLogger("mcpbus")
_NO_PREFIX: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_CAPABILITIES: Final[tuple[Capability, ...]] = ("tools", "prompts", "resources")
_AUTHORIZATION: Final = "authorization"


def gateway(
    servers: str | os.PathLike[str] | Mapping[str, Any],
    *,
    name: str = "gateway",
    follow: bool = False,
    **options: Any,
) -> Server[None]:
    """Make a server that offers what others do: a tool ``now`` of the server ``weather`` is ``weather_now``, and so are prompts.

    URIs stay as they are, unless several servers have them. A server that cannot be reached is left out until it can, and one that is ``disabled`` is left out. Where one at a
    URL asks for a login, what ``mcpbus login URL`` has kept is used. In each text ``${NAME}`` stands for a variable of the environment, and
    ``${NAME:-text}`` for one that need not be there. A file may have comments. A field that is unknown, or cannot be honoured, is refused by its
    name: see "Fields of an entry" in docs/gateway.md.

    Args:
        servers: The file in which a client has them, ``{"mcpServers": {"weather": {"command": ..., "args": [...]}}}`` or
            ``{"url": ..., "headers": {...}}``; or what it holds. A file in TOML, as Codex has it, ends in ``.toml``.
        name: What clients call it.
        follow: Whether the gateway follows changes of the file, while it is open: what is added there is offered, and what is removed or
            changed ends, after its calls in flight. Calls of other servers go on.
        **options: As for `Server`.

    Raises:
        ValueError: The file cannot be used; the message names the server and what is wrong.
        OSError: It cannot be read.
        TypeError: An option is not known.
    """
    check_kinds("gateway()", {"name": name, "follow": follow})
    entries = read_gateway(servers)
    proxies = {prefix: make_proxy(entry) for prefix, entry in entries.items()}
    _note_left(entries.values())
    made: Server[None] = Server(name, capabilities=_CAPABILITIES, **options)
    for prefix, proxy in proxies.items():
        try:
            made.mount(proxy, prefix=prefix)
        except RegistrationError as fault:
            raise ValueError(f"server {entries[prefix].name!r}: {fault}") from None
    if follow:
        if isinstance(servers, Mapping):
            raise TypeError("gateway(): follow is for a file: there are no changes of a dict to follow")
        lifespan = options.get("lifespan")
        check_lifespan(lifespan)
        following = Following(servers, partial(read_gateway, servers), make_proxy, lifespan)
        return Server(name, capabilities=_CAPABILITIES, **{**options, "lifespan": following.lifespan})
    return made


def read_gateway(servers: str | os.PathLike[str] | Mapping[str, Any]) -> dict[str, Entry]:
    """Return the entries of a gateway by their prefixes, without those that are disabled.

    Raises:
        ValueError: They cannot be used; the message names the server and what is wrong.
        OSError: The file cannot be read.
    """
    workspace = None
    where, document = "what is given", servers
    if not isinstance(servers, Mapping):
        where, document, workspace = str(servers), read_servers(servers), workspace_of(servers)
    found: dict[str, Entry] = {}
    for key, written in find_servers(document, where).items():
        try:
            entry = read_entry(key, written, workspace)
        except ValueError as fault:
            raise ValueError(f"{where}, server {key!r}: {fault}") from None
        if entry is None:
            continue
        prefix = _NO_PREFIX.sub("_", key)
        if (other := found.setdefault(prefix, entry)) is not entry:
            raise ValueError(
                f"servers {other.name!r} and {key!r} would both have the prefix {prefix!r}, of letters, digits, '_', '-' and '.'; rename one"
            )
        if entry.without:  # as the gateway's clients see them
            named = tuple(each.removeprefix(f"{prefix}_") for each in entry.without)
            found[prefix] = attrs.evolve(entry, without=tuple(dict.fromkeys((*entry.without, *named))))
    return _with_logins(found)


def make_proxy(entry: Entry) -> Proxy:
    """Make what stands for the server of an entry.

    Raises:
        ValueError: It cannot be right; the message names the server and what is wrong.
    """
    options: dict[str, Any] = {
        "name": entry.name,
        "revision": entry.revision,
        "isolation": entry.isolation,
        "optional": not entry.required,
        "timeout": entry.timeout,
        "include_tools": entry.only,
        "exclude_tools": entry.without,
    }
    try:
        if entry.server is not None:
            del options["revision"]
            return _proxy_here(entry.server, options)
        if entry.url is not None:
            return Proxy(entry.url, headers=entry.headers, login=_kept_login(entry.login), **options)
        return Proxy(list(entry.command), env=entry.env, cwd=entry.cwd, **options)
    except (TypeError, ValueError) as fault:
        raise ValueError(f"server {entry.name!r}: {fault}") from None


def _proxy_here(target: str, options: dict[str, Any]) -> Proxy:
    """Make the proxy of a server in this process.

    Raises:
        ValueError: There is no such server.
    """
    finding = import_module("mcpbus.cli.targets")  # few entries have such a server
    proxies = import_module("mcpbus.hosted")
    try:
        server = finding.load_named_server(target)
    except LookupError as error:
        raise ValueError(f"server: {error.args[0]}") from None
    proxy: Proxy = proxies.HostedProxy(
        options.pop("name"), server.open, checks_tokens=server.knows_principals, **options
    )
    return proxy


def _note_left(entries: Iterable[Entry]) -> None:
    for entry in entries:
        for reason, fields in entry.left.items():
            have = "has" if len(fields) == 1 else "have"
            _log.warning(
                "server %r: %s %s no effect in a gateway: %s",
                entry.name,
                " and ".join(map(repr, fields)),
                have,
                reason,
            )


def _with_logins(entries: dict[str, Entry]) -> dict[str, Entry]:
    """Give each of several entries at one URL a login of its own, named as the entry is, where none is named: they may be of two accounts."""
    nameless = {
        prefix: uri
        for prefix, each in entries.items()
        if _may_log_in(each) and (uri := _uri(each.url)) is not None
    }
    uses = Counter(nameless.values())
    shared = {prefix for prefix, uri in nameless.items() if uses[uri] > 1}
    return {
        prefix: attrs.evolve(each, login=each.name) if prefix in shared else each
        for prefix, each in entries.items()
    }


def _uri(url: str | None) -> str | None:
    """Return the URI by which the login at a URL is kept; None for what is no URL, as its proxy says better."""
    try:
        return None if url is None else server_uri(url)
    except ValueError:
        return None


def _may_log_in(entry: Entry) -> bool:
    """Whether an entry would use the login that has no name."""
    return entry.login is None and _AUTHORIZATION not in {name.lower() for name in entry.headers}


def _kept_login(account: str | None) -> AuthFlow:
    """Return how to use logins that `mcpbus login` has kept: of several servers that ask for one at once, none opens a page."""
    client = import_module("mcpbus.client")  # which takes a while, and few entries have a URL
    kept: AuthFlow = client.OAuth(store=client.FileTokenStorage(account=account), open_page=None)
    return kept
