"""The server that a command line names: in a file, a module or an installed program, or elsewhere by its URL or command."""

import inspect
import logging
import os
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from functools import partial, wraps
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import click
from click.shell_completion import CompletionItem

from mcpbus.cli.importing import load_file, load_module
from mcpbus.cli.openapi_options import is_document, serve_document
from mcpbus.hosting.detect import is_foreign
from mcpbus.process.program import LOADING
from mcpbus.server import Server
from mcpbus.server_base import ServerBase

if TYPE_CHECKING:
    from mcpbus.upstream.connection_pool import Isolation
if TYPE_CHECKING:
    from mcpbus.hosted import Hosted

Target: TypeAlias = "Server | Hosted"
"""A server that a command serves: one of mcpbus, or one of another SDK that runs on it."""

_T = TypeVar("_T")

STDIO: Final = "stdio:"

_log = logging.getLogger("mcpbus")


def load_named_server(target: str) -> Target:
    """Import the server that a file or a module has, or that a program runs; a module is searched in the current directory first.

    A server of another SDK is hosted in this process, which the log reports. Output of the file while it is imported goes to
    standard error, because standard output may be the protocol's.

    Args:
        target: A file or a module; with a colon and a name after it if it has several servers, besides those that are mounted in
            another one of them. The name may be that of a function, which returns or runs the server. Or the name of a program
            that is installed beside mcpbus. A program and a function may have arguments after them, as in a shell.

    Raises:
        LookupError: There is no such server; the message says what is there. What the module itself raises, is raised.
    """
    first, arguments = split_arguments(target)
    script = find_script(first)
    if script is not None and (arguments or not all(part.isidentifier() for part in first.split("."))):
        return _run_program(first, script.load, arguments)
    place, name = split_target(first)
    if name:
        return _named(place, name, arguments)
    if arguments:
        raise LookupError(_fault(target) or f"{first} takes no arguments: only a program or a function does")
    if target.endswith(":"):
        place = target.removesuffix(":") or "weather.py"
        raise LookupError(f"{target!r} names no server: write {place}, or {place}:NAME")
    try:
        return _only(_load(target), target)
    except LookupError:
        if script is None:
            raise
    return _run_program(first, script.load, ())


def split_arguments(target: str) -> tuple[str, list[str]]:
    """Return the file, module or program that a target names, and the arguments after it."""
    if " " not in target or Path(split_target(target)[0]).exists():
        return target, []
    try:
        first, *arguments = shlex.split(target)
    except ValueError:
        return target, []
    is_program = find_script(first) is not None or bool(split_target(first)[1])
    return (first, arguments) if is_program else (target, [])


def find_script(name: str) -> EntryPoint | None:
    """Return a program that is installed in this environment, by its name; None if there is none."""
    found = entry_points(group="console_scripts", name=name)
    return next(iter(found), None)


def split_target(target: str) -> tuple[str, str]:
    """Return the file or the module that a target names, and the name after its colon, which may be empty."""
    place, colon, name = target.rpartition(":")
    return (place, name) if colon and name.isidentifier() else (target, "")


def is_file(place: str) -> bool:
    """Whether it is a file that is named, and not a module."""
    return place.endswith(".py") or os.sep in place


def _named(place: str, name: str, arguments: Sequence[str]) -> Target:
    module = _load(place)
    found = getattr(module, name, None)
    if _is_server(found):
        if arguments:
            raise LookupError(f"{place}:{name} is a server, which takes no arguments: only a function does")
        return _serve(found, f"{place}:{name}")
    if found is not None and _is_function(found):
        function: Callable[[], Any] = found
        return _run_program(f"{place}:{name}", lambda: function, arguments)
    servers = _servers(module, place)
    hint = f"it has {', '.join(servers)}" if servers else _hint(module, place)
    if found is None:
        raise LookupError(f"{place} has no {name!r}; {hint}")
    raise LookupError(f"{place}:{name} is of type {type(found).__name__}, not a mcpbus.Server; {hint}")


def _is_function(found: object) -> bool:
    """Whether it can be called without arguments, as a function that returns or runs a server is."""
    if not callable(found) or isinstance(found, type):
        return False
    try:
        inspect.signature(found).bind()
    except (TypeError, ValueError):
        return False
    return True


def _hint(module: ModuleType, place: str) -> str:
    """Say what to write where a module has no server."""
    if _is_function(getattr(module, "main", None)):
        return f"if its function main runs one, write {place}:main"
    return _MAKE_ONE


def _run_program(name: str, load: Callable[[], Callable[[], Any]], arguments: Sequence[str]) -> Target:
    """Run a program until it has a server, which is hosted if it is one of another SDK."""
    from mcpbus.asyncio.programs import Program  # noqa: PLC0415 - few targets are programs

    program = Program(name, partial(_loading, name, load), arguments)
    found = program.start()
    if not found.runs:
        return _serve(found.server, name)
    from mcpbus.hosted import host_program  # noqa: PLC0415 - as above

    hosted = host_program(program, found.server, found.options)
    _log.info(
        "%s runs a %s: mcpbus hosts it in this process, on the asyncio loop of the program%s",
        name,
        hosted.found.family,
        _settings_of(hosted),
    )
    return hosted


def _only(module: ModuleType, place: str) -> Target:
    servers = _servers(module, place)
    within = {id(other) for server in servers.values() for other in _parts(server)}
    different = {id(server): name for name, server in servers.items() if id(server) not in within}
    if len(different) == 1:
        name = next(iter(different.values()))
        return _serve(servers[name], name)
    if servers:
        raise LookupError(f"{place} has several servers: name one of {', '.join(servers)}")
    raise LookupError(f"{place} has no server; {_hint(module, place)}")


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
        family, settings = server.found.family, _settings_of(server)
        _log.info("%s is a %s: mcpbus hosts it in this process, on asyncio%s", name, family, settings)
    return server  # type: ignore[no-any-return]  # there are no other kinds


def _settings_of(server: "Hosted") -> str:
    """Return the settings for HTTP of a hosted server, for the end of a log line."""
    settings = ", ".join(f"{name} {value}" for name, value in server.found.http_settings.items())
    return f"; its settings for HTTP: {settings}" if settings else ""


def _load(place: str) -> ModuleType:
    if (fault := _fault(place)) is not None:
        raise LookupError(fault)
    with redirect_stdout(sys.stderr):
        return _loading(
            place, partial(load_file, Path(place)) if is_file(place) else partial(load_module, place)
        )


def _loading(place: str, load: Callable[[], _T]) -> _T:
    """Import a file, a module or a program, so that it does not serve meanwhile."""
    token = LOADING.set(place)
    try:
        return load()
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
    elif _SCRIPT.fullmatch(place):
        way_out = (
            f", nor a program that is installed beside mcpbus: one of elsewhere is written {STDIO + place!r}"
        )
    return f"{place!r} is neither a file nor a module{way_out}"


_ADDRESS = re.compile(r"[^/]+:\d+(/|$)")
_SCRIPT = re.compile(r"[\w.]+(-[\w.]+)+")
_MAKE_ONE = "make one with: server = mcpbus.Server('name')"


def complete_target(_: click.Context, __: click.Parameter, typed: str) -> list[CompletionItem]:
    """Propose files to a shell that completes a target."""
    return [CompletionItem(typed, type="file")]


_Command = TypeVar("_Command", bound=Callable[..., Any])


def target_argument(command: _Command) -> _Command:
    """Give a command the argument TARGET, and the arguments of a program after it; it gets both as one target."""

    @wraps(command)
    def targeting_command(*args: Any, target: str, arguments: tuple[str, ...], **given: Any) -> Any:
        return command(*args, target=with_arguments(target, arguments), **given)

    several = click.argument("arguments", nargs=-1, metavar="[-- ARGUMENT...]")
    named = click.argument("target", shell_complete=complete_target)
    return named(several(targeting_command))  # type: ignore[return-value]  # click gives it what it takes


def with_arguments(target: str, arguments: Sequence[str]) -> str:
    """Return a target with the arguments of its program after it.

    Raises:
        click.UsageError: There are some, and the target is no program here.
    """
    if not arguments:
        return target
    if is_url(target) or is_list(target) or is_document(target) or target.startswith(STDIO):
        raise click.UsageError("arguments after TARGET are for a program or a function here")
    return f"{target} {shlex.join(arguments)}"


_URL: Final = ("http://", "https://")


def is_url(target: str) -> bool:
    """Whether a target is the URL of a server."""
    return target.lower().startswith(_URL) and not is_document(target)


def is_list(target: str) -> bool:
    """Whether a target is a file in which a client names servers."""
    return target.endswith((".json", ".toml")) and not is_document(target)


def check_for_url(target: str, headers: Mapping[str, str] | None, account: str | None) -> None:
    """Refuse options that only a URL has.

    Raises:
        click.UsageError: There is one, and the target is no URL.
    """
    for option, given in (("--header", headers), ("--as", account)):
        if given and not is_url(target):
            raise click.UsageError(f"{option} is for a TARGET that is a URL")


def command_of(target: str) -> list[str]:
    """Return the program and the arguments of a ``stdio:`` target.

    Raises:
        click.BadParameter: It names none.
    """
    try:
        words = shlex.split(target.removeprefix(STDIO))
    except ValueError as error:
        raise click.BadParameter(f"{target!r} cannot be read: {error}", param_hint="TARGET") from None
    if not words:
        raise click.BadParameter(
            "write the command after stdio:, as in 'stdio:npx -y weather'", param_hint="TARGET"
        )
    return words


def find_server(
    target: str,
    headers: Mapping[str, str] | None = None,
    revision: str | None = None,
    account: str | None = None,
    *,
    isolation: "Isolation | None" = None,
    follow: bool = False,
    api: Mapping[str, Any] | None = None,
) -> Target:
    """Import the server that a command was given, or make one that stands for others elsewhere.

    Args:
        target: As for `load_server`; or a URL, a ``stdio:`` command, or a file in which a client names servers.
        headers: Header fields of each request to a URL.
        revision: The only revision to speak to it; for a URL or a command alone.
        account: The name of the login at a URL.
        isolation: The owner of each connection to it; for a URL or a command alone.
        follow: Whether to follow the changes of a file in which a client names servers.
        api: Options of an OpenAPI document, as `Server.from_openapi` takes them.

    Raises:
        click.BadParameter: There is no such server; the message says what is there.
        click.UsageError: An option is for another kind of target.
    """
    check_for_url(target, headers, account)
    try:
        if is_url(target) or target.startswith(STDIO):
            from mcpbus.cli.login_page import login_at  # noqa: PLC0415 - most servers are here
            from mcpbus.proxy import Proxy  # noqa: PLC0415

            owner = isolation or "client"
            if is_url(target):
                login = login_at(target, started=True, account=account)
                return Proxy(target, headers=headers, revision=revision, login=login, isolation=owner)
            return Proxy(command_of(target), env=os.environ, revision=revision, isolation=owner)
        for option, given, why in (
            ("--revision", revision, "speaks all of them"),
            ("--isolation", isolation, "has no connection to another one"),
        ):
            if given is not None:
                why_not = (
                    "; in a file each server may have its own"
                    if is_list(target)
                    else f": a server here {why}"
                )
                raise click.UsageError(f"{option} is for a TARGET that is a URL, or a command{why_not}")
        if is_document(target):
            return serve_document(target, dict(api or {}))
        return _gateway(target, follow=follow) if is_list(target) else load_server(target)
    except (LookupError, ValueError) as error:
        raise click.BadParameter(error.args[0], param_hint="TARGET") from error


def load_server(target: str) -> Target:
    """Import the server that a file or a module has, or make one for those that a client names in a file; a module is searched in the current directory first.

    A server of another SDK is hosted in this process, which the log reports.

    What it prints while it is imported goes to standard error, because standard output may be the protocol's.

    Args:
        target: As for `load_named_server`. Or a file whose name ends in ``.json`` or ``.toml``, or an OpenAPI document.

    Raises:
        LookupError: There is no such server; the message says what is there. What the module itself raises, is raised.
    """
    if is_document(target):
        return serve_document(target, {})
    if is_list(target):
        return _gateway(target)
    return load_named_server(target)


def _gateway(target: str, *, follow: bool = False) -> Server:
    from mcpbus.gateway import gateway  # noqa: PLC0415 - most servers are here

    if not Path(target).is_file():
        raise LookupError(f"there is no file {target!r}")
    try:
        return gateway(target, follow=follow)
    except ValueError as error:
        raise LookupError(str(error)) from None
