"""One HTTP/1.1 connection: its requests are served one after the other.

Each begins in a turn of the connection, which waits for nothing: the turn reads the bytes that have come, has the request served
and writes the response. A body that still arrives is read by an eager task. A quiet connection, and one whose response comes on a
stream, has no task. The rest has one: other ASGI applications, the upgrade to a WebSocket, the end of a connection whose client
still sends; see `ConnectionTask`.
"""

import math
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

import trio
from mcpbus_actors import EagerTask

from mcpbus.protocol.http.messages import HttpResponse, RequestHead
from mcpbus.serving.deadlines import READ_BYTES
from mcpbus.serving.head_cache import HeadCacheEntry
from mcpbus.serving.http1.connection_io import (
    IDLE,
    MOST_AHEAD,
    SERVING,
    ConnectionIO,
    ConnectionPhase,
    Http1ConnectionOwner,
)
from mcpbus.serving.http1.head import Http1RequestHead
from mcpbus.serving.http1.request import Http1Request, ResponseFraming
from mcpbus.serving.http1.response_writer import Http1ResponseWriter
from mcpbus.serving.http1.task import ConnectionTask
from mcpbus.serving.http_server import HttpServer
from mcpbus.serving.reactor import Reactor
from mcpbus.serving.readiness import Readiness
from mcpbus.serving.request_error import RequestError, failed, too_slow
from mcpbus.transports.response_encoder import StreamedResponse
from mcpbus.transports.response_sinks import KeepAliveHandler

_MOST_IN_TURN: Final = 16 * 1024
"""Bytes of a body that are waited for without a task, and are not counted; it may come in other packets than its head. Where nobody
knows how many are to come, it is as many that have."""


class Http1Connection:
    """Serves what a client asks for over HTTP/1.1, until it leaves or wants to speak something else.

    Args:
        service: What all connections of a server share.
        stream: The connection.
        owner: Who accepted it.
        reactor: Waits for the stream.

    Attributes:
        wire: Its bytes.
        readiness: When something comes.
        reactor: The same.
        service: The same.
        speaker: Who speaks on it, if no task does; is cancelled if the client leaves.
        work: The task that goes on with it; None while it takes turns.
    """

    __slots__ = (
        "_head",
        "_owner",
        "_silent",
        "reactor",
        "readiness",
        "service",
        "speaker",
        "wire",
        "work",
    )

    def __init__(
        self,
        service: HttpServer,
        stream: trio.abc.Stream,
        owner: Http1ConnectionOwner,
        reactor: Reactor,
    ) -> None:
        self.service = service
        self._owner = owner
        self._head: Http1RequestHead | None = None
        self.speaker: KeepAliveHandler | None = None
        self._silent = False
        self.wire = ConnectionIO(service, stream, owner)
        self.readiness = Readiness(service, stream, reactor)
        self.reactor = reactor
        self.work: ConnectionTask | None = None

    def begin(self, data: bytes = b"") -> None:
        """Serve the connection, to its end. No schedule point.

        Args:
            data: What has been read from it already.
        """
        self.service.deadlines.enter(self)
        if data:
            self.wire.requests.receive(data)
        self.wire.wait(IDLE, self.service.options.keep_alive_timeout)
        self._watch()
        if data and not self.wire.closed:
            self.wire.stop_waiting()
            self.reactor.call_soon(self._look_ahead)

    def idle_since(self) -> float | None:
        """Tell since when it waits for a request; None once one is there."""
        wire, options = self.wire, self.service.options
        if wire.doing is IDLE:
            return wire.expires - options.keep_alive_timeout
        return wire.expires - options.head_timeout if wire.doing is ConnectionPhase.HEAD else None

    # -- the end ---------------------------------------------------------------------------------

    @property
    def expires(self) -> float:
        """See `Expiring`."""
        return self.wire.expires

    def retire(self) -> None:
        """End as soon as no request is under way; at once if none is."""
        self.wire.retired = True
        if self.wire.doing in {SERVING, ConnectionPhase.BODY}:
            return
        if self.work is None:
            self.close()
        else:
            self.wire.stop_receiving(for_good=True)

    def linger(self, seconds: float) -> float:
        """Retire, but not before it has been idle for so many seconds: its client may be about to send the next request.

        Returns:
            For how many seconds it stays open if none comes.
        """
        idle_since = self.idle_since()
        left = 0 if idle_since is None else min(seconds, idle_since + seconds - trio.current_time())
        if left <= 0:
            self.retire()
            return 0
        self.wire.retired = True
        self.wire.quiet_for(left)
        return left

    def expire(self) -> None:
        """End what the connection waits for, unless it is there; if that is something to say, say anything."""
        wire = self.wire
        if wire.doing is not SERVING and (wire.receiving or self.work is not None):
            wire.stop_receiving()
            return
        wire.expires = math.inf
        if wire.doing is not SERVING:
            self.reactor.call_soon(self._take_last_turn)
        elif self.speaker is not None:
            self.speaker.keep_alive()

    def lose(self) -> None:
        """End in the middle of an answer."""
        self.wire.gone = True
        self.close()

    def close(self) -> None:
        """End the connection. Harmless once that was done. No schedule point."""
        # They know each other, and should not wait for the garbage collector.
        speaker, self.speaker, self.work = self.speaker, None, None
        self.service.deadlines.leave(self)
        self.readiness.forget()
        if speaker is not None:
            speaker.cancel()
        self.wire.close()

    async def serve_http2(self, data: bytes) -> None:
        """Have the connection served by who speaks HTTP/2, from these bytes on."""
        self.work = None
        self.service.deadlines.leave(self)
        await self._owner.serve_http2(data)

    def hand_to(self, speaker: KeepAliveHandler) -> None:
        """Have somebody else speak on the connection, which does not come back to HTTP/1.1."""
        self.work = None
        self.speaker = speaker

    # -- turns or tasks --------------------------------------------------------------------------

    def _watch(self) -> None:
        if not self.readiness.watch(self._take_turn):
            self.lose()

    def watch_on(self) -> None:
        """Look again for bytes that come, and for the client's end, while a request is served."""
        if self.wire.closed or self.wire.gone:
            return
        if self.wire.requests.waiting < MOST_AHEAD:
            self._watch()
        else:
            self.readiness.watch_end(self._note_end)

    def leave(self, request: Http1Request, answer: Callable[[], Awaitable[None]]) -> None:
        """Answer a request in a task, which then has the connection go on."""
        task = self._employ()
        self._owner.start_soon(task.run, partial(task.answer, request, answer))

    def refuse(self, fault: RequestError | None) -> None:
        """End the connection in a task, which alone reads and writes from now on; it tells the client of a fault."""
        task = self._employ()
        self._owner.start_soon(task.run, partial(task.end, fault))

    def _employ(self) -> ConnectionTask:
        self.readiness.forget()
        self._head = None
        self.work = ConnectionTask(self)
        return self.work

    def start(self, function: Callable[..., Awaitable[object]], *args: Any) -> None:
        """Run a task that writes what the client does not take at once."""
        self._owner.start_soon(self._run, function, args)

    async def _run(self, function: Callable[..., Awaitable[object]], args: tuple[Any, ...]) -> None:
        try:
            await function(*args)
        except BaseException:
            self.lose()
            raise

    # -- a turn ----------------------------------------------------------------------------------

    def _take_turn(self) -> EagerTask | None:
        """Read what has come, and serve a request if it is whole."""
        wire = self.wire
        try:
            data = wire.receive_now()
            if wire.doing is SERVING:
                self._read_ahead(data)
                return None
        except Exception as failure:  # noqa: BLE001 - there is no memory, and the other connections are not to blame
            self._report_turn(failure, None)
            self.lose()
            return None
        if data:
            return self._look(data)
        if data is not None:
            self.close()
        return None

    def _take_last_turn(self) -> EagerTask | None:
        """End what is waited for, unless it has come: nobody may have looked, as when the process was stopped."""
        wire = self.wire
        if not self.readiness.watched or wire.doing is SERVING or wire.expires < math.inf:
            return None  # it has come
        doing, wire.expires = wire.doing, trio.current_time()
        eager = self._take_turn()
        self._give_up(doing)
        return eager

    def _give_up(self, doing: ConnectionPhase) -> None:
        """End what is waited for, if it is still the same, and nothing has prolonged its time."""
        wire = self.wire
        if self.readiness.watched and wire.doing is doing and wire.expires <= trio.current_time():
            if doing is IDLE or wire.retired:
                self.close()
            else:
                self.refuse(too_slow("head_timeout" if doing is ConnectionPhase.HEAD else "body_timeout"))

    def _read_ahead(self, data: bytes | None) -> None:
        """Keep what comes while a request is served, up to a bound."""
        if data:
            requests = self.wire.requests
            requests.receive(data)
            if requests.waiting >= MOST_AHEAD:
                self.readiness.watch_end(self._note_end)
        elif data is not None:
            self._note_end()

    def _note_end(self) -> None:
        """Give up the request that is served: its client has left."""
        self.readiness.forget()
        if self.speaker is not None:
            self.lose()
        self._silent = True

    def _look(self, data: bytes) -> EagerTask | None:
        """Serve the next request, if it is there with this data and can be served without waiting."""
        wire, head = self.wire, None
        requests = wire.requests
        try:
            whole = requests.take_whole(data) if wire.doing is IDLE else None
            if whole is not None:
                head, body = whole
                facts = self.service.facts(head)
                if facts is not None and facts.immediate:
                    return self._respond(facts, head, body)
            requests.receive(data)
            head = self._next_head(len(data))
            if head is None:
                return None
            facts = self.service.facts(head)
            if facts is not None and facts.immediate:
                return self._respond(facts, head, requests.take_body() if requests.missing == 0 else None)
            wire.stop_waiting()
            task = self._employ()
            self._owner.start_soon(task.run, partial(task.serve, head))
        except RequestError as fault:
            self.refuse(fault)
        except KeyboardInterrupt:
            raise
        except BaseException as failure:  # noqa: BLE001 - the application is somebody else's code; its client gets an answer
            self.fail(failure, None if head is None else head.judged)
        return None

    def _look_ahead(self) -> EagerTask | None:
        """Serve the next request, of which something was read before this one's turn."""
        wire = self.wire
        if wire.closed:
            return None
        if wire.retired:
            self.refuse(None)
            return None
        wire.wait(IDLE, wire.options.keep_alive_timeout)
        if wire.requests.waiting < MOST_AHEAD:
            self._watch()
        return self._look(b"")

    def _next_head(self, received: int) -> Http1RequestHead | None:
        """Return the head of the next request, once all of its body is there, or is not to be waited for in turns."""
        wire, requests = self.wire, self.wire.requests
        head, self._head = self._head or requests.next_head(), None
        if head is None:
            if requests.waiting and wire.doing is IDLE:
                wire.wait(ConnectionPhase.HEAD, wire.options.head_timeout)
            self._watch()
            return None
        missing = requests.missing
        if missing and received == READ_BYTES >= missing:
            # It was cut off here, and not on its way: the rest is there as a rule. If not, an eager task reads and counts it.
            requests.receive(wire.receive_now(missing) or b"")
            missing = requests.missing and missing
        return head if missing == 0 else self._await_body(head, missing, received)

    def _await_body(
        self, head: Http1RequestHead, missing: int | None, received: int
    ) -> Http1RequestHead | None:
        """Wait for the rest of a body in turns, if it is short and wanted; otherwise return its head.

        Args:
            head: The head of its request.
            missing: How many bytes have not come; None if only reading the body can tell.
            received: How many have come in this turn.
        """
        wire, requests = self.wire, self.wire.requests
        facts = self.service.facts(head)
        if missing is None and facts is not None and facts.head_validated:
            missing = requests.gather()
            if requests.body is None or missing > facts.endpoint.max_body_bytes:
                return head
        if facts is None or head.leaves or missing is None or missing > _MOST_IN_TURN or head.expects:
            return head
        self._head = head
        rate, now = facts.endpoint.limits.body_rate, trio.current_time()
        wire.wait_for_body(
            rate.next_read(wire.expires, now, received)
            if wire.doing is ConnectionPhase.BODY
            else rate.begin(now)
        )
        self._watch()
        return None

    def _respond(self, facts: HeadCacheEntry, head: Http1RequestHead, body: bytes | None) -> EagerTask | None:
        """Have a request served; with None its body still arrives, and nothing is read ahead before it is asked for."""
        reactor, wire = self.reactor, self.wire
        if body is None:
            self.readiness.forget()
        wire.served = True
        wire.doing = SERVING
        wire.expires = math.inf
        reactor.pace = pace = facts.pace
        if pace.slow:
            reactor.write_first()
        request = Http1Request(wire, head.judged, head, self, wire.peer, facts, reactor.scope)
        result = facts.endpoint.respond(head.judged, body, request, cleared=facts.head_validated)
        if not isinstance(result, HttpResponse):
            return result
        request.reply = result
        reactor.write_soon(request)
        return None

    # -- for a request that is served in a turn ----------------------------------------------------

    def open(self, request: Http1Request, opened: StreamedResponse) -> None:
        """Answer from a stream."""
        self.speaker = writer = Http1ResponseWriter(self, request, opened, request.facts.endpoint.limits)
        self.watch_on()
        if self._silent:
            writer.cancel()  # a client that says no more is not told what is still to come
        else:
            writer.begin()

    def wait(self, speaker: KeepAliveHandler | None, quiet: float) -> None:
        """Have somebody keep a request alive after so many seconds; None if its handler waits no more."""
        self.speaker = speaker
        self.wire.quiet_for(quiet)
        if self._silent and speaker is not None:
            self.lose()  # a client that says no more is not told what is still to come

    def answered(self, request: ResponseFraming) -> None:
        """Go on with the next request; the answer of this one is written."""
        self.speaker = self.work = None
        wire, requests = self.wire, self.wire.requests
        if request.closes or wire.retired:
            if requests.waiting or requests.body is not None:
                self.refuse(None)
            else:
                self.close()
        elif requests.body is not None:
            task = self._employ()
            self._owner.start_soon(task.run, task.discard)
        else:
            self.go_on()

    def go_on(self) -> None:
        """Wait for the next request, or look at it."""
        self.work = None
        wire = self.wire
        if wire.requests.waiting:
            # A client that sends many requests at once does not get all of our time. Until the next one is looked at it
            # counts as being served, so that there is a bound to what is read until then.
            wire.stop_waiting()
            self.reactor.call_soon(self._look_ahead)
        else:
            wire.doing = IDLE
            wire.quiet_for(wire.options.keep_alive_timeout)
            if not self.readiness.watched:
                self._watch()

    def fail(self, failure: BaseException, head: RequestHead | None) -> None:
        """End a connection whose request could not be answered, and tell its client if nothing was said to it."""
        self._report_turn(failure, head)
        if self.speaker is None and self.work is None:
            self.refuse(failed())
        else:
            self.lose()

    def _report_turn(self, failure: BaseException, head: RequestHead | None) -> None:
        self.service.app.report(BaseExceptionGroup("in a turn of a connection", [failure]), head)
