"""The terminal, and the report of an author's program that failed.

All output of the command line goes through this module, so that no text of a server can steer the terminal.
"""

import gc
import sys
import sysconfig
import traceback
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Final

import click

from mcpbus.protocol.printable import printable


def echo(text: object = "", *, bold: object = "", err: bool = False) -> None:
    """Print a line, or several, of which any part may be a server's text.

    Args:
        text: The text.
        bold: Text that is printed before it, in bold on a terminal.
        err: Whether it goes to standard error.
    """
    begin = click.style(printable(bold), bold=True) if bold else ""
    click.echo(begin + printable(text), err=err)


def echo_data(data: str, *, err: bool = False, nl: bool = True) -> None:
    """Print text that a file or a pipe gets as it is, and a terminal as it is safe."""
    shown = printable(data) if (sys.stderr if err else sys.stdout).isatty() else data
    click.echo(shown, err=err, nl=nl, color=True)  # click would take styles away


def echo_bytes(data: bytes) -> None:
    """Write bytes to a file or a pipe."""
    click.echo(data, nl=False)


def pretty_json(value: Any) -> str:
    """Return a value as JSON that people can read."""
    import msgspec  # noqa: PLC0415 - help and mistakes are shown without it

    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def echo_json(value: Any) -> None:
    """Print a value as JSON: as it is, but on a terminal."""
    echo_data(pretty_json(value))


def one_line(text: object) -> str:
    """Return text as it goes into one line that has other text too."""
    return printable(text, lines=False)


def first_line(text: object) -> str:
    """Return the first line of a description, to be printed."""
    lines = str(text or "").strip().splitlines()
    return one_line(lines[0]) if lines else ""


def can_ask() -> bool:
    """Whether somebody can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def prompt(
    question: str,
    *,
    default: str | None = None,
    choices: Sequence[str] = (),
    read: Callable[[str], Any] | None = None,
) -> Any:
    """Ask for one answer, again until it can be read.

    Args:
        question: The question, in which there may be a server's text.
        default: The answer that an empty line stands for. It is shown in brackets, as far as it is safe, and read as it is.
        choices: The only answers, if there are some.
        read: Reads the answer.

    Raises:
        click.Abort: The user left.
    """
    shown = f" [{default}]" if default else ""
    listed = f" ({', '.join(choices)})" if choices else ""
    return click.prompt(
        one_line(question + listed + shown),
        default=default,
        show_default=False,
        type=click.Choice(choices) if choices else None,
        show_choices=False,
        value_proc=None if read is None else _with_safe_errors(read),
        err=True,
    )


def _with_safe_errors(read: Callable[[str], Any]) -> Callable[[str], Any]:
    def safely(text: str) -> Any:
        try:
            return read(text)
        except click.UsageError as error:
            raise made_safe(error) from None

    return safely


def echo_columns(rows: Sequence[tuple[str, str]]) -> None:
    """Print rows of two cells, the first as wide as the widest, and in bold on a terminal unless it is indented twice."""
    shown = [(one_line(first), one_line(second)) for first, second in rows]
    width = max((len(first) for first, second in shown if second), default=0)
    for first, second in shown:
        pad = " " * (width - len(first) + 2) if second else ""
        plain = first.startswith("    ")
        echo((first if plain else "") + pad + second, bold="" if plain else first)


def made_safe(error: click.ClickException) -> click.ClickException:
    """Return an error whose message is safe: click prints it, and it may quote a server, a file or an exception."""
    error.message = printable(error.message)  # type: ignore[misc]  # it is what click prints
    return error


def show_traceback(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print a traceback of a fault that is nobody's but ours, with its text made safe. For `sys.excepthook`."""
    echo("".join(traceback.format_exception(kind, error, trace)).rstrip(), err=True)


_OURS: Final = "mcpbus"
_ACTORS: Final = "mcpbus_actors"


class ExplainingGroup(click.Group):
    """Commands that run programs of authors: what those raise is told in a sentence, without what was going on inside of libraries.

    Each option is an environment variable, named as the option is. A command is imported when it is asked for.

    Args:
        places: The module and the name of each command.
        **given: As for `click.Group`.
    """

    def __init__(self, *, places: Mapping[str, str], **given: Any) -> None:
        super().__init__(**given)
        self._places = places

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click asks so
        """Return the names of all commands."""
        return sorted(self._places)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, if there is one of that name."""
        if cmd_name in self._places and cmd_name not in self.commands:
            module, _, name = self._places[cmd_name].rpartition(".")
            self.add_command(getattr(_import_at_once(module), name))
        return super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is asked for.

        Raises:
            click.UsageError: There is none; the message names those that there are, and the nearest.
        """
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchOption:
            raise
        except click.UsageError as error:
            import difflib  # noqa: PLC0415 - only who has made a mistake waits for it

            known = self.list_commands(ctx)
            # Click proposes one too since 8.4, of those that are imported.
            near = difflib.get_close_matches(args[0], known, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"{error.message}{hint} There are {', '.join(known)}.", ctx) from None

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        """Enter a command."""
        super().add_command(cmd, name)
        for option in cmd.params:
            if isinstance(option, click.Option) and option.envvar is None:
                words = ("mcpbus", name or cmd.name, max(option.opts, key=len).lstrip("-"))
                option.envvar = "_".join(map(str, words)).upper().replace("-", "_")

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command.

        Raises:
            click.ClickException: The author's program failed.
        """
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            made_safe(error)
            raise
        except (click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            from mcpbus.protocol.errors import sole_cause  # noqa: PLC0415 - few commands fail so, and each would wait

            told = explain(sole_cause(error))
            if told is None:
                sys.excepthook = show_traceback
                raise
            raise made_safe(click.ClickException(told)) from None


def _import_at_once(module: str) -> ModuleType:
    """Import a module, and all that it imports, without a look for garbage: there is none, and it takes a tenth of the time."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return import_module(module)
    finally:
        if collects:
            gc.enable()


def explain(error: BaseException) -> str | None:
    """Tell what was raised and where in files that belong to no library, innermost last; None if that is nowhere."""
    libraries = ("<", *_libraries())
    places = [
        f"{frame.filename}, line {frame.lineno}, in {frame.name}"
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(libraries)
    ]
    said = str(error)
    if isinstance(error, SyntaxError):
        said = error.msg
        places.append(f"{error.filename}, line {error.lineno}")
    if not places:
        return None
    kind = type(error)
    sentence = said if kind.__module__.partition(".")[0] == _OURS else f"{kind.__name__}: {said}"
    return "\n  ".join([sentence.rstrip(": "), *places])


def _libraries() -> set[str]:
    paths = sysconfig.get_paths()
    actors = find_spec(_ACTORS)
    return {
        str(Path(__file__).parents[1]),
        *(actors.submodule_search_locations if actors and actors.submodule_search_locations else ()),
        *(paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    }
