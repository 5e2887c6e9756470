"""Which server a command line means: `weather.py`, `weather.py:server`, `weather` or `weather:server`."""

import importlib
import importlib.util
import os
import re
import sys
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType

import click
from click.shell_completion import CompletionItem

from mcpbus.program import LOADING
from mcpbus.server import Server


def complete_target(_: click.Context, __: click.Parameter, typed: str) -> list[CompletionItem]:
    """Propose files to a shell that completes a target."""
    return [CompletionItem(typed, type="file")]


target_argument = click.argument("target", shell_complete=complete_target)


def find_server(target: str) -> Server:
    """Import the server that a command was given.

    Raises:
        click.BadParameter: There is no such server; the message says what is there.
    """
    try:
        return load_server(target)
    except LookupError as error:
        raise click.BadParameter(error.args[0], param_hint="TARGET") from error


def load_server(target: str) -> Server:
    """Import the server that a file or a module has; a module is searched in the current directory first.

    What it prints while it is imported goes to standard error, because standard output may be the protocol's.

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


def _named(module: ModuleType, place: str, name: str) -> Server:
    found = getattr(module, name, None)
    if isinstance(found, Server):
        return found
    servers = _servers(module, place)
    hint = f"it has {', '.join(servers)}" if servers else _MAKE_ONE
    if found is None:
        raise LookupError(f"{place} has no {name!r}; {hint}")
    raise LookupError(f"{place}:{name} is of type {type(found).__name__}, not a mcpbus.Server; {hint}")


def _only(module: ModuleType, place: str) -> Server:
    servers = _servers(module, place)
    within = {id(other) for server in servers.values() for other in server.mounted()}
    different = {id(server): server for server in servers.values() if id(server) not in within}
    if len(different) == 1:
        return next(iter(different.values()))
    if servers:
        raise LookupError(f"{place} has several servers: name one of {', '.join(servers)}")
    raise LookupError(f"{place} has no server; {_MAKE_ONE}")


def _servers(module: ModuleType, place: str) -> dict[str, Server]:
    return {f"{place}:{name}": value for name, value in vars(module).items() if isinstance(value, Server)}


def _load(place: str) -> ModuleType:
    if (fault := _fault(place)) is not None:
        raise LookupError(fault)
    token = LOADING.set(place)
    try:
        with redirect_stdout(sys.stderr):
            return _load_file(Path(place)) if is_file(place) else _load_module(place)
    finally:
        LOADING.reset(token)


def _fault(place: str) -> str | None:
    """Say why it is not the name of a file or a module; None if it may be."""
    is_module = all(part.isidentifier() for part in place.split("."))
    if not place:
        return "it names neither a file nor a module: write one, such as weather.py or weather"
    if "://" in place:
        return f"{place!r} is a URL: write a file or a module, such as weather.py or weather"
    if _ADDRESS.match(place):
        return f"{place!r} is neither a file nor a module; a URL begins with http:// or https://"
    if not is_module and Path(place).is_dir():
        return f"{place!r} is a folder: write a file in it, such as {Path(place) / 'weather.py'}"
    if not is_file(place) and Path(place).is_file():
        return f"{place!r} is no Python file: its name does not end in .py"
    known = is_module or is_file(place)
    return None if known else f"{place!r} is neither a file nor a module: write weather.py or weather"


def _load_file(file: Path) -> ModuleType:
    if not file.is_file():
        raise LookupError(f"there is no file {str(file)!r}")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise LookupError(f"{str(file)!r} is no Python file")
    _search(file.resolve().parent)
    module = sys.modules[file.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _load_module(name: str) -> ModuleType:
    _search(Path.cwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # the module is there, and lacks another one
        raise LookupError(
            f"there is no module {error.name!r}, neither in {Path.cwd()} nor installed"
        ) from error


def _search(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


_ADDRESS = re.compile(r"[^/]+:\d+(/|$)")
_MAKE_ONE = "make one with: server = mcpbus.Server('name')"
