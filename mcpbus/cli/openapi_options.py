"""The options for a TARGET that is an OpenAPI document, and how a command line tells one from other targets."""

import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

import click
import msgspec

if TYPE_CHECKING:
    from mcpbus.server import Server

_YAML: Final = (".yaml", ".yml")
_NAMES: Final = ("base_url", "credentials", "include", "exclude")
_Command = TypeVar("_Command", bound=Callable[..., Any])


class _DocumentHead(msgspec.Struct):
    """The member by which a JSON file is an OpenAPI document."""

    openapi: Any = None
    swagger: Any = None


def is_document(target: str) -> bool:
    """Whether a target is an OpenAPI document: a YAML file, a JSON file with a member ``openapi``, or an address that ends like these."""
    if target.lower().startswith(("http://", "https://")):
        return urlsplit(target).path.lower().endswith((".json", *_YAML))
    if target.lower().endswith(_YAML):
        return True
    if not target.lower().endswith(".json") or not Path(target).is_file():
        return False
    try:
        head = msgspec.json.decode(Path(target).read_bytes(), type=_DocumentHead)
    except (msgspec.MsgspecError, OSError, RecursionError):
        return False
    return head.openapi is not None or head.swagger is not None


def read_credentials(_: click.Context, option: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """Read ``SCHEME=VARIABLE`` options."""
    credentials = {}
    for value in values:
        scheme, equals, variable = value.rpartition("=")
        if not scheme or not equals or not variable.isidentifier():  # it may be the secret itself
            raise click.BadParameter(
                "write it as 'SCHEME=VARIABLE', with the name of an environment variable", param=option
            )
        credentials[scheme] = variable
    return credentials


def openapi_options(command: _Command) -> _Command:
    """Give a command the options for OpenAPI documents; it gets them as one dict, `api`, without those that were not given."""

    @click.option(
        "--base-url",
        metavar="URL",
        help="The address of the API of an OpenAPI document. [default: that of the document]",
    )
    @click.option(
        "--credential",
        "credentials",
        multiple=True,
        metavar="SCHEME=VARIABLE",
        callback=read_credentials,
        help="The environment variable with the secret for a security scheme of an OpenAPI document; may be repeated.",
    )
    @click.option(
        "--include",
        multiple=True,
        metavar="PATTERN",
        help="The only operations of an OpenAPI document to offer, such as 'GET /pets/*' or 'tag:pets'; may be repeated.",
    )
    @click.option(
        "--exclude",
        multiple=True,
        metavar="PATTERN",
        help="Operations of an OpenAPI document not to offer; may be repeated.",
    )
    @wraps(command)
    def with_api(*args: Any, **given: Any) -> Any:
        api = {name: value for name in _NAMES if (value := given.pop(name))}
        if api and not is_document(given["target"]):
            option = {"credentials": "credential"}.get(first := next(iter(api)), first.replace("_", "-"))
            raise click.UsageError(f"--{option} is for a TARGET that is an OpenAPI document")
        return command(*args, api=api, **given)

    return with_api  # type: ignore[return-value]  # click gives it what it takes


def serve_document(target: str, api: dict[str, Any]) -> "Server[Any]":
    """Return the server of an OpenAPI document.

    Raises:
        LookupError: The document cannot be used, or the options do not fit it.
    """
    from mcpbus.server import Server  # noqa: PLC0415 - most targets need no more than its name

    for scheme, variable in api.get("credentials", {}).items():
        if not os.environ.get(variable):
            raise LookupError(
                f"the environment variable {variable!r}, the credential for {scheme!r}, is not set"
            )
    try:
        return Server.from_openapi(target, **api)
    except (ValueError, ImportError) as error:
        raise LookupError(str(error)) from None
