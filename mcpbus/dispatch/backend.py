"""The features of a server as a backend: what its author registered answers, by the table of methods.

What a request needs the token of its sender to allow, as far as that depends on what it asks for.
"""

import logging
import math
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Hashable,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from functools import cache, partial
from typing import Any, Final, TypeAlias

import msgspec
import trio
from mcpbus_actors import split_failure

from mcpbus.core.backend import Listener
from mcpbus.core.bus_services import BusServices
from mcpbus.core.call import Handler
from mcpbus.core.client_notification import ClientNotification
from mcpbus.core.hub import hub_of
from mcpbus.core.request_context import RequestContext
from mcpbus.core.sessions.session import Session
from mcpbus.dispatch.dispatcher import LISTEN
from mcpbus.dispatch.handlers import ListElsewhere
from mcpbus.dispatch.methods import METHODS, Answer, Method, initialize_result, prepare_extension
from mcpbus.dispatch.runner import Runner
from mcpbus.features.catalogue import FeatureSet
from mcpbus.features.definition import ServerDefinition
from mcpbus.features.extension import ExtensionMethod
from mcpbus.features.hooks import NotificationHook, SessionHook
from mcpbus.features.prompt import RegisteredPrompt
from mcpbus.features.resource import RegisteredResource
from mcpbus.features.tool import Tool
from mcpbus.protocol import messages as wire
from mcpbus.protocol.errors import INTERNAL_ERROR, ProtocolError, method_not_found
from mcpbus.protocol.extensions import declares, undeclared
from mcpbus.protocol.http.mirrored_parameters import MirroredParameter
from mcpbus.protocol.jsonrpc import JsonRpcRequest
from mcpbus.protocol.messages import ListName, SubscriptionFilter, decode_params
from mcpbus.protocol.meta import CallReader, Routing
from mcpbus.protocol.revisions import Era, Revision


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


_log = logging.getLogger("mcpbus")

_CALL: Final = "tools/call"
_OFFERED = {
    era: frozenset(name for name, method in METHODS.items() if era in method.eras)
    | ({LISTEN} if era is Era.MODERN else set())
    for era in Era
}
# Before Python 3.12 each look-up by a class's name is a search.
_MODERN: Final = Era.MODERN


class FeaturesBackend:
    """Answers with the features of a server; see `mcpbus.core.backend.Backend`.

    Args:
        server: The server.
        runner: What calls its author's functions.

    Attributes:
        server: The server.
        name: Its name.
        auth: See `Backend`, as for the rest.
        authenticate: See `Backend`.
        tails: See `Backend`.
    """

    def __init__(self, server: ServerDefinition, runner: Runner) -> None:
        self.server = server
        self.name = server.name
        self.auth = server.auth
        self.authenticate = server.authenticate
        self.tails = server.tails
        self._features = server.features
        self._runner = runner

    @asynccontextmanager
    async def open(self, bus: BusServices) -> AsyncIterator[None]:
        """See `Backend.open`: what is registered meanwhile is told to clients."""
        unlisten = self._features.on_change(hub_of(bus).list_changed if self.server.listens else _tell_nobody)
        unguard = self._features.guard(bus.check_thread)
        bus.topics.on_watched = self._features.watched
        try:
            yield
        finally:
            unlisten()
            unguard()

    def open_to_all(self) -> None:
        """See `Backend.open_to_all`."""
        self._features.refuse_scopes()

    def offers(self, method: str, era: Era) -> bool:
        """See `Backend.offers`."""
        return method in _OFFERED[era] or method in self._features.methods

    def mirrored_parameters(self, tool: str, principal: object) -> Sequence[MirroredParameter]:
        """See `Backend.mirrored_parameters`."""
        found = self._features.find_tool(tool, principal) if self._features.mirrors else None
        return () if found is None else found.mirrored

    def call_reader(self, tool: str) -> CallReader | None:
        """See `mcpbus.core.backend.ReadsCalls`."""
        found = self._features.tools.get(tool)
        return None if found is None or found.mirrored else found.arguments.call_reader

    def may_wait(self, method: str, name: object, era: Era) -> bool:
        """See `Backend.may_wait`.

        Over the legacy protocol even a function that cannot wait may have its client asked, by an `InputRequired`.
        """
        if method != _CALL or era is not _MODERN or not isinstance(name, str):
            row = METHODS.get(method)
            if row is None:
                extension = self._features.methods.get(method)
                return extension is not None and (
                    era is not _MODERN or self._runner.waits(extension.function)
                )
            return row.answer is None or (row.lists is not None and self._features.has_elsewhere)
        found = self._features.tools.get(name)
        return found is None or found.task is not None or self._runner.waits(found.function)

    def begin(self, context: RequestContext) -> bytes | Handler | None:
        """See `Backend.begin`."""
        request, features = context.request, self._offered(context)
        method = METHODS.get(request.method)
        if method is None:
            return prepare_extension(context, features, self._runner)
        capability = method.capability
        if context.revision.era not in method.eras or not (capability is None or features.offers(capability)):
            raise method_not_found(method.name)
        params = None if method.params is None else decode_params(method.params, request.params)
        if method.prepare is None:
            assert method.answer is not None  # noqa: S101 - a method has the one or the other
            if method.lists is None or not features.has_elsewhere:
                return method.answer(params, context, features, self.server)
            return self._list_elsewhere(method, method.lists, method.answer, params, context)
        return method.prepare(params, context, features, self._runner)

    def _offered(self, context: RequestContext) -> FeatureSet:
        """Return what is offered to the client of a request, by the server and to its session."""
        session = context.legacy_session
        return self._features if session is None else session.features

    def _list_elsewhere(
        self, method: Method, name: ListName, answer: Answer, params: Any, context: RequestContext
    ) -> Handler:
        def page(features: FeatureSet) -> bytes:
            return answer(params, context, features, self.server)

        return ListElsewhere(
            name, method.name, partial(self._offered, context), page, first=params.cursor is None
        )

    def needed_scopes(
        self, request: JsonRpcRequest, routing: Routing, session: Session | None, principal: object
    ) -> Collection[str]:
        """See `Backend.needed_scopes`."""
        features = self._features if session is None else session.features
        return needed_scopes(features, request, routing, principal)

    def opened(self, session: Session) -> None:
        """See `Backend.opened`: it is offered what the server has."""
        session.features = self._features

    def initialize(self, revision: Revision, session: Session | None) -> bytes:
        """See `Backend.initialize`."""
        features = self._features if session is None else session.features
        return initialize_result(self.server, features, revision, stateless=session is None)

    def seconds_left(self, principal: Any) -> float:
        """See `Backend.seconds_left`."""
        return math.inf if self.auth is None else self.auth.seconds_left(principal)

    @property
    def has_session_hooks(self) -> bool:
        """See `Backend.registers`: whether there are hooks."""
        return bool(self.server.session_hooks)

    async def register(self, session: Session, _context: RequestContext | None) -> None:
        """Run the hooks; see `Backend.register`."""
        for hook in self.server.session_hooks:
            try:
                await hook(session)
            except BaseException as error:
                if split_failure(error)[1] is not None:
                    raise
                _log.exception("on_session hook %r failed; the session is refused", hook)
                raise ProtocolError(INTERNAL_ERROR, "The session could not be registered") from error

    def session_end_hook(self, session: Session) -> Callable[[], Awaitable[None]] | None:
        """See `Backend.farewell`: the server's hooks, one after the other."""
        hooks = self.server.session_end_hooks
        return partial(_run_end_hooks, hooks, session) if hooks else None

    def notification_hook(self, method: str) -> Listener | None:
        """See `Backend.listener`: the server's hook, and those of mounted servers."""
        hooks = self.server.notification_hooks(method)
        return partial(_run_hooks, hooks) if hooks else None

    @property
    def has_upstream_subscriptions(self) -> bool:
        """See `Backend.hears_elsewhere`."""
        return self._features.watches

    async def wait_subscribed(self, uris: Collection[str], key: Hashable) -> None:
        """See `Backend.until_heard`."""
        async with trio.open_nursery() as nursery:
            for until_heard in self._features.hearing(uris, key):
                nursery.start_soon(until_heard)

    def may_subscribe(self, session: Session) -> bool:
        """See `Backend.may_subscribe`."""
        return self.server.listens and session.features.offers("resources")

    def grant(self, asked: SubscriptionFilter, context: RequestContext) -> SubscriptionFilter:
        """See `Backend.grant`: what the server offers at all.

        Raises:
            ProtocolError: The server takes no listens, or not one for tasks by this client.
        """
        if not self.server.listens:
            raise method_not_found(LISTEN)
        features = self._features
        tasks = asked.task_ids if features.offers("tasks") else ()
        if tasks and not declares(context.client_capabilities, context.revision):
            raise undeclared()
        resources = features.offers("resources")
        lists = _lists(
            asked.tools_list_changed and features.offers("tools"),
            asked.prompts_list_changed and features.offers("prompts"),
            asked.resources_list_changed and resources,
        )
        uris = asked.resource_subscriptions if resources else ()
        if not uris and not tasks:
            return lists
        return msgspec.structs.replace(lists, resource_subscriptions=uris, task_ids=tasks)


def _tell_nobody(_name: ListName) -> None:
    """Announce no change, for a server that declares none."""


async def _run_end_hooks(hooks: Sequence[SessionHook], session: Session) -> None:
    limit = session.bus.limits.on_session_timeout
    with trio.move_on_after(limit) as scope:
        for hook in hooks:
            try:
                await hook(session)
            except BaseException as error:
                if split_failure(error)[1] is not None:
                    raise
                _log.exception("on_session_end hook %r failed", hook)
    if scope.cancelled_caught:
        session.bus.limit_monitor.note(
            "on_session_timeout", session.owner, "what ran at a session's end was cancelled"
        )


async def _run_hooks(hooks: Sequence[NotificationHook], told: ClientNotification) -> None:
    async with trio.open_nursery() as nursery:
        for hook in hooks:
            nursery.start_soon(_run_hook, hook, told)


async def _run_hook(hook: NotificationHook, told: ClientNotification) -> None:
    with trio.move_on_after(hook.timeout) as scope:
        try:
            await hook.function(told)
        except BaseException as error:
            if split_failure(error)[1] is not None:
                raise
            _log.exception("on_notification hook %r failed", hook.function)
    if scope.cancelled_caught:
        _log.warning("on_notification hook %r was not done within %s seconds", hook.function, hook.timeout)


@cache
def _lists(tools: bool, prompts: bool, resources: bool) -> SubscriptionFilter:
    """Return the filter that names these lists; most listens name nothing else, and have one of eight in common."""
    return SubscriptionFilter(tools, prompts, resources)
