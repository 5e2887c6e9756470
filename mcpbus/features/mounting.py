"""One server within another: what the one offers is offered by the other under a prefix, and follows its changes."""

import logging
import re
from collections import ChainMap
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any, Final, Self, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

import msgspec

from mcpbus.features.catalogue import FeatureSet
from mcpbus.features.completion import Completer
from mcpbus.features.elsewhere import KINDS, Difference, Kind, Refresh, owner_of_name
from mcpbus.features.errors import RegistrationError
from mcpbus.features.extension import ExtensionMethod
from mcpbus.features.function import Function, MountOrigin
from mcpbus.features.left_out import LeftOut
from mcpbus.features.prompt import RegisteredPrompt
from mcpbus.features.registry import ItemRegistry
from mcpbus.features.resource import RegisteredResource, UriPattern
from mcpbus.features.shared_uris import (
    mentions,
    renamed_in,
    renamed_result,
    uris_in,
    with_prefix,
    without_prefix,
)
from mcpbus.features.tool import Tool, check_name
from mcpbus.features.uri_watcher import UntilHeard
from mcpbus.features.uris import is_template
from mcpbus.protocol.messages import ListName
from mcpbus.protocol.uris import canonical_uri, without_path

T = TypeVar("T")
_log = logging.getLogger("mcpbus")

_Kind: TypeAlias = tuple[
    ItemRegistry[Any], ItemRegistry[Any], Callable[[str], str], Callable[[str, Any], Any]
]
"""A registry above, the one below that it follows, what becomes of its keys, and of its items."""
_PREFIX: Final = re.compile(r"[A-Za-z0-9_.-]+")
_URI: Final = re.compile(r"([^:/?#{}]+://)(.*)", re.DOTALL)


class Prefix(msgspec.Struct, frozen=True):
    """How names and URIs of a mounted server become those of the server above it, and back."""

    text: str | None
    uris: bool = True
    """Whether URIs have it too, and not names alone."""
    joint: str = "_"
    """What is between it and a name."""

    @property
    def of_uris(self) -> bool:
        """Whether URIs are others above."""
        return self.uris and self.text is not None

    @property
    def lead(self) -> str:
        """What names above begin with."""
        return "" if self.text is None else f"{self.text}{self.joint}"

    def name(self, below: str) -> str:
        """The name above."""
        return f"{self.lead}{below}"

    def has_name(self, above: str) -> bool:
        """Whether a name above may be one of the mounted server's."""
        return above.startswith(self.lead)

    def name_below(self, above: str) -> str:
        """The name that became this one."""
        return above.removeprefix(self.lead)

    def uri(self, below: str) -> str:
        """The URI, or the template, above.

        Raises:
            RegistrationError: a prefix has no place in it.
        """
        if not self.of_uris:
            return below
        parts = _URI.fullmatch(below)
        if parts is None:
            raise RegistrationError(
                f"resource {below!r}: a prefix goes behind '://', which it has not; mount the server without one"
            )
        return f"{parts[1]}{self.text}/{parts[2]}"

    def uri_below(self, above: str) -> str:
        """The URI that became this one."""
        if not self.of_uris:
            return above
        below = without_path(above, f"{self.text}/")
        return above if below is None else below


def read_prefix(prefix: Any, *, uris: bool = True) -> Prefix:
    """Read the prefix that an author gives.

    Args:
        prefix: what was given.
        uris: whether URIs have it too.

    Raises:
        RegistrationError: it is none.
    """
    if prefix is not None and not (isinstance(prefix, str) and _PREFIX.fullmatch(prefix)):
        raise RegistrationError(
            f"a prefix is letters, digits, '_', '-' and '.', such as 'weather', not {prefix!r}"
        )
    return Prefix(prefix, uris)


class _Unlisted:
    """The pattern of the resources of a mounted server that are in no list."""

    def __init__(self, mount: "Mount", inner: UriPattern, stripped: bool) -> None:
        self._mount = mount
        self._inner = inner
        self._stripped = stripped

    def match(self, uri: str) -> Mapping[str, str | list[str]] | None:
        below = self._mount.unlisted_below(uri, stripped=self._stripped)
        return None if below is None else self._inner.match(below)

    def is_loose(self, _uri: str) -> bool:
        return False

    def moved(self, _text: str, _owner: str) -> Self:
        return self


class Mount:
    """One server within another.

    Args:
        above: what the one above offers.
        below: what the mounted one offers.
        prefix: how its names become names above.
        server: the mounted server.
        middleware: the mounted server's own, the first outermost.

    Raises:
        RegistrationError: a name is taken, or cannot have the prefix.
    """

    def __init__(
        self,
        above: FeatureSet,
        below: FeatureSet,
        prefix: Prefix,
        server: object,
        middleware: Sequence[Callable[..., Any]],
    ) -> None:
        self._above = above
        self._below = below
        self._server = server
        self._middleware = tuple(middleware)
        self.prefix = prefix
        self._longer: tuple[str, ...] = ()
        # URIs of upstream servers stay as they are, unless several servers have them.
        self._shares = prefix.text is not None and not prefix.uris
        self._renamed: dict[str, str] = {}
        self._moved: set[str] = set()  # since the last time
        self._taken: dict[int, dict[str, tuple[str, Any]]] = {}
        self._aside: dict[int, dict[str, Any]] = {}
        self._completers: set[tuple[str, str]] = set()
        self._unlisted: list[RegisteredResource] = []
        self._refused: dict[int, frozenset[str]] = {}
        self._differences: WeakKeyDictionary[Difference, Difference] = WeakKeyDictionary()
        # Subscriptions that were passed on, by the URI above and their owner, with the URI below.
        self._watched: dict[tuple[str, Hashable], str] = {}
        self._ends: list[Callable[[], object]] = []
        try:
            if prefix.text is not None:
                above.uri_claims.reserve(prefix.text, server)
            self._check()
            above.note_elsewhere(self)
            self._ends.append(lambda: above.elsewhere.remove(self))
            self._sync()
        except RegistrationError:
            self.detach()
            raise
        above.watchers.append(self)
        self._ends += [
            below.follow(self._sync),
            below.guard(above.check),
            lambda: above.watchers.remove(self),
        ]

    def detach(self) -> None:
        """Offer nothing of the mounted server any more. Capabilities and extensions that clients were told of stay."""
        above = self._above
        for end in self._ends:
            end()
        self._ends.clear()
        for uri, owner in [*self._watched]:
            self.watched(uri, owner, wanted=False)
        touched = above.uri_claims.release(self._server)
        for registry, *_ in self._kinds():
            taken = self._taken.get(id(registry), {})
            gone = list(taken)
            taken.clear()
            registry.replace(gone, {})
        for key in self._completers:
            above.completers.pop(key, None)
        self._completers.clear()
        for resource in self._unlisted:
            above.unlisted.remove(resource)
        self._unlisted.clear()
        others = [each for each in above.elsewhere if isinstance(each, Mount) and each.present]
        for mount in others[:1]:  # which looks at the prefixes of all
            mount._sync()  # noqa: SLF001 - its own kind
        for mount in others[1:]:
            if any(mount._server is server for server in touched):  # noqa: SLF001 - its own kind
                mount._sync()  # noqa: SLF001 - its own kind

    def _kinds(self) -> Iterable[_Kind]:
        above, below = self._above, self._below
        return (
            (above.tools, below.tools, self._name, self._tool),
            (above.prompts, below.prompts, self._name, self._prompt),
            (above.resources, below.resources, self.uri_above, self._resource),
            (above.templates, below.templates, self.uri_above, self._resource),
            (above.methods, below.methods, str, self._method),
        )

    def _check(self) -> None:
        """Refuse to mount what cannot have the prefix, or whose name is taken, before anything has changed."""
        self._above.check_extensions(self._below)
        for above, below, rename, derive in self._kinds():
            for entry in below.entries():
                key = rename(entry.key)
                above.check_free(key)
                derive(key, entry.item)

    def _sync(self) -> None:
        """Have the server above offer what the mounted one does now."""
        above, below = self._above, self._below
        if self.present:
            self._separate()
        try:
            above.check_extensions(below)
        except RegistrationError as error:  # since then one was mounted below
            _log.error("what a mounted server declares is not what clients are told: %s", error)
        above.admit_from(below)
        self._differences.clear()
        touched = self._claim_uris()
        for kind in self._kinds():
            self._take(*kind)
        for key in self._completers:
            above.completers.pop(key, None)
        self._completers.clear()
        # What was refused above may have a namesake there, whose completions are its own.
        taken = self._taken[id(above.prompts)].keys() | self._taken[id(above.templates)].keys()
        for (ref, argument), completer in below.completers.items():
            key = (self._ref(ref), argument)
            if key[0] not in taken:
                continue
            above.completers[key] = self._completer(key[0], completer)
            self._completers.add(key)

        self._take_unlisted()
        for other in touched:
            other._sync()  # noqa: SLF001 - its own kind

    def _take_unlisted(self) -> None:
        """Have what is in no list be asked of the mounted server too."""
        for resource in self._unlisted:
            self._above.unlisted.remove(resource)
        self._unlisted = []
        for each in self._below.unlisted:
            for stripped in (True, False) if self._shares else (self.prefix.of_uris,):
                below = self._resource("", each)
                assert below.template is not None  # noqa: S101 - it has no URI
                template = _Unlisted(self, below.template, stripped)
                self._unlisted.append(msgspec.structs.replace(below, template=template))
        self._above.unlisted += self._unlisted

    # -- names and URIs --------------------------------------------------------------------------

    def _separate(self) -> None:
        """Have no name be of two upstream servers, whatever they list, and whichever of them is there first.

        ``git`` and ``git_hub`` become ``git__`` and ``git_hub_``. What begins as the names of another server is no name of one without a
        prefix.

        Raises:
            RegistrationError: There is no way to tell them apart.
        """
        mounts = [each for each in self._above.elsewhere if isinstance(each, Mount) and each.present]
        for mount in mounts:
            texts = [other.prefix.text or "" for other in mounts if other is not mount]
            extended = any(text.startswith(f"{mount.prefix.text}_") for text in texts)
            joint = "__" if extended else "_"
            if mount.prefix.joint != joint:
                mount.prefix = msgspec.structs.replace(mount.prefix, joint=joint)
                if mount is not self:
                    mount._sync()  # noqa: SLF001 - its own kind
        for mount in mounts:
            own, others = mount.prefix.lead, [each for each in mounts if each is not mount]
            for other in others:
                if other.prefix.lead == own or (own and other.prefix.lead.startswith(own)):
                    raise RegistrationError(
                        f"prefixes {mount.prefix.text!r} and {other.prefix.text!r}: a name could be of either server; give one of them "
                        f"another prefix"
                    )
            mount._longer = () if own else tuple(each.prefix.lead for each in others)  # noqa: SLF001 - its own kind

    def _name(self, below: str) -> str:
        above = self.prefix.name(below)
        if above.startswith(self._longer):
            raise RegistrationError(
                f"{above!r} begins with the prefix of another server, whose names begin so; give this server a prefix"
            )
        return above

    def uri_above(self, below: str) -> str:
        """Return what a URI, or a template, of the mounted server is above.

        Raises:
            RegistrationError: A prefix has no place in it.
        """
        if not self._shares:
            return self.prefix.uri(below)
        return with_prefix(below, str(self.prefix.text)) if self._is_shared(below) else below

    def _is_shared(self, uri: str) -> bool:
        """Whether a URI is not of this upstream server alone."""
        if self._above.uri_claims.is_shared(uri, self._server):
            return True
        return any(
            (found := registry.get(uri)) is not None and found.uri not in self._taken.get(id(registry), ())
            for registry in (self._above.resources, self._above.templates)
        )

    def uri_below(self, above: str) -> str:
        """Return the URI, or the template, that became this one."""
        for registry in (self._above.resources, self._above.templates):
            found = registry.get(above)
            if found is not None and (taken := self._taken.get(id(registry), {}).get(found.uri)) is not None:
                return taken[0]
        if not self._shares:
            return self.prefix.uri_below(above)
        return without_prefix(above, str(self.prefix.text))

    def unlisted_below(self, above: str, *, stripped: bool) -> str | None:
        """Return what a URI that is in no list is below; None if it cannot be one of the mounted server's.

        Args:
            above: The URI.
            stripped: Whether a prefix is taken off; what has none is not the server's then.
        """
        owner = self._above.uri_claims.owner_of(above)
        if owner is self._server and stripped:
            return without_prefix(above, str(self.prefix.text))
        return above if owner in {None, self._server} and not stripped else None

    def _may_have(self, above: str) -> bool:
        owner = self._above.uri_claims.owner_of(above)
        return owner is self._server or (owner is None and not self.prefix.of_uris)

    def _claim_uris(self) -> "list[Mount]":
        """Note which URIs the mounted server has; return the servers that have the same as some that came or went."""
        if self.prefix.of_uris:
            return []
        below = self._below
        uris = {entry.key for registry in (below.resources, below.templates) for entry in registry.entries()}
        for entry in below.tools.entries():
            uris.update(uris_in(entry.item.meta))
        touched = self._above.uri_claims.update(self._server, uris)
        if self._shares:
            renamed = {}
            for uri in uris:
                try:
                    above = self.uri_above(uri)
                except RegistrationError:  # it is told where it is not taken
                    continue
                if above != uri:
                    renamed[canonical_uri(uri)] = above
            changed = renamed.items() ^ self._renamed.items()
            self._moved, self._renamed = {uri for uri, _ in changed}, renamed
        mounts = (each for each in self._above.elsewhere if isinstance(each, Mount))
        return [mount for mount in mounts if any(mount._server is server for server in touched)]  # noqa: SLF001 - its own kind

    def _ref(self, below: str) -> str:
        """Return what a completion is for above: a prompt's name, or a template."""
        try:
            return self.uri_above(below) if is_template(below) else self.prefix.name(below)
        except RegistrationError:
            return below

    def _ref_below(self, above: str) -> str:
        return self.uri_below(above) if is_template(above) else self.prefix.name_below(above)

    async def _rename_uris(self, invocation: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
        """Have results link to URIs as they are above; a middleware."""
        value = await call_next(invocation)
        return renamed_result(value, self._renamed) if self._renamed else value

    # -- what is in no list, see `Elsewhere` --------------------------------------------------------

    @property
    def present(self) -> bool:
        """Whether the mounted server has an upstream server."""
        return self._below.has_elsewhere

    def refreshing(self, client: Any, name: ListName) -> list[Refresh]:
        """Return what asks the upstream servers of the mounted one for a list."""
        return self._below.refreshing(client, name)

    def difference(self, client: Any) -> Difference | None:
        """Return what a client sees otherwise below, as it is above."""
        found = (elsewhere.difference(client) for elsewhere in self._below.elsewhere)
        differences = [self._derived(each) for each in found if each]
        if len(differences) < 2:
            return differences[0] if differences else None
        new = {kind: dict(ChainMap(*(dict(each.new[kind]) for each in differences))) for kind in KINDS}
        gone = {kind: frozenset().union(*(each.gone[kind] for each in differences)) for kind in KINDS}
        return Difference(new, gone)

    def _derived(self, below: Difference) -> Difference:
        above = self._differences.get(below)
        if above is None:
            above = self._differences[below] = self._derive(below)
        return above

    def _derive(self, below: Difference) -> Difference:
        new: dict[Kind, dict[str, Any]] = {}
        gone: dict[Kind, frozenset[str]] = {}
        left_out = LeftOut(_log)
        for kind, (registry, _, rename, derive) in zip(KINDS, self._lists(), strict=True):
            taken = self._taken[id(registry)]
            new[kind] = {}
            for name, item in below.new[kind].items():
                try:
                    key = rename(name)
                    if key not in taken:
                        registry.check_free(key)  # it may be one of the server's above
                    new[kind][key] = derive(key, item)
                except RegistrationError as error:
                    left_out.note("what a mounted server shows to one client is not offered: %s", error)
            gone[kind] = frozenset(key for key, (name, _) in taken.items() if name in below.gone[kind])
        left_out.log()
        return Difference(new, gone)

    def rank(self, name: str) -> int | None:
        """Return how specific the prefixes are by which a name is of an upstream server below."""
        below = self.prefix.name_below(name) if self.prefix.has_name(name) else None
        owner = None if below is None else owner_of_name(self._below.elsewhere, below)
        if below is None or owner is None:
            return None
        return len(name) - len(below) + (owner.rank(below) or 0)

    def tool(self, name: str) -> Tool | None:
        """Return what calls a tool of an upstream server below that is in no list."""
        found = self._below.unlisted_tool(self.prefix.name_below(name))
        return None if found is None else self._try(self._tool, name, found)

    def prompt(self, name: str) -> RegisteredPrompt | None:
        """Return what gets a prompt of an upstream server below that is in no list."""
        found = self._below.unlisted_prompt(self.prefix.name_below(name))
        return None if found is None else self._try(self._prompt, name, found)

    def completer(self, ref: str, argument: str) -> Completer | None:
        """Return what asks an upstream server below for values of an argument."""
        found = self._below.unlisted_completer(self.prefix.name_below(ref), argument)
        return None if found is None else self._completer(ref, found)

    @staticmethod
    def _try(derive: Callable[[str, T], T], name: str, item: T) -> T | None:
        try:
            return derive(name, item)
        except RegistrationError:
            return None

    def _lists(self) -> Iterable[_Kind]:
        return (kind for kind in self._kinds() if kind[0] is not self._above.methods)

    # -- changes of resources ------------------------------------------------------------------------

    @property
    def watches(self) -> bool:
        """See `SubscriptionListener.watches`."""
        return self._below.watches

    def watched(self, uri: str, owner: Hashable, wanted: bool) -> None:
        """See `SubscriptionListener.watched`. The end of a subscription goes where the subscription went, whose server that may be by now."""
        if not wanted:
            below = self._watched.pop((uri, owner), None)
        elif below := self.uri_below(uri) if self._may_have(uri) else None:
            self._watched[uri, owner] = below
        if below is not None:
            self._below.watched(below, owner, wanted)

    def watched_below(self, uri: str, owner: Hashable) -> str | None:
        """Return the URI that an owner's subscription has in the mounted server; None if it went elsewhere."""
        return self._watched.get((uri, owner))

    def hearing(self, uris: Collection[str], key: Hashable) -> list[UntilHeard]:
        """See `SubscriptionListener.hearing`."""
        return self._below.hearing([self.uri_below(uri) for uri in uris if self._may_have(uri)], key)

    def _take(
        self,
        above: ItemRegistry[Any],
        below: ItemRegistry[Any],
        rename: Callable[[str], str],
        derive: Callable[[str, Any], Any],
    ) -> None:
        """Have a registry offer what another one does, under other names, and nothing that it does not any more."""
        taken = self._taken.setdefault(id(above), {})
        there = {entry.key: entry.item for entry in below.entries()}
        gone = [
            key
            for key, (name, item) in taken.items()
            if there.get(name) is not item or not self._stays(rename, name, key, item)
        ]
        # What was put aside above stays so when it goes below, and comes back; not another one of its name.
        aside = self._aside.setdefault(id(above), {})
        aside.update((key, taken[key][1]) for key in above.aside(gone))
        for key in gone:
            del taken[key]
        freed = set(map(above.place, gone))
        kept = {name for name, _ in taken.values()}
        new: dict[str, Any] = {}
        refused: set[str] = set()
        for name, item in there.items():
            if name in kept:
                continue
            try:
                key = rename(name)
                if above.place(key) not in freed:
                    above.check_free(key)
                new[key] = derive(key, item)
            except RegistrationError as error:
                refused.add(str(error))
                continue
            taken[key] = (name, item)
        left_out = LeftOut(_log, logging.ERROR)
        for said in sorted(refused - self._refused.get(id(above), frozenset())):  # once, not with each change
            left_out.note("what a mounted server registered is not offered: %s", said)
        left_out.log()
        self._refused[id(above)] = frozenset(refused)
        above.replace(gone, new)
        back = [key for key in new if aside.pop(key, None) is taken[key][1]]
        above.put_aside(back)

    def _stays(self, rename: Callable[[str], str], name: str, key: str, item: Any) -> bool:
        """Whether what is offered below as before is so above, too: not where its URIs are others now."""
        if isinstance(item, Tool) and self._moved and mentions(item.meta, self._moved):
            return False
        try:
            return rename(name) == key
        except RegistrationError:
            return False

    def _tool(self, name: str, tool: Tool) -> Tool:
        try:
            check_name(name)
        except RegistrationError:
            raise RegistrationError(
                f"tool {name!r}: with its prefix it is no name of 1 to 64 letters, digits, '_', '-' or '.', which every client "
                f"takes; give a shorter one"
            ) from None
        function = self._function(tool.function, tool, self.prefix.name_below)
        visible = self._below.visibility(tool)
        meta = renamed_in(tool.meta, self._renamed) if self._renamed else tool.meta
        return msgspec.structs.replace(tool, name=name, function=function, visible=visible, meta=meta)

    def _prompt(self, name: str, prompt: RegisteredPrompt) -> RegisteredPrompt:
        function = self._function(prompt.function, prompt, self.prefix.name_below)
        return msgspec.structs.replace(prompt, name=name, function=function)

    def _resource(self, uri: str, resource: RegisteredResource) -> RegisteredResource:
        function = self._function(resource.function, resource, self.uri_below)
        template = None if resource.template is None else resource.template.moved(uri, f"resource {uri!r}")
        return msgspec.structs.replace(resource, uri=uri, function=function, template=template)

    def _completer(self, ref: str, completer: Completer) -> Completer:
        function = self._function(completer.function, completer, self._ref_below)
        return msgspec.structs.replace(completer, ref=ref, function=function)

    def _method(self, _name: str, method: ExtensionMethod) -> ExtensionMethod:
        # What an extension calls its methods is known to its clients, whoever offers them: they have no prefix.
        return msgspec.structs.replace(method, function=self._function(method.function, method, str))

    def _function(
        self,
        function: Function,
        item: Tool | RegisteredPrompt | RegisteredResource | Completer | ExtensionMethod,
        name_below: Callable[[str], str],
    ) -> Function:
        middleware = (self._rename_uris, *self._middleware) if self._shares else self._middleware
        origin = MountOrigin(self._server, middleware, item, name_below)
        return function.through(origin)
