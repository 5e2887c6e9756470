"""`mcpbus serve --reload`: the server as a process that is started anew whenever a Python file beside it has changed."""

import shlex
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from mcpbus.cli.targets import is_file, split_target

_Command = TypeVar("_Command", bound=Callable[..., Any])


def reload_option(command: _Command) -> _Command:
    """Give a command that serves a target the option to serve it anew when it has changed."""

    @click.option(
        "--reload/--no-reload",
        default=False,
        help="Serve anew whenever a Python file beside the target has changed. [default: no]",
    )
    @wraps(command)
    def reloading_command(*args: Any, reload: bool, **given: Any) -> Any:
        return _serve_anew(given["target"]) if reload else command(*args, **given)

    return reloading_command  # type: ignore[return-value]  # it has the same arguments to whoever calls it by click


def _serve_anew(target: str) -> None:
    """Run this very command, without the option, as a process; again after each change.

    Raises:
        click.UsageError: What watches files is not installed.
    """
    try:
        import watchfiles  # noqa: PLC0415 - an extra
    except ImportError:
        raise click.UsageError("--reload needs watchfiles: pip install 'mcpbus-server[reload]'") from None
    place, _ = split_target(target)
    folder = Path(place).resolve().parent if is_file(place) else Path.cwd()
    command = shlex.join([sys.executable, "-m", "mcpbus", *sys.argv[1:], "--no-reload"])
    click.echo(f"serving anew whenever a Python file in {folder} changes", err=True)
    watchfiles.run_process(
        folder, target=command, target_type="command", watch_filter=watchfiles.PythonFilter()
    )
