"""One HTTP/1.1 connection of the lane: its requests are served one after the other.

Most of them in a turn of the connection, which waits for nothing: what has come is read, the request is served, the answer
written. A quiet connection, and one whose answer comes on a stream, then has no task. What has to be waited for is left to a
task; see `work`.
"""

import math
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Final

import trio

from actors import Guest
from mcpbus.protocol.http.messages import Answer, Head
from mcpbus.serving.http1.head import RequestError, RequestHead, Terms
from mcpbus.serving.http1.push import Push
from mcpbus.serving.http1.reactor import Poll
from mcpbus.serving.http1.request import MOST_AHEAD, Http1Request
from mcpbus.serving.http1.wire import GONE, IDLE, SERVING, Doing, Owner, too_slow
from mcpbus.serving.http1.work import FAILED, Http1Work
from mcpbus.transport.answering import Opened

if TYPE_CHECKING:
    from mcpbus.serving.http1.lane import Lane

_MOST_IN_TURN: Final = 16 * 1024
"""Bytes of a body that are waited for without a task, and are not counted; it may come in other packets than its head."""


class Http1Connection(Http1Work):
    """Serves what a client asks for over HTTP/1.1, until it leaves or wants to speak something else.

    Args:
        lane: What all connections of a server share.
        stream: The connection.
        owner: Who accepted it.
        poll: Waits for the stream, if it can be polled.
    """

    __slots__ = ("_push", "_silent")

    def __init__(self, lane: "Lane", stream: trio.abc.Stream, owner: Owner, poll: Poll | None = None) -> None:
        super().__init__(lane, stream, owner, poll)
        self._push: Push | None = None
        self._silent = False

    def begin(self) -> None:
        """Serve the connection, to its end. No schedule point."""
        self._lane.enter(self)
        if self.poll is None:
            self._go_on()
        else:
            self._wait(IDLE, self.options.keep_alive_seconds)
            self._watch()

    def idle_since(self) -> float | None:
        """Tell since when it waits for a request; None once one is there."""
        if self._doing is IDLE:
            return self.expires - self.options.keep_alive_seconds
        return self.expires - self.options.head_seconds if self._doing is Doing.HEAD else None

    def retire(self) -> None:
        """End as soon as no request is under way; at once if none is."""
        self.retired = True
        if self._doing in {SERVING, Doing.BODY}:
            return
        if self._task is None:
            self._close()
        else:
            self._over = True
            self._stop_receiving()

    def expire(self) -> None:
        """End what the connection waits for, unless it is there; if that is something to say, say anything."""
        if self._doing is not SERVING and self._task is not None:
            self._stop_receiving()
            return
        self.expires = math.inf
        if self._doing is not SERVING and self.poll is not None:
            self.poll.soon(self._take_last_turn)
        elif self._push is not None:
            self._push.keep_alive()

    def _stop_receiving(self) -> None:
        if self._receiving is not None:
            self._receiving.cancel()

    def _let_go(self) -> None:
        self._forget()
        # They know each other, and should not wait for the garbage collector.
        push, self._push = self._push, None
        if push is not None:
            push.cancel()

    # -- a turn ----------------------------------------------------------------------------------

    def _take_turn(self) -> Guest | None:
        """Read what has come, and serve a request if it is whole."""
        if not self._watched:
            return None  # it was due before that
        try:
            try:
                data = self._stream.receive_now()  # type: ignore[attr-defined]  # whoever gave a poll knows
            except GONE:
                data = b""
            if self._doing is SERVING:
                self._read_ahead(data)
                return None
        except Exception as failure:  # noqa: BLE001 - there is no memory, and the other connections are not to blame
            self._report_turn(failure, None)
            self.lose()
            return None
        if data:
            return self._look(data)
        if data is not None:
            self._close()
        return None

    def _take_last_turn(self) -> Guest | None:
        """End what is waited for, unless it has come: nobody may have looked, as when the process was stopped."""
        if not self._watched or self._doing is SERVING or self.expires < math.inf:
            return None  # it has come
        doing, self.expires = self._doing, self._lane.clock()
        guest = self._take_turn()
        self._give_up(doing)
        return guest

    def _give_up(self, doing: Doing) -> None:
        """End what is waited for, if it is still the same, and nothing has prolonged its time."""
        if self._watched and self._doing is doing and self.expires <= self._lane.clock():
            if doing is IDLE or self.retired:
                self._close()
            else:
                limit = "head_seconds" if doing is Doing.HEAD else "body_timeout"
                self._end_with(self._refuse, too_slow(limit))

    def _read_ahead(self, data: bytes | None) -> None:
        """Keep what comes while a request is served, up to a bound."""
        if data:
            self.requests.receive(data)
            if self.requests.waiting >= MOST_AHEAD:
                self._watch_end(self._take_end)
        elif data is not None:
            self._note_end()

    def _take_end(self) -> None:
        if self._ending is not None:
            self._note_end()

    def _note_end(self) -> None:
        """Give up the request that is served: its client has left."""
        self._forget()
        if self._push is not None:
            self._push.cancel()
        self._silent = True

    def _look(self, data: bytes) -> Guest | None:
        """Serve the next request, if it is there with this data and can be served without waiting."""
        requests, head = self.requests, None
        try:
            whole = requests.take_whole(data) if self._doing is IDLE else None
            if whole is not None:
                head, body = whole
                terms = self._lane.terms(head)
                if terms is not None and terms.immediate:
                    return self._respond(terms, head, body)
            requests.receive(data)
            head = self._next_whole(len(data))
            if head is None:
                return None
            terms = self._lane.terms(head)
            if terms is not None and terms.immediate:
                return self._respond(terms, head, requests.take_body())
            self._head = head
            self._go_on()
        except RequestError as fault:
            self._end_with(self._refuse, fault)
        except KeyboardInterrupt:
            raise
        except BaseException as failure:  # noqa: BLE001 - the application is somebody else's code; its client gets an answer
            self.fail(failure, None if head is None else head.judged)
        return None

    def _look_ahead(self) -> Guest | None:
        """Serve the next request, of which something was read before this one's turn."""
        if self._closed:
            return None
        if self.retired:
            self._end_with(self._linger)
            return None
        self._wait(IDLE, self.options.keep_alive_seconds)
        if self.requests.waiting < MOST_AHEAD:
            self._watch()
        return self._look(b"")

    def _next_whole(self, received: int) -> RequestHead | None:
        """The head of the next request, once all of its body is there, too; one that a task is to wait for, is left to it."""
        head, self._head = self._head or self.requests.next_head(), None
        if head is None:
            if self.requests.waiting and self._doing is IDLE:
                self._wait(Doing.HEAD, self.options.head_seconds)
            self._watch()
            return None
        missing = self.requests.missing
        if missing == 0:
            return head
        self._head = head
        terms = self._lane.terms(head)
        if terms is None or missing is None or missing > _MOST_IN_TURN or head.expects:
            self._go_on()
            return None
        pace, now = terms.endpoint.limits.body_pace, self._lane.clock()
        self._wait_for_body(
            pace.go_on(self.expires, now, received) if self._doing is Doing.BODY else pace.begin(now)
        )
        self._watch()
        return None

    def _respond(self, terms: Terms, head: RequestHead, body: bytes) -> Guest | None:
        poll = self.poll
        assert poll is not None  # noqa: S101 - it takes the turn
        self._served = True
        self._doing = SERVING
        self.expires = math.inf
        poll.pace = pace = terms.pace
        begun = poll.write_first() if pace.slow else None
        request = Http1Request(self, self.peer, head.judged, head, terms, poll.scope)
        result = terms.endpoint.respond(head.judged, body, request, cleared=terms.cleared)
        if begun is not None:
            pace.took(perf_counter() - begun)
        if not isinstance(result, Answer):
            return result
        request.finish(result)
        return None

    # -- for a request that is served in a turn ----------------------------------------------------

    def open(self, request: Http1Request, opened: Opened) -> None:
        """Answer from a stream."""
        if opened.stream.log is None and not opened.form.array:
            self._push = Push(self, request, opened, request.terms.endpoint.limits)
            if self._silent:
                self._push.cancel()  # a client that says no more is not told what is still to come
            else:
                self._push.begin()
        else:
            self._go_on(request, partial(request.terms.endpoint.stream, request, opened))

    def flush_later(self, push: Push) -> None:
        """Have what waits written together with what comes in this turn: the connection's own, or the scheduler's."""
        if self.poll is None or not self.poll.write_after_turn(push):
            self._lane.flusher.notice(push)

    def _make_request(self, head: RequestHead, terms: Terms, scope: trio.CancelScope) -> Http1Request:
        return Http1Request(self, self.peer, head.judged, head, terms, scope)

    def answered(self, request: Http1Request) -> None:
        """Go on with the next request; the answer of this one is written."""
        self._push = None
        if request.closes or self.retired:
            if self.requests.waiting:
                self._end_with(self._linger)
            else:
                self._close()
            return
        if self.requests.waiting and self.poll is not None:
            # A client that sends many requests at once does not get all of our time. Until the next one is looked at it
            # counts as being served, so that there is a bound to what is read meanwhile.
            self.poll.soon(self._look_ahead)
        else:
            self._doing = IDLE
            self.quiet_for(self.options.keep_alive_seconds)
            if not self._watched:
                self._watch()

    def fail(self, failure: BaseException, head: Head | None) -> None:
        """End a connection whose request could not be answered, and tell its client if nothing was said to it."""
        self._report_turn(failure, head)
        if self._push is None and self._task is None:
            self._end_with(self._refuse, FAILED)
        else:
            self.lose()

    def _report_turn(self, failure: BaseException, head: Head | None) -> None:
        where = ("a request", "") if head is None else (head.verb, head.path)
        self._lane.report(BaseExceptionGroup("in a turn of a connection", [failure]), *where)
