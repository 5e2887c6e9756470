"""What one legacy request asks its client, or a program outside any: requests of the server's own, each until it is answered or withdrawn."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec
from mcpbus_actors import Address

from mcpbus.core.input_requests import InputRound, InputWithdrawn
from mcpbus.core.outbox import OutboundMessage, Withdrawal
from mcpbus.core.receipt import Receipt
from mcpbus.core.sessions.session import Session
from mcpbus.core.signals import InputProgressReceived, InputResponseReceived
from mcpbus.features.input_requests.errors import (
    InputRefusedError,
    InputRequestError,
    cannot_ask,
    invalid_answer,
)
from mcpbus.features.schemas import python_types
from mcpbus.protocol.jsonrpc import (
    JsonRpcResponse,
    RequestId,
    encode_id,
    encode_notification,
    encode_request,
    encode_value,
)
from mcpbus.protocol.large import decode_without_gc
from mcpbus.protocol.messages import ProgressParams
from mcpbus.protocol.nesting import TOO_DEEP, nests_too_deeply
from mcpbus.protocol.revisions import Era
from mcpbus.protocol.routes import MessageKind, Reason


class LegacyInputRequests:
    """The questions of one request, or those of a session that no request asks.

    Args:
        session: Whose client is asked.
        asker: Who is told what it answers.
        send: Sends a message on the stream of the request, or that of the session.
        used: Where the answers are kept, encoded, by key; None for nowhere.
        question: What kind of message a question is.
        withdrawal: What kind of message withdraws it.
    """

    __slots__ = ("_asker", "_of", "_open", "_question", "_send", "_session", "_used", "_withdrawal")

    def __init__(
        self,
        session: Session,
        asker: Address[object],
        send: Callable[[OutboundMessage], None],
        *,
        used: dict[str, bytes] | None = None,
        question: MessageKind = MessageKind.QUESTION,
        withdrawal: MessageKind = MessageKind.WITHDRAWAL,
    ) -> None:
        self._session = session
        self._asker = asker
        self._send = send
        self._used = used
        self._question = question
        self._withdrawal = withdrawal
        self._open: dict[RequestId, tuple[InputRound, str, Receipt]] = {}
        # So that to give one up takes no look at all the others.
        self._of: dict[InputRound, dict[RequestId, None]] = {}

    def __len__(self) -> int:
        return len(self._open)

    @property
    def open_rounds(self) -> list[InputRound]:
        """Those that wait for answers, by round."""
        return list(self._of)

    def ask(self, ask: InputRound) -> None:
        """Ask what is asked together."""
        if self._session.input_ended is not None:
            ask.fail(cannot_ask(self._session.input_ended))
            return
        for key in ask.unanswered:
            if ask.settled:
                return  # one of them was refused, and with it all
            method = ask.questions[key].method
            question_id = self._session.next_question_id()
            receipt = self._session.bus.ledger.emit(method)
            self._open[question_id] = (ask, key, receipt)
            self._of.setdefault(ask, {})[question_id] = None
            self._session.questions[question_id] = self._asker
            params = ask.params[key]
            if ask.on_progress is not None:
                params = _with_token(params, question_id)
            data = encode_request(question_id, method, params)
            refused = partial(self._refused, question_id)
            kind = self._question if ask.via is None else MessageKind.QUESTION
            self._put(ask, OutboundMessage(kind, Era.LEGACY, data, receipt, refused=refused))

    def hear(self, message: InputResponseReceived | InputProgressReceived | InputWithdrawn) -> None:
        """Take what the client, or whoever asked, says of one of them."""
        match message:
            case InputResponseReceived(response=response):
                self._answered(response)
            case InputProgressReceived(params=said):
                self._reported(said)
            case InputWithdrawn(ask=ask):
                self._give_up(ask, cannot_ask("the question was withdrawn"))

    def _reported(self, said: ProgressParams) -> None:
        """Take how far the client is with one of them."""
        asked = self._open.get(said.progress_token)
        if asked is not None:
            asked[0].report(said)

    def _answered(self, response: JsonRpcResponse) -> None:
        """Take an answer; one that nobody waits for any more is dropped."""
        asked = self._forget(response.id)
        if asked is None:
            return
        ask, key, _ = asked
        try:
            if response.fault is not None:
                raise invalid_answer(response.fault)
            if response.error is not None:
                error = response.error
                data = None if error.data is msgspec.UNSET else _read(error.data)
                raise InputRefusedError(error.code, error.message, data)
            answer = _read(response.result or b"null")
            ask.answer(key, answer)
            if self._used is not None:
                self._used[key] = python_types.encode(answer)
        except InputRequestError as error:
            self._give_up(ask, error)

    def end(self, why: str) -> None:
        """Fail all that was asked, of a client that hears nothing any more."""
        for question_id, (ask, *_) in tuple(self._open.items()):
            self._forget(question_id)
            ask.fail(cannot_ask(why))

    def give_up_all(self, why: str) -> None:
        """Fail all that was asked."""
        for ask in tuple(self._of):
            self._give_up(ask, cannot_ask(why))

    def _give_up(self, ask: InputRound, error: InputRequestError) -> None:
        """Fail what was asked together, and tell the client that the rest needs no answer."""
        ask.fail(error)
        self._withdraw(tuple(self._of.get(ask, ())))

    def withdraw(self) -> None:
        """Tell the client that no question needs an answer any more; whoever asked them learns it elsewhere."""
        self._withdraw(tuple(self._open))

    def _withdraw(self, question_ids: Sequence[RequestId]) -> None:
        for question_id in question_ids:
            asked = self._forget(question_id)
            if asked is not None:
                params = {"requestId": question_id, "reason": "The answer is no longer needed"}
                data = encode_notification("notifications/cancelled", params)
                receipt = self._session.bus.ledger.emit("notifications/cancelled")
                if asked[0].via is not None and asked[0].via.stopped:
                    asked[0].via = None
                kind = self._withdrawal if asked[0].via is None else MessageKind.WITHDRAWAL
                self._put(asked[0], Withdrawal(kind, Era.LEGACY, data, receipt, question=asked[2]))

    def _put(self, ask: InputRound, message: OutboundMessage) -> None:
        """Send a message on the stream of the request that the questions go by, or on that of their asker."""
        if ask.via is None:
            self._send(message)
        else:
            ask.via.tell(message)

    def _refused(self, question_id: RequestId, reason: Reason) -> None:
        asked = self._forget(question_id)
        if asked is not None:
            self._give_up(asked[0], cannot_ask(reason.value))

    def _forget(self, question_id: RequestId | None) -> tuple[InputRound, str, Receipt] | None:
        if question_id is None:
            return None
        self._session.questions.pop(question_id, None)
        asked = self._open.pop(question_id, None)
        if asked is not None:
            together = self._of[asked[0]]
            del together[question_id]
            if not together:
                del self._of[asked[0]]
        return asked


def _with_token(params: msgspec.Raw, token: RequestId) -> msgspec.Raw:
    """Return the params of a question with a token for progress."""
    if b'"_meta"' in bytes(params):
        decoded = msgspec.json.decode(params, type=dict[str, Any])
        meta_of = decoded.get("_meta")
        decoded["_meta"] = (meta_of if isinstance(meta_of, dict) else {}) | {"progressToken": token}
        return msgspec.Raw(encode_value(decoded))
    meta = b'"_meta":{"progressToken":%b}}' % encode_id(token)
    members = bytes(params)[:-1]
    return msgspec.Raw(members + (meta if members == b"{" else b"," + meta))


def _read(text: bytes | msgspec.Raw) -> Any:
    """Read what a client answers.

    Raises:
        InputRequestError: values are nested too deeply in it, or a number is beyond any float: that is JSON, and has been passed on as such.
    """
    if nests_too_deeply(text):
        raise invalid_answer(TOO_DEEP)
    try:
        return decode_without_gc(msgspec.json.decode, text)
    except msgspec.DecodeError as fault:
        raise invalid_answer(str(fault)) from None
