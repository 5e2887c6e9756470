"""`Server`, which an author describes with decorators, and whose lifespan the author gives."""

import inspect
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
)
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Never,
    Protocol,
    TypeAlias,
    TypeVar,
    Unpack,
    runtime_checkable,
)

from mcpbus.bus_set import BusSet
from mcpbus.core.state import NO_STATE, StateT
from mcpbus.dispatch.backend import FeaturesBackend
from mcpbus.dispatch.runner import Middleware, Runner
from mcpbus.features.catalogue import Capability
from mcpbus.features.definition import ServerDefinition
from mcpbus.features.errors import RegistrationError
from mcpbus.features.mounting import Mount, read_prefix
from mcpbus.features.option_types import check_functions, check_lists
from mcpbus.features.tool import Visible
from mcpbus.protocol.http.authentication import Authorizer
from mcpbus.protocol.keywords import explained, explained_as
from mcpbus.protocol.messages import Icon
from mcpbus.protocol.other_names import missing
from mcpbus.server_base import ServerBase
from mcpbus.server_options import ServerFields, check_middleware, serving

if TYPE_CHECKING:  # few servers have an OpenAPI document
    import os

    from mcpbus.called_app import AppLoop, CalledApp
    from mcpbus.client.http_library import httpx2
    from mcpbus.openapi.api import ApiParts
    from mcpbus.openapi.loading import AnyDocument
    from mcpbus.openapi.security import Credential


class Named(Protocol):
    """What has a lifespan."""

    name: str


OwnerT = TypeVar("OwnerT", bound=Named)


@asynccontextmanager
async def enter_lifespan(
    lifespan: Callable[[OwnerT], AbstractAsyncContextManager[Any]] | None, server: OwnerT
) -> AsyncIterator[Any]:
    """Enter the lifespan of a server, and yield what it yields; `NO_STATE` if there is none.

    Raises:
        RuntimeError: It has ended the block by itself; nobody would hear of that.
    """
    if lifespan is None:
        yield NO_STATE
        return
    left, caught = False, None
    try:
        async with lifespan(server) as state:
            try:
                yield state
            except Exception as error:
                caught = error
                raise
            left = True
        if not left:
            raise RuntimeError(
                f"the lifespan of server {server.name!r} has ended the server: a cancel scope or nursery around its yield was "
                f"cancelled, or it caught what was raised there"
            ) from caught
    finally:
        del caught  # its traceback holds this frame: without this, a cycle


def check_lifespan(lifespan: Any) -> None:
    """Refuse a lifespan that is no async context manager of a server.

    Raises:
        TypeError: the message says what to write.
    """
    if lifespan is None:
        return
    if isinstance(lifespan, AbstractAsyncContextManager | AbstractContextManager):
        raise TypeError(
            "lifespan is the function, and is called for each opening: write it without parentheses"
        )
    name, bare = getattr(lifespan, "__name__", "lifespan"), inspect.unwrap(lifespan)
    if bare is lifespan and (inspect.isasyncgenfunction(bare) or inspect.isgeneratorfunction(bare)):
        raise TypeError(
            f"lifespan is an async context manager: write @contextlib.asynccontextmanager above {name}"
        )
    if inspect.isgeneratorfunction(bare):
        raise TypeError(
            f"lifespan is asynchronous: write async def {name}, and @contextlib.asynccontextmanager above it"
        )
    if inspect.iscoroutinefunction(bare):
        raise TypeError(
            f"lifespan yields what handlers share: have {name} yield, and write @contextlib.asynccontextmanager above it"
        )
    try:
        signature = inspect.signature(lifespan)
    except ValueError:  # it is written in C: whether it can be called with a server, its call says
        return
    try:
        signature.bind(None)
    except TypeError:
        raise TypeError(f"lifespan is given the server: write {name}(server)") from None


@runtime_checkable
class Mountable(Protocol):
    """A server of another SDK that can be mounted, such as a `mcpbus.Hosted`."""

    def as_server(self) -> "Server[Any]":
        """Return it as a server."""


Lifespan: TypeAlias = Callable[["Server[Any]"], AbstractAsyncContextManager[StateT]]


@explained_as(elsewhere=serving)
class Server(ServerDefinition, ServerBase[StateT]):
    """A server as its author describes it; it does nothing until it is opened. What its lifespan yields is of its type `StateT`.

    Decorators register functions and return them as they are, so that they can be called and tested like any other::

        server = Server("weather", version="1.0.0")

        @server.tool
        async def forecast(city: str, days: int = 3) -> list[Day]:
            "Forecast the weather of a city."

    What is added or removed later, at run time, is told to clients by itself.

    Args:
        name: what clients call it.
        version: its own version.
        title: its name for people.
        description: what it is for, in a sentence.
        instructions: how a model should use it as a whole.
        website_url: where to read more.
        icons: for user interfaces; told in the answers to initialize and server/discover alone.
        lifespan: opens what handlers share: an async context manager made from the server, around everything it
            serves. What it yields is `ctx.state`. Tasks that it starts may push, with `resource_updated` and the like.
        visible: decides by principal who sees, and may call, which tool: ``visible(principal, tool) -> bool``. It
            must be quick: it runs for each tool of each list.
        middleware: wraps every call of a tool, prompt, resource or completion; see `Middleware`.
        auth: lets those in who bring tokens that were issued for this server: a `mcpbus.auth.ResourceServer`.
        authenticate: tells principals in a way of one's own. Without it and `auth` there are none.
        capabilities: what is declared while nothing is registered under it; the rest is declared from the first
            registration on, for good.
        extensions: of the protocol that it has, with their settings by identifier: ``{"com.example/search": {}}``.
            See `on_request`. Tasks are declared by themselves.
        page_size: items on a page of a list.
        list_ttl: seconds for which clients may reuse lists and discovery (from 2026-07-28); 0 leaves it to the
            change notifications.
        max_threads: how many plain functions run at once.
        secret_keys: secrets that seal what clients carry between the rounds of a request; the first one seals, all
            of them open. Replicas share them. Without any, what was sealed ends with the process.
        strict_arguments: True rejects a text where a tool's schema allows no text. By default such a text is read as
            JSON, since models write ``"5"`` for 5.

        listens: whether clients may listen for changes. Without it the server declares no change notifications and no subscriptions,
            sends none, and answers ``subscriptions/listen`` with -32601, over HTTP with 404. For hosts that bill for open streams.

    Attributes:
        prefixes_uris: whether its URIs, too, get the prefix with which it is mounted in another server.
    """

    prefixes_uris: ClassVar[bool] = True

    if not TYPE_CHECKING:  # type checkers know which attributes there are

        def __getattr__(self, name: str) -> Never:
            raise missing("Server", name, self)

    def __init__(
        self,
        name: str,
        *,
        version: str = "0.0.0",
        title: str | None = None,
        description: str | None = None,
        instructions: str | None = None,
        website_url: str | None = None,
        icons: Iterable[Icon] = (),
        lifespan: Lifespan[StateT] | None = None,
        visible: Visible | None = None,
        middleware: Sequence[Middleware] = (),
        auth: Authorizer | None = None,
        authenticate: Callable[..., Any] | None = None,
        capabilities: Iterable[Capability] = ("tools",),
        extensions: Mapping[str, Mapping[str, Any]] | None = None,
        page_size: int = 1000,
        list_ttl: float = 0.0,
        max_threads: int = 40,
        secret_keys: Sequence[bytes | str] = (),
        listens: bool = True,
        strict_arguments: bool = False,
    ) -> None:
        check_functions(lifespan=lifespan)
        check_lifespan(lifespan)
        check_lists(middleware=middleware)
        check_middleware(middleware)
        super().__init__(
            name,
            version=version,
            title=title,
            description=description,
            instructions=instructions,
            website_url=website_url,
            icons=icons,
            visible=visible,
            auth=auth,
            authenticate=authenticate,
            capabilities=capabilities,
            extensions=extensions,
            page_size=page_size,
            list_ttl=list_ttl,
            secret_keys=secret_keys,
            listens=listens,
            strict_arguments=strict_arguments,
        )
        self.lifespan = lifespan
        self.runner = Runner(max_threads, middleware)
        self._buses = BusSet(name)
        # What the lifespans of servers have yielded that are mounted by `mounting`, by server.
        self._states: dict[object, Any] = {}

    @staticmethod
    def from_openapi(
        document: "AnyDocument",
        *,
        name: str | None = None,
        base_url: str | None = None,
        server_variables: Mapping[str, str] | None = None,
        client: "httpx2.AsyncClient | None" = None,
        credentials: "Mapping[str, Credential] | None" = None,
        include: Iterable[str] | None = None,
        exclude: Iterable[str] = (),
        rename: Mapping[str, str] | None = None,
        resources: Iterable[str] = (),
        references: "Iterable[str | os.PathLike[str]]" = (),
        timeout: float = 30.0,
        max_response_bytes: int = 1024 * 1024,
        **server: Unpack[ServerFields],
    ) -> "Server[Any]":
        """Return a server with a tool for each operation of an OpenAPI document, of version 3.0 or 3.1.

        A document at an address is fetched before this returns, which blocks. The log names each operation that is no tool, with the
        reason. Cancelling a call cancels its request.

        Args:
            document: The document as a dict, or the path or the address of one in JSON or YAML.
            name: What clients call the server; the title of the document if left out.
            base_url: The address of the API; the first server of the document if left out.
            server_variables: Values for the variables in the address that the document has.
            client: A client of your own that sends all requests, with its own headers, login and proxies. It is not closed.
            credentials: For each security scheme of the document: the name of an environment variable, or a function that returns
                the secret, and may be async. It is called for each request.
            include: The only operations that become tools, as patterns: an ``operationId``, ``GET /pets/*``, or ``tag:store``.
                All if left out.
            exclude: Operations that do not become tools, likewise.
            rename: Names of tools by ``operationId``, by the name that they have, or by method and path.
            resources: GET operations without a body that become resources instead of tools, as patterns.
            references: Folders and addresses to whose documents this one may refer, besides its own folder or origin.
            timeout: Seconds for a call, up to the last byte of its response.
            max_response_bytes: The bytes that a response may have.
            **server: As for `Server`.

        Raises:
            OpenApiError: The document cannot be used.
            TypeError: An option is of another type; the message says what to write.
            ValueError: An option cannot be right, or does not fit the document.
        """
        from mcpbus.openapi.api import ApiOptions, read_api  # noqa: PLC0415 - few servers have a document

        parts = read_api(
            document,
            ApiOptions(
                owner="Server.from_openapi()",
                name=name,
                base_url=base_url,
                server_variables=server_variables,
                client=client,
                credentials=credentials,
                include=include,
                exclude=exclude,
                rename=rename,
                resources=resources,
                references=references,
                timeout=timeout,
                max_response_bytes=max_response_bytes,
            ),
        )
        return Server._of_api(parts, name, server)

    @staticmethod
    def from_asgi(
        app: "CalledApp",
        *,
        document: "AnyDocument | None" = None,
        loop: "AppLoop" = "asyncio",
        name: str | None = None,
        base_url: str = "http://localhost",
        credentials: "Mapping[str, Credential] | None" = None,
        include: Iterable[str] | None = None,
        exclude: Iterable[str] = (),
        rename: Mapping[str, str] | None = None,
        resources: Iterable[str] = (),
        timeout: float = 30.0,
        max_response_bytes: int = 1024 * 1024,
        **server: Unpack[ServerFields],
    ) -> "Server[Any]":
        """Return a server with a tool for each operation of a web application, such as one of FastAPI, which runs in this process.

        The application is called without a socket. Its lifespan is entered with the server's, and a call that is cancelled cancels
        its request.

        Args:
            app: The ASGI application.
            document: Its OpenAPI document, as for `from_openapi`; the result of ``app.openapi()`` if left out.
            loop: Where its code runs: in an asyncio loop in a thread, or on trio, which is faster and needs code that uses anyio alone.
            name: As for `from_openapi`, like the options after the next one.
            base_url: The scheme and the host of the requests that the application gets.
            credentials: As for `from_openapi`.
            include: As for `from_openapi`.
            exclude: As for `from_openapi`.
            rename: As for `from_openapi`.
            resources: As for `from_openapi`.
            timeout: As for `from_openapi`.
            max_response_bytes: As for `from_openapi`.
            **server: As for `Server`.

        Raises:
            TypeError: The application has no document; or an option is of another type.
            OpenApiError: The document cannot be used.
            ValueError: An option cannot be right, or does not fit the document.
        """
        from mcpbus.called_app import document_of, open_app  # noqa: PLC0415 - as above
        from mcpbus.openapi.api import ApiOptions, read_api  # noqa: PLC0415 - as above

        if loop not in {"asyncio", "trio"}:
            raise ValueError(f"Server.from_asgi(): loop is one of 'asyncio', 'trio', not {loop!r}")
        if not callable(app):
            raise TypeError(f"Server.from_asgi(): app is an ASGI application, not {type(app).__name__}")
        options = ApiOptions(
            owner="Server.from_asgi()",
            name=name,
            base_url=base_url,
            credentials=credentials,
            include=include,
            exclude=exclude,
            rename=rename,
            resources=resources,
            timeout=timeout,
            max_response_bytes=max_response_bytes,
        )
        parts = read_api(
            document_of(app) if document is None else document, options, lambda: open_app(app, loop)
        )
        return Server._of_api(parts, name, server)

    @staticmethod
    def _of_api(parts: "ApiParts", name: str | None, server: ServerFields) -> "Server[Any]":
        options: dict[str, Any] = {"version": parts.version, **server}
        made: Server[Any] = Server(
            parts.title if name is None else name, lifespan=lambda _server: parts.open(), **options
        )
        for tool in parts.tools:
            made.add_tool(tool)
        for each in parts.resources:
            made.add_resource(each.uri, each.function, **each.options)
        return made

    @explained
    def mount(self, other: "Server[Any] | Mountable", *, prefix: str | None = None) -> None:
        """Offer all that another server offers, now and later, beside what is one's own.

        A tool or prompt ``now`` becomes ``weather_now`` with the prefix ``weather``, a resource ``data://now`` becomes
        ``data://weather/now``; without a prefix they are called as they are. The other server's lifespan is entered with this
        one's, and is `ctx.state` for its handlers; its middleware is around them, within this one's; its `visible` and its hooks
        for sessions hold. Who may come in at all, and what is served over which transport, is this one's alone. What it pushes
        with `resource_updated` and the like reaches this one's clients.

        Args:
            other: the other server, which may have others mounted itself; or a server of another SDK, as `mcpbus.host` returns it.
            prefix: goes before its names.

        Raises:
            RegistrationError: it is mounted already, in a circle even; or a name is taken, or cannot have the prefix.
            RuntimeError: this server is open, or one that it is mounted in.
        """
        other = _mountable("server.mount()", other)
        if self._buses.is_open():
            raise RuntimeError(
                f"server {self.name!r} is open: mount others before it is opened, or by server.mounting()"
            )
        self._mount(other, prefix)

    @asynccontextmanager
    async def mounting(
        self, other: "Server[Any] | Mountable", *, prefix: str | None = None
    ) -> AsyncIterator[Callable[[], None]]:
        """Offer all that another server offers for as long as the block lasts, also while this one is open; else as `mount`.

        The other server's lifespan is entered with the block, and left after it. Clients get notifications of the changed lists.

        Args:
            other: the other server.
            prefix: goes before its names.

        Yields:
            A function that ends the offer before the block ends. Calls in flight go on.

        Raises:
            RegistrationError: as for `mount`.
        """
        other = _mountable("server.mounting()", other)
        async with AsyncExitStack() as stack:
            states: dict[object, Any] = {
                each: await stack.enter_async_context(each.lifespan_context())
                for each in (other, *other.mounted())
            }
            stack.callback(self._forget_states, states)
            self._states.update(states)
            for bus in self._buses.open_now():
                bus.mounted_states.update(states)
            mount = self._mount(other, prefix)
            for uri, owner in self._buses.subscriptions():  # from before
                mount.watched(uri, owner, wanted=True)
            try:
                yield mount.detach
            finally:
                mount.detach()
                self._mounted.remove(other)
                other._buses.remove_above(self._buses)  # noqa: SLF001 - its own kind

    def _forget_states(self, states: Iterable[object]) -> None:
        for each in states:
            self._states.pop(each, None)
            for bus in self._buses.open_now():
                bus.mounted_states.pop(each, None)

    def _mount(self, other: "Server[Any]", prefix: str | None) -> Mount:
        if other is self or self in other.mounted() or other in self.mounted():
            raise RegistrationError(
                f"server {other.name!r} is mounted in {self.name!r} already, or the other way round"
            )
        read = read_prefix(prefix, uris=other.prefixes_uris)
        mount = Mount(self.features, other.features, read, other, other.runner.middleware)
        self._mounted.append(other)
        other._buses.add_above(self._buses, mount)  # noqa: SLF001 - its own kind
        return mount

    def mounted(self) -> "list[Server[Any]]":
        """Return all servers that are mounted in it, and in these, and so on, each once."""
        return [other for other in self._below() if isinstance(other, Server)]

    def lifespan_context(self) -> AbstractAsyncContextManager[Any]:
        """What its lifespan opens, anew for each opening; yields `NO_STATE` if it has none. See `enter_lifespan`."""
        return enter_lifespan(self.lifespan, self)

    async def ready(self) -> None:
        """Wait until what its lifespan has begun is there. For the bus: of servers that are mounted together, none waits for another's."""

    @asynccontextmanager
    async def _lifespans_below(self) -> AsyncIterator[dict[object, Any]]:
        """Enter the lifespans of all mounted servers, and yield what they yield, by server."""
        async with AsyncExitStack() as stack:
            states: dict[object, Any] = {}
            for server in self.mounted():
                if server not in self._states:  # else it was mounted by `mounting`
                    states[server] = await stack.enter_async_context(server.lifespan_context())
            for server in (self, *self.mounted()):
                states.update(server._states)  # noqa: SLF001 - its own kind
            yield states

    @asynccontextmanager
    async def _entered(self) -> AsyncIterator[tuple[Any, Mapping[object, Any]]]:
        async with self.lifespan_context() as state, self._lifespans_below() as states:
            for server in [self, *self.mounted()]:
                await server.ready()
            yield state, states

    def _backend(self) -> FeaturesBackend:
        return FeaturesBackend(self, self.runner)

    def __repr__(self) -> str:
        return f"<Server {self.name} {self.version}: {len(self.features.tools)} tools>"


def _mountable(owner: str, other: object) -> Server[Any]:
    """Return what can be mounted.

    Raises:
        RegistrationError: It is no server.
    """
    if isinstance(other, Server):
        return other
    if isinstance(other, Mountable):
        return other.as_server()
    from mcpbus.hosting.detect import is_foreign  # noqa: PLC0415 - only an author who has made a mistake waits for it

    way_out = ": write mcpbus.host(...) around it" if is_foreign(other) else ""
    raise RegistrationError(f"{owner} takes a mcpbus.Server, not {other!r}{way_out}")
