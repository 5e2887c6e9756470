"""One call of a client of ours, passed on to the other server: what is said and asked meanwhile is said and asked in that very call."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec
import trio

from mcpbus.client.client import InputRequestItem
from mcpbus.client.errors import ClientError, SessionLostError
from mcpbus.client.oauth.errors import LoginError
from mcpbus.core import outbound
from mcpbus.core.concurrency import ActiveCounter
from mcpbus.core.context import Context
from mcpbus.core.outbound import OutboundNotification, Progress
from mcpbus.features.completion import Completion
from mcpbus.features.content import PromptMessage, PromptResult, ToolResult
from mcpbus.features.errors import ResourceNotFoundError
from mcpbus.features.input_requests.errors import InputUnavailableError, cannot_ask
from mcpbus.features.input_requests.requests import InputRequest
from mcpbus.protocol import messages as wire
from mcpbus.protocol.errors import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    RESOURCE_NOT_FOUND,
    UNSUPPORTED_PROTOCOL_VERSION,
    ProtocolError,
    invalid_params,
    quoted,
)
from mcpbus.protocol.meta import CLIENT_CAPABILITIES, CLIENT_INFO, SERVER_INFO
from mcpbus.upstream.connection import UpstreamConnection
from mcpbus.upstream.connection_pool import Requester, UpstreamPool, asked_by_way, introduction
from mcpbus.upstream.notification_relay import OF_NO_CALL, NotificationRelay
from mcpbus.upstream.relayed_input_request import RelayedInputRequest
from mcpbus.upstream.target import UpstreamError, told
from mcpbus.upstream.tool_filter import ToolFilter

_log = logging.getLogger("mcpbus")

_T = TypeVar("_T")
_NOT_FOUND: Final = {RESOURCE_NOT_FOUND, INVALID_PARAMS}
"""What a server answers where there is no such resource, in older revisions and in 2026-07-28 (rule R-3)."""
_BETWEEN: Final = {HEADER_MISMATCH, UNSUPPORTED_PROTOCOL_VERSION}
"""What the other server answers to a request that it has not run, since it was not said right. A client of ours would say it again."""
_ROOTS: Final = "roots/list"
_OURS: Final = "io.modelcontextprotocol/"
"""How what begins of a request's ``_meta`` that is between it and whom it is sent to."""


class CallRelay:
    """Passes on what clients ask of one opened proxy.

    Args:
        name: The other server's, for messages.
        pool: The connections to it.
        hearing: Hears what is said outside of calls.
        tools: The tools that it offers.
        calls: Counts the requests that are passed on.

    Attributes:
        passed_on: How many requests have ended: each may have changed what is listed.
    """

    def __init__(
        self,
        name: str,
        pool: UpstreamPool,
        hearing: NotificationRelay,
        tools: ToolFilter,
        calls: ActiveCounter,
    ) -> None:
        self._calls = calls
        self._name = name
        self._pool = pool
        self._hearing = hearing
        self._tools = tools
        self.passed_on = 0

    async def call_tool(self, tool: str, *, arguments: dict[str, Any], ctx: Context) -> ToolResult:
        """Call a tool there, whether it is listed or not: one that is not offered is refused here, too."""
        if not self._tools.allows(tool):
            raise invalid_params(f"unknown tool {quoted(tool)} - at `params.name`")
        result = await self._ask(ctx, "tools/call", {"name": tool, "arguments": arguments})
        said = self._read(result, _CallToolResult)
        content = [self._block(block) for block in said.content or ()]
        meta = _own(said.meta or {})
        return ToolResult(content, said.structured_content, is_error=bool(said.is_error), meta=meta)

    async def get_prompt(
        self, prompt: str, *, arguments: dict[str, str] | None, ctx: Context
    ) -> PromptResult:
        """Get a prompt there."""
        given = {} if arguments is None else {"arguments": arguments}
        result = await self._ask(ctx, "prompts/get", {"name": prompt, **given})
        said = self._read(result, _GetPromptResult)
        messages = [PromptMessage(each.role, self._block(each.content)) for each in said.messages]
        # An empty description is none: that of the list is not the server's for this result.
        return PromptResult(messages, description=said.description or "", meta=_own(said.meta or {}))

    async def read(self, uri: str, *, ctx: Context) -> list[Any]:
        """Read a resource there.

        Raises:
            ResourceNotFoundError: There is none of this URI.
        """
        try:
            result = await self._ask(ctx, "resources/read", {"uri": uri})
        except ProtocolError as error:
            if error.code not in _NOT_FOUND:
                raise
            known = uri in error.message or error.message.lower() == "resource not found"
            raise ResourceNotFoundError("" if known else error.message) from error
        return [self._read(each, _kind_of(each)) for each in self._read(result, _ReadResourceResult).contents]

    async def complete(
        self, ref: str, argument: str, *, value: str, chosen: dict[str, str], ctx: Context
    ) -> Completion:
        """Ask there for values of an argument of a prompt, or a variable of a template."""
        kind = {"type": "ref/resource", "uri": ref} if "{" in ref else {"type": "ref/prompt", "name": ref}
        params: dict[str, Any] = {"ref": kind, "argument": {"name": argument, "value": value}}
        if chosen:
            params["context"] = {"arguments": chosen}
        said = self._read(await self._ask(ctx, "completion/complete", params), _CompleteResult).completion
        return Completion(said.values, said.total, said.has_more)

    async def _ask(self, context: Context, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Pass a request on, and return its result.

        Raises:
            ProtocolError: What was answered; or that nothing was, of which the log has the reason.
        """
        self._calls.opened()
        try:
            result, kind = await self._pass_on(context, method, params)
        except (UpstreamError, ClientError) as error:
            raise self._no_answer(method, error) from error
        except ProtocolError as error:
            if error.code in _BETWEEN:
                raise self._no_answer(method, error) from error
            raise
        finally:
            self.passed_on += 1
            self._calls.ended()
        if kind != "complete":  # a task, say, which nobody here has said to take
            raise self._no_result(f"it is of the type {kind!r}")
        return result

    async def _pass_on(
        self, context: Context, method: str, params: dict[str, Any]
    ) -> tuple[dict[str, Any], str]:
        """Pass a request on, and return its result and the type of that.

        A call that was refused by session after session has not run. If the server has 2026-07-28, it is repeated there.
        """
        for last in (False, True):
            async with self._pool.borrow(
                Requester.of(context.request_context, context.bus.limit_monitor)
            ) as pipe:
                try:
                    result = await _RelayedCall(context, pipe, self._hearing).pass_on(method, params)
                except SessionLostError as error:
                    if last or not pipe.legacy:
                        raise
                    self._pool.go_without(error, useless=pipe)
                else:
                    return result, result.get("resultType", "complete") if pipe.modern else "complete"
        raise AssertionError  # pragma: no cover - the second attempt returns or raises

    def _block(self, said: Any) -> wire.ContentBlock:
        """Read a content block. What is none that is known here becomes text, so that nothing else of its result is lost with it."""
        try:
            block: wire.ContentBlock = msgspec.convert(said, wire.ContentBlock)
            if not isinstance(block, wire.EmbeddedResource):
                return block
            resource = msgspec.convert(block.resource, _kind_of(block.resource))
            return msgspec.structs.replace(block, resource=resource)
        except msgspec.ValidationError as error:
            _log.warning("what %s says is no content block, and becomes text: %s", self._name, error)
            return wire.TextContent(msgspec.json.encode(said).decode())

    def _read(self, result: Any, kind: type[_T]) -> _T:
        try:
            return msgspec.convert(result, kind)
        except msgspec.ValidationError as error:
            raise self._no_result(str(error)) from error

    def _no_answer(self, method: str, error: Exception) -> ProtocolError:
        """Tell the log why there is none, and return what the client is told."""
        _log.warning("%s was not answered by %s: %s", method, self._name, told(error))
        asks = isinstance(error, LoginError) or isinstance(error.__cause__, LoginError)
        what = "wants somebody to log in, and the log says how" if asks else "did not answer"
        return ProtocolError(INTERNAL_ERROR, f"{self._name} {what}")

    def _no_result(self, why: str) -> ProtocolError:
        """Tell the log what is wrong, and return what the client is told."""
        _log.warning("what %s answers is no result: %s", self._name, why)
        return ProtocolError(INTERNAL_ERROR, f"What {self._name} answers is no result")


class _RelayedCall:
    """One request on its way there, and what comes back before its result."""

    def __init__(self, context: Context, pipe: UpstreamConnection, hearing: NotificationRelay) -> None:
        self._context = context
        self._pipe = pipe
        self._hearing = hearing
        self._asking: list[trio.CancelScope] = []
        self._cancelled = False

    async def pass_on(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        context, pipe = self._context, self._pipe
        level = context.log_level
        pipe.count_in(context.bus.budget)
        await pipe.want_log_lines(context.request_context.chosen_log_level)
        meta = {name: value for name, value in context.meta.items() if _passes(name)}
        if pipe.modern:
            meta[CLIENT_CAPABILITIES] = asked_by_way(context.client.capabilities, context.revision)
            if (info := introduction(context.request_context)) is not None:
                meta[CLIENT_INFO] = info
        say, answer = self._say, self._answer
        pipe.calls[say] = context.session
        pipe.answerers.append(answer)
        try:
            return await pipe.client.request_in_rounds(
                method,
                {**params, "_meta": meta} if meta else params,
                self._answer_all if pipe.modern else None,
                on_notification=say,
                on_input_request=None if pipe.modern else answer,
                log_level=None if level is None else level.value,
                progress="progressToken" in context.meta,
            )
        except trio.Cancelled:
            self._cancelled = len(pipe.calls) == 1
            raise
        finally:
            del pipe.calls[say]
            pipe.answerers.remove(answer)
            if self._cancelled:  # no other call can be waiting for the answers
                for scope in self._asking:
                    scope.cancel()

    async def _answer(self, method: str, params: dict[str, Any]) -> Any:
        """Return the client's answer to a question; the upstream server gets a refusal, and that the client cannot be asked, as an error.

        Only over HTTP it is certain that the question belongs to this call. Elsewhere it may belong to another call of the session. So
        it outlives this one, and the client never sees it on the streams of two calls.
        """
        session, certain = self._pipe.session, self._pipe.client.scoped
        question: dict[str | None, InputRequest] = {None: RelayedInputRequest(method, params)}
        if session is None:
            [answer] = await self._context.relay_questions(question)
            return answer
        try:
            if certain:
                [answer] = await self._context.relay_questions(question)
            else:
                [answer] = await self._ask_for_session(question, keep=method == _ROOTS)
        except InputUnavailableError:
            # Roots belong to the session even where a call asks for them, and that call may have ended.
            if self._cancelled or (certain and method != _ROOTS):
                raise
            [answer] = await session.relay_questions(question)
        return answer

    async def _ask_for_session(self, question: Mapping[str | None, InputRequest], *, keep: bool) -> list[Any]:
        """Ask a question of the session on the stream of this call. Unless `keep`, it ends when the session's last call is cancelled."""
        with trio.CancelScope() as scope:
            if not keep:
                self._asking.append(scope)
            return await self._context.relay_for_session(question)
        raise cannot_ask("its request was cancelled")

    async def _answer_all(self, questions: dict[str, InputRequestItem]) -> dict[str, Any]:
        relayed: dict[str | None, InputRequest] = {
            key: RelayedInputRequest(each.method, each.params) for key, each in questions.items()
        }
        answers: Sequence[Any] = await self._context.relay_questions(relayed)
        return dict(zip(questions, answers, strict=True))

    def _say(self, method: str, params: dict[str, Any]) -> None:
        """Say what is said there in the call, if it can be of a call."""
        if method in OF_NO_CALL:
            self._hearing.hear(self._pipe, method, params)
        elif (said := self._draft(method, params)) is not None:
            self._context.pass_on(said)
        else:
            self._hearing.drop(method)

    def _draft(self, method: str, params: dict[str, Any]) -> OutboundNotification | Progress | None:
        try:
            return outbound.relayed(self._context.bus.ledger, method, params)
        except (KeyError, TypeError, ValueError, RecursionError):
            return None


class _CallToolResult(msgspec.Struct, rename="camel"):
    """Of which some servers write what they leave out as null."""

    content: list[Any] | None = None
    structured_content: Any = msgspec.UNSET
    is_error: bool | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class _PromptMessage(msgspec.Struct):
    role: wire.Role
    content: Any


class _GetPromptResult(msgspec.Struct):
    messages: list[_PromptMessage]
    description: str | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class _ReadResourceResult(msgspec.Struct):
    contents: list[dict[str, Any]]


class _Completed(msgspec.Struct, rename="camel"):
    values: list[str]
    total: int | None = None
    has_more: bool | None = None


class _CompleteResult(msgspec.Struct):
    completion: _Completed


def _kind_of(contents: Any) -> type[wire.TextResourceContents | wire.BlobResourceContents]:
    is_text = isinstance(contents, dict) and contents.get("text") is not None
    return wire.TextResourceContents if is_text else wire.BlobResourceContents


def _passes(name: str) -> bool:
    """Whether a member of a request's ``_meta`` is passed on."""
    return name != "progressToken" and not name.startswith(_OURS)


def _own(meta: dict[str, Any]) -> dict[str, Any]:
    """What a result's ``_meta`` says, but for which server it is from: that is this one."""
    return {name: value for name, value in meta.items() if name != SERVER_INFO}
