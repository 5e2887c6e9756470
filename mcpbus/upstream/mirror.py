"""What the other server lists, as features of this one, kept as they are there."""

import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

import msgspec
import trio

from mcpbus.client.client import Client
from mcpbus.client.errors import ClientError, Disconnected
from mcpbus.features.catalogue import Capability, Features
from mcpbus.features.errors import RegistrationError
from mcpbus.features.foreign import (
    foreign_completer,
    foreign_prompt,
    foreign_resource,
    foreign_template,
    foreign_tool,
    unlisted_resources,
)
from mcpbus.features.registry import Registry
from mcpbus.protocol.errors import ProtocolError, quoted
from mcpbus.protocol.messages import ListName
from mcpbus.upstream.errors import UpstreamError, told
from mcpbus.upstream.relay import Relay

_log = logging.getLogger("mcpbus")

_CAPABILITIES: Final[tuple[Capability, ...]] = ("tools", "prompts", "resources", "completions")

_NEW_SECONDS: Final = 5.0
"""For how long lists are not looked at again, where that is done because a connection is new."""
_LOOK_SECONDS: Final = 30.0
"""How long lists may take to come, all together."""

_Described: TypeAlias = Mapping[str, Any]


class _Listed:
    """One list of the other server's, in one registry of this one."""

    def __init__(
        self,
        noun: str,
        key: str,
        registry: Registry[Any],
        make: Callable[[_Described], Any],
        replace: Callable[[Iterable[str], Mapping[str, Any]], None],
        *,
        server: str,
    ) -> None:
        self._server = server
        self._noun = noun
        self._key = key
        self._registry = registry
        self._make = make
        self._replace = replace
        self.taken: dict[str, bytes] = {}

    def take(self, described: Iterable[_Described]) -> None:
        """Offer what is described, and nothing else that was; what is described as before stays as it is."""
        made: dict[str, Any] = {}
        kept: dict[str, bytes] = {}
        for each in described:
            key, text = str(each.get(self._key)), msgspec.json.encode(each)
            if key in kept:
                _log.warning(
                    "%s lists the %s %s twice; the second one is left out",
                    self._server,
                    self._noun,
                    quoted(key),
                )
            elif self.taken.get(key) == text:
                kept[key] = text
            elif (item := self._try(key, each)) is not None:
                kept[key], made[key] = text, item
        gone = [key for key in self.taken if key not in kept or key in made]
        self.taken = kept
        self._replace(gone, made)

    def _try(self, key: str, described: _Described) -> Any:
        try:
            if key not in self.taken:
                self._registry.check_free(key)
            return self._make(described)
        except RegistrationError as error:
            _log.warning("what %s offers is left out: %s", self._server, told(error))
            return None


class Mirror:
    """The lists of the other server.

    Args:
        server: What the other server is called, for the log.
        features: What this one offers.
        relay: What passes calls on.
        scopes: What a token has to allow for each of them.
        timeout: Seconds after which a call fails; None for no limit.
    """

    def __init__(
        self,
        server: str,
        features: Features,
        relay: Relay,
        scopes: tuple[str, ...],
        timeout: float | None,
    ) -> None:
        self._server = server
        self._features = features
        self._relay = relay
        self._terms: dict[str, Any] = {"scopes": scopes, "timeout": timeout}
        self._capabilities: frozenset[str] = frozenset()
        self._completers: set[tuple[str, str]] = set()
        self._listing = trio.Lock()
        self._looked = -math.inf
        self._tools = _Listed(
            "tool",
            "name",
            features.tools,
            self._with(foreign_tool, relay.call_tool),
            features.replace_tools,
            server=server,
        )
        self._prompts = self._plain("prompt", "name", features.prompts, foreign_prompt, relay.get_prompt)
        self._resources = self._plain("resource", "uri", features.resources, foreign_resource, relay.read)
        self._templates = self._plain(
            "template", "uriTemplate", features.templates, foreign_template, relay.read
        )

        self._lists: dict[ListName, tuple[_Listed, ...]] = {
            "tools": (self._tools,),
            "prompts": (self._prompts,),
            "resources": (self._resources, self._templates),
        }

    def _with(
        self, make: Callable[..., Any], relay: Callable[..., Awaitable[Any]]
    ) -> Callable[[_Described], Any]:
        return lambda described: make(described, relay, **self._terms)

    def _plain(
        self,
        noun: str,
        key: str,
        registry: Registry[Any],
        make: Callable[..., Any],
        relay: Callable[..., Awaitable[Any]],
    ) -> _Listed:
        return _Listed(noun, key, registry, self._with(make, relay), registry.replace, server=self._server)

    @property
    def is_old(self) -> bool:
        """Whether it is a while ago that the lists were looked at."""
        return trio.current_time() - self._looked > _NEW_SECONDS

    def declare_all(self) -> None:
        """Offer all that another server may have, while it is not known what it has."""
        self._features.declare(_CAPABILITIES)

    def declare(self, capabilities: Mapping[str, Any]) -> None:
        """Offer what the other server says that it has, be it that nothing is listed yet."""
        self._capabilities = frozenset(capabilities)
        self._features.declare([each for each in _CAPABILITIES if each in capabilities])

    async def look(
        self,
        client: Client,
        names: Iterable[ListName] = ("tools", "prompts", "resources"),
        turn: trio.Event | None = None,
    ) -> None:
        """Ask for lists, and offer what they have; a list that cannot be had is left as it is, and the log says why.

        Args:
            client: What it is connected by.
            names: Which lists.
            turn: Set once anything may be offered; None if it may be.

        Raises:
            UpstreamError: They do not come.
            Disconnected: There is no connection.
        """
        async with self._listing:
            self._looked = trio.current_time()
            found: list[tuple[_Listed, list[dict[str, Any]]]] = []
            with trio.move_on_after(_LOOK_SECONDS) as patience:
                for name in names:
                    found += await self._try_to_list(client, name)
            if turn is not None:
                await turn.wait()
            for listed, described in found:
                listed.take(described)
            self._offer_the_rest()
        if patience.cancelled_caught:
            raise UpstreamError(f"it did not say within {_LOOK_SECONDS:g} s what it offers")

    async def _try_to_list(
        self, client: Client, name: ListName
    ) -> Iterable[tuple[_Listed, list[dict[str, Any]]]]:
        if name not in self._capabilities:
            return [(listed, []) for listed in self._lists[name]]
        try:
            return zip(self._lists[name], await _list(client, name), strict=True)
        except Disconnected:
            raise  # that says nothing about the list
        except (ProtocolError, ClientError) as error:
            _log.warning("%s of %s cannot be listed: %s", name, self._server, told(error))
            return ()

    def _offer_the_rest(self) -> None:
        """Offer what depends on several lists: what is in none of them, and completions."""
        features, relay = self._features, self._relay
        features.unlisted.clear()
        if "resources" in self._capabilities:
            features.unlisted.append(unlisted_resources(self._schemes(), relay.read, **self._terms))
        completed = self._completed() if "completions" in self._capabilities else ()
        timeout = self._terms["timeout"]
        new = {key: foreign_completer(*key, relay.complete, timeout) for key in completed}
        gone, self._completers = self._completers, set(new)
        features.replace_completers(gone, new)

    def _schemes(self) -> Iterable[str]:
        """The schemes of URIs that the other server has, be it that a tool alone names one: for its user interface."""
        features = self._features
        for registry in (features.resources, features.templates):
            for entry in registry.entries():
                yield entry.key.partition(":")[0]
        for tool in features.tools.entries():
            meta = tool.item.meta or {}
            interface = meta.get("ui")
            for uri in (
                meta.get("ui/resourceUri"),
                interface.get("resourceUri") if isinstance(interface, dict) else None,
            ):
                if isinstance(uri, str):
                    yield uri.partition(":")[0]

    def _completed(self) -> Iterable[tuple[str, str]]:
        for names_of, listed in (
            (self._features.prompt_arguments, self._prompts),
            (self._features.template_variables, self._templates),
        ):
            for ref in listed.taken:
                yield from ((ref, argument) for argument in names_of(ref) or ())

    def clear(self) -> None:
        """Offer nothing of it any more."""
        for lists in self._lists.values():
            for listed in lists:
                listed.take(())
        self._capabilities = frozenset()
        self._offer_the_rest()


async def _list(client: Client, name: ListName) -> list[list[dict[str, Any]]]:
    """Ask for what is listed under a name: with resources for templates, too."""
    if name == "tools":
        return [await client.list_tools()]
    if name == "prompts":
        return [await client.list_prompts()]
    resources = await client.list_resources()
    try:
        return [resources, await client.list_resource_templates()]
    except ProtocolError:  # not every server has them
        return [resources, []]
