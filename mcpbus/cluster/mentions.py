"""What a request names: a session, a task, a call that waits. It is only read here; whoever serves it judges it."""

from collections.abc import Sequence
from typing import Final
from urllib.parse import parse_qs

import msgspec

from mcpbus.core.session import Session
from mcpbus.protocol.errors import ProtocolError
from mcpbus.protocol.http.headers import Headers, decode_mirrored
from mcpbus.protocol.http.messages import RequestHead
from mcpbus.protocol.http.origin import HttpOptions
from mcpbus.protocol.http.session_rules import named_session
from mcpbus.protocol.jsonrpc import (
    JsonRpcNotification,
    JsonRpcRequest,
    JsonRpcResponse,
    Undecodable,
    decode,
    decode_batch,
)
from mcpbus.protocol.messages import CancelledParams, decode_params

_STATE: Final = b'"requestState"'
_TASKS: Final = b'"taskIds"'
_OF_TASKS: Final = b"tasks/"
_ANYWHERE: Final = {
    "tools/call",
    "tools/list",
    "prompts/get",
    "prompts/list",
    "resources/read",
    "resources/list",
    "resources/templates/list",
    "completion/complete",
}
"""The methods of which a modern request names nothing, but the call that it goes on with."""


class _Listened(msgspec.Struct):
    task_ids: list[str] = msgspec.field(default=[], name="taskIds")


class RequestTargets(msgspec.Struct):
    """What the params of a message say of where it belongs.

    Attributes:
        request_state: The state of a call that its client brings back.
        notifications: What a listen is for.
    """

    request_state: str | None = msgspec.field(default=None, name="requestState")
    notifications: _Listened = msgspec.field(default_factory=_Listened)


class _TargetEnvelope(msgspec.Struct):
    params: RequestTargets


_decode_message = msgspec.json.Decoder(_TargetEnvelope).decode


def has_no_target(headers: Headers, body: bytes) -> bool:
    """Whether a POST surely names nothing, told in few steps: a modern one has no session. Of any other, more has to be looked at."""
    # To ask whether bytes are "in" others takes twice as long.
    said = headers.announcement
    return said is not None and said.method in _ANYWHERE and body.find(_STATE) < 0


def named_in_head(head: RequestHead, options: HttpOptions) -> str | None:
    """Return what the head of a request names: a task, a session of HTTP+SSE, or one of Streamable HTTP."""
    task = task_of(head)
    if task is not None:
        return task
    if options.http_sse and head.path == options.sse_path and head.query:
        return next(iter(parse_qs(head.query).get("session_id", ())), None)
    return session_of(head)


def task_of(head: RequestHead) -> str | None:
    """Return the task that the head of a request names."""
    method = head.headers.raw(b"mcp-method")
    if not isinstance(method, bytes) or not method.startswith(_OF_TASKS):
        return None
    try:
        return decode_mirrored(head.headers.get(b"mcp-name", ""))
    except ValueError:
        return None  # whoever judges it says why


def read_mentioned(body: bytes) -> RequestTargets | None:
    """Return what a body says of where it belongs, if it says anything of that."""
    if body.find(_STATE) < 0 and body.find(_TASKS) < 0:
        return None
    try:
        return _decode_message(body).params
    except (UnicodeError, msgspec.DecodeError, RecursionError):
        return None  # whoever judges it says why


def listened_task(params: RequestTargets | None) -> str | None:
    """Return the first task of a listen."""
    return None if params is None else next(iter(params.notifications.task_ids), None)


def read_messages(
    body: bytes,
) -> Sequence[JsonRpcRequest | JsonRpcNotification | JsonRpcResponse | Undecodable]:
    """Return the messages of a body; none if it is no message and no batch of some."""
    try:
        return [decode(body)]
    except Undecodable as fault:
        if not fault.array:
            return []
    try:
        return decode_batch(body)
    except Undecodable:
        return []


def is_response_only(body: bytes, session: Session) -> bool:
    """Whether a client says nothing but answers and cancellations, of questions and requests that a session does not have."""
    said = read_messages(body)
    return bool(said) and all(_has_nobody(each, session) for each in said)


def _has_nobody(
    message: JsonRpcRequest | JsonRpcNotification | JsonRpcResponse | Undecodable, session: Session
) -> bool:
    if isinstance(message, JsonRpcResponse):
        return message.id not in session.questions
    if not isinstance(message, JsonRpcNotification) or message.method != "notifications/cancelled":
        return False
    try:
        cancelled = decode_params(CancelledParams, message.params)
    except ProtocolError:
        return False  # whoever judges it says why
    return session.in_flight.find(cancelled.request_id) is None


def session_of(head: RequestHead) -> str | None:
    """Return the session of Streamable HTTP that the head of a request names, if it names exactly one."""
    return named_session(head.headers)
