"""What is given to whoever connects a client, checked before anything is opened."""

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from mcpbus.protocol.json_faults import check_json

_FIELD_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_FIELD_TEXT: Final = re.compile(r"[\t -~]*")


def check_client(capabilities: Any, on_input_request: Any, client_info: Any = None) -> None:
    """Refuse what no client can be made of.

    Raises:
        TypeError: `capabilities` is no dict of dicts that JSON can hold, `on_input_request` no function, or `client_info` no name with a version.
        ValueError: In `capabilities` is a text or a number that JSON cannot hold.
    """
    if capabilities is not None:
        _check_capabilities(capabilities)
    if client_info is not None:
        if not isinstance(client_info, Mapping):
            raise TypeError(
                f'client_info is a dict, such as {{"name": "my-agent", "version": "2.1"}}, not {client_info!r}'
            )
        for member in ("name", "version"):
            if not isinstance(client_info.get(member), str):
                raise TypeError(f'client_info needs a text for "{member}", not {client_info.get(member)!r}')
        check_json(client_info, "client_info")
    if on_input_request is not None and not callable(on_input_request):
        raise TypeError(
            f"on_input_request is an async function of the method and the params, not {on_input_request!r}"
        )


def _check_capabilities(capabilities: Any) -> None:
    if not isinstance(capabilities, Mapping):
        raise TypeError(f'capabilities is a dict, such as {{"elicitation": {{}}}}, not {capabilities!r}')
    for name, value in capabilities.items():
        if not isinstance(name, str):
            raise TypeError(f'capabilities have names, such as "elicitation", unlike {name!r}')
        if not isinstance(value, Mapping):
            raise TypeError(f"capabilities[{name!r}] is a dict, such as {{}}, not {value!r}")
    check_json(capabilities, "capabilities")


def check_command(command: Any) -> None:
    """Refuse what is no program with its arguments; they are not quoted, as one may be a secret.

    Raises:
        TypeError: It is no sequence of texts.
        ValueError: It is empty, or no program can be given one of the texts.
    """
    if isinstance(command, str | bytes) or not isinstance(command, Sequence):
        raise TypeError(
            f'command is a list of the program and its arguments, such as ["python", "server.py"], and this is of type {type(command).__name__}'
        )
    if not command or not command[0]:
        raise ValueError('command is empty: it needs at least the program, such as ["python", "server.py"]')
    for index, word in enumerate(command):
        if not isinstance(word, str | bytes | os.PathLike):
            raise TypeError(
                f"command[{index}] is a text or a path, and this is of type {type(word).__name__}"
            )
        if not _takes(word):
            raise ValueError(
                f"command[{index}] cannot be given to a program: it has a null, or half of a surrogate pair"
            )


def _takes(text: Any) -> bool:
    """Whether the system takes a text or a path."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def check_environment(env: Any) -> dict[str, str]:
    """Return variables that a program can be given; their values are not quoted, as one may be a secret.

    Raises:
        TypeError: It is no dict of texts.
        ValueError: No program can be given one of them.
    """
    if env is not None and not isinstance(env, Mapping):
        raise TypeError(
            f'env is a dict, such as {{"API_KEY": "..."}}, and this is of type {type(env).__name__}'
        )
    variables = dict(env or {})
    for name, value in variables.items():
        if not isinstance(name, str):
            raise TypeError(f'env has names, such as "API_KEY", unlike {name!r}')
        if not isinstance(value, str):
            raise TypeError(f"env[{name!r}] is a text, and this is of type {type(value).__name__}")
        if not name or "=" in name or not _takes(name) or not _takes(value):
            raise ValueError(
                f"env[{name!r}] cannot be given to a program: its name, or its value, has what none can have"
            )
    return variables


def check_folder(cwd: Any) -> Any:
    """Return a folder that a program may be started in.

    Raises:
        TypeError: It is neither a text nor a path.
        ValueError: No folder can be named so.
    """
    if cwd is not None and not isinstance(cwd, str | os.PathLike):
        raise TypeError(f"cwd is a text or a path, not {cwd!r}")
    if cwd is not None and not _takes(cwd):
        raise ValueError(f"cwd is {cwd!r}: no folder is named so")
    return cwd


def check_fields(headers: Any) -> dict[str, str]:
    """Return header fields that can be sent.

    Raises:
        TypeError: It is no dict of texts.
        ValueError: One cannot be sent; the message leaves out its value, which may be a secret.
    """
    if headers is not None and not isinstance(headers, Mapping):
        raise TypeError(
            f'headers is a dict, such as {{"Authorization": "Bearer ..."}}, and this is of type {type(headers).__name__}'
        )
    fields = dict(headers or {})
    for name, value in fields.items():
        if not isinstance(name, str) or not _FIELD_NAME.fullmatch(name):
            raise ValueError(f"header {name!r} has no name of a header: letters, digits and hyphens")
        if not isinstance(value, str):
            raise TypeError(f"header {name!r} is a text, and this is of type {type(value).__name__}")
        if not _FIELD_TEXT.fullmatch(value):
            raise ValueError(
                f"header {name!r} has what none can have: what is no ASCII, or the end of a line"
            )
    return fields
