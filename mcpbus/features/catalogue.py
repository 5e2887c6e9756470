"""All that a server offers: its tools, resources, templates, prompts, completions and extensions, and who sees which tool."""

import logging
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from copy import copy
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, Unpack

import msgspec

from mcpbus.features.completion import Completer, make_completer
from mcpbus.features.elsewhere import KINDS, Elsewhere, Refresh, owner_of_name
from mcpbus.features.errors import RegistrationError
from mcpbus.features.extension import ExtensionMethod, RequestOptions, make_extension_method
from mcpbus.features.option_types import check_lists
from mcpbus.features.prompt import PromptOptions, RegisteredPrompt, make_prompt
from mcpbus.features.registry import ItemRegistry, RegistryEntry, UriRegistry
from mcpbus.features.resource import RegisteredResource, ResourceOptions, make_resource
from mcpbus.features.shared_uris import UriClaims
from mcpbus.features.tool import Tool, ToolOptions, Visible, tool
from mcpbus.features.uri_watcher import SubscriptionListener, UntilHeard
from mcpbus.features.uris import is_template
from mcpbus.protocol.messages import ListName

Capability: TypeAlias = Literal["tools", "prompts", "resources", "completions", "tasks"]

_NOBODY_ASKS = "{}, which nobody asks for over HTTP: give the server auth=ResourceServer(...)"
_log = logging.getLogger("mcpbus")


class FeatureSet:
    """What a server offers, or one session of it.

    Args:
        visible: who sees which tool; everybody sees every one if left out.
        declared: capabilities that are offered while nothing is registered under them yet.
        extensions: of the protocol, with their settings by identifier; tasks apart, which are offered with the first such tool.
        strict_arguments: whether a text is never read as JSON where a tool's schema allows no text.
        base: the features underneath those of a session.

    Attributes:
        extensions: as given, with those of mounted servers.
        unlisted: what may answer for URIs that are in no list.
        watchers: who has to know which URIs clients have subscribed to.
        elsewhere: the upstream servers that may have what is in no list.
        uri_claims: which of the mounted servers have which URIs.
        mirrors: whether there ever was a tool here with arguments that HTTP mirrors into headers.
    """

    def __init__(
        self,
        *,
        visible: Visible | None = None,
        declared: frozenset[Capability] = frozenset(),
        extensions: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
        strict_arguments: bool = False,
        base: "FeatureSet | None" = None,
    ) -> None:
        self._strict_arguments = strict_arguments
        self._visible = visible
        self._declared = declared
        self._base = base
        self._completes = False
        self._has_tasks = False
        self.mirrors = False
        self._scoped = False
        self._open_to_all = False
        self.watchers: list[SubscriptionListener] = []
        self._listeners: list[Callable[[ListName], object]] = []
        self._followers: list[Callable[[], object]] = []
        self._guards: list[Callable[[str], object]] = []
        self.tools: ItemRegistry[Tool] = ItemRegistry(
            "tool", lambda: self._tell("tools"), None if base is None else base.tools
        )
        self.extensions: dict[str, Mapping[str, Any]] = dict(extensions) if base is None else base.extensions
        if base is None:
            self.resources: ItemRegistry[RegisteredResource] = UriRegistry(
                "resource", lambda: self._tell("resources")
            )
            self.templates: ItemRegistry[RegisteredResource] = UriRegistry(
                "resource template", lambda: self._tell("resources")
            )
            self.prompts: ItemRegistry[RegisteredPrompt] = ItemRegistry(
                "prompt", lambda: self._tell("prompts")
            )
            self.unlisted: list[RegisteredResource] = []
            self.elsewhere: list[Elsewhere] = []
            self.uri_claims: UriClaims = UriClaims()
            self.completers: dict[tuple[str, str], Completer] = {}
            self.methods: ItemRegistry[ExtensionMethod] = ItemRegistry("request", self._tell_followers)
        else:
            self.resources, self.templates, self.prompts = base.resources, base.templates, base.prompts
            self.unlisted, self.completers, self.methods = base.unlisted, base.completers, base.methods
            self.elsewhere, self.uri_claims = base.elsewhere, base.uri_claims

    @property
    def overlaid(self) -> bool:
        """Whether these lie over others, see `overlay`."""
        return self._base is not None

    def overlay(self) -> "FeatureSet":
        """Features with room for tools of their own over these, which they follow in all else.

        What is added to or removed from the overlay is told to its own listeners only.
        """
        return FeatureSet(
            visible=self._visible,
            declared=self._declared,
            strict_arguments=self._strict_arguments,
            base=self,
        )

    def on_change(self, listener: Callable[[ListName], object]) -> Callable[[], None]:
        """Have `listener` called after each addition and removal, and return what ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def note_elsewhere(self, elsewhere: Elsewhere) -> None:
        """Take one more upstream server that may have what is in no list."""
        self.elsewhere.append(elsewhere)
        self._tell_followers()

    def follow(self, follower: Callable[[], object]) -> Callable[[], None]:
        """Have `follower` called after each change, completions included, and return what ends that."""
        self._followers.append(follower)
        return lambda: self._followers.remove(follower)

    def guard(self, check: Callable[[str], object]) -> Callable[[], None]:
        """Have `check` called before each addition and removal, with the name of what does it; return what ends that.

        What it raises is raised there, and nothing has changed.
        """
        self._guards.append(check)
        return lambda: self._guards.remove(check)

    @property
    def watches(self) -> bool:
        """Whether somebody has to know which URIs clients have subscribed to."""
        return any(watcher.watches for watcher in self.watchers)

    def watched(self, uri: str, owner: Hashable, wanted: bool) -> None:
        """Note that somebody has subscribed to a URI, or that nobody wants to hear of it any more."""
        for watcher in self.watchers:
            watcher.watched(uri, owner, wanted)

    def hearing(self, uris: Collection[str], key: Hashable) -> list[UntilHeard]:
        """What to wait for until changes of these are heard of, wherever they are made; see `SubscriptionListener`."""
        return [until_heard for watcher in self.watchers for until_heard in watcher.hearing(uris, key)]

    def declare(self, capabilities: Iterable[Capability]) -> None:
        """Offer capabilities from now on, though nothing is registered under them yet."""
        before, self._declared = self._declared, self._declared.union(capabilities)
        if before != self._declared:
            self._tell_followers()

    def offers(self, capability: Capability) -> bool:
        """Whether a client is told of `capability`: from the first registration on, for good (rules M-6 and M-13)."""
        if capability in self._declared:
            return True
        match capability:
            case "tools":
                return self.tools.used
            case "prompts":
                return self.prompts.used
            case "resources":
                return self.resources.used or self.templates.used
            case "completions":
                return self._completes or (self._base is not None and self._base.offers("completions"))
            case "tasks":
                return self._has_tasks or (self._base is not None and self._base.offers("tasks"))

    def add_tool(self, function: Callable[..., Any] | Tool, **options: Unpack[ToolOptions]) -> Tool:
        """Register a tool: a function with options, or one that `mcpbus.tool` made.

        Raises:
            RegistrationError: its name is taken, or it cannot be a tool as it is written.
        """
        self._check("add_tool")
        if isinstance(function, Tool) and options:
            raise RegistrationError(
                f"tool {function.name!r} is made already; give {', '.join(options)} where it is made"
            )
        made = function if isinstance(function, Tool) else tool(function, **options)
        if self._strict_arguments:
            made = msgspec.structs.replace(made, arguments=made.arguments.strictly())
        self.note_scopes(made.scopes, f"tool {made.name!r}")
        self.tools.check_free(made.name)
        self._has_tasks = self._has_tasks or made.task is not None
        self.mirrors = self.mirrors or bool(made.mirrored)
        self.tools.add(made.name, made)
        return made

    def replace_tools(self, gone: Iterable[str], new: Mapping[str, Tool]) -> None:
        """Take some tools out, as far as they are there, and register others, whose names are free; all in one change."""
        self.mirrors = self.mirrors or any(made.mirrored for made in new.values())
        self.tools.replace(gone, new)

    def remove_tool(self, name: str) -> Tool:
        """Take a tool out; calls of it that run already go on.

        Raises:
            RegistrationError: there is none of that name here.
        """
        self._check("remove_tool")
        return self.tools.remove(name)

    def enable_tools(self, names: Iterable[str] | None, tags: Iterable[str] | None) -> None:
        """Let clients see tools again; see `ServerDefinition.enable`."""
        self._check("enable")
        self.tools.bring_back(self._matching("enable", names, tags))

    def disable_tools(self, names: Iterable[str] | None, tags: Iterable[str] | None) -> None:
        """Hide tools from clients; see `ServerDefinition.disable`."""
        self._check("disable")
        self.tools.put_aside(self._matching("disable", names, tags))

    def _matching(self, what: str, names: Iterable[str] | None, tags: Iterable[str] | None) -> list[str]:
        """The names of the tools that are among `names` and have one of `tags`, as far as these are given."""
        if names is None and tags is None:
            owner = "server" if self._base is None else "session"
            raise TypeError(f"{owner}.{what}() does not say which tools: write names=[...] or tags=[...]")
        check_lists(names=names or (), tags=tags or ())
        registered = self.tools.registered()
        found = [*registered.values()]
        if names is not None:
            names = tuple(names)
            for name in names:
                if name not in registered:
                    raise self.tools.unknown(name, registered)
            found = [tool for tool in found if tool.name in names]
        if tags is not None:
            tags = frozenset(tags)
            known = {tag for tool in registered.values() for tag in tool.tags}
            if unknown := tags - known:
                there = ", ".join(sorted(known)) or "none"
                raise RegistrationError(f"no tool has the tag {min(unknown)!r}; there is {there}")
            found = [tool for tool in found if tags & tool.tags]
        return [tool.name for tool in found]

    def add_resource(
        self, uri: str, function: Callable[..., Any], **options: Unpack[ResourceOptions]
    ) -> RegisteredResource:
        """Register a resource, or a template if `uri` has variables.

        Raises:
            RegistrationError: its URI is taken, or it cannot be a resource as it is written.
        """
        self._check("add_resource")
        resource = make_resource(uri, function, options)
        self.note_scopes(resource.scopes, f"resource {uri!r}")
        registry = self.resources if resource.template is None else self.templates
        registry.add(uri, resource)
        return resource

    def remove_resource(self, uri: str) -> RegisteredResource:
        """Take out the resource or template that was registered as `uri`, with its completions.

        Raises:
            RegistrationError: there is none.
        """
        self._check("remove_resource")
        if (template := self.templates.get(uri)) is not None:
            self._forget_completers(template.uri)
            return self.templates.remove(uri)
        return self.resources.remove(uri)

    def add_prompt(self, function: Callable[..., Any], **options: Unpack[PromptOptions]) -> RegisteredPrompt:
        """Register a prompt.

        Raises:
            RegistrationError: its name is taken, or it cannot be a prompt as it is written.
        """
        self._check("add_prompt")
        prompt = make_prompt(function, options)
        self.note_scopes(prompt.scopes, f"prompt {prompt.name!r}")
        self.prompts.add(prompt.name, prompt)
        return prompt

    def remove_prompt(self, name: str) -> RegisteredPrompt:
        """Take a prompt out, with its completions.

        Raises:
            RegistrationError: there is none of that name.
        """
        self._check("remove_prompt")
        self._forget_completers(name)
        return self.prompts.remove(name)

    def add_completer(
        self, ref: str, argument: str, function: Callable[..., Any], *, thread: bool, timeout: float | None
    ) -> Completer:
        """Register what proposes values for `argument` of `ref`, a prompt's name or a template's text.

        Raises:
            RegistrationError: there is no such prompt or template yet, or it has no such argument, or there is a
                completion for it already, or the function cannot be one.
        """
        self._check("completion")
        if is_template(ref):
            ref = self.template_uri(ref)
            known = self.template_variables(ref)
        else:
            known = self.prompt_arguments(ref)
        if known is None:
            raise RegistrationError(
                f"completion of {argument!r}: register the prompt or template {ref!r} before it"
            )
        if argument not in known:
            raise RegistrationError(
                f"completion of {argument!r}: {ref!r} has {', '.join(known) or 'no arguments'}"
            )
        if (ref, argument) in self.completers:
            raise RegistrationError(f"completion of {argument!r} in {ref!r} is registered already")
        completer = make_completer(ref, argument, function, thread=thread, timeout=timeout)
        self.completers[ref, argument] = completer
        self._completes = True
        self._tell_followers()
        return completer

    def replace_completers(
        self, gone: Iterable[tuple[str, str]], new: Mapping[tuple[str, str], Completer]
    ) -> None:
        """Take some completions out, as far as they are there, and register others, for what is registered."""
        for key in gone:
            self.completers.pop(key, None)
        self.completers.update(new)
        self._completes = self._completes or bool(new)
        self._tell_followers()

    def add_method(
        self, name: str, function: Callable[..., Any], **options: Unpack[RequestOptions]
    ) -> ExtensionMethod:
        """Register what answers requests of a method that an extension defines.

        Raises:
            RegistrationError: the method is registered already, or the protocol's own, or the function cannot answer it.
        """
        self._check("on_request")
        made = make_extension_method(name, function, options, self.extensions)
        self.note_scopes(made.scopes, f"request {name!r}")
        self.methods.add(name, made)
        return made

    def check_extensions(self, below: "FeatureSet") -> None:
        """Refuse what a server to be mounted says of an extension, if that is not what is said of it here.

        Raises:
            RegistrationError: it is not.
        """
        for identifier, settings in below.extensions.items():
            if self.extensions.get(identifier, settings) != settings:
                raise RegistrationError(
                    f"extension {identifier!r} has other settings in the server to be mounted: clients are told of one kind"
                )

    def admit_from(self, below: "FeatureSet") -> None:
        """Prepare for what a mounted server offers.

        Raises:
            RegistrationError: it has what not every token allows, and nobody is asked for one here.
        """
        self.declare(below._declared)  # noqa: SLF001 - its own kind
        self._has_tasks = self._has_tasks or below._has_tasks  # noqa: SLF001 - its own kind
        self.mirrors = self.mirrors or below.mirrors
        self._completes = self._completes or below._completes  # noqa: SLF001 - its own kind
        known = len(self.extensions)
        for identifier, settings in below.extensions.items():
            self.extensions.setdefault(identifier, settings)
        if len(self.extensions) > known:
            self._tell_followers()
        if below._scoped:  # noqa: SLF001 - its own kind
            self.note_scopes(("",), "a mounted server")
        if self._open_to_all:
            below._open_to_all = True  # noqa: SLF001 - its own kind

    def visibility(self, tool: Tool) -> Visible | None:
        """Who sees a tool: what decides by principal; None if everybody does."""
        if self._visible is None and tool.visible is None:
            return None
        return lambda principal, _tool: self._shows(tool, principal)

    @property
    def has_elsewhere(self) -> bool:
        """Whether an upstream server may have what is in no list."""
        return any(elsewhere.present for elsewhere in self.elsewhere)

    def refreshing(self, client: Any, name: ListName) -> list[Refresh]:
        """What asks upstream servers for a list on behalf of a client; see `Elsewhere`."""
        return [refresh for elsewhere in self.elsewhere for refresh in elsewhere.refreshing(client, name)]

    def seen_by(self, client: Any) -> "FeatureSet":
        """These as a client sees them, with what it alone has on an upstream server."""
        found = (elsewhere.difference(client) for elsewhere in self.elsewhere)
        differences = [each for each in found if each]
        if not differences:
            return self
        seen = copy(self)
        for kind in KINDS:
            new = {key: item for each in differences for key, item in each.new.get(kind, {}).items()}
            gone = {key for each in differences for key in each.gone.get(kind, ())}
            if new or gone:
                setattr(seen, kind, getattr(self, kind).differing(new, gone))
        return seen

    def prompt_arguments(self, name: str) -> list[str] | None:
        """The names of what a prompt takes; None if there is no such prompt."""
        return _argument_names(self.prompts.get(name))

    def template_uri(self, uri: str) -> str:
        """Return a template as it was registered, or as it is given if none was."""
        found = self.templates.get(uri)
        return uri if found is None else found.uri

    def template_variables(self, uri: str) -> list[str] | None:
        """The names of a template's variables; None if there is no such template."""
        return _argument_names(self.templates.get(uri))

    def find_tool(self, name: str, principal: Any) -> Tool | None:
        """The tool of this name, if there is one and `principal` may see it; or what may be one on an upstream server."""
        found = self.tools.get(name)
        if found is None and self.elsewhere:
            found = self.unlisted_tool(name)
        if found is None or (self._visible is None and found.visible is None):
            return found
        return found if self._shows(found, principal) else None

    def unlisted_tool(self, name: str) -> Tool | None:
        """What calls the tool of a name that is in no list, if it may be there on an upstream server."""
        owner = None if self.tools.knows(name) else owner_of_name(self.elsewhere, name)
        return None if owner is None else owner.tool(name)

    def find_prompt(self, name: str) -> RegisteredPrompt | None:
        """The prompt of this name, if there is one; or what may be one on an upstream server."""
        found = self.prompts.get(name)
        return self.unlisted_prompt(name) if found is None and self.elsewhere else found

    def unlisted_prompt(self, name: str) -> RegisteredPrompt | None:
        """As `unlisted_tool`, for a prompt."""
        owner = None if self.prompts.knows(name) else owner_of_name(self.elsewhere, name)
        return None if owner is None else owner.prompt(name)

    def unlisted_completer(self, ref: str, argument: str) -> Completer | None:
        """What asks an upstream server for values of an argument of a prompt that is in no list."""
        if is_template(ref) or self.prompts.knows(ref):
            return None
        owner = owner_of_name(self.elsewhere, ref)
        return None if owner is None else owner.completer(ref, argument)

    def find_resource(self, uri: str) -> list[tuple[RegisteredResource, Mapping[str, Any]]]:
        """What answers `uri`, and its variables: a resource of just this URI, else the first template that matches.

        A template that expands to the URI as it is comes before one whose values hold reserved characters, such as ``:``.
        Of upstream servers each one is asked that has such a template; or where none has, each that may have what is in no list.
        """
        resource = self.resources.get(uri)
        if resource is not None:
            return [(resource, {})]
        owner, found = (
            self.uri_claims.owner_of(uri),
            dict[object, tuple[RegisteredResource, Mapping[str, Any]]](),
        )
        loose: list[tuple[RegisteredResource, Mapping[str, Any]]] = []
        for matched, values in _matching((entry.item for entry in self.templates.entries()), uri):
            if matched.foreign:
                if not loose and owner in {None, matched.function.server}:
                    found.setdefault(matched.function.server, (matched, values))
            elif found:
                break
            elif matched.template is not None and matched.template.is_loose(uri):
                loose.append((matched, values))
            else:
                return [(matched, values)]
        return [*found.values()] or loose[:1] or [*_matching(self.unlisted, uri)]

    def lists_resource(self, uri: str) -> bool:
        """Whether a resource of just this URI, or a template that matches it, is in a list."""
        templates = (entry.item for entry in self.templates.entries())
        return uri in self.resources or any(_matching(templates, uri))

    def visible_tools(self, principal: Any) -> list[RegistryEntry[Tool]] | None:
        """The tools that `principal` sees, or None where everybody sees every one."""
        if not self.selective:
            return None
        return [entry for entry in self.tools.entries() if self._shows(entry.item, principal)]

    @property
    def scoped(self) -> bool:
        """Whether there ever was something that not every token allows."""
        return self._scoped or (self._base is not None and self._base.scoped)

    def refuse_scopes(self) -> None:
        """Take nothing from now on that not every token allows: nobody asks for tokens, and it would be open to all.

        Raises:
            RegistrationError: There is something of that kind.
        """
        self._open_to_all = True
        if self._scoped:
            raise RegistrationError(_NOBODY_ASKS.format("there are scopes="))

    def note_scopes(self, scopes: tuple[str, ...], owner: str) -> None:
        """Note that something is for those alone whose token allows these.

        Raises:
            RegistrationError: nobody is asked for a token.
        """
        if not scopes:
            return
        if self._open_to_all or (self._base is not None and self._base._open_to_all):  # noqa: SLF001 - its own kind
            raise RegistrationError(_NOBODY_ASKS.format(f"{owner} has scopes="))
        self._scoped = True

    @property
    def selective(self) -> bool:
        """Whether two principals may see different tools."""
        return self._visible is not None or any(
            entry.item.visible is not None for entry in self.tools.entries()
        )

    def _shows(self, item: Tool, principal: Any) -> bool:
        try:
            return all(
                visible(principal, item) for visible in (self._visible, item.visible) if visible is not None
            )
        except KeyboardInterrupt:
            raise
        except BaseException:  # noqa: BLE001  # who may see it cannot be told, so nobody may
            _log.exception("visible= failed for tool %s, which stays hidden", item.name)
            return False

    def _forget_completers(self, ref: str) -> None:
        for key in [key for key in self.completers if key[0] == ref]:
            del self.completers[key]

    def check(self, call: str) -> None:
        """Call what guards these features; see `guard`."""
        for check in tuple(self._guards):
            check(call)

    def _check(self, name: str) -> None:
        self.check(f"server.{name}")

    def _tell(self, kind: ListName) -> None:
        for listener in tuple(self._listeners):
            listener(kind)
        self._tell_followers()

    def _tell_followers(self) -> None:
        for follower in tuple(self._followers):
            follower()


def _matching(
    resources: Iterable[RegisteredResource], uri: str
) -> Iterator[tuple[RegisteredResource, Mapping[str, str | list[str]]]]:
    for resource in resources:
        if resource.template is not None and (values := resource.template.match(uri)) is not None:
            yield resource, values


def _argument_names(owner: RegisteredPrompt | RegisteredResource | None) -> list[str] | None:
    return None if owner is None else [parameter.name for parameter in owner.function.signature.parameters]
