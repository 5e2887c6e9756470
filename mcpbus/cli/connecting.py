"""A client of the server that a command line names: a file or a module, a URL, or a program that is started."""

import importlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from functools import partial, wraps
from typing import Any, Final, TypeAlias, TypeVar

import attrs
import click
import trio

from mcpbus.cli.login_page import login_at
from mcpbus.cli.options import account_option, header_option, revision_option
from mcpbus.cli.targets import STDIO, check_for_url, command_of, complete_target, is_url, load_server
from mcpbus.cli.terminal import echo
from mcpbus.client.client import Client
from mcpbus.client.errors import ClientError
from mcpbus.client.pending import OnInputRequest
from mcpbus.client.stdio import connect_process
from mcpbus.protocol.errors import ProtocolError, sole_cause
from mcpbus.protocol.revisions import LATEST
from mcpbus.upstream.proxy_runtime import START_SECONDS

_Command = TypeVar("_Command", bound=Callable[..., None])

_CAPABILITIES: Final[dict[str, Any]] = {"elicitation": {"form": {}, "url": {}}}


@attrs.frozen
class Connecting:
    """Which server, and how.

    Attributes:
        target: As it was written.
        headers: Header fields of each request to a URL.
        revision: The only revision that will do; None for the newest that both know.
        timeout: For how many seconds the server may say nothing.
        account: The name of the login; None for the one without a name.
    """

    target: str
    headers: Mapping[str, str]
    revision: str | None
    timeout: float
    account: str | None = None


class Patience:
    """Ends what waits for a server that has said nothing for too long. It stands still while a person is asked.

    Args:
        seconds: For how long the server may say nothing.
        most: How long it may take in all.

    Attributes:
        fault: The fact that is reported when so many seconds have passed.
    """

    def __init__(self, seconds: float, most: float) -> None:
        self.fault = "the server said nothing"
        self.scope = trio.CancelScope()
        self._seconds = seconds
        self.end = trio.current_time() + most
        self.heard()

    def heard(self) -> None:
        """Note that the server has said something."""
        self.scope.deadline = min(trio.current_time() + self._seconds, self.end)

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Wait for a person for as long as it takes."""
        begun = trio.current_time()
        self.scope.deadline = float("inf")
        try:
            yield
        finally:
            self.end += trio.current_time() - begun
            self.heard()


Talk: TypeAlias = Callable[[Client, Patience], Awaitable[None]]


def client_options(command: _Command) -> _Command:
    """Give a command the server that its first argument names, as a `Connecting`."""

    @wraps(command)
    def connecting(
        target: str,
        headers: dict[str, str],
        account: str | None,
        revision: str | None,
        timeout: float,
        **given: Any,
    ) -> None:
        check_for_url(target, headers, account)
        command(Connecting(target, headers, revision, timeout, account), **given)

    for option in (
        click.option(
            "--timeout",
            type=click.FloatRange(min=0, min_open=True),
            default=60,
            show_default=True,
            metavar="SECONDS",
            help="For how long the server may say nothing.",
        ),
        revision_option,
        account_option,
        header_option,
        click.argument("target", shell_complete=complete_target),
    ):
        connecting = option(connecting)
    return connecting  # type: ignore[return-value]  # click gives it what it takes


def converse(
    given: Connecting,
    talk: Talk,
    *,
    interview: Callable[[Patience], OnInputRequest] | None = None,
    most: float = float("inf"),
) -> None:
    """Connect to a server, and talk to it.

    Args:
        given: Which server.
        talk: What to say. Told of the patience, so that it can say when the server has said something.
        interview: Makes what answers the server's questions.
        most: How many seconds it may take in all.

    Raises:
        click.ClickException: There is no such server, or it failed.
    """
    connect = _connector(given)
    # All servers of a file are wanted: the command does not stay for those that come later.
    waited = START_SECONDS.set(given.timeout)
    try:
        with told():
            trio.run(_converse, given, connect, talk, interview, most)
    finally:
        START_SECONDS.reset(waited)


@contextmanager
def told() -> Iterator[None]:
    """Have what goes wrong between a client and its server told in a sentence.

    Raises:
        click.ClickException: Instead of that.
    """
    try:
        yield
    except BaseException as error:
        cause = sole_cause(error)
        if isinstance(cause, ProtocolError | ClientError):
            raise click.ClickException(_explain(cause)) from None
        if cause is error:
            raise
        raise cause from None


async def _converse(
    given: Connecting,
    connect: "_Connect",
    talk: Talk,
    interview: Callable[[Patience], OnInputRequest] | None,
    most: float,
) -> None:
    patience = Patience(given.timeout, most)
    options: dict[str, Any] = {"capabilities": {}, "on_input_request": None}
    if interview is not None:
        options = {"capabilities": _CAPABILITIES, "on_input_request": interview(patience)}
    if is_url(given.target):
        options["auth"] = login_at(given.target, asking=patience.asking, account=given.account)
    with patience.scope:
        async with connect(**options) as client:
            patience.heard()
            await talk(client, patience)
            patience.heard()
    if patience.scope.cancelled_caught:
        raise ClientError(
            f"{patience.fault} for {given.timeout:g} seconds; --timeout SECONDS waits longer"
            if most == float("inf") or trio.current_time() < patience.end
            else f"the server did not come to an end in {most:g} seconds; --max-time SECONDS waits longer"
        )


_Connect: TypeAlias = Callable[..., AbstractAsyncContextManager[Client]]


def _connector(given: Connecting) -> _Connect:
    """Find out how to connect to a target, before trio runs."""
    revision = given.revision
    if is_url(given.target):
        http = importlib.import_module("mcpbus.client.http")
        return partial(http.connect_http, given.target, headers=given.headers, revision=revision)
    if given.target.startswith(STDIO):
        command, show = command_of(given.target), partial(echo, err=True)
        return partial(connect_process, command, revision=revision, env=os.environ, on_stderr=show)
    try:
        server = load_server(given.target)
    except LookupError as error:
        raise click.BadParameter(error.args[0], param_hint="TARGET") from error

    @asynccontextmanager
    async def connect(**options: Any) -> AsyncIterator[Client]:
        async with (
            server.open() as bus,
            bus.connect(revision=revision or LATEST.name, **options) as client,
        ):
            yield client

    return connect


def _explain(error: BaseException) -> str:
    if isinstance(error, ProtocolError):
        return f"the server answered with an error: {error}"
    return str(error)
