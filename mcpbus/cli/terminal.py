"""What is shown on a terminal: text that a server wrote cannot steer it, and columns are aligned."""

import re
import sys
from collections.abc import Sequence
from typing import Any

import click
import msgspec

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printable(text: object) -> str:
    """Return text without the control characters that would steer a terminal."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", str(text))


def pretty_json(value: Any) -> str:
    """Return a value as JSON that people can read."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def echo_json(value: Any) -> None:
    """Print a value as JSON: as it is, but on a terminal."""
    text = pretty_json(value)
    click.echo(printable(text) if sys.stdout.isatty() else text)


def first_line(text: object) -> str:
    """Return the first line of a description, to be printed."""
    lines = str(text or "").strip().splitlines()
    return printable(lines[0]) if lines else ""


def can_ask() -> bool:
    """Whether somebody can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def echo_columns(rows: Sequence[tuple[str, str]]) -> None:
    """Print rows of two cells, the first as wide as the widest, and in bold on a terminal unless it is indented twice."""
    width = max((len(first) for first, second in rows if second), default=0)
    for first, second in rows:
        pad = " " * (width - len(first) + 2) if second else ""
        click.echo(click.style(first, bold=not first.startswith("    ")) + pad + second)
