"""Which server a command line means: a file, a module or an installed program; or one elsewhere, by its URL or command."""

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.shell_completion import CompletionItem

from mcpbus.cli.finding import STDIO, Target, load_named_server
from mcpbus.cli.openapi_options import is_document, serve_document
from mcpbus.server import Server

if TYPE_CHECKING:
    from mcpbus.upstream.pool import Isolation


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
            from mcpbus.cli.pages import login_at  # noqa: PLC0415 - most servers are here
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
