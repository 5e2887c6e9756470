"""So many calls in a second for each client, and no more."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

import trio

from mcpbus.dispatch.runner import CallNext, Invocation
from mcpbus.features.option_types import check_plain
from mcpbus.middleware.base import PerRun, refusal
from mcpbus.protocol.keywords import explained
from mcpbus.protocol.validators import check_positive


@explained
class RateLimitingMiddleware:
    """Refuses a client's calls beyond so many in a second, by a token bucket.

    Args:
        max_requests_per_second: How many calls a client may make in the long run.
        burst_capacity: How many it may make at once after a rest; twice as many as in a second if left out.
        get_client_id: Tells clients apart: by principal, and where there is none by address, if left out.
        max_clients: How many clients are remembered; beyond it those are forgotten that were away for longest.
    """

    def __init__(
        self,
        max_requests_per_second: float = 10.0,
        burst_capacity: int | None = None,
        *,
        get_client_id: Callable[[Invocation], Hashable] = lambda invocation: invocation.context.owner,
        max_clients: int = 10_000,
    ) -> None:
        owner = type(self).__name__
        check_positive(owner, max_requests_per_second=max_requests_per_second, max_clients=max_clients)
        if burst_capacity is not None:
            check_positive(owner, burst_capacity=burst_capacity)
        check_plain(f"{owner}: ", "get_client_id", get_client_id)
        self._rate = max_requests_per_second
        self._capacity = max(1.0, 2 * self._rate if burst_capacity is None else burst_capacity)
        self._client_of = get_client_id
        self._max_clients = max_clients
        # When each client's bucket is full again: all that has to be known of it. Who was away for longest is first.
        self._full_at: PerRun[OrderedDict[Hashable, float]] = PerRun(OrderedDict)

    async def __call__(self, invocation: Invocation, call_next: CallNext) -> Any:
        """Call, or refuse; see `mcpbus.Middleware`."""
        client, now, buckets = self._client_of(invocation), trio.current_time(), self._full_at.get()
        full_at = max(buckets.get(client, now), now) + 1 / self._rate
        wait = full_at - now - self._capacity / self._rate
        if wait > _ROUNDING:
            raise refusal(
                invocation,
                f"Too many calls: at most {self._rate:g} in a second; try again in {wait:.1f} s",
            )
        buckets[client] = full_at
        buckets.move_to_end(client)
        if len(buckets) > self._max_clients:
            buckets.popitem(last=False)
        return await call_next(invocation)


_ROUNDING = 1e-9
"""Seconds by which sums of floats may be off."""
