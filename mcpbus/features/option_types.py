"""Options whose values are of the wrong kind: one sentence for each, that says what to write instead."""

import inspect
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from mcpbus.features.errors import RegistrationError
from mcpbus.features.schemas import python_types
from mcpbus.protocol.json_faults import find_half
from mcpbus.protocol.messages import Icon


def check_lists(**options: Any) -> None:
    """Refuse a single thing for the options that are lists.

    Raises:
        TypeError: the message says what to write; not the value, which may be a secret.
    """
    for option, several in options.items():
        if isinstance(several, str | bytes) or not isinstance(several, Iterable):
            raise TypeError(f"{option} is a list: write {option}=[...]")


_NUMBER = (int, float)
_NUMBERS = (int, _NUMBER)
_KINDS: Mapping[str, tuple[Any, str]] = {
    **dict.fromkeys(
        ("name", "title", "description", "version", "instructions", "website_url", "mime_type"),
        (str, "a text"),
    ),
    "system_prompt": (str, "a text"),
    "max_tokens": (int, "a whole number"),
    "temperature": (_NUMBER, "a number"),
    "stop_sequences": (Iterable, "a list"),
    **dict.fromkeys(("model_preferences", "metadata", "tool_choice"), (Mapping, "a dict")),
    **dict.fromkeys(
        ("thread", "replay", "unsafe_paths", "listens", "strict_arguments"), (bool, "True or False")
    ),
    **dict.fromkeys(("page_size", "max_threads", "size"), (int, "a whole number")),
    **dict.fromkeys(("ttl", "list_ttl"), (_NUMBER, "a number of seconds")),
    "meta": (Mapping, "a dict"),
    "icons": (Iterable, "a list"),
}
"""What the values of some options are, and in words."""


def check_kinds(owner: str, given: Mapping[str, Any]) -> None:
    """Refuse options whose values are of another kind; None is as if one were left out.

    Args:
        owner: What was called, or what it is for.
        given: The options, others among them.

    Raises:
        TypeError: One is of another kind; the message says of which it must be.
    """
    for name, value in given.items():
        kind, words = _KINDS.get(name, (object, ""))
        if value is not None and (
            not isinstance(value, kind)
            or (kind is Iterable and isinstance(value, str))
            or (kind in _NUMBERS and isinstance(value, bool))
        ):
            raise TypeError(f"{owner}: {name} is {words}, not {value!r}")
    icons = given.get("icons")
    for icon in icons if isinstance(icons, Collection) else ():  # an iterator is for whoever registers them
        if not isinstance(icon, Icon):
            raise TypeError(f"{owner}: icons are Icon('https://...') or the like, not {icon!r}")
        check_members(owner, icon)


def check_members(owner: str, part: msgspec.Struct) -> None:
    """Refuse a part of a description whose members are of other types: it was made without a look at them, and clients would take none.

    Raises:
        TypeError: One is; the message says which, and of which type it must be.
    """
    try:
        msgspec.convert(msgspec.to_builtins(part), type(part))
    except msgspec.ValidationError as error:
        raise TypeError(f"{owner}: {error}, in {part!r}") from None


def check_told(owner: str, told: Any) -> None:
    """Refuse a description that JSON cannot say: who asks for a list would get an error, and nothing of the others in it.

    Raises:
        RegistrationError: It cannot; the message says where.
    """
    try:
        python_types.encode_with_place(told)
    except (TypeError, ValueError) as error:
        raise RegistrationError(
            f"{owner}: clients are told what JSON cannot say: {find_half(told) or error}"
        ) from None


def check_plain(owner: str, option: str, function: Any) -> None:
    """Refuse what is no plain function for an option that is one.

    Raises:
        TypeError: It is none. What an async function returns would count as true, whatever came of it.
    """
    if function is None:
        return
    if not callable(function):
        raise TypeError(f"{owner}{option} is a function, not {function!r}")
    if inspect.iscoroutinefunction(function):
        raise TypeError(f"{owner}{option} decides at once: write def {function.__name__}, without async")


def check_functions(**options: Any) -> None:
    """Refuse what is no function for the options that are functions.

    Raises:
        TypeError: the message says what to write.
    """
    for option, function in options.items():
        if function is not None and not callable(function):
            raise TypeError(f"{option} is a function, not {function!r}")


def check_awaited(option: str, function: Any) -> None:
    """Refuse a function that cannot be awaited, for an option that is; what else can be called is found out when it is.

    Raises:
        TypeError: the message says what to write.
    """
    if not inspect.isfunction(function) or inspect.iscoroutinefunction(function):
        return  # an async function may wrap a plain one, and awaits it in a thread
    # A lambda may return what an async function made, and so may whatever wraps one.
    found = inspect.unwrap(function)
    if inspect.isfunction(found) and not (inspect.iscoroutinefunction(found) or found.__name__ == "<lambda>"):
        raise TypeError(f"{option} is awaited: write async def {found.__name__}")
