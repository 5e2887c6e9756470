"""A server that stands for another one, wherever that is: what is offered there is offered here, and each call is passed on."""

import os
from collections.abc import AsyncIterator, Callable, Collection, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, ClassVar, Final, get_args

import msgspec
import trio

from mcpbus.client.client import ServerDescription
from mcpbus.client.oauth.flow import AuthFlow
from mcpbus.core.client_notification import ClientNotification
from mcpbus.core.concurrency import background
from mcpbus.core.request_context import RequestContext
from mcpbus.core.sessions.session import Session
from mcpbus.core.subscriber import Subscriber
from mcpbus.dispatch.runner import Middleware
from mcpbus.features.completion import Completer
from mcpbus.features.elsewhere import Difference, Refresh
from mcpbus.features.option_types import check_kinds, check_lists
from mcpbus.features.prompt import RegisteredPrompt
from mcpbus.features.tool import Tool, Visible, check_scopes, check_timeout
from mcpbus.features.uri_watcher import UntilHeard
from mcpbus.protocol.http.authentication import Authorizer
from mcpbus.protocol.keywords import explained_as
from mcpbus.protocol.messages import Icon, Implementation, ListName
from mcpbus.server import Server
from mcpbus.server_options import serving
from mcpbus.upstream.connection_pool import Isolation
from mcpbus.upstream.proxy_runtime import Clients, ProxyOptions, ProxyRuntime
from mcpbus.upstream.target import Target, read_upstream
from mcpbus.upstream.tool_filter import ToolFilter, read_patterns

_UNKNOWN: Final = {"version": "0.0.0"}
_ISOLATIONS: Final = get_args(Isolation)
_SETTLE_SECONDS: Final = 30.0
"""How long calls in flight may take once nothing of the upstream server is offered any more."""


class Proxy(Server[None]):
    """Stands for another server: one at a URL, or a program that speaks over its standard input and output.

    It is a `Server`, and does for its clients all that one does: any revision, any transport, receipts, limits, tokens, middleware. It may
    be served by itself, or be mounted in another server, with a prefix that its names get and its URIs do not.

    A client's call is one call there. What is said while it runs leaves on the stream of the client's request, and what is asked is asked
    in that, whatever the revisions on either side; where the client cancels it, it is cancelled there.

    Args:
        target: A URL, such as ``https://weather.example.com/mcp``; a command, such as ``["npx", "-y", "some-server"]``; or a function
            that connects a client of the `capabilities` which it is given: ``async with connect(capabilities={}) as client``.
        name: What clients call it; if left out, what the other server calls itself.
        headers: Header fields of each request to a URL, such as ``Authorization``. Nothing of what our clients send is passed on.
        login: How to log in to a URL that asks for it: an `OAuth` or `ClientCredentials` of `mcpbus.client`. All clients go by that one
            login, whoever they are.
        env: Variables of the program's environment, besides what any program needs, such as ``PATH``; ``os.environ`` for all.
        cwd: The folder that the program works in.
        revision: The only revision of the other server that will do; the newest that both know if left out.
        optional: Whether it begins although the other server cannot be reached, and tries again by itself.
        connections: How many connections, or processes, there may be at once. A call that finds none waits for half a minute.
        isolation: The owner of a connection, and so of the state that the upstream server keeps for it: ``"client"``, ``"call"`` for a
            connection for each call, or ``"none"`` for one that all clients share, at servers that keep no state.
        timeout: Seconds after which a call is cancelled and fails; no limit if left out.
        include_tools: The only tools of the upstream server to offer, by their names there. ``*`` stands for any letters. All if left out.
        exclude_tools: Tools of the upstream server that are not offered, likewise. They are neither listed nor called.
        scopes: What a token has to allow for all that it offers; see `mcpbus.auth`.
        version: Which version clients are told; if left out, that of the other server.
        instructions: How to use it; if left out, what the other server says.
        title: For people; if left out, what the other server says, as for the next three.
        description: For people.
        website_url: For people.
        icons: For people.
        visible: Who sees which tool, as for `Server`, and as all that follows.
        middleware: Wraps each call.
        auth: Lets clients in by their tokens.
        authenticate: Tells who is behind a request.
        page_size: Items on a page of a list.
        list_ttl: Seconds for which clients may reuse lists.
        secret_keys: Secrets that seal what clients carry between the rounds of a request.

    Raises:
        TypeError: Something is of another type, or not for such a target; the message says what to write.
        ValueError: Something cannot be right; likewise.
    """

    prefixes_uris: ClassVar[bool] = False

    @explained_as("Proxy()", serving)
    def __init__(
        self,
        target: Target,
        *,
        name: str | None = None,
        headers: Mapping[str, str] | None = None,
        login: AuthFlow | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        revision: str | None = None,
        optional: bool = False,
        connections: int = 100,
        isolation: Isolation = "client",
        timeout: float | None = None,
        include_tools: Iterable[str] | None = None,
        exclude_tools: Iterable[str] = (),
        scopes: Iterable[str] = (),
        version: str | None = None,
        title: str | None = None,
        description: str | None = None,
        instructions: str | None = None,
        website_url: str | None = None,
        icons: Iterable[Icon] = (),
        visible: Visible | None = None,
        middleware: Sequence[Middleware] = (),
        auth: Authorizer | None = None,
        authenticate: Callable[..., Any] | None = None,
        page_size: int = 1000,
        list_ttl: float = 0.0,
        secret_keys: Sequence[bytes | str] = (),
    ) -> None:
        if isinstance(target, Server):
            raise TypeError(
                f"Proxy: target is the server {target.name!r} itself, which can be mounted as it is; or write bus.connect, of its open bus"
            )
        upstream = read_upstream(
            target, name=name, headers=headers, env=env, cwd=cwd, revision=revision, login=login
        )
        check_kinds("Proxy", {"connections": connections, "optional": optional})
        if connections < 1:
            raise ValueError(f"Proxy: connections is at least 1, not {connections}")
        if isolation not in _ISOLATIONS:
            raise ValueError(f"Proxy: isolation is one of {', '.join(_ISOLATIONS)}, not {isolation!r}")
        check_lists(icons=icons)
        images = list(icons)
        own = {
            "name": name,
            "version": version,
            "title": title,
            "description": description,
            "website_url": website_url,
            "icons": images or None,
        }
        super().__init__(
            upstream.name,
            version="0.0.0" if version is None else version,
            title=title,
            description=description,
            instructions=instructions,
            website_url=website_url,
            icons=images,
            lifespan=_live,
            visible=visible,
            middleware=middleware,
            auth=auth,
            authenticate=authenticate,
            capabilities=(),
            page_size=page_size,
            list_ttl=list_ttl,
            secret_keys=secret_keys,
        )
        # What its author says of it, which nothing that the other server says takes the place of.
        self._own = {key: value for key, value in own.items() if value is not None}
        self._told = instructions
        self._upstream = upstream
        self.is_program = upstream.program
        self._terms = ProxyOptions(
            connections,
            check_timeout(timeout, "Proxy"),
            check_scopes(scopes, "Proxy"),
            optional,
            isolation,
            ToolFilter(
                None if include_tools is None else read_patterns("include_tools", include_tools),
                read_patterns("exclude_tools", exclude_tools),
            ),
        )
        self.connection: ProxyRuntime | None = None
        self.features.note_scopes(self._terms.scopes, f"proxy {self.name!r}")
        self.features.watchers.append(_Watcher(self))
        self.features.note_elsewhere(_Elsewhere(self))
        self.on_session_end(self._session_ended)
        self.on_notification("notifications/roots/list_changed")(self._roots_changed)

    @asynccontextmanager
    async def live(self) -> AsyncIterator[None]:
        """Be connected to the other server for as long as the block lasts, or about to be: its lifespan; see `ready`.

        Raises:
            RuntimeError: It is open already, in another server.
        """
        if self.connection is not None:
            raise RuntimeError(
                f"proxy {self.name!r} is open in another server already: mount one of its own in each"
            )
        live = self.connection = ProxyRuntime(
            self._upstream,
            self.features,
            self._terms,
            learned=self._learned,
            clients=Clients(
                self.resource_updated, self._buses.resource_updated_for, self._buses.list_changed_for
            ),
        )
        try:
            async with background() as nursery:
                nursery.start_soon(live.run)
                yield
                with trio.move_on_after(
                    _SETTLE_SECONDS
                ):  # where it ends, and the server in which it is mounted goes on
                    await live.calls.wait_none()
                nursery.cancel_scope.cancel()
        finally:
            self.connection = None

    async def ready(self) -> None:
        """Wait until it is known what the other server offers, or that this cannot be known now; see `Server.ready`.

        Raises:
            UpstreamError: It cannot be reached, and is not optional.
        """
        if self.connection is not None:
            await self.connection.begun()

    def _learned(self, said: ServerDescription) -> None:
        """Present itself as the other server does, but for what its author says of it."""
        try:
            identity = msgspec.convert({**_UNKNOWN, **said.identity, **self._own}, Implementation)
        except msgspec.ValidationError:  # it says what is none
            identity = msgspec.convert({"name": self.name, **_UNKNOWN, **self._own}, Implementation)
        self.present(identity, said.instructions or None if self._told is None else self._told)

    async def _session_ended(self, session: Session) -> None:
        if self.connection is not None:
            self.connection.forget(session)

    async def _roots_changed(self, told: ClientNotification) -> None:
        if self.connection is not None:
            await self.connection.tell_roots_changed(told)


class _Watcher:
    """Tells the other server which resources clients of a proxy want to hear of; see `SubscriptionListener`."""

    watches = True

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    def watched(self, uri: str, owner: Hashable, wanted: bool) -> None:
        """See `SubscriptionListener.watched`."""
        assert isinstance(owner, Subscriber)  # noqa: S101 - so are those of a bus that has such watchers
        if self._proxy.connection is not None:
            self._proxy.connection.want(uri, owner, wanted)

    def hearing(self, uris: Collection[str], key: Hashable) -> list[UntilHeard]:
        """See `SubscriptionListener.hearing`."""
        connection = self._proxy.connection
        return [] if connection is None else [partial(connection.until_heard, uris, key)]


class _Elsewhere:
    """The upstream server of a proxy, as the features above it ask for what is in no list; an `Elsewhere`."""

    present = True

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    def refreshing(self, client: RequestContext, name: ListName) -> list[Refresh]:
        connection = self._proxy.connection
        return [] if connection is None else [partial(connection.refresh, client, name)]

    def difference(self, client: RequestContext) -> Difference | None:
        connection = self._proxy.connection
        return None if connection is None else connection.difference(client)

    def rank(self, _name: str) -> int:
        return 0

    def tool(self, name: str) -> Tool | None:
        connection = self._proxy.connection
        return None if connection is None else connection.unlisted.unlisted_tool(name)

    def prompt(self, name: str) -> RegisteredPrompt | None:
        connection = self._proxy.connection
        return None if connection is None else connection.unlisted.unlisted_prompt(name)

    def completer(self, ref: str, argument: str) -> Completer | None:
        connection = self._proxy.connection
        return None if connection is None else connection.unlisted.unlisted_completer(ref, argument)


def _live(server: Server[Any]) -> AbstractAsyncContextManager[None]:
    assert isinstance(server, Proxy)  # noqa: S101 - nothing else has this lifespan
    return server.live()
