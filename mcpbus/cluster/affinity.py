"""For which process of several a request is: here it is decided, and nothing else is done.

Whose something is, its name tells, see `names`: the session in a head or in an address, the task in a head, the call in the state
that a client brings back, the first task of a listen.
"""

from mcpbus.cluster.mentions import (
    is_response_only,
    listened_task,
    named_in_head,
    read_mentioned,
    session_of,
    task_of,
)
from mcpbus.cluster.node import Node
from mcpbus.core.hub import Hub
from mcpbus.protocol.bounded_cache import BoundedCache
from mcpbus.protocol.http.messages import RequestHead
from mcpbus.protocol.http.origin import HttpOptions
from mcpbus.protocol.jsonrpc import JsonRpcRequest, Undecodable, decode


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
