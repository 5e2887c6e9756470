"""Safe records of this package's loggers, whatever handler and formatter a program has for them.

A record quotes text of clients, of upstream servers and of authors' exceptions. Handlers write it as it is, so that a line end
in it begins a line that looks like another entry, and an escape sequence reaches the operator's terminal. A filter on each logger
makes the arguments and the traceback of a record safe before a handler gets it. Filters of a logger do not apply to the loggers
below it, so `LOGGERS` names each one.
"""

import logging
from collections.abc import Mapping
from textwrap import indent
from typing import Any, Final

from mcpbus.protocol.printable import as_entry, printable

LOGGERS: Final = (
    "mcpbus",
    "mcpbus.access",
    "mcpbus.actors",
    "mcpbus.auth",
    "mcpbus.calls",
    "mcpbus.client.session",
    "mcpbus.client.get_stream",
    "mcpbus.client.http_connection",
    "mcpbus.client.oauth.storage",
    "mcpbus.client.oauth.token_manager",
    "mcpbus.client.input_requests",
    "mcpbus.serving",
    "mcpbus.serving.hypercorn",
    "mcpbus.stderr",
    "mcpbus.timing",
)

_FORMATTER: Final = logging.Formatter()


class OwnLines(str):
    """Text of this package's own with line ends that belong into the log, such as a stack."""

    __slots__ = ()


class _Shown:
    """An argument of a record that is no text yet."""

    __slots__ = ("_value",)

    def __init__(self, value: object) -> None:
        self._value = value

    def __str__(self) -> str:
        return printable(self._value, lines=False)

    def __repr__(self) -> str:
        return printable(repr(self._value), lines=False)


def make_safe(record: logging.LogRecord) -> bool:
    """Make a record safe to write: its arguments are on one line each, and the lines of its traceback are indented.

    For `logging.Logger.addFilter`. The record keeps its ``exc_info``, for handlers that make something else of it.
    """
    if not record.args:  # otherwise it is a constant, with places for them
        record.msg = as_entry(record.msg)
    if isinstance(record.args, Mapping):
        record.args = {name: _safe(value) for name, value in record.args.items()}
    elif record.args:
        record.args = tuple(map(_safe, record.args))
    if record.exc_info and not record.exc_text:
        record.exc_text = format_exception(record.exc_info)
    return True


def format_exception(exc_info: Any) -> str:
    """Return a traceback as it goes into the log: indented, with what is unsafe replaced."""
    return indent(printable(_FORMATTER.formatException(exc_info)), "  ")


def _safe(value: object) -> object:
    if isinstance(value, OwnLines):
        return as_entry(value)
    if isinstance(value, str):
        return printable(value, lines=False)
    return value if value is None or isinstance(value, int | float) else _Shown(value)


for _name in LOGGERS:
    logging.getLogger(_name).addFilter(make_safe)
