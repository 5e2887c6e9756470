"""The address of an upstream server, how a client connects to it, and the errors of a proxy that cannot."""

import importlib
import logging
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import PurePath
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

import attrs

from mcpbus.client.client import Client
from mcpbus.client.errors import ClientError
from mcpbus.client.oauth.errors import LoginError
from mcpbus.client.oauth.flow import AuthFlow, check_grant
from mcpbus.client.options import check_command, check_environment, check_fields, check_folder
from mcpbus.client.stdio import connect_process
from mcpbus.protocol.printable import printable
from mcpbus.protocol.revisions import named
from mcpbus.serving.errors import ServingError

_stderr_log = logging.getLogger("mcpbus.stderr")

Connect: TypeAlias = Callable[..., AbstractAsyncContextManager[Client]]
"""Connects a client of the `capabilities` that it is given by keyword: ``async with connect(capabilities={}) as client``."""

Target: TypeAlias = str | Sequence[str | os.PathLike[str]] | Connect
"""A URL, a command, or what connects a client by other means."""

_URL: Final = ("http://", "https://")
_COMMAND: Final = '["npx", "-y", "some-server"]'


@attrs.frozen
class Upstream:
    """The other server.

    Attributes:
        name: What it is called for people, in the log and in errors.
        connect: Connects a client; takes a ``revision``, too, if it `negotiates`.
        program: Whether each connection is a process of its own.
        introduces: Whether `connect` takes the ``client_info`` of a client.
        negotiates: Whether the revision is the newest that both know; else it is fixed, or a function connects as it likes.
        person_seconds: How long somebody may take who has to log in for a connection; 0 where nobody has to.
    """

    name: str
    connect: Connect
    program: bool
    negotiates: bool = False
    introduces: bool = False
    person_seconds: float = 0.0


def read_upstream(
    target: Any,
    *,
    name: str | None,
    headers: Mapping[str, str] | None,
    env: Mapping[str, str] | None,
    cwd: str | os.PathLike[str] | None,
    revision: str | None,
    login: AuthFlow | None = None,
) -> Upstream:
    """Find out how to reach a server; nothing is opened.

    Args:
        target: Where it is.
        name: What it is called for people; if left out, what it has for a name in the target.
        headers: Header fields of each request; for a URL alone.
        env: As for `connect_process`; for a command alone.
        cwd: Likewise.
        revision: The only revision that will do; None for the newest that both know.
        login: How to log in; for a URL alone.

    Raises:
        TypeError: Something is of another type, or is for another kind of target.
        ValueError: Something cannot be right.
    """
    if revision is not None:
        named(revision)
    if isinstance(target, str):
        _refuse("a URL", env=env, cwd=cwd)
        return _at_url(target, name, check_fields(headers), revision, login)
    if callable(target):
        _refuse("a function that connects", headers=headers, env=env, cwd=cwd, revision=revision, login=login)
        return Upstream(name or "upstream", target, program=False)
    _refuse("a command", headers=headers, login=login)
    if not isinstance(target, Sequence):
        several = (
            "; mcpbus.gateway.gateway() takes servers by their names" if isinstance(target, Mapping) else ""
        )
        raise TypeError(
            f"Proxy: target is a URL, or a command such as {_COMMAND}, and this is of type {type(target).__name__}{several}"
        )
    check_command(target)
    given = {"env": check_environment(env), "cwd": check_folder(cwd), "revision": revision}
    called = name or PurePath(os.fspath(target[0])).name
    log = partial(_stderr_log.info, "%s: %s", called)
    connect = partial(connect_process, target, **given, on_stderr=log)
    return Upstream(called, connect, program=True, negotiates=revision is None, introduces=True)


def _at_url(
    url: str, name: str | None, headers: dict[str, str], revision: str | None, login: AuthFlow | None
) -> Upstream:
    if not url.lower().startswith(_URL):
        scheme, is_url, _ = url.partition("://")
        kind = f"a URL that begins with {scheme}://" if is_url else "a text that is no URL"
        raise ValueError(  # what it holds may be a secret
            f"Proxy: target is {kind}: write one of http:// or https://, or a command as a list, such as {_COMMAND}"
        )
    http = importlib.import_module("mcpbus.client.http")
    try:
        http.read_url(url)
    except ClientError as error:
        raise ValueError(f"Proxy: {error}") from None
    connect = partial(http.connect_http, url, headers=headers, revision=revision)
    made = Upstream(
        name or urlsplit(url).hostname or "upstream",
        connect,
        program=False,
        negotiates=revision is None,
        introduces=True,
    )
    if login is None:
        return made
    check_grant("Proxy", login=login)
    return attrs.evolve(made, connect=_LoggingIn(connect, login).connect, person_seconds=login.login_timeout)


class _LoggingIn:
    """Connects clients that log in. Once a page was shown in vain, no other one is: a proxy tries again and again.

    Args:
        connect: Connects them.
        login: How they log in.
    """

    def __init__(self, connect: Connect, login: AuthFlow) -> None:
        self._connect = connect
        self._login = login

    @asynccontextmanager
    async def connect(self, **options: Any) -> AsyncIterator[Client]:
        """Connect a client.

        Raises:
            ClientError: There is no connection.
        """
        try:
            async with self._connect(**options, auth=self._login) as client:
                yield client
        except LoginError as error:
            if error.person_asked:
                self._login = self._login.without_person()
            raise


def _refuse(kind: str, **options: object) -> None:
    for name, value in options.items():
        if value is not None:
            raise TypeError(f"Proxy: {name} is nothing for {kind}")


_MOST_CHARACTERS: Final = 1_000


class UpstreamError(ServingError):
    """The other server cannot be reached, or what it says is no MCP."""


class OpenTimeoutError(UpstreamError):
    """A connection was not open in time."""


class NotYetError(OpenTimeoutError):
    """There is no connection yet, and one may still come of what is being done for it."""


def told(error: Exception) -> str:
    """Return what the log says of an error, in which the other server may have written anything: on one line, and not without end."""
    return printable(error, lines=False, longest=_MOST_CHARACTERS)
