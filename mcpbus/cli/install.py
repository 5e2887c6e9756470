"""`mcpbus install`: tell an MCP client of a server."""

import importlib.util
import json
import re
import sys
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import click

from mcpbus.cli.client_files import CLIENT_FILES, ClientFile, Entry, merge_entry
from mcpbus.cli.options import header_option
from mcpbus.cli.targets import (
    STDIO,
    command_of,
    is_file,
    is_list,
    is_url,
    load_server,
    split_arguments,
    split_target,
    target_argument,
    with_arguments,
)
from mcpbus.cli.terminal import echo, echo_data

_MCP_JSON: Final = ClientFile("mcp.json", lambda: None)
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _read_env(_: click.Context, option: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    env = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not _VARIABLE.fullmatch(name):
            raise click.BadParameter("write it as NAME=VALUE", param=option)
        env[name] = text
    return env


@click.command()
@click.argument("client", type=click.Choice([*CLIENT_FILES, "mcp-json"]))
@target_argument
@click.option(
    "--name", help="What the client calls the server. [default: the server's own name, or the host's]"
)
@click.option(
    "--env",
    multiple=True,
    metavar="NAME=VALUE",
    callback=_read_env,
    help="An environment variable of the program; may be repeated.",
)
@header_option
@click.option("--print", "only_print", is_flag=True, help="Print the entry, and write nothing.")
def install(  # noqa: PLR0917 - click gives each by its name
    client: str, target: str, name: str | None, env: dict[str, str], headers: dict[str, str], only_print: bool
) -> None:
    """Write a server into an MCP client's configuration. CLIENT mcp-json prints the entry, for any other client.

    A file or a module is run by this Python. What else the file has is kept, and a file that cannot be read is left alone.
    """
    kind = CLIENT_FILES.get(client, _MCP_JSON)
    if headers and not is_url(target):
        raise click.UsageError("--header is for a TARGET that is a URL")
    if env and is_url(target):
        raise click.UsageError("--env is for a TARGET that is a program")
    known, entry = _describe(target, env, headers, urls=kind.urls)
    name = name or known
    if not name:
        raise click.UsageError("say what the client is to call it: --name NAME")
    if not kind.typed:
        entry.pop("type")
    if only_print or kind is _MCP_JSON:
        echo_data(json.dumps({kind.member: {name: entry}}, indent=2, ensure_ascii=False))
    else:
        _write(kind, name, entry)


def _write(kind: ClientFile, name: str, entry: Entry) -> None:
    file = kind.find()
    if file is None:
        raise click.ClickException(
            f"nobody has written where {kind.title} has its file on this system; --print shows what to put there"
        )
    try:
        replaced = merge_entry(file, kind.member, name, entry)
    except FileNotFoundError:
        raise click.ClickException(
            f"there is no folder {file.parent.parent}: is {kind.title} installed? --print shows the entry"
        ) from None
    except ValueError as fault:
        raise click.ClickException(
            f"{file} was left as it is: {fault}. --print shows what to add to it"
        ) from None
    except OSError as error:
        raise click.ClickException(f"{file} cannot be written: {error.strerror}") from None
    verb = "replaced" if replaced else "added"
    echo(f"{verb} {name} in {file}. {kind.then}".rstrip())


def _describe(target: str, env: dict[str, str], headers: dict[str, str], *, urls: bool) -> tuple[str, Entry]:
    """Return what a server calls itself, if that can be known, and its entry; of one at a URL a program, where there are no URLs."""
    if is_url(target):
        name = urlsplit(target).hostname or ""
        if not urls:
            # On its command line other users of the machine could see them.
            fields = "\n".join(map(": ".join, headers.items()))
            given = {"MCPBUS_STDIO_HEADER": fields} if fields else {}
            return name, _program(sys.executable, ["-m", "mcpbus", "stdio", target], given)
        entry: Entry = {"type": "http", "url": target}
        return name, {**entry, "headers": headers} if headers else entry
    if is_list(target):
        if not Path(target).is_file():
            raise click.BadParameter(f"there is no file {target!r}", param_hint="TARGET")
        return Path(target).stem, _program(
            sys.executable, ["-m", "mcpbus", "stdio", str(Path(target).absolute())], env
        )
    if target.startswith(STDIO):
        command, *arguments = command_of(target)
        return "", _program(command, arguments, env)
    try:
        server = load_server(target)
    except LookupError as error:
        raise click.BadParameter(error.args[0], param_hint="TARGET") from error
    first, arguments = split_arguments(target)
    place, suffix = split_target(first)
    if is_file(place):
        place = str(Path(place).absolute())
    elif _is_here(place):
        # The client starts it in a folder of its own.
        env = {"PYTHONPATH": str(Path.cwd()), **env}
    target = with_arguments(f"{place}:{suffix}" if suffix else place, arguments)
    return server.name, _program(sys.executable, ["-m", "mcpbus", "stdio", target], env)


def _program(command: str, arguments: list[str], env: dict[str, str]) -> Entry:
    entry: Entry = {"type": "stdio", "command": command, "args": arguments}
    return {**entry, "env": env} if env else entry


def _is_here(module: str) -> bool:
    """Whether a module was found in the current directory, where nobody else would look."""
    spec = importlib.util.find_spec(module.partition(".")[0])
    return spec is not None and spec.origin is not None and Path(spec.origin).is_relative_to(Path.cwd())
