"""What a server asks while a tool runs, asked in the terminal (specification, Elicitation)."""

from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlsplit

import click
import trio

from mcpbus.cli.connecting import Patience
from mcpbus.cli.schemas import faults, label, parse_typed
from mcpbus.cli.terminal import can_ask, echo, one_line, prompt
from mcpbus.protocol.errors import METHOD_NOT_FOUND, ProtocolError

_ACTIONS: Final = ("accept", "decline", "cancel")


class Interview:
    """Answers the questions of a server, one at a time.

    Nothing else goes on while somebody types. A thread that waits for a terminal could not be ended with the program.

    Args:
        patience: Stands still while somebody is asked.
    """

    def __init__(self, patience: Patience) -> None:
        self._patience = patience

    async def __call__(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Answer a question; without a terminal it is declined."""
        if method != "elicitation/create":
            raise ProtocolError(
                METHOD_NOT_FOUND, f"this client answers no {method}, and has not said that it would"
            )
        message = str(params.get("message", ""))
        if not can_ask():
            echo(f"The server asks: {message}\nDeclined: there is no terminal to ask in.", err=True)
            return {"action": "decline"}
        await trio.lowlevel.checkpoint()
        with self._patience.asking():
            return _ask(message, params)


def _ask(message: str, params: dict[str, Any]) -> dict[str, Any]:
    echo(f"\nThe server asks: {message}", err=True)
    try:
        return _ask_url(params) if params.get("mode") == "url" else _ask_form(params.get("requestedSchema"))
    except click.Abort as abort:
        if isinstance(abort.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        echo("", err=True)
        return {"action": "cancel"}


def _choose(question: str) -> str:
    return str(prompt(question, choices=_ACTIONS, default="accept"))


def _ask_url(params: dict[str, Any]) -> dict[str, Any]:
    url = one_line(params.get("url", ""))
    try:
        host = urlsplit(url).hostname
    except ValueError:
        host = None
    if host is None:
        echo(f"Declined: it wants you to open {url!r}, which is no URL.", err=True)
        return {"action": "decline"}
    echo(f"It wants you to open a page of {host}:\n{url}", err=True)
    return {"action": _choose("Open it yourself, and say")}


def _ask_form(schema: Any) -> dict[str, Any]:
    schema = schema if isinstance(schema, dict) else {}
    properties = schema.get("properties")
    fields = properties if isinstance(properties, dict) else {}
    action = _choose("Answer" if fields else "What do you say")
    if action != "accept":
        return {"action": action}
    required = schema.get("required")
    content = {}
    for name, field in fields.items():
        answer = _ask_field(name, field, optional=not isinstance(required, list) or name not in required)
        if answer is not None:
            content[name] = answer
    return {"action": "accept", "content": content}


def _ask_field(name: str, field: Any, *, optional: bool) -> Any:
    """Ask for one property of a form; None if it is left out."""
    field = field if isinstance(field, dict) else {}
    several = field.get("type") == "array"
    choices = _choices(field.get("items") if several else field)
    if field.get("description"):
        echo(field["description"], err=True)
    for value, title in choices.items():
        if title != value:
            echo(one_line(f"  {value}: {title}"), err=True)
    title = field.get("title") or name
    hint = f"{', '.join(choices)}" if choices else label(field, field)
    if several:
        hint = f"several of {hint}, with commas"
    default = field.get("default", "" if optional else None)
    return prompt(
        f"{title} ({hint}{', or nothing' if optional and default == '' else ''})",
        default=_text(default),
        read=_reader(field, optional=optional, several=several),
    )


def _text(default: Any) -> str | None:
    if default is None or isinstance(default, str):
        return default
    if isinstance(default, list):
        return ",".join(map(str, default))
    return str(default).lower() if isinstance(default, bool) else str(default)


def _choices(field: Any) -> dict[str, str]:
    """The choices of a property, each with its title: plain, titled, or as older revisions have them (rule E-6)."""
    if not isinstance(field, dict):
        return {}
    if isinstance(field.get("enum"), list):
        names = field.get("enumNames")
        titles = names if isinstance(names, list) and len(names) == len(field["enum"]) else field["enum"]
        return {str(value): str(title) for value, title in zip(field["enum"], titles, strict=True)}
    titled = field.get("oneOf") or field.get("anyOf")
    return {
        str(part.get("const")): str(part.get("title", part.get("const")))
        for part in (titled if isinstance(titled, list) else ())
        if isinstance(part, dict)
    }


def _reader(field: dict[str, Any], *, optional: bool, several: bool) -> Callable[[str], Any]:
    """Make what reads an answer, and says what is wrong with it."""

    def read(text: str) -> Any:
        if optional and not text:
            return None
        if several:
            value: Any = [part.strip() for part in text.split(",") if part.strip()]
        elif field.get("type") == "boolean":
            value = {"y": True, "yes": True, "n": False, "no": False}.get(
                text.lower(), parse_typed(text, field, field)
            )
        else:
            value = parse_typed(text, field, field)
        wrong = faults(value, field, formats=True)
        if wrong is not None:
            raise click.BadParameter(wrong)
        return value

    return read
