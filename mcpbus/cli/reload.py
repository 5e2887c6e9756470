"""`mcpbus serve --reload`: the server as a process that is started anew whenever a Python file beside it has changed.

A file in which a client names servers needs no other process: a gateway follows it by itself.
"""

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from mcpbus.cli.targets import is_file, is_list, split_arguments, split_target
from mcpbus.cli.terminal import echo

_PATIENCE: Final = 5.0
"""Seconds that a process may take to end, before it is told again."""

_Command = TypeVar("_Command", bound=Callable[..., Any])


def reload_option(command: _Command) -> _Command:
    """Give a command that serves a target the option to serve it anew when it has changed."""

    @click.option(
        "--reload/--no-reload",
        default=False,
        help="Serve anew whenever a Python file beside the target has changed; follow the changes of a file that names servers. [default: no]",
    )
    @wraps(command)
    def reloading_command(*args: Any, reload: bool, **given: Any) -> Any:
        if reload and not is_list(given["target"]):
            return _serve_anew(given["target"])
        return command(*args, follow=reload, **given)

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
    place, _ = split_target(split_arguments(target)[0])
    folder = Path(place).resolve().parent if is_file(place) else Path.cwd()
    words = sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)  # arguments of a program follow
    command = [sys.executable, "-m", "mcpbus", *words[:end], "--no-reload", *words[end:]]
    start = partial(subprocess.Popen, command)
    echo(f"serving anew whenever a Python file in {folder} changes", err=True)
    with _told_to_end() as ended:
        process = start()
        try:
            for _ in watchfiles.watch(folder, watch_filter=watchfiles.PythonFilter(), stop_event=ended):
                _end(process)
                if ended.is_set():
                    break
                process = start()
        finally:
            _end(process)


@contextmanager
def _told_to_end() -> Iterator[threading.Event]:
    """Have Ctrl-C and SIGTERM only be noted within the block: where they raised, the process that is just being started had nobody."""
    ended = threading.Event()
    before = {each: signal.signal(each, lambda *_: ended.set()) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield ended
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _end(process: "subprocess.Popen[Any]") -> None:
    """End a process with SIGTERM, of which one that is still importing makes no traceback; with more force if it takes its time."""
    for end in (process.terminate, process.terminate, process.kill):
        end()
        try:
            process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            continue
        return
