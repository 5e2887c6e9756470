"""What a request needs the token of its sender to allow, as far as that depends on what it asks for."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeAlias

from mcpbus.features.catalogue import FeatureSet
from mcpbus.features.extension_method import ExtensionMethod
from mcpbus.features.prompt import RegisteredPrompt
from mcpbus.features.resource import RegisteredResource
from mcpbus.features.tool import Tool
from mcpbus.protocol import messages as wire
from mcpbus.protocol.errors import ProtocolError
from mcpbus.protocol.jsonrpc import JsonRpcRequest
from mcpbus.protocol.messages import decode_params
from mcpbus.protocol.meta import Routing


def needed_scopes(
    features: FeatureSet, request: JsonRpcRequest, routing: Routing, principal: Any
) -> Collection[str]:
    """Return the scopes that a request needs, each once; what is malformed or names nothing needs none, and is refused later.

    Args:
        features: What its sender is offered.
        request: The request.
        routing: What was read of its params.
        principal: Who sends it: what is hidden from them names nothing.
    """
    if not features.scoped:
        return ()
    read = _READ.get(request.method, _method)
    try:
        found = read(features, request, routing, principal)
    except ProtocolError:
        return ()
    return dict.fromkeys(scope for item in found if item is not None for scope in item.scopes)


_Found: TypeAlias = Iterable[Tool | RegisteredPrompt | RegisteredResource | ExtensionMethod | None]


def _method(features: FeatureSet, request: JsonRpcRequest, _: Routing, __: Any) -> _Found:
    return (features.methods.get(request.method),)


def _tool(features: FeatureSet, _: JsonRpcRequest, routing: Routing, principal: Any) -> _Found:
    return () if routing.name is None else (features.find_tool(routing.name, principal),)


def _prompt(features: FeatureSet, _: JsonRpcRequest, routing: Routing, __: Any) -> _Found:
    return () if routing.name is None else (features.find_prompt(routing.name),)


def _resource(features: FeatureSet, _: JsonRpcRequest, routing: Routing, __: Any) -> _Found:
    return () if routing.uri is None else _named(features, routing.uri)


def _completed(features: FeatureSet, request: JsonRpcRequest, _: Routing, __: Any) -> _Found:
    match decode_params(wire.CompleteParams, request.params).ref:
        case wire.PromptReference(name=name):
            return (features.find_prompt(name),)
        case wire.ResourceTemplateReference(uri=uri):
            return (features.templates.get(uri),)


def _listened(features: FeatureSet, request: JsonRpcRequest, _: Routing, __: Any) -> _Found:
    uris = decode_params(wire.ListenParams, request.params).notifications.resource_subscriptions
    return (resource for uri in uris for resource in _named(features, uri))


def _named(features: FeatureSet, uri: str) -> Iterable[RegisteredResource]:
    return (resource for resource, _ in features.find_resource(uri))


_READ: Mapping[str, Callable[[FeatureSet, JsonRpcRequest, Routing, Any], _Found]] = {
    "tools/call": _tool,
    "prompts/get": _prompt,
    "resources/read": _resource,
    "resources/subscribe": _resource,
    "completion/complete": _completed,
    "subscriptions/listen": _listened,
}
