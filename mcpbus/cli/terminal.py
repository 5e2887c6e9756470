"""The terminal: all output of the command line goes through this module, so that no text of a server can steer it."""

import sys
import traceback
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

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
