"""What each method answers that a server's features stand behind, as one table.

A method either answers at once (lists, discovery) or prepares a call, which runs in a task of its own. The methods
that concern a session or a stream are not here: they belong to the actors.
"""

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from types import MappingProxyType
from typing import Any, TypeAlias

import msgspec

from mcpbus.core.call import Handler
from mcpbus.core.request_context import RequestContext
from mcpbus.dispatch.handlers import Complete, ExtensionCall, PromptGet, ResourceRead, ToolCall
from mcpbus.dispatch.runner import Runner
from mcpbus.dispatch.task_methods import (
    TaskParams,
    UpdateTaskParams,
    prepare_cancel,
    prepare_get,
    prepare_update,
)
from mcpbus.features.arguments import InvalidArgumentsError
from mcpbus.features.catalogue import Capability, FeatureSet
from mcpbus.features.definition import ServerDefinition
from mcpbus.features.registry import ItemRegistry, RegistryEntry
from mcpbus.features.schemas import python_types
from mcpbus.protocol import messages as wire
from mcpbus.protocol.cursors import paginate
from mcpbus.protocol.errors import invalid_params, missing_extension, quoted, resource_not_found
from mcpbus.protocol.extensions import TASKS, declared_settings, declares, undeclared
from mcpbus.protocol.results import CacheScope, tail_for
from mcpbus.protocol.revisions import MODERN_VERSIONS, Era, Revision

Answer: TypeAlias = Callable[[Any, RequestContext, FeatureSet, ServerDefinition], bytes]
Prepare: TypeAlias = Callable[[Any, RequestContext, FeatureSet, Runner], Handler]

_BRACE = ord("{")
_RAW: TypeAlias = msgspec.Raw
_BOTH = frozenset(Era)
_LEGACY = frozenset({Era.LEGACY})
_MODERN = frozenset({Era.MODERN})


class NoParams(msgspec.Struct, frozen=True):
    """The params of a method that has none of its own."""


class Method(msgspec.Struct, frozen=True):
    """One method; it has either `answer` or `prepare`.

    Both take the decoded params, the request with all that is known of it, and what its client is offered; the one takes who is asked besides, the other what calls functions. Both raise ProtocolError for what cannot be served.
    """

    name: str
    params: type[msgspec.Struct] | None
    """What its params are decoded into; None if what the request's routing has of them is enough."""
    capability: Capability | None
    """What the server must offer; None for what every server does."""
    eras: frozenset[Era] = _BOTH
    answer: Answer | None = None
    """Returns the encoded result object."""
    prepare: Prepare | None = None
    lists: wire.ListName | None = None
    """The list that it answers with a page of; upstream servers may have changed it."""


def initialize_result(
    server: ServerDefinition, features: FeatureSet, revision: Revision, *, stateless: bool
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
        "capabilities": server_capabilities(features, revision, stateless=stateless, listens=server.listens),
        "serverInfo": server.identity(revision),
    }
    if server.instructions is not None:
        body["instructions"] = server.instructions
    return python_types.encode_typed(body)


def server_capabilities(
    features: FeatureSet, revision: Revision, *, stateless: bool, listens: bool = True
) -> dict[str, Any]:
    """What initialize and server/discover declare.

    Args:
        features: what is offered.
        revision: under which it is declared.
        stateless: whether legacy clients get no session; then nothing can be pushed to them, and neither change
            notifications nor subscriptions nor logging are declared.
        listens: whether change notifications and subscriptions are declared at all.
    """
    live = revision.era is Era.MODERN or not stateless
    told = live and listens
    declared: dict[str, Any] = {"logging": {}} if live else {}
    if features.offers("completions") and revision.completions_capability:
        declared["completions"] = {}
    if features.offers("prompts"):
        declared["prompts"] = {"listChanged": True} if told else {}
    if features.offers("resources"):
        declared["resources"] = {"subscribe": True, "listChanged": True} if told else {}
    if features.offers("tools"):
        declared["tools"] = {"listChanged": True} if told else {}
    # Capabilities are an open set in every revision, and there are legacy clients that know of this one.
    extensions: dict[str, Any] = {**features.extensions}
    if features.offers("tasks") and revision.era is Era.MODERN:
        extensions[TASKS] = {}
    if extensions:
        declared["extensions"] = extensions
    return declared


def _discover(
    _params: NoParams, context: RequestContext, features: FeatureSet, server: ServerDefinition
) -> bytes:
    revision = context.revision
    body: dict[str, Any] = {
        "supportedVersions": MODERN_VERSIONS,
        "capabilities": server_capabilities(features, revision, stateless=False, listens=server.listens),
    }
    if server.instructions is not None:
        body["instructions"] = server.instructions
    tail = tail_for(server.identity(revision), revision)
    return python_types.encode_typed(body)[:-1] + tail.cacheable(
        server.list_ttl, _scope(server, selected=features.has_elsewhere)
    )


def _ping(
    _params: NoParams, context: RequestContext, _features: FeatureSet, server: ServerDefinition
) -> bytes:
    return server.tails[context.revision].alone


def _list(
    member: str,
    registry_of: Callable[[FeatureSet], ItemRegistry[Any]],
    seen_by: Callable[[FeatureSet, Any], Sequence[RegistryEntry[Any]] | None] = lambda *_: None,
) -> Answer:
    """Make what answers with one page of a registry, or of those of its entries that a principal sees."""
    opening = b'{"%b":' % member.encode()

    def answer(
        params: wire.ListParams, context: RequestContext, features: FeatureSet, server: ServerDefinition
    ) -> bytes:
        cursor, revision = params.cursor, context.revision
        registry, seen = registry_of(features), seen_by(features, context.principal)
        selected = seen is not None or features.has_elsewhere

        def build() -> bytes:
            entries = registry.entries() if seen is None else seen
            page = paginate(entries, cursor, server.page_size, list_name=member, position=_position)
            described = python_types.encode_typed([entry.item.describe(revision) for entry in page.items])
            more = (
                b""
                if page.next_cursor is None
                else b',"nextCursor":%b' % python_types.encode(page.next_cursor)
            )
            end = server.tails[revision].cacheable(server.list_ttl, _scope(server, selected=selected))
            return b"%b%b%b%b" % (opening, described, more, end)

        if cursor is not None:
            # Only first pages are kept: they are what nearly every client asks for, and a client cannot make up more of them.
            return build()
        return registry.kept((revision.name, None if seen is None else tuple(map(_position, seen))), build)

    return answer


def _position(entry: RegistryEntry[Any]) -> int:
    return entry.position


def _scope(server: ServerDefinition, *, selected: bool = False) -> CacheScope:
    """Who may reuse an answer: only its principal, if there are principals, or it was selected for who asks, be it by an upstream server.

    It is the same on all pages of a list (rule K-3): what only some may see of another one is no matter.
    """
    return "private" if server.knows_principals or selected else "public"


def _call_tool(_params: None, context: RequestContext, features: FeatureSet, runner: Runner) -> Handler:
    name, arguments = context.routing.name, context.routing.arguments
    if name is None or (isinstance(arguments, _RAW) and memoryview(arguments)[0] != _BRACE):
        call = wire.decode_params(wire.CallToolParams, context.request.params)  # which says what is wrong
        name, arguments = call.name, call.arguments
    tool = features.find_tool(name, context.principal)
    if tool is None:
        raise invalid_params(f"unknown tool {quoted(name)} - at `params.name`")
    if (
        tool.task is not None
        and tool.task.required
        and context.revision.era is Era.MODERN
        and not declares(context.client_capabilities, context.revision)
    ):
        raise undeclared()
    return ToolCall(runner, tool, arguments)


def _get_prompt(
    get: wire.GetPromptParams, _context: RequestContext, features: FeatureSet, runner: Runner
) -> Handler:
    prompt = features.find_prompt(get.name)
    if prompt is None:
        raise invalid_params(f"unknown prompt {quoted(get.name)} - at `params.name`")
    try:
        return PromptGet(runner, prompt, prompt.bind(get.arguments))
    except InvalidArgumentsError as error:
        raise invalid_params(f"{error} - at `params.arguments`") from error


def _read_resource(
    read: wire.ReadResourceParams, context: RequestContext, features: FeatureSet, runner: Runner
) -> Handler:
    uri = read.uri
    found = features.find_resource(uri)
    if not found:
        raise resource_not_found(uri, context.revision.resource_not_found)
    return ResourceRead(runner, uri, found)


def _complete(
    complete: wire.CompleteParams, _context: RequestContext, features: FeatureSet, runner: Runner
) -> Handler:
    argument = complete.argument
    match complete.ref:
        case wire.PromptReference(name=ref):
            known = features.prompt_arguments(ref)
        case wire.ResourceTemplateReference(uri=uri):
            ref = features.template_uri(uri)
            known = features.template_variables(ref)
    chosen = (complete.context.arguments if complete.context is not None else None) or {}
    if known is None and (asked := features.unlisted_completer(ref, argument.name)) is not None:
        return Complete(runner, ref, asked, argument.value, chosen)
    if known is None:
        raise invalid_params(f"unknown prompt or resource template {quoted(ref)} - at `params.ref`")
    if argument.name not in known:
        raise invalid_params(
            f"{quoted(ref)} has no argument {quoted(argument.name)} - at `params.argument.name`"
        )
    return Complete(runner, ref, features.completers.get((ref, argument.name)), argument.value, chosen)


def prepare_extension(context: RequestContext, features: FeatureSet, runner: Runner) -> ExtensionCall | None:
    """Prepare a request of a method that is not in the table; None if no extension has it either.

    Raises:
        ProtocolError: -32021: its client did not declare the extension.
    """
    method = features.methods.get(context.request.method)
    if method is None:
        return None
    extension = method.extension
    if extension is not None and declared_settings(context.client_capabilities, extension) is None:
        raise missing_extension(extension)
    return ExtensionCall(runner, method, context.request.params)


METHODS: Mapping[str, Method] = MappingProxyType(
    {
        row.name: row
        for row in (
            Method("server/discover", NoParams, None, _MODERN, answer=_discover),
            Method("ping", NoParams, None, _LEGACY, answer=_ping),
            Method(
                "tools/list",
                wire.ListParams,
                "tools",
                answer=_list("tools", attrgetter("tools"), FeatureSet.visible_tools),
                lists="tools",
            ),
            Method("tools/call", None, "tools", prepare=_call_tool),
            Method(
                "resources/list",
                wire.ListParams,
                "resources",
                answer=_list("resources", attrgetter("resources")),
                lists="resources",
            ),
            Method(
                "resources/templates/list",
                wire.ListParams,
                "resources",
                answer=_list("resourceTemplates", attrgetter("templates")),
                lists="resources",
            ),
            Method("resources/read", wire.ReadResourceParams, "resources", prepare=_read_resource),
            Method(
                "prompts/list",
                wire.ListParams,
                "prompts",
                answer=_list("prompts", attrgetter("prompts")),
                lists="prompts",
            ),
            Method("prompts/get", wire.GetPromptParams, "prompts", prepare=_get_prompt),
            Method("completion/complete", wire.CompleteParams, "completions", prepare=_complete),
            Method("tasks/get", TaskParams, "tasks", _MODERN, prepare=prepare_get),
            Method("tasks/update", UpdateTaskParams, "tasks", _MODERN, prepare=prepare_update),
            Method("tasks/cancel", TaskParams, "tasks", _MODERN, prepare=prepare_cancel),
        )
    }
)
"""Every method that features stand behind, by name."""
