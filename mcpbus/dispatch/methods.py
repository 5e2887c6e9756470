"""What each method answers that a server's features stand behind, as one table.

A method either answers at once (lists, discovery) or prepares a call, which runs in a task of its own. The methods
that concern a session or a stream are not here: they belong to the actors.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

import attrs
import msgspec

from mcpbus.call import Handler
from mcpbus.dispatch.handlers import Complete, PromptGet, ResourceRead, ToolCall
from mcpbus.dispatch.task_methods import (
    TaskParams,
    UpdateTaskParams,
    prepare_cancel,
    prepare_get,
    prepare_update,
)
from mcpbus.features.arguments import InvalidArgumentsError
from mcpbus.features.catalogue import Capability, Features
from mcpbus.features.definition import Definition
from mcpbus.features.registry import Entry, Registry
from mcpbus.features.schemas import jsontypes
from mcpbus.inbound import Caller
from mcpbus.protocol import messages as wire
from mcpbus.protocol.cursors import paginate
from mcpbus.protocol.errors import invalid_params, method_not_found, quoted, resource_not_found
from mcpbus.protocol.results import CacheScope, tail_for
from mcpbus.protocol.revisions import MODERN_VERSIONS, Era, Revision
from mcpbus.protocol.task_extension import TASKS, declares, undeclared

Answer: TypeAlias = Callable[[Any, Caller], bytes]
Prepare: TypeAlias = Callable[[Any, Caller], Handler]

_BOTH = frozenset(Era)
_LEGACY = frozenset({Era.LEGACY})
_MODERN = frozenset({Era.MODERN})


class NoParams(msgspec.Struct, frozen=True):
    """The params of a method that has none of its own."""


@attrs.frozen
class Method:
    """One method; it has either `answer` or `prepare`.

    Both take the decoded params, once `check` has passed, and raise ProtocolError for what cannot be served.
    """

    name: str
    params: type[msgspec.Struct]
    """What its params are decoded into."""
    capability: Capability | None
    """What the server must offer; None for what every server does."""
    eras: frozenset[Era] = _BOTH
    rounds: bool = attrs.field(default=False, kw_only=True)
    """Whether it may be answered with input_required (2026-07-28, Multi Round-Trip Requests, "Supported Requests")."""
    answer: Answer | None = attrs.field(default=None, kw_only=True)
    """Returns the encoded result object."""
    prepare: Prepare | None = attrs.field(default=None, kw_only=True)

    def check(self, caller: Caller) -> None:
        """Refuse a caller for whom there is no such method.

        Raises:
            ProtocolError: -32601: it is not of their era, or the server does not offer its capability.
        """
        if caller.revision.era not in self.eras or not (
            self.capability is None or caller.features.offers(self.capability)
        ):
            raise method_not_found(self.name)


def empty_result(server: Definition, revision: Revision) -> bytes:
    """The encoded result object of a method that has nothing to say."""
    return b"{" + server.tails[revision].plain.removeprefix(b",")


def initialize_result(
    server: Definition, features: Features, revision: Revision, *, stateless: bool
) -> bytes:
    """The encoded result object of initialize (rules L-2 and L-4).

    Args:
        server: who answers.
        features: what it offers to this session.
        revision: what was negotiated.
        stateless: see `server_capabilities`.
    """
    body: dict[str, Any] = {
        "protocolVersion": revision.name,
        "capabilities": server_capabilities(features, revision, stateless=stateless),
        "serverInfo": server.identity(revision),
    }
    if server.instructions is not None:
        body["instructions"] = server.instructions
    return jsontypes.encode(body)


def server_capabilities(features: Features, revision: Revision, *, stateless: bool) -> dict[str, Any]:
    """What initialize and server/discover declare.

    Args:
        features: what is offered.
        revision: under which it is declared.
        stateless: whether legacy clients get no session; then nothing can be pushed to them, and neither change
            notifications nor subscriptions nor logging are declared.
    """
    live = revision.era is Era.MODERN or not stateless
    declared: dict[str, Any] = {"logging": {}} if live else {}
    if features.offers("completions") and revision.completions_capability:
        declared["completions"] = {}
    if features.offers("prompts"):
        declared["prompts"] = {"listChanged": True} if live else {}
    if features.offers("resources"):
        declared["resources"] = {"subscribe": True, "listChanged": True} if live else {}
    if features.offers("tools"):
        declared["tools"] = {"listChanged": True} if live else {}
    if features.offers("tasks") and revision.era is Era.MODERN:
        declared["extensions"] = {TASKS: {}}
    return declared


def _discover(_params: NoParams, caller: Caller) -> bytes:
    server = caller.server
    body: dict[str, Any] = {
        "supportedVersions": MODERN_VERSIONS,
        "capabilities": server_capabilities(caller.features, caller.revision, stateless=False),
    }
    if server.instructions is not None:
        body["instructions"] = server.instructions
    tail = tail_for(server.identity(caller.revision), caller.revision)
    return jsontypes.encode(body)[:-1] + tail.cacheable(server.list_ttl, _scope(caller))


def _ping(_params: NoParams, caller: Caller) -> bytes:
    return empty_result(caller.server, caller.revision)


def _list_tools(params: wire.ListParams, caller: Caller) -> bytes:
    features = caller.features
    return _list("tools", params, caller, features.tools, features.visible_tools(caller.principal))


def _list_prompts(params: wire.ListParams, caller: Caller) -> bytes:
    return _list("prompts", params, caller, caller.features.prompts)


def _list_resources(params: wire.ListParams, caller: Caller) -> bytes:
    return _list("resources", params, caller, caller.features.resources)


def _list_templates(params: wire.ListParams, caller: Caller) -> bytes:
    return _list("resourceTemplates", params, caller, caller.features.templates)


def _list(
    member: str,
    params: wire.ListParams,
    caller: Caller,
    registry: Registry[Any],
    seen: Sequence[Entry[Any]] | None = None,
) -> bytes:
    """Encode one page of a registry, or of those of its entries that the caller has `seen`."""
    cursor, revision, server = params.cursor, caller.revision, caller.server

    def build() -> bytes:
        entries = registry.entries() if seen is None else seen
        page = paginate(entries, cursor, server.page_size, list_name=member, position=_position)
        described = jsontypes.encode([entry.item.describe(revision) for entry in page.items])
        more = b"" if page.next_cursor is None else b',"nextCursor":%b' % jsontypes.encode(page.next_cursor)
        end = caller.tail.cacheable(server.list_ttl, _scope(caller))
        return b'{"%b":%b%b%b' % (member.encode(), described, more, end)

    if cursor is not None:
        # Only first pages are kept: they are what nearly every client asks for, and a client cannot make up more of them.
        return build()
    return registry.kept((revision.name, None if seen is None else tuple(map(_position, seen))), build)


def _position(entry: Entry[Any]) -> int:
    return entry.position


def _scope(caller: Caller) -> CacheScope:
    """Who may reuse a list: only its principal, if there are principals."""
    return "private" if caller.server.authenticate is not None or caller.features.selective else "public"


def _call_tool(call: wire.CallToolParams, caller: Caller) -> Handler:
    tool = caller.features.find_tool(call.name, caller.principal)
    if tool is None:
        raise invalid_params(f"unknown tool {quoted(call.name)} - at `params.name`")
    if (
        tool.task is not None
        and tool.task.required
        and caller.revision.era is Era.MODERN
        and not declares(caller.client_capabilities, caller.revision)
    ):
        raise undeclared()
    return ToolCall(caller, tool, call.arguments)


def _get_prompt(get: wire.GetPromptParams, caller: Caller) -> Handler:
    prompt = caller.features.prompts.get(get.name)
    if prompt is None:
        raise invalid_params(f"unknown prompt {quoted(get.name)} - at `params.name`")
    try:
        return PromptGet(caller, prompt, prompt.bind(get.arguments or {}))
    except InvalidArgumentsError as error:
        raise invalid_params(f"{error} - at `params.arguments`") from error


def _read_resource(read: wire.ReadResourceParams, caller: Caller) -> Handler:
    uri = read.uri
    found = caller.features.find_resource(uri)
    if found is None:
        raise resource_not_found(uri, caller.revision.resource_not_found)
    resource, variables = found
    return ResourceRead(caller, resource, uri, variables)


def _complete(complete: wire.CompleteParams, caller: Caller) -> Handler:
    features, argument = caller.features, complete.argument
    match complete.ref:
        case wire.PromptReference(name=ref):
            known = features.prompt_arguments(ref)
        case wire.ResourceTemplateReference(uri=ref):
            known = features.template_variables(ref)
    if known is None:
        raise invalid_params(f"unknown prompt or resource template {quoted(ref)} - at `params.ref`")
    if argument.name not in known:
        raise invalid_params(
            f"{quoted(ref)} has no argument {quoted(argument.name)} - at `params.argument.name`"
        )
    chosen = (complete.context.arguments if complete.context is not None else None) or {}
    return Complete(caller, ref, features.completers.get((ref, argument.name)), argument.value, chosen)


METHODS: Mapping[str, Method] = MappingProxyType(
    {
        row.name: row
        for row in (
            Method("server/discover", NoParams, None, _MODERN, answer=_discover),
            Method("ping", NoParams, None, _LEGACY, answer=_ping),
            Method("tools/list", wire.ListParams, "tools", answer=_list_tools),
            Method("tools/call", wire.CallToolParams, "tools", prepare=_call_tool, rounds=True),
            Method("resources/list", wire.ListParams, "resources", answer=_list_resources),
            Method("resources/templates/list", wire.ListParams, "resources", answer=_list_templates),
            Method(
                "resources/read", wire.ReadResourceParams, "resources", prepare=_read_resource, rounds=True
            ),
            Method("prompts/list", wire.ListParams, "prompts", answer=_list_prompts),
            Method("prompts/get", wire.GetPromptParams, "prompts", prepare=_get_prompt, rounds=True),
            Method("completion/complete", wire.CompleteParams, "completions", prepare=_complete),
            Method("tasks/get", TaskParams, "tasks", _MODERN, prepare=prepare_get),
            Method("tasks/update", UpdateTaskParams, "tasks", _MODERN, prepare=prepare_update),
            Method("tasks/cancel", TaskParams, "tasks", _MODERN, prepare=prepare_cancel),
        )
    }
)
"""Every method that features stand behind, by name."""
