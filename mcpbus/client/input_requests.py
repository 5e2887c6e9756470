"""What a legacy server asks its client: several questions at once, each answered unless it is withdrawn meanwhile.

What a client of an older revision refuses to be asked, since it has not declared that it can be.

A server must not ask it, and some do. Source: specification 2025-11-25, client/elicitation, client/sampling and client/roots.
"""

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec
import trio

from mcpbus.client.errors import DisconnectedError
from mcpbus.client.pending import OnInputRequest, PendingRequest
from mcpbus.client.wire import encode_answer
from mcpbus.protocol.errors import (
    INTERNAL_ERROR,
    ProtocolError,
    internal_error,
    invalid_params,
    method_not_found,
)
from mcpbus.protocol.jsonrpc import ErrorObject, JsonRpcRequest, JsonRpcResponse, RequestId
from mcpbus.protocol.large import weigh


def check_declared(method: str, params: Mapping[str, Any], capabilities: Mapping[str, Any]) -> None:
    """Refuse a question that nobody declared to answer (rules E-3, Y-2 and Z-1). One that is not known is for its client to judge.

    Raises:
        ProtocolError: -32601: it was not declared at all; -32602: not in this form.
    """
    capability = _CAPABILITIES.get(method)
    if capability is None:
        return
    declared = capabilities.get(capability)
    if not isinstance(declared, Mapping):
        raise method_not_found(method)
    fault = _FAULTS[method](params, declared)
    if fault is not None:
        raise invalid_params(fault)


def _elicitation(params: Mapping[str, Any], declared: Mapping[str, Any]) -> str | None:
    mode = params.get("mode", "form")
    able = isinstance(mode, str) and (mode in declared or (mode == "form" and "url" not in declared))
    return None if able else f"elicitation in the mode {mode!r} was not declared"


def _sampling(params: Mapping[str, Any], declared: Mapping[str, Any]) -> str | None:
    asked = params.get("tools") is not None or params.get("toolChoice") is not None
    return "sampling.tools was not declared" if asked and "tools" not in declared else None


_CAPABILITIES: Final = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}
_FAULTS: Final[Mapping[str, Callable[[Mapping[str, Any], Mapping[str, Any]], str | None]]] = {
    "elicitation/create": _elicitation,
    "sampling/createMessage": _sampling,
    "roots/list": lambda *_: None,
}


MOST_QUESTIONS: Final = 1_000
"""How many of a server's questions are answered at once; what it asks beside is refused."""
MOST_QUESTION_BYTES: Final = 64 * 1024 * 1024
"""Bytes of memory that these take together, roughly."""

_log = logging.getLogger(__name__)
_params: msgspec.json.Decoder[dict[str, Any]] = msgspec.json.Decoder(dict[str, Any])


class InputRequestHandler:
    """Answers them.

    Args:
        nursery: For the answers.
        on_input_request: Gives them where the request in which is asked has nothing of its own for that; None for nothing.
        capabilities: What the client declares.
        send: Sends a reply, of what was asked in this request, as far as that is known. A connection that has ended takes none.
        fail: Ends the request in which was asked, as far as that is known, with what `on_input_request` raised. Returns whether it has.
        substitute: Returns another function that answers, where neither the request nor the client has one.

    Attributes:
        on_input_request: As given, or what took its place.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        on_input_request: OnInputRequest | None,
        capabilities: Mapping[str, Any],
        send: Callable[[JsonRpcResponse, PendingRequest | None], None],
        fail: Callable[[PendingRequest | None, Exception], bool],
        *,
        substitute: Callable[[], OnInputRequest | None],
    ) -> None:
        self._nursery = nursery
        self.on_input_request = on_input_request
        self._capabilities = capabilities
        self._send = send
        self._fail = fail
        self._substitute = substitute
        self._answering: dict[RequestId, trio.CancelScope] = {}
        self._weight = 0

    def take(self, request: JsonRpcRequest, owner: PendingRequest | None) -> None:
        """Have a question answered, unless one of its id is.

        Args:
            request: The question.
            owner: The request in which it is asked, if the connection knows.
        """
        if request.id in self._answering:
            return
        weight = weigh(request.params)
        if len(self._answering) >= MOST_QUESTIONS or self._weight + weight > MOST_QUESTION_BYTES:
            why = f"no more than {MOST_QUESTIONS:,} questions, and {MOST_QUESTION_BYTES:,} bytes of memory, at once"
            self._refuse(request, ProtocolError(INTERNAL_ERROR, why), owner)
            return
        self._weight += weight
        scope = self._answering[request.id] = trio.CancelScope()
        self._nursery.start_soon(self._asked, request, owner, scope, weight)

    def cancel(self, request_id: RequestId | None) -> bool:
        """Answer a question no more, which the server has withdrawn; returns whether it was being answered."""
        scope = None if request_id is None else self._answering.get(request_id)
        if scope is None:
            return False
        scope.cancel()
        return True

    def withdraw_all(self) -> None:
        """Answer nothing that was asked so far: nobody waits for it."""
        withdrawn, self._answering = self._answering, {}
        for scope in withdrawn.values():
            scope.cancel()

    async def _asked(
        self, request: JsonRpcRequest, owner: PendingRequest | None, scope: trio.CancelScope, weight: int
    ) -> None:
        try:
            with scope:
                await self._answer(request, owner)
        finally:
            self._weight -= weight
        if self._answering.get(request.id) is scope:
            del self._answering[request.id]

    async def _answer(self, request: JsonRpcRequest, owner: PendingRequest | None) -> None:
        try:
            answer = await self._ask(request, owner)
            self._reply(JsonRpcResponse(request.id, _encode_answer(request.method, answer)), owner)
        except ProtocolError as fault:
            self._refuse(request, fault, owner)
        except Exception as error:  # noqa: BLE001 - raised again where the answer is waited for
            self._refuse(request, internal_error(), owner)
            if not self._fail(owner, error):
                _log.error("on_input_request failed, when asked %a", request.method, exc_info=error)

    async def _ask(self, request: JsonRpcRequest, owner: PendingRequest | None) -> Any:
        if request.method == "ping":
            return {}
        on_input_request = (owner and owner.on_input_request) or self.on_input_request or self._substitute()
        if on_input_request is None:
            raise method_not_found(request.method)
        params = _read_params(request)
        check_declared(request.method, params, self._capabilities)
        return await on_input_request(request.method, params)

    def _refuse(self, request: JsonRpcRequest, error: ProtocolError, owner: PendingRequest | None) -> None:
        data = msgspec.UNSET if error.encoded_data is None else error.encoded_data
        self._reply(JsonRpcResponse(request.id, None, ErrorObject(error.code, error.message, data)), owner)

    def _reply(self, response: JsonRpcResponse, owner: PendingRequest | None) -> None:
        with suppress(DisconnectedError):  # nobody waits for it any more
            self._send(response, owner)


def _read_params(request: JsonRpcRequest) -> dict[str, Any]:
    """Read what is asked.

    Raises:
        ProtocolError: -32602: it cannot be.
    """
    try:
        return _params.decode(request.params)
    except (msgspec.DecodeError, RecursionError) as fault:
        raise invalid_params(str(fault)) from None


def _encode_answer(method: str, answer: Any) -> msgspec.Raw:
    """Write an answer. One that cannot be sent is told to the log: whoever wrote `on_input_request` called nothing that could raise it.

    Raises:
        ProtocolError: -32603: it cannot be.
    """
    try:
        return encode_answer(method, answer)
    except (TypeError, ValueError, RecursionError) as error:
        _log.error("%s; the server is told that there is none", error)
        raise ProtocolError(INTERNAL_ERROR, "the client's answer cannot be sent") from None
