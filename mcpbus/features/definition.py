"""What an author describes: who the server is, what it has, and how it tells that. Nothing of it runs."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar, Unpack, get_args, overload

import msgspec

from mcpbus.features.catalogue import Capability, FeatureSet
from mcpbus.features.extension import RequestOptions, check_extensions
from mcpbus.features.hooks import Hooks
from mcpbus.features.option_types import (
    check_awaited,
    check_functions,
    check_kinds,
    check_lists,
    check_plain,
    check_told,
)
from mcpbus.features.prompt import PromptOptions, RegisteredPrompt
from mcpbus.features.resource import RegisteredResource, ResourceOptions, require_uri
from mcpbus.features.tool import Tool, ToolOptions, Visible
from mcpbus.protocol.http.authentication import Authorizer
from mcpbus.protocol.keywords import explained, explained_as
from mcpbus.protocol.messages import Icon, Implementation
from mcpbus.protocol.request_state import StateSealer
from mcpbus.protocol.results import Tail, tail_for
from mcpbus.protocol.revisions import REVISIONS, Revision
from mcpbus.protocol.validators import told_seconds_fault

F = TypeVar("F", bound=Callable[..., Any])


class ServerDefinition(Hooks):
    """A server as far as it is described, and not run; see `mcpbus.Server` for what it is given.

    Attributes:
        features: Its tools, resources, prompts and completions.
        tails: What ends each of its results, by revision.
        sealer: Seals what clients carry between the rounds of a request.
        listens: Whether clients may listen for changes.
        is_program: Whether it proxies a program over standard input and output, which gets nothing of HTTP.
    """

    is_program = False

    def __init__(
        self,
        name: str,
        *,
        version: str,
        title: str | None,
        description: str | None,
        instructions: str | None,
        website_url: str | None,
        icons: Iterable[Icon],
        visible: Visible | None,
        auth: Authorizer | None,
        authenticate: Callable[..., Any] | None,
        capabilities: Iterable[Capability],
        extensions: Mapping[str, Mapping[str, Any]] | None,
        page_size: int,
        list_ttl: float,
        secret_keys: Sequence[bytes | str],
        strict_arguments: bool,
        listens: bool = True,
    ) -> None:
        super().__init__()
        check_functions(authenticate=authenticate)
        check_plain("", "visible", visible)
        check_kinds(
            "Server",
            {
                "name": name,
                "version": version,
                "title": title,
                "description": description,
                "instructions": instructions,
                "website_url": website_url,
                "page_size": page_size,
                "list_ttl": list_ttl,
                "strict_arguments": strict_arguments,
                "listens": listens,
            },
        )
        if not name or name.isspace():
            raise ValueError(f"Server: name is what clients call it, such as 'weather', not {name!r}")
        check_awaited("authenticate", authenticate)
        _check_auth(auth, authenticate)
        check_lists(icons=icons, capabilities=capabilities, secret_keys=secret_keys)
        check_kinds("Server", {"icons": icons})
        if isinstance(capabilities, Mapping):
            raise TypeError(
                f"capabilities is a list of names: write capabilities={[*capabilities]}, and listens=False to declare no listChanged"
            )
        declared = frozenset(capabilities)
        _check_capabilities(declared)
        check_extensions({} if extensions is None else extensions)
        if page_size < 1:
            raise ValueError(f"page_size is at least 1, not {page_size}")
        if (fault := told_seconds_fault("list_ttl", list_ttl, 0)) is not None:
            raise ValueError(fault)
        self.name = name
        self.version = version
        self.auth = auth
        self.authenticate = authenticate
        self.page_size = page_size
        self.listens = listens
        self.list_ttl = list_ttl
        self.features = FeatureSet(
            visible=visible,
            declared=declared,
            extensions=extensions or {},
            strict_arguments=strict_arguments,
        )
        identity = Implementation(name, version, title, description, website_url, list(icons) or None)
        check_told("Server", identity)
        check_told("Server", {"instructions": instructions})
        self.tails: dict[Revision, Tail] = {}
        self.present(identity, instructions)
        self.sealer = StateSealer(secret_keys)

    def present(self, identity: Implementation, instructions: str | None) -> None:
        """Say of itself, from now on, who it is, and how it is used."""
        self._identity = identity
        self.instructions = instructions
        # Icons may be whole images, as data URIs: who asks who the server is gets them, and no other result.
        for row in REVISIONS.values():
            self.tails[row] = tail_for(self.identity(row, icons=False), row)

    @property
    def knows_principals(self) -> bool:
        """Whether it tells one client from the other."""
        return self.auth is not None or self.authenticate is not None

    def programs(self) -> list[str]:
        """Return the names of the proxies, itself and mounted ones, that proxy programs over standard input and output."""
        return [
            each.name
            for each in (self, *self._below())
            if isinstance(each, ServerDefinition) and each.is_program
        ]

    def presented_name(self) -> str:
        """What clients call it now."""
        return self._identity.name

    def identity(self, revision: Revision, *, icons: bool = True) -> Implementation:
        """Who the server is, as `revision` says it (rule B-10), with or without its icons."""
        return msgspec.structs.replace(
            self._identity,
            title=self._identity.title if revision.titles else None,
            description=self._identity.description if revision.implementation_details else None,
            website_url=self._identity.website_url if revision.implementation_details else None,
            icons=self._identity.icons if icons and revision.icons else None,
        )

    @overload
    def tool(self, function: F, /) -> F: ...
    @overload
    def tool(self, /, **options: Unpack[ToolOptions]) -> Callable[[F], F]: ...
    @explained_as("@server.tool")
    def tool(self, function: F | None = None, /, **options: Unpack[ToolOptions]) -> F | Callable[[F], F]:
        """Register a tool: ``@server.tool`` or ``@server.tool(title=..., ...)`` with the options of `ToolOptions`.

        The signature is the input schema, the return annotation the output schema, the docstring the description.
        A parameter annotated `Context` (`SyncContext` in a plain function) receives the context.

        Raises:
            RegistrationError: it cannot be a tool as it is written.
        """

        def register(function: F) -> F:
            self.features.add_tool(function, **options)
            return function

        return register if function is None else register(function)

    @explained_as("@server.resource")
    def resource(self, uri: str, **options: Unpack[ResourceOptions]) -> Callable[[F], F]:
        """Register a resource, or a template if `uri` has variables (RFC 6570), with the options of `ResourceOptions`.

        The variables are the function's parameters. It returns text, bytes, data that becomes JSON, a `File`, or a list
        of files, and raises `ResourceNotFoundError` for a URI that names nothing.

        Raises:
            RegistrationError: it cannot be a resource as it is written.
        """
        require_uri(uri)

        def register(function: F) -> F:
            self.features.add_resource(uri, function, **options)
            return function

        return register

    @overload
    def prompt(self, function: F, /) -> F: ...
    @overload
    def prompt(self, /, **options: Unpack[PromptOptions]) -> Callable[[F], F]: ...
    @explained_as("@server.prompt")
    def prompt(self, function: F | None = None, /, **options: Unpack[PromptOptions]) -> F | Callable[[F], F]:
        """Register a prompt: ``@server.prompt`` or ``@server.prompt(title=..., ...)`` with the options of `PromptOptions`.

        Its arguments are strings on the wire, and are converted to what the parameters say. It returns what the user
        says (text or content), a `PromptMessage`, a list of these, or a `PromptResult`.

        Raises:
            RegistrationError: it cannot be a prompt as it is written.
        """

        def register(function: F) -> F:
            self.features.add_prompt(function, **options)
            return function

        return register if function is None else register(function)

    @explained_as("@server.completion")
    def completion(
        self, ref: str, argument: str, *, thread: bool = True, timeout: float | None = None
    ) -> Callable[[F], F]:
        """Register what proposes values for `argument` of `ref`: a prompt's name, or the text of a template.

        The function takes what was typed and, if it has a second parameter, the dict of what was chosen for other
        arguments. It returns strings, best first, or a `Completion`.

        Args:
            ref: must be registered before.
            argument: one that it has.
            thread: False runs a plain function on the trio thread.
            timeout: seconds after which the call is cancelled.

        Raises:
            RegistrationError: it cannot be a completion as it is written.
        """

        def register(function: F) -> F:
            self.features.add_completer(ref, argument, function, thread=thread, timeout=timeout)
            return function

        return register

    @explained_as("@server.on_request")
    def on_request(self, method: str, **options: Unpack[RequestOptions]) -> Callable[[F], F]:
        """Have a function answer the requests of a method that an extension defines, with the options of `RequestOptions`.

        Its parameters are the request's params, its result is an object: a dict, a dataclass or the like. It may take the context,
        as a tool does. The protocol lets it ask the client only in the legacy era.

        Args:
            method: such as ``com.example/search``; neither one of the protocol's own, nor what one of those would look like.

        Raises:
            RegistrationError: it cannot be answered as it is written.
        """
        if not isinstance(method, str):
            raise TypeError('on_request needs a method: write @server.on_request("com.example/search")')

        def register(function: F) -> F:
            self.features.add_method(method, function, **options)
            return function

        return register

    @explained
    def add_tool(self, function: Callable[..., Any] | Tool, **options: Unpack[ToolOptions]) -> Tool:
        """Add a tool, as `tool` does; at run time, clients are told.

        Raises:
            RegistrationError: it cannot be a tool as it is written.
        """
        return self.features.add_tool(function, **options)

    def remove_tool(self, name: str) -> Tool:
        """Take a tool out; at run time, clients are told. Calls of it that run already go on.

        Raises:
            RegistrationError: there is none of that name.
        """
        return self.features.remove_tool(name)

    @explained
    def enable(self, *, names: Iterable[str] | None = None, tags: Iterable[str] | None = None) -> None:
        """Let clients see tools again that `disable` has hidden, in their places; at run time, clients are told.

        Args:
            names: the tools of these names; each must be registered.
            tags: those that have one of these tags, each of which a tool must have. With `names`, those of these.

        Raises:
            RegistrationError: there is no such tool, or no such tag.
        """
        self.features.enable_tools(names, tags)

    @explained
    def disable(self, *, names: Iterable[str] | None = None, tags: Iterable[str] | None = None) -> None:
        """Hide tools from all clients, to whom they are unknown then; at run time, clients are told.

        Calls that run already go on. Tools that are registered later are not hidden, whatever their tags.

        Args:
            names: as for `enable`.
            tags: as for `enable`.

        Raises:
            RegistrationError: there is no such tool, or no such tag.
        """
        self.features.disable_tools(names, tags)

    @explained
    def add_resource(
        self, uri: str, function: Callable[..., Any], **options: Unpack[ResourceOptions]
    ) -> RegisteredResource:
        """Add a resource or template, as `resource` does; at run time, clients are told.

        Raises:
            RegistrationError: it cannot be a resource as it is written.
        """
        return self.features.add_resource(uri, function, **options)

    def remove_resource(self, uri: str) -> RegisteredResource:
        """Take out the resource or template that was registered as `uri`; at run time, clients are told.

        Raises:
            RegistrationError: there is none.
        """
        return self.features.remove_resource(uri)

    @explained
    def add_prompt(self, function: Callable[..., Any], **options: Unpack[PromptOptions]) -> RegisteredPrompt:
        """Add a prompt, as `prompt` does; at run time, clients are told.

        Raises:
            RegistrationError: it cannot be a prompt as it is written.
        """
        return self.features.add_prompt(function, **options)

    def remove_prompt(self, name: str) -> RegisteredPrompt:
        """Take a prompt out, with its completions; at run time, clients are told.

        Raises:
            RegistrationError: there is none of that name.
        """
        return self.features.remove_prompt(name)


def _check_capabilities(declared: Collection[object]) -> None:
    """Refuse what is no capability.

    Raises:
        ValueError: there is one that is none.
    """
    known = get_args(Capability)
    if unknown := set(declared).difference(known):
        raise ValueError(f"capabilities are {', '.join(known)}; there is no {min(map(str, unknown))!r}")


def _check_auth(auth: Any, authenticate: Any) -> None:
    """Refuse an `auth` that is no resource server, and two ways to tell principals.

    Raises:
        TypeError: the message says what to write.
    """
    if auth is not None and not isinstance(auth, Authorizer):
        raise TypeError(f"auth is a mcpbus.auth.ResourceServer(...), not {auth!r}")
    if auth is not None and authenticate is not None:
        raise TypeError("auth and authenticate both tell who is behind a request: give one of them")
