"""What the other server lists, as features of this one, kept as they are there."""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

import trio

from mcpbus.client.client import Client
from mcpbus.client.errors import ClientError, DisconnectedError
from mcpbus.features.catalogue import Capability, FeatureSet
from mcpbus.features.completion import Completer
from mcpbus.features.elsewhere import Kind
from mcpbus.features.prompt import RegisteredPrompt
from mcpbus.features.registry import ItemRegistry
from mcpbus.features.tool import Tool
from mcpbus.features.upstream_features import (
    foreign_completer,
    foreign_prompt,
    foreign_resource,
    foreign_template,
    foreign_tool,
    unlisted_prompt,
    unlisted_resources,
    unlisted_tool,
)
from mcpbus.protocol.errors import ProtocolError, quoted
from mcpbus.protocol.messages import ListName
from mcpbus.upstream.listed import Described, Listed
from mcpbus.upstream.relay import CallRelay
from mcpbus.upstream.target import UpstreamError, told
from mcpbus.upstream.tool_filter import ToolFilter

_log = logging.getLogger("mcpbus")

_CAPABILITIES: Final[tuple[Capability, ...]] = ("tools", "prompts", "resources", "completions")

LOOK_SECONDS: Final = 30.0
"""How long lists may take to come, all together."""


class FeatureMirror:
    """The lists of the other server.

    Args:
        server: What the other server is called, for the log.
        features: What this one offers.
        relay: What passes calls on.
        scopes: What a token has to allow for each of them.
        timeout: Seconds after which a call fails; None for no limit.
        tools: The tools that are offered.
    """

    def __init__(
        self,
        server: str,
        features: FeatureSet,
        relay: CallRelay,
        scopes: tuple[str, ...],
        timeout: float | None,
        *,
        tools: ToolFilter,
    ) -> None:
        self._server = server
        self._filter = tools
        self._idle: list[str] = []
        self._features = features
        self._relay = relay
        self._terms: dict[str, Any] = {"scopes": scopes, "timeout": timeout}
        self._capabilities: frozenset[str] = frozenset()
        self._completers: set[tuple[str, str]] = set()
        self._listing = trio.Lock()
        self._tools = Listed(
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

        self._lists: dict[ListName, tuple[Listed, ...]] = {
            "tools": (self._tools,),
            "prompts": (self._prompts,),
            "resources": (self._resources, self._templates),
        }
        self.lists: dict[Kind, Listed] = {
            "tools": self._tools,
            "prompts": self._prompts,
            "resources": self._resources,
            "templates": self._templates,
        }

    def _with(
        self, make: Callable[..., Any], relay: Callable[..., Awaitable[Any]]
    ) -> Callable[[Described], Any]:
        return lambda described: make(described, relay, **self._terms)

    def _plain(
        self,
        noun: str,
        key: str,
        registry: ItemRegistry[Any],
        make: Callable[..., Any],
        relay: Callable[..., Awaitable[Any]],
    ) -> Listed:
        return Listed(noun, key, registry, self._with(make, relay), registry.replace, server=self._server)

    def declare_all(self) -> None:
        """Offer all that another server may have, while it is not known what it has."""
        self._features.declare(_CAPABILITIES)

    def declare(self, capabilities: Mapping[str, Any]) -> None:
        """Offer what the other server says that it has, be it that nothing is listed yet."""
        self._capabilities = frozenset(capabilities)
        self._features.declare([each for each in _CAPABILITIES if each in capabilities])

    def may_have(self, capability: Capability) -> bool:
        """Whether the upstream server may have something of a kind, as far as is known."""
        return not self._capabilities or capability in self._capabilities

    def unlisted_tool(self, name: str) -> Tool | None:
        """Return what calls a tool that is in no list; None if it is not offered, or the upstream server has no tools."""
        if not self.may_have("tools") or not self._filter.allows(name):
            return None
        return unlisted_tool(name, self._relay.call_tool, **self._terms)

    def unlisted_prompt(self, name: str) -> RegisteredPrompt | None:
        """Return what gets a prompt that is in no list; None if the upstream server has no prompts."""
        if not self.may_have("prompts"):
            return None
        return unlisted_prompt(name, self._relay.get_prompt, **self._terms)

    def unlisted_completer(self, ref: str, argument: str) -> Completer | None:
        """Return what completes an argument of a prompt that is in no list; None if the upstream server completes nothing."""
        if not self.may_have("completions"):
            return None
        return foreign_completer(ref, argument, self._relay.complete, self._terms["timeout"])

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
            DisconnectedError: There is no connection.
        """
        async with self._listing:
            found: list[tuple[Listed, list[dict[str, Any]]]] = []
            with trio.move_on_after(LOOK_SECONDS) as patience:
                for name in names:
                    found += await self._try_to_list(client, name)
            if turn is not None:
                await turn.wait()
            for listed, described in found:
                await listed.take(described)
            self._offer_the_rest()
        if patience.cancelled_caught:
            raise UpstreamError(f"it did not say within {LOOK_SECONDS:g} s what it offers")

    async def _try_to_list(
        self, client: Client, name: ListName
    ) -> Iterable[tuple[Listed, list[dict[str, Any]]]]:
        if name not in self._capabilities:
            return [(listed, []) for listed in self._lists[name]]
        try:
            found = await self.list_there(client, name, shared=True)
            return zip(self._lists[name], found, strict=True)
        except DisconnectedError:
            raise  # that says nothing about the list
        except (ProtocolError, ClientError) as error:
            _log.warning("%s of %s cannot be listed: %s", name, self._server, told(error))
            return ()

    async def list_there(
        self, client: Client, name: ListName, *, shared: bool = False
    ) -> list[list[dict[str, Any]]]:
        """Ask for what is listed under a name, without the tools that are not offered; with resources for templates, too.

        Args:
            client: What it is connected by.
            name: Which list.
            shared: Whether it is for all clients, so that the log names each pattern of tools that matches none.
        """
        found = await _list(client, name)
        if name != "tools":
            return found
        [tools] = found
        if shared:
            self._note_idle(tools)
        return [[tool for tool in tools if self._filter.allows(str(tool.get("name")))]]

    def _note_idle(self, tools: list[dict[str, Any]]) -> None:
        """Log the patterns that match no tool, each once: it may be misspelt, and closes nothing then."""
        idle = self._filter.idle(str(tool.get("name")) for tool in tools)
        for pattern in idle:
            if pattern not in self._idle:
                _log.warning(
                    "%s has no tool %s, which a list of its tools names", self._server, quoted(pattern)
                )
        self._idle = idle

    def _offer_the_rest(self) -> None:
        """Offer what depends on several lists: what is in none of them, and completions."""
        features, relay = self._features, self._relay
        features.unlisted.clear()
        if "resources" in self._capabilities:
            features.unlisted.append(unlisted_resources(relay.read, **self._terms))
        completed = self._completed() if "completions" in self._capabilities else ()
        timeout = self._terms["timeout"]
        new = {key: foreign_completer(*key, relay.complete, timeout) for key in completed}
        gone, self._completers = self._completers, set(new)
        features.replace_completers(gone, new)

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
                listed.clear()
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
