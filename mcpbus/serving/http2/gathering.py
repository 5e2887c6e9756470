"""The bodies of one HTTP/2 connection that are waited for without a task, and served in a turn once they are there."""

import math
from typing import Final

import trio

from mcpbus.serving.head_facts import HeadCacheEntry
from mcpbus.serving.http2.head import Http2RequestHead
from mcpbus.serving.http2.request import Http2Request

_MOST: Final = 16 * 1024
"""Bytes of a body that is waited for here, and is not counted; and of all bodies of a connection, four times as many."""


class PendingBodies:
    """The requests whose bodies are waited for."""

    __slots__ = ("_requests",)

    def __init__(self) -> None:
        self._requests: set[Http2Request] = set()

    def __len__(self) -> int:
        return len(self._requests)

    def __contains__(self, request: Http2Request) -> bool:
        return request in self._requests

    @staticmethod
    def suits(facts: HeadCacheEntry, head: Http2RequestHead) -> bool:
        """Whether the rest of a body is to be waited for here: if it will be short, and is wanted."""
        return facts.immediate and facts.head_validated and not head.expects and (head.length or 0) <= _MOST

    def add(self, request: Http2Request) -> None:
        """Wait for the body of a request."""
        self._requests.add(request)

    def discard(self, request: Http2Request) -> None:
        """Wait for it no longer; it is there, or too long, or nobody wants it any more."""
        if request in self._requests:
            self._requests.discard(request)
            request.expires = math.inf

    def begin_to_wait(self) -> None:
        """Set bounds to how long bodies may take that have begun to come: as long as the endpoint gives its clients."""
        for request in self._requests:
            if request.expires == math.inf:
                request.wake_at(request.endpoint.limits.body_rate.begin(trio.current_time()))

    def received(self, request: Http2Request, size: int) -> None:
        """Note that so much more of a body has come."""
        if request in self._requests and request.expires < math.inf:
            now = trio.current_time()
            request.wake_at(request.endpoint.limits.body_rate.next_read(request.expires, now, size))

    def is_too_long(self, request: Http2Request) -> bool:
        """Whether so much of a body has come, or of all of them, that it is to be counted."""
        if len(request.body) > _MOST:
            return True
        return sum([len(each.body) for each in self._requests]) > 4 * _MOST
