"""For which process of several a request is: here it is decided, and nothing else is done.

Whose something is, its name tells, see `names`: the session in a head or in an address, the task in a head, the call in the state
that a client brings back, the first task of a listen.

What a request names: a session, a task, a call that waits. It is only read here; whoever serves it judges it.
"""

from collections.abc import Sequence
from typing import Final
from urllib.parse import parse_qs

import msgspec

from mcpbus.cluster.node import Node
from mcpbus.core.hub import Hub
from mcpbus.core.sessions.session import Session
from mcpbus.protocol.bounded_cache import BoundedCache
from mcpbus.protocol.errors import ProtocolError
from mcpbus.protocol.http.headers import Headers, decode_mirrored
from mcpbus.protocol.http.messages import RequestHead
from mcpbus.protocol.http.options import HttpOptions
from mcpbus.protocol.http.validation import named_session
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


class Affinity:
    """Tells for which process a request is.

    Args:
        node: Knows the others, and what is about to be theirs.
        bus: What is here.
        options: How the endpoint is served: a session may be named in an address.
    """

    def __init__(self, node: Node, bus: Hub, options: HttpOptions) -> None:
        self._node = node
        self._bus = bus
        self._options = options
        self._moved: BoundedCache[str, str] = BoundedCache()

    def destination(self, head: RequestHead, body: bytes) -> str | None:
        """Return which process is to serve a request; None if this one does, and at once.

        Args:
            head: The request.
            body: The whole of it.

        Returns:
            A process; this one where it is first to be found out who has what the request names.
        """
        home = self.home_of(head, body) or self.next_node(head, body)
        return self._node.home if home is None and self.may_be_elsewhere(head, body) else home

    def home_of(self, head: RequestHead, body: bytes = b"") -> str | None:
        """Return for which process a request is; None if it is for this one, or for any.

        Args:
            head: The request.
            body: The whole of it; empty if that has not come.
        """
        name = named_in_head(head, self._options) or self._named_in(body)
        if name is None or name in self._bus.sessions or name in self._bus.tasks:
            return None
        home = self._node.names.home_of(name)
        if home == self._node.home and name not in {session_of(head), task_of(head)}:
            return None
        # A session or a task that began there, or here, may be elsewhere now.
        moved = None if home is None else self._moved.get(name)
        return home if moved is None or self._node.link(moved) is None else moved

    def note_home(self, head: RequestHead, home: str) -> None:
        """Remember which process has served a request, if that is not where its session began: the next one can be sent there."""
        session = session_of(head)
        began = None if session is None else self._node.names.home_of(session)
        if session is not None and began is not None and home not in {began, self._moved.get(session)}:
            self._moved.keep(session, home, len(session))

    def next_node(self, head: RequestHead, body: bytes) -> str | None:
        """Return this process's home if a request is for a session of it that is about to be elsewhere, and can wait for that.

        While requests of that are in flight, what the client says to them cannot: it is still served here.
        """
        name = session_of(head) if self._node.hand_over.begun else None
        if name is None or not self._node.hand_over.has(name):
            return None
        session = self._bus.sessions.get(name)
        if session is None or not session.in_flight or head.verb == "GET":
            return self._node.home
        try:
            waits = head.verb == "POST" and isinstance(decode(body), JsonRpcRequest)
        except Undecodable:
            waits = False  # whoever judges it says why
        return self._node.home if waits else None

    def may_be_elsewhere(self, head: RequestHead, body: bytes) -> bool:
        """Whether a client ends a session that another process may have by now, or answers or cancels in it what is not here."""
        lease = self._bus.lease
        if lease is None or lease.is_valid or head.verb == "GET":
            return False
        session = self._bus.sessions.get(session_of(head) or "")
        return session is not None and (head.verb == "DELETE" or is_response_only(body, session))

    def _named_in(self, body: bytes) -> str | None:
        params = read_mentioned(body)
        if params is not None and params.request_state is not None:
            return self._bus.parked_calls.sealer.call_of(params.request_state)
        return listened_task(params)
