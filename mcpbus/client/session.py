"""What goes to and fro between a client and its server: each answer, notification and question to whom it belongs."""

import itertools
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol, TypeAlias

import msgspec
import trio

from mcpbus.client.errors import DisconnectedError, MalformedAnswerError
from mcpbus.client.input_requests import InputRequestHandler
from mcpbus.client.notifications import Inbox, SessionListens
from mcpbus.client.outgoing import OnWaiting, SendQueue
from mcpbus.client.pending import (
    ChangeSubscription,
    OnInputRequest,
    OnNotification,
    PendingRequest,
    received,
    weight_fault,
)
from mcpbus.client.reading import OpenHolding, Readings
from mcpbus.client.wire import check_message, encode_params, read_error, unreadable
from mcpbus.protocol.errors import ProtocolError, invalid_request
from mcpbus.protocol.jsonrpc import (
    NO_PARAMS,
    JsonRpcNotification,
    JsonRpcRequest,
    JsonRpcResponse,
    RequestId,
    Undecodable,
    decode,
    decode_batch,
)
from mcpbus.protocol.meta import (
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    LOG_LEVEL,
    PROTOCOL_VERSION,
    SUBSCRIPTION_ID,
)
from mcpbus.protocol.revisions import REVISIONS, Era, Revision

_log = logging.getLogger(__name__)

INFO = {"name": "mcpbus client", "version": "1"}
"""The name and version of a client that has none of its own."""
_LATE_SECONDS = 10.0
"""For how long what is said in no request is taken for none's, after one was given up."""
_RESULT_TYPES = {"complete", "input_required", "task"}

Message: TypeAlias = JsonRpcRequest | JsonRpcNotification | JsonRpcResponse

Send = Callable[[Message, PendingRequest | None], None]
"""Sends a message to the server; a request with what waits for its answer, and an answer with the request in which was asked, if that is known."""


class StandaloneStream(Protocol):
    """Where a server of an older revision says what belongs to no request, if not where it says all else."""

    def want(self) -> None:
        """Hear that from now on."""

    async def opened(self) -> None:
        """Hear that, and wait until it is heard.

        Raises:
            ClientError: There is no such place.
        """


_params: msgspec.json.Decoder[dict[str, Any]] = msgspec.json.Decoder(dict[str, Any])


class ClientSession:
    """A client's half of a connection: the handshake, and single requests; see `mcpbus.Client`.

    Args:
        revision: The protocol revision that it speaks.
        send: Sends what it says.
        nursery: For its answers to what a legacy server asks.
        capabilities: What it declares.
        on_input_request: Answers what the server asks.
        hearing: Where the server says what belongs to no request, if not where it says all else.
        pause: Called where an answer was there at once, to let other tasks run.
        scoped: Whether the connection tells to which request belongs what the server says.
        waiting: The messages that the server has not taken yet; None where it takes them immediately.
        info: The name and version that the server is shown.
    """

    def __init__(
        self,
        revision: Revision,
        send: Send,
        nursery: trio.Nursery,
        *,
        capabilities: dict[str, Any],
        on_input_request: OnInputRequest | None,
        hearing: StandaloneStream | None = None,
        pause: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint,
        scoped: bool = False,
        waiting: SendQueue[Any] | None = None,
        info: Mapping[str, Any] | None = None,
    ) -> None:
        self._pause = pause
        self._waiting = waiting
        self.readings = Readings()
        self._info = dict(info or INFO)
        self.scoped = scoped
        self._hearing = hearing
        self.capabilities = capabilities
        self._on_question = on_input_request
        self.initialize_result: dict[str, Any] = {}
        self.discovery: dict[str, Any] = {}
        self._inbox = Inbox()
        self._put = send
        self.adopt(revision)
        self._ids = itertools.count(1)
        self._pending: dict[RequestId, PendingRequest] = {}
        self._by_token: dict[RequestId, PendingRequest] = {}
        self._listens: dict[RequestId, ChangeSubscription] = {}
        self._session_listens = SessionListens()
        self._questions = InputRequestHandler(
            nursery,
            on_input_request,
            capabilities,
            self._send,
            self._question_failed,
            substitute=self._newest_answerer,
        )
        self.stateless = False
        self.sessions_lost = 0
        self._gone: str | None = None  # why
        self._clear_at = -math.inf

    @property
    def connected(self) -> bool:
        """Whether the connection has not ended: over HTTP, where each request may have one of its own, that the client was not left."""
        return self._gone is None

    @property
    def notifications(self) -> deque[tuple[str, dict[str, Any]]]:
        """What the server has said that belongs to no request, and nobody has taken yet: the method and the params of each, the oldest first."""
        return self._inbox.kept

    @property
    def losses(self) -> int:
        """How often what belongs to no request may not have been heard: over HTTP the session may be another one since."""
        return self._inbox.losses

    @property
    def ambiguous(self) -> bool:
        """Whether what is said in no request may be of one that was given up: its server may not have stopped yet."""
        return trio.current_time() < self._clear_at

    def adopt(self, revision: Revision) -> None:
        """Speak another revision from now on."""
        self.revision = revision
        # What each modern request says of its client.
        self._claim: dict[str, Any] = {}
        if revision.era is Era.MODERN:
            self._claim = {
                PROTOCOL_VERSION: revision.name,
                CLIENT_CAPABILITIES: self.capabilities,
                CLIENT_INFO: self._info,
            }

    async def initialize(self) -> None:
        """Open the legacy session, in the revision that the server offers. Done by whoever connects a client.

        Raises:
            ProtocolError: The server refused.
            ClientError: There is no answer, or it offers a revision that is not known here.
        """
        params = {
            "protocolVersion": self.revision.name,
            "capabilities": self.capabilities,
            "clientInfo": self._info,
        }
        result = await self._exchange("initialize", params, None, None)
        offered = REVISIONS.get(str(result.get("protocolVersion")))
        if offered is None or offered.era is Era.MODERN:
            raise MalformedAnswerError(
                f"the server offers revision {result.get('protocolVersion')!r}, which has no handshake here"
            )
        self.initialize_result = result
        self.adopt(offered)
        await self.notify("notifications/initialized")

    async def _exchange(
        self,
        method: str,
        params: dict[str, Any],
        on_notification: OnNotification | None,
        log_level: str | None,
        on_input_request: OnInputRequest | None = None,
        *,
        progress: bool = True,
        shallow: bool = False,
    ) -> dict[str, Any]:
        """Send one request, and wait for its result; see `mcpbus.Client.request_in_rounds`."""
        request_id = next(self._ids)
        meta = self._meta(params.get("_meta"), log_level)
        progress &= on_notification is not None
        if progress:
            meta = {"progressToken": request_id, **meta}
        body = {**params, "_meta": meta} if meta else params
        request = JsonRpcRequest(request_id, method, encode_params(method, body))
        tool = params.get("name") if method == "tools/call" else None
        await trio.lowlevel.checkpoint_if_cancelled()
        pending = self._pending[request_id] = PendingRequest(
            on_notification, tool, on_input_request, self.readings
        )
        pending.shallow = shallow
        if on_input_request is not None and self._hearing is not None:
            self._hearing.want()  # there are servers that ask there even what a request of their client's is for
        if progress:
            self._by_token[meta["progressToken"]] = pending
        try:
            self._send(request, pending)
            del request, body  # which may be long, and are written by the connection
            if pending.result is None:
                result = await pending.wait()
            else:
                await self._pause()
                result = pending.decode()
        except trio.Cancelled:
            if method == "initialize":  # a client must not cancel it (rule L-13)
                pending.begun = False
            self._give_up(request_id, pending)
            raise
        finally:
            del self._pending[request_id]
            pending.release()
            if progress:
                self._by_token.pop(meta["progressToken"], None)
        kind = result.get("resultType", "complete") if self.revision.result_type else "complete"
        if isinstance(kind, msgspec.Raw):
            kind = msgspec.json.decode(kind)
        # An extension may have kinds of its own, which are for the caller who declared it (rule B-11).
        known = isinstance(kind, str) and (
            kind in _RESULT_TYPES or meta[CLIENT_CAPABILITIES].get("extensions")
        )
        if not known:
            raise MalformedAnswerError(f"the server's result is of a type that nobody knows: {kind!r}")
        return result

    def _give_up(self, request_id: RequestId, pending: PendingRequest, why: Exception | None = None) -> None:
        """Tell the server that nobody waits for a request any more, unless it is answered, or has not seen it yet."""
        begun = pending.begun and pending.result is None
        if begun and pending.on_notification is not None:
            self._clear_at = trio.current_time() + _LATE_SECONDS
        pending.settle(why or DisconnectedError("nobody waits for it"))
        if begun:
            method = "notifications/cancelled"
            with suppress(DisconnectedError):  # it takes nothing any more
                self._send(JsonRpcNotification(method, encode_params(method, {"requestId": request_id})))

    async def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        """Send a notification.

        Raises:
            TypeError: `method` is no text, or `params` no dict that JSON can hold.
            ValueError: They hold half of a surrogate pair, which is no Unicode.
            DisconnectedError: The connection has ended.
        """
        check_message(method, params)
        self._send(
            JsonRpcNotification(method, NO_PARAMS if params is None else encode_params(method, params))
        )
        await trio.lowlevel.checkpoint()

    def handle_notification(self, hear: OnNotification) -> None:
        """Have a function called with each notification that belongs to no request and no listen, as it comes, instead of keeping it.

        `next_notification` waits for none of them any more; it tells that some may have been lost. For whoever passes them on.
        """
        self._inbox.tell(hear)

    def count_waiting(self, count: OnWaiting) -> None:
        """Call a function with the bytes that wait to be written to the server, each time that they change."""
        if self._waiting is not None:
            self._waiting.on_waiting = count

    def count_reading(self, count: OpenHolding) -> None:
        """Count the bytes of long messages while they are read, and until their results are decoded."""
        self.readings.open = count

    def withdraw_waiting(self, why: str) -> None:
        """Fail the requests that wait to be written to the server."""
        if self._waiting is not None:
            self._waiting.withdraw(why)

    def answer(self, on_input_request: OnInputRequest) -> None:
        """Have a function answer each question of a server of an older revision that belongs to no request, as far as that is known.

        For whoever passes questions on.
        """
        self._questions.on_input_request = on_input_request

    async def next_notification(self) -> tuple[str, dict[str, Any]]:
        """Wait for the oldest of `notifications`, and take it.

        Raises:
            DisconnectedError: The connection has ended, and there is none left. Or it was lost while this waited, and with it, maybe, some:
                over HTTP the session, or the stream of what belongs to no request. It may be called again then.
        """
        if self._hearing is not None:
            self._hearing.want()
        return await self._inbox.next()

    def answered(self, request_id: RequestId, result: bytes | ProtocolError) -> None:
        """Take an answer that comes straight from the server. For the connection."""
        self._settle(request_id, received(result) if isinstance(result, ProtocolError) else result)

    def answered_badly(self, request_id: RequestId | None, why: str) -> bool:
        """Fail the request whose answer came and cannot be read; return whether it waited for one. For the connection."""
        waits = request_id in self._pending
        self._settle(request_id, unreadable(why))
        return waits

    def receive(self, data: bytes | str, owner: PendingRequest | None = None) -> None:
        """Take a message of the server's. For the connection.

        Args:
            data: The message, or a batch of them where the revision has batches.
            owner: The request to which it belongs, if the connection knows.

        Raises:
            Undecodable: It is none; or what it answers to its `owner` cannot be read, of which the connection may know more.
        """
        try:
            messages = [decode(data)]
        except Undecodable as fault:
            if not fault.array or not self.revision.batches:
                raise
            messages = []
            for message in decode_batch(data):
                if isinstance(message, Undecodable):
                    self.answered_badly(message.id, str(message))
                else:
                    messages.append(message)
        unread: Exception | None = None
        for message in messages:
            try:
                self._take(message, owner)
            except (Undecodable, msgspec.DecodeError, RecursionError) as fault:
                unread = fault  # what comes in a batch with it is for others
        if unread is not None:
            try:
                raise unread
            finally:
                del unread  # its traceback refers to this frame, which refers to the message

    def receive_for(self, data: bytes, request_id: RequestId | None) -> None:
        """Take a message of the server's that belongs to a request of this client, or to none. For a connection that knows.

        Args:
            data: The message.
            request_id: The id of the request.

        Raises:
            Undecodable: As for `receive`.
        """
        self.receive(data, None if request_id is None else self._pending.get(request_id))

    def _take(self, message: Message, owner: PendingRequest | None) -> None:
        if isinstance(message, JsonRpcResponse):
            self._replied(message, owner)
        elif isinstance(message, JsonRpcNotification):
            self._notified(message, owner)
        else:
            self._questions.take(message, owner or self._sole)

    def disconnected(self, why: str = "the connection ended before the answer came") -> None:
        """Note that the server's end is gone. For the connection."""
        self._gone = why
        self._inbox.close(why)
        for pending in self._pending.values():
            pending.settle(DisconnectedError(why))
        for listen in self._listens.values():
            listen.end()
        self._session_listens.end()
        self.withdraw_questions()

    def unheard(self, why: str) -> None:
        """Tell who listens in an older revision that something may have been lost, with its session, or its stream. For the connection."""
        self._inbox.lose(why)
        self._session_listens.end()

    def unanswered(self, owner: PendingRequest | None, why: str) -> None:
        """Give up a request whose question the server takes no answer to: it would wait for it for ever. For the connection.

        A question outside of requests ends none of them.
        """
        if owner is None:
            _log.warning("the server did not accept the answer to a question outside of requests: %s", why)
        elif owner.result is None:
            self._fail(owner, DisconnectedError(why))

    def withdraw_questions(self) -> None:
        """Answer nothing that the server has asked so far: nobody waits for it. For the connection."""
        self._questions.withdraw_all()

    def _send(self, message: Message, pending: PendingRequest | None = None) -> None:
        if self._gone is not None:
            raise DisconnectedError(self._gone)
        self._put(message, pending)

    def _meta(self, given: dict[str, Any] | None, log_level: str | None) -> dict[str, Any]:
        """Return the ``_meta`` of a request; not to be changed."""
        meta = self._claim
        if log_level is not None and self.revision.era is Era.MODERN:
            meta = {**meta, LOG_LEVEL: log_level}
        if given and not isinstance(given, dict):
            raise TypeError(f"params['_meta'] is a dict, not {given!r}")
        return {**meta, **given} if given else meta

    def _replied(self, response: JsonRpcResponse, owner: PendingRequest | None) -> None:
        result: msgspec.Raw | Exception | None = response.result
        if response.error is not None:
            result = read_error(response.error)
        elif response.fault is not None and response.id is not None:
            if owner is not None and self._pending.get(response.id, owner) is owner:
                raise Undecodable(invalid_request(response.fault))
            result = unreadable(response.fault)
        if result is None:
            return
        if owner is None or response.id in self._pending:
            self._settle(response.id, result)
        else:
            owner.settle(result)

    def _settle(self, request_id: RequestId | None, result: bytes | msgspec.Raw | Exception) -> None:
        pending = self._pending.get(request_id) if request_id is not None else None
        if pending is not None:
            pending.settle(result)
            if self._listens and request_id in self._listens:
                self._listens[request_id].end()

    def _notified(self, notification: JsonRpcNotification, owner: PendingRequest | None) -> None:
        method, text = notification.method, notification.params
        if (fault := weight_fault(text)) is not None:
            raise Undecodable(invalid_request(f"a notification {fault}"))
        params = _params.decode(text)
        meta = params.get("_meta")
        subscription = _id(meta.get(SUBSCRIPTION_ID)) if isinstance(meta, dict) else None
        if subscription in self._listens:
            self._listens[subscription].put(method, params, text)
            return
        if self._session_listens.take(method, params, text):
            return
        if method == "notifications/cancelled" and self._questions.cancel(_id(params.get("requestId"))):
            return
        if method == "notifications/progress":
            token = _id(params.get("progressToken"))
            owner = None if token is None else self._by_token.get(token)
        elif owner is None and not self.scoped and method == "notifications/message" and not self.ambiguous:
            wanting = [pending for pending in self._pending.values() if pending.on_notification is not None]
            owner = wanting[0] if len(wanting) == 1 else None
        if owner is None or owner.on_notification is None:
            self._inbox.put(method, params, text)
        elif owner.result is None:  # else its caller is told no more
            try:
                owner.on_notification(method, params)
            except Exception as error:  # noqa: BLE001 - raised again where the answer is waited for
                self._fail(owner, error)

    def _question_failed(self, owner: PendingRequest | None, error: Exception) -> bool:
        """End the request in which was asked what `on_input_request` could not answer; the only one there is, where that is not said."""
        owner = owner or self._sole
        if owner is None or owner.result is not None:
            return False
        self._fail(owner, error)
        return True

    @property
    def _sole(self) -> PendingRequest | None:
        """The only request that waits, if the connection does not tell requests apart: a question that names none is taken for its own.

        Where the client itself answers nothing, those do not count in which nothing can be asked.
        """
        if self.scoped:
            return None
        waiting = [*self._pending.values()]
        if self._on_question is None:
            waiting = [pending for pending in waiting if pending.on_input_request is not None]
        return waiting[0] if len(waiting) == 1 else None

    def _newest_answerer(self) -> OnInputRequest | None:
        """Return the `on_input_request` of the newest request that has one; a question outside of requests needs an answer, too."""
        waiting = (pending.on_input_request for pending in reversed(self._pending.values()))
        return next(filter(None, waiting), None) if self.scoped else None

    def _fail(self, owner: PendingRequest, error: Exception) -> None:
        for request_id, pending in self._pending.items():
            if pending is owner:
                self._give_up(request_id, pending, error)


def _id(value: object) -> RequestId | None:
    """An id or a token, as the server says it; None if it is none."""
    return value if isinstance(value, int | str) and not isinstance(value, bool) else None
