"""A client of one server, over whatever connection it is given."""

import itertools
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import msgspec
import trio

from mcpbus.client.pending import (
    KEPT_NOTIFICATIONS,
    Disconnected,
    Listen,
    OnNotification,
    Pending,
    received,
)
from mcpbus.protocol.errors import INTERNAL_ERROR, ProtocolError, method_not_found
from mcpbus.protocol.jsonrpc import (
    NO_PARAMS,
    ErrorObject,
    Notification,
    Request,
    RequestId,
    Response,
    decode,
)
from mcpbus.protocol.meta import (
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    LOG_LEVEL,
    PROTOCOL_VERSION,
    SUBSCRIPTION_ID,
)
from mcpbus.protocol.revisions import Era, Revision

_INFO = {"name": "mcpbus in-process client", "version": "1"}
_RETRY = {"inputResponses", "requestState"}

Message: TypeAlias = Request | Notification | Response

Send = Callable[[Message, Pending | None], None]
"""Sends a message to the server; a request with what waits for its answer."""

OnQuestion = Callable[[str, dict[str, Any]], Awaitable[Any]]
"""Called with the method and the params of what the server asks; returns the answer, or raises a ProtocolError."""

_MOST_ROUNDS = 32


_encode = msgspec.json.Encoder().encode
_params: msgspec.json.Decoder[dict[str, Any]] = msgspec.json.Decoder(dict[str, Any])


class Client:
    """A client of one server. `Bus.connect` makes one in the same process.

    Args:
        revision: The protocol revision that it speaks.
        send: Sends what it says.
        nursery: For its answers to what a legacy server asks.
        capabilities: What it declares.
        on_question: Answers what the server asks.
        pause: Called where an answer was there at once, to let other tasks run.

    Attributes:
        revision: The protocol revision that it speaks.
        capabilities: What it declares; a modern request may declare otherwise in its own ``_meta``.
        initialize_result: What the server answered to the handshake; empty for a modern client.
        notifications: The notifications that belong to no request and no listen, oldest first, as
            ``(method, params)``; the last 1,024.
    """

    def __init__(
        self,
        revision: Revision,
        send: Send,
        nursery: trio.Nursery,
        *,
        capabilities: dict[str, Any],
        on_question: OnQuestion | None,
        pause: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint,
    ) -> None:
        self.revision = revision
        self._pause = pause
        self.capabilities = capabilities
        self._nursery = nursery
        self._on_question = on_question
        self.initialize_result: dict[str, Any] = {}
        self.notifications: deque[tuple[str, dict[str, Any]]] = deque(maxlen=KEPT_NOTIFICATIONS)
        self._put = send
        # What each modern request says of its client.
        self._claim: dict[str, Any] = {}
        if revision.era is Era.MODERN:
            self._claim = {
                PROTOCOL_VERSION: revision.name,
                CLIENT_CAPABILITIES: capabilities,
                CLIENT_INFO: _INFO,
            }
        self._ids = itertools.count(1)
        self._pending: dict[RequestId, Pending] = {}
        self._by_token: dict[RequestId, Pending] = {}
        self._listens: dict[RequestId, Listen] = {}
        self._answering: dict[RequestId, trio.CancelScope] = {}
        self._arrived = trio.Event()
        self._gone = False

    async def initialize(self) -> None:
        """Open the legacy session. Done by `Bus.connect`."""
        params = {
            "protocolVersion": self.revision.name,
            "capabilities": self.capabilities,
            "clientInfo": _INFO,
        }
        self.initialize_result = await self.request("initialize", params)
        await self.notify("notifications/initialized")

    async def request(
        self,
        method: str,
        params: dict[str, Any] | None = None,
        *,
        on_notification: OnNotification | None = None,
        log_level: str | None = None,
    ) -> dict[str, Any]:
        """Send a request and wait for its result. A cancellation cancels the request.

        What the server asks meanwhile is answered by `on_question` of `Bus.connect`; in revision 2026-07-28 with
        as many retries as it takes. Without it the result that asks is returned as it is.

        Args:
            method: Its method.
            params: Its parameters; ``_meta`` is completed with what the revision wants.
            on_notification: Called with each notification of this request. Asks for progress. Log lines are
                told apart by request only while one request is in flight.
            log_level: From which level a modern request wants log lines; a legacy session says it with
                ``logging/setLevel``.

        Raises:
            ProtocolError: The server answered with an error.
            Disconnected: The connection ended first.
        """
        body = params or {}
        for _ in range(_MOST_ROUNDS):
            result = await self._request(method, body, on_notification, log_level)
            if self._on_question is None or result.get("resultType") != "input_required":
                return result
            body = {key: value for key, value in body.items() if key not in _RETRY}
            if "requestState" in result:
                body["requestState"] = result["requestState"]
            questions = result.get("inputRequests", {}).items()
            body["inputResponses"] = {
                key: await self._on_question(q["method"], q["params"]) for key, q in questions
            }
        raise ProtocolError(
            INTERNAL_ERROR, f"the server asked {_MOST_ROUNDS} times and did not come to an end"
        )

    async def _request(
        self,
        method: str,
        params: dict[str, Any],
        on_notification: OnNotification | None,
        log_level: str | None,
    ) -> dict[str, Any]:
        request_id = next(self._ids)
        meta = self._meta(params.get("_meta"), log_level)
        if on_notification is not None:
            meta = {"progressToken": request_id, **meta}
        body = {**params, "_meta": meta} if meta else params
        request = Request(request_id, method, msgspec.Raw(_encode(body)))
        tool = params.get("name") if method == "tools/call" else None
        await trio.lowlevel.checkpoint_if_cancelled()
        pending = self._pending[request_id] = Pending(on_notification, tool)
        if on_notification is not None:
            self._by_token[meta["progressToken"]] = pending
        try:
            self._send(request, pending)
            if pending.result is not None:
                await self._pause()
            return await pending.wait()
        except trio.Cancelled:
            self._cancel(request_id, pending)
            raise
        finally:
            del self._pending[request_id]
            if on_notification is not None:
                self._by_token.pop(meta["progressToken"], None)

    def _cancel(self, request_id: RequestId, pending: Pending) -> None:
        """Tell the server that nobody waits for a request any more, unless it is answered, or has not seen it yet."""
        begun = pending.begun and pending.result is None
        pending.settle(Disconnected("nobody waits for it"))
        if begun and not self._gone:
            params = msgspec.Raw(_encode({"requestId": request_id}))
            self._send(Notification("notifications/cancelled", params))

    async def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        """Send a notification.

        Raises:
            Disconnected: The connection has ended.
        """
        self._send(Notification(method, NO_PARAMS if params is None else msgspec.Raw(_encode(params))))
        await trio.lowlevel.checkpoint()

    async def call_tool(
        self,
        name: str,
        arguments: dict[str, Any] | None = None,
        *,
        on_notification: OnNotification | None = None,
        log_level: str | None = None,
    ) -> dict[str, Any]:
        """Call a tool and return the whole result object; see `request`."""
        params = {"name": name, "arguments": arguments or {}}
        return await self.request("tools/call", params, on_notification=on_notification, log_level=log_level)

    async def list_tools(self) -> list[dict[str, Any]]:
        """Return the descriptions of all tools, from all pages."""
        return await self._list("tools/list", "tools")

    async def list_resources(self) -> list[dict[str, Any]]:
        """Return the descriptions of all resources, from all pages."""
        return await self._list("resources/list", "resources")

    async def list_prompts(self) -> list[dict[str, Any]]:
        """Return the descriptions of all prompts, from all pages."""
        return await self._list("prompts/list", "prompts")

    async def read_resource(self, uri: str) -> list[dict[str, Any]]:
        """Return the contents of a resource."""
        result = await self.request("resources/read", {"uri": uri})
        return result["contents"]  # type: ignore[no-any-return]

    async def get_prompt(self, name: str, arguments: dict[str, str] | None = None) -> list[dict[str, Any]]:
        """Return the messages of a prompt."""
        result = await self.request("prompts/get", {"name": name, "arguments": arguments or {}})
        return result["messages"]  # type: ignore[no-any-return]

    @asynccontextmanager
    async def listen(
        self,
        *,
        tools: bool = False,
        prompts: bool = False,
        resources: bool = False,
        uris: Sequence[str] = (),
        task_ids: Sequence[str] = (),
    ) -> AsyncIterator["Listen"]:
        """Listen to changes, as revision 2026-07-28 has it; leaving the block ends it.

        Raises:
            ProtocolError: The server refused.
            Disconnected: The connection ended before the acknowledgement.
        """
        request_id = next(self._ids)
        wanted = {
            "toolsListChanged": tools,
            "promptsListChanged": prompts,
            "resourcesListChanged": resources,
            "resourceSubscriptions": list(uris),
            **({"taskIds": list(task_ids)} if task_ids else {}),
        }
        listen = self._listens[request_id] = Listen()
        pending = self._pending[request_id] = Pending()
        params = {"notifications": wanted, "_meta": self._meta(None, None)}
        try:
            self._send(Request(request_id, "subscriptions/listen", msgspec.Raw(_encode(params))), pending)
            await listen.acknowledgement(pending)
            yield listen
        finally:
            del self._pending[request_id], self._listens[request_id]
            self._cancel(request_id, pending)

    async def next_notification(self) -> tuple[str, dict[str, Any]]:
        """Wait for the oldest of `notifications`, and take it."""
        while not self.notifications:
            self._arrived = trio.Event()
            await self._arrived.wait()
        return self.notifications.popleft()

    def answered(self, request_id: RequestId, result: bytes | ProtocolError) -> None:
        """Take an answer that comes straight from the server. For the connection."""
        self._settle(request_id, received(result) if isinstance(result, ProtocolError) else result)

    def receive(self, data: bytes) -> None:
        """Take a message of the server's. For the connection."""
        message = decode(data)
        if isinstance(message, Response):
            self._replied(message)
        elif isinstance(message, Notification):
            self._notified(message)
        else:
            scope = self._answering[message.id] = trio.CancelScope()
            self._nursery.start_soon(self._asked, message, scope)

    def disconnected(self) -> None:
        """Note that the server's end is gone. For the connection."""
        self._gone = True
        for pending in self._pending.values():
            pending.settle(Disconnected("the connection ended before the answer came"))
        for listen in self._listens.values():
            listen.end()
        for scope in self._answering.values():
            scope.cancel()

    def _send(self, message: Message, pending: Pending | None = None) -> None:
        if self._gone:
            raise Disconnected("the connection has ended")
        self._put(message, pending)

    async def _list(self, method: str, member: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = []
        params: dict[str, Any] = {}
        while True:
            result = await self.request(method, params)
            items += result[member]
            if "nextCursor" not in result:
                return items
            params = {"cursor": result["nextCursor"]}

    def _meta(self, given: dict[str, Any] | None, log_level: str | None) -> dict[str, Any]:
        """Return the ``_meta`` of a request; not to be changed."""
        meta = self._claim
        if log_level is not None and self.revision.era is Era.MODERN:
            meta = {**meta, LOG_LEVEL: log_level}
        return {**meta, **given} if given else meta

    def _replied(self, response: Response) -> None:
        if response.error is not None:
            error = response.error
            data = None if error.data is msgspec.UNSET else msgspec.json.decode(error.data)
            self._settle(response.id, ProtocolError(error.code, error.message, data))
        elif response.result is not None:
            self._settle(response.id, response.result)

    def _settle(self, request_id: RequestId | None, result: bytes | msgspec.Raw | Exception) -> None:
        pending = self._pending.get(request_id) if request_id is not None else None
        if pending is not None:
            pending.settle(result)
            if self._listens and request_id in self._listens:
                self._listens[request_id].end()

    async def _asked(self, request: Request, scope: trio.CancelScope) -> None:
        """Answer what a legacy server asks, unless it withdraws the question meanwhile."""
        with scope:
            await self._answer(request)
        del self._answering[request.id]

    async def _answer(self, request: Request) -> None:
        try:
            if self._on_question is None:
                raise method_not_found(request.method)
            answer = await self._on_question(request.method, _params.decode(request.params))
            response = Response(request.id, msgspec.Raw(_encode(answer)))
        except ProtocolError as error:
            data = msgspec.UNSET if error.encoded_data is None else error.encoded_data
            response = Response(request.id, None, ErrorObject(error.code, error.message, data))
        if not self._gone:
            self._send(response)

    def _notified(self, notification: Notification) -> None:
        method = notification.method
        params = _params.decode(notification.params)
        subscription = params.get("_meta", {}).get(SUBSCRIPTION_ID)
        if subscription in self._listens:
            self._listens[subscription].put(method, params)
            return
        if method == "notifications/cancelled" and params.get("requestId") in self._answering:
            self._answering[params["requestId"]].cancel()
            return
        if method == "notifications/progress":
            owner = self._by_token.get(params["progressToken"])
        else:
            wanting = [pending for pending in self._pending.values() if pending.on_notification is not None]
            owner = wanting[0] if method == "notifications/message" and len(wanting) == 1 else None
        if owner is not None and owner.on_notification is not None:
            owner.on_notification(method, params)
        else:
            self.notifications.append((method, params))
            self._arrived.set()
