"""What an ASGI server has passed on already: taking it is no wait, so nothing has to bound one."""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import trio

T = TypeVar("T")
"""Messages of ASGI."""

_RECEIVE: Final = trio.MemoryReceiveChannel.receive


def arrived_in(receive: Callable[[], Awaitable[T]]) -> trio.MemoryReceiveChannel[T] | None:
    """Return the channel that the messages come in, of which one that is there can be taken; None where nobody can tell.

    Args:
        receive: What the server handed in. With hypercorn on trio it is the method of a memory channel, unless something wraps it.
    """
    if getattr(receive, "__func__", None) is not _RECEIVE:
        return None
    channel: trio.MemoryReceiveChannel[T] = receive.__self__  # type: ignore[attr-defined]
    return channel
