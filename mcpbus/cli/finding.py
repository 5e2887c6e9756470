"""Which server a file or a module has: `weather.py`, `weather.py:server`, `weather` or `weather:server`."""

import logging
import os
import re
import sys
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from mcpbus.cli.importing import load_file, load_module
from mcpbus.hosting.detect import is_foreign
from mcpbus.openable import ServerBase
from mcpbus.program import LOADING
from mcpbus.server import Server

if TYPE_CHECKING:
    from mcpbus.hosted import Hosted

Target: TypeAlias = "Server | Hosted"
"""A server that a command serves: one of mcpbus, or one of another SDK that runs on it."""

STDIO: Final = "stdio:"

_log = logging.getLogger("mcpbus")


def load_named_server(target: str) -> Target:
    """Import the server that a file or a module has; a module is searched in the current directory first.

    A server of another SDK is hosted in this process, which the log reports. Output of the file while it is imported goes to
    standard error, because standard output may be the protocol's.

    Args:
        target: A file or a module; with a colon and a name after it if it has several servers, besides those that are mounted in
            another one of them.

    Raises:
        LookupError: There is no such server; the message says what is there. What the module itself raises, is raised.
    """
    place, name = split_target(target)
    if name:
        return _named(_load(place), place, name)
    if target.endswith(":"):
        place = target.removesuffix(":") or "weather.py"
        raise LookupError(f"{target!r} names no server: write {place}, or {place}:NAME")
    return _only(_load(target), target)


def split_target(target: str) -> tuple[str, str]:
    """Return the file or the module that a target names, and the name after its colon, which may be empty."""
    place, colon, name = target.rpartition(":")
    return (place, name) if colon and name.isidentifier() else (target, "")


def is_file(place: str) -> bool:
    """Whether it is a file that is named, and not a module."""
    return place.endswith(".py") or os.sep in place


def _named(module: ModuleType, place: str, name: str) -> Target:
    found = getattr(module, name, None)
    if _is_server(found):
        return _serve(found, f"{place}:{name}")
    servers = _servers(module, place)
    hint = f"it has {', '.join(servers)}" if servers else _MAKE_ONE
    if found is None:
        raise LookupError(f"{place} has no {name!r}; {hint}")
    raise LookupError(f"{place}:{name} is of type {type(found).__name__}, not a mcpbus.Server; {hint}")


def _only(module: ModuleType, place: str) -> Target:
    servers = _servers(module, place)
    within = {id(other) for server in servers.values() for other in _parts(server)}
    different = {id(server): name for name, server in servers.items() if id(server) not in within}
    if len(different) == 1:
        name = next(iter(different.values()))
        return _serve(servers[name], name)
    if servers:
        raise LookupError(f"{place} has several servers: name one of {', '.join(servers)}")
    raise LookupError(f"{place} has no server; {_MAKE_ONE}")


def _parts(server: Any) -> list[object]:
    """Return the servers that one serves besides itself, which need not be chosen."""
    if isinstance(server, Server):
        return list(server.mounted())
    found = getattr(server, "found", None)  # a `Hosted` has the server that it hosts
    return [] if found is None else [found.author, found.lowlevel]


def _servers(module: ModuleType, place: str) -> dict[str, Any]:
    return {f"{place}:{name}": value for name, value in vars(module).items() if _is_server(value)}


def _is_server(value: object) -> bool:
    return isinstance(value, ServerBase) or is_foreign(value)


def _serve(server: Any, name: str) -> Target:
    """Return a server that was found, and host it if it is one of another SDK."""
    if not isinstance(server, ServerBase):
        from mcpbus.hosted import host  # noqa: PLC0415 - most servers need no host

        server = host(server)
        _log.info("%s is a %s: mcpbus hosts it in this process, on asyncio", name, server.found.family)
    return server  # type: ignore[no-any-return]  # there are no other kinds


def _load(place: str) -> ModuleType:
    if (fault := _fault(place)) is not None:
        raise LookupError(fault)
    token = LOADING.set(place)
    try:
        with redirect_stdout(sys.stderr):
            return load_file(Path(place)) if is_file(place) else load_module(place)
    finally:
        LOADING.reset(token)


def _fault(place: str) -> str | None:
    """Say why it is not the name of a file or a module; None if it may be."""
    is_module = all(part.isidentifier() for part in place.split("."))
    if not place:
        return "it names neither a file nor a module: write one, such as weather.py or weather"
    if "://" in place:
        return f"{place!r} is no URL of a server: one begins with http:// or https://"
    if not is_module and Path(place).is_dir():
        return f"{place!r} is a folder: write a file in it, such as {Path(place) / 'weather.py'}"
    if not is_file(place) and Path(place).is_file():
        return f"{place!r} is no Python file: its name does not end in .py"
    is_address = _ADDRESS.match(place)
    if (is_module or is_file(place)) and not is_address:
        return None
    way_out = ": write weather.py or weather"
    if is_address:
        way_out = "; a URL begins with http:// or https://"
    elif " " in place:
        way_out = f": a program is written {STDIO + place!r}"
    return f"{place!r} is neither a file nor a module{way_out}"


_ADDRESS = re.compile(r"[^/]+:\d+(/|$)")
_MAKE_ONE = "make one with: server = mcpbus.Server('name')"
