"""Options that several commands have: header fields, the revision, accounts, isolation, the drain, and the log."""

import logging
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from functools import wraps
from typing import Any, TypeVar

import click
import msgspec

from mcpbus.process.stderr import ANNOUNCE
from mcpbus.protocol.log_records import format_exception
from mcpbus.protocol.printable import as_entry, printable
from mcpbus.protocol.revisions import REVISIONS


def read_headers(_: click.Context, option: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """Read ``Name: value`` options."""
    if not values:
        return {}
    from mcpbus.client.options import check_fields  # noqa: PLC0415 - most servers are here, and start sooner without it

    headers = {}
    for value in values:
        name, colon, text = value.partition(":")
        try:
            check_fields({name if colon else "": text})
        except ValueError:  # what it holds may be a secret
            raise click.BadParameter("write it as 'Name: value', in ASCII", param=option) from None
        headers[name] = text.strip()
    return headers


class _Field(click.types.StringParamType):
    """A header field; in an environment variable there is one on each line."""

    envvar_list_splitter = "\n"


header_option = click.option(
    "--header",
    "headers",
    multiple=True,
    type=_Field(),
    metavar="'NAME: VALUE'",
    callback=read_headers,
    help="A header field of each request to a URL, such as 'Authorization: Bearer TOKEN'; may be repeated.",
)


revision_option = click.option(
    "--revision",
    type=click.Choice(list(REVISIONS)),
    help="The protocol revision to speak to the server. [default: the newest that both know]",
)


drain_option = click.option(
    "--drain",
    "drain_timeout",
    type=float,
    metavar="SECONDS",
    help="How long requests may go on after SIGTERM. [default: 5]",
)


_Logging = TypeVar("_Logging", bound=Callable[..., Any])

_LEVELS = ("debug", "info", "warning", "error")
_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class JsonFormatter(logging.Formatter):
    """One JSON object a line: `time` (UTC), `level`, `logger`, `message`, and `exception` where one is told.

    With a watch it has the number of the `request`, and with telemetry the `trace_id` and `span_id` of the current span.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; see `logging.Formatter`."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if (number := _request_number()) is not None:
            line["request"] = number
        # The module is there where a server has telemetry.
        if (telemetry := sys.modules.get("mcpbus.telemetry.spans")) is not None:
            line |= telemetry.current_ids()
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return printable(msgspec.json.encode(line).decode())


def _request_number() -> int | None:
    """Return the number of the request whose handler logs, where a watch has numbered it."""
    # The module is there where something is watched. Nothing else is to wait until it is imported.
    watching: Any = sys.modules.get("mcpbus.core.watching")
    life = None if watching is None else watching.LIFE.get()
    return None if life is None else (life.current or life).number


class TextFormatter(logging.Formatter):
    """One entry a record, whoever logs: its first line has the time, all others are indented, and no character steers a terminal."""

    def __init__(self) -> None:
        super().__init__(_TEXT)

    def format(self, record: logging.LogRecord) -> str:
        """Return the entry."""
        return as_entry(super().format(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802 - as `logging.Formatter` has it
        """Return the lines of a traceback."""
        return format_exception(ei)


def log_options(command: _Logging) -> _Logging:
    """Give a command the options of the log, and set the log up before it runs."""

    @wraps(command)
    def logging_command(*args: Any, log_level: str, log_format: str, **given: Any) -> Any:
        handler = logging.StreamHandler()
        handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
        logging.basicConfig(level=log_level.upper(), handlers=[handler])
        # It has a line for each request to a server elsewhere, with the whole URL, in which there may be a token.
        logging.getLogger("httpx2").setLevel(logging.WARNING)
        if log_format == "text":
            return command(*args, **given)
        # Whoever reads JSON can read nothing else, so the line that says where it serves is an entry of the log.
        announcing = ANNOUNCE.set(logging.getLogger("mcpbus").info)
        try:
            return command(*args, **given)
        finally:
            ANNOUNCE.reset(announcing)

    for option in (
        click.option(
            "--log-format",
            type=click.Choice(["text", "json"]),
            default="text",
            show_default=True,
            help="The form of a line of the log.",
        ),
        click.option(
            "--log-level",
            type=click.Choice(_LEVELS, case_sensitive=False),
            default="info",
            show_default=True,
            help="From which level on lines are logged, on standard error.",
        ),
    ):
        logging_command = option(logging_command)
    return logging_command  # type: ignore[return-value]  # it has the same arguments to whoever calls it by click


account_option = click.option(
    "--as",
    "account",
    metavar="NAME",
    help="The name of the login, if you have several accounts at that URL. [default: the login without a name]",
)


isolation_option = click.option(
    "--isolation",
    type=click.Choice(["client", "call", "none"]),
    help="The owner of a connection to the server, or of a process of it: one client, one call, or all clients. [default: client]",
)
