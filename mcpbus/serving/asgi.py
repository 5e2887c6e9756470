"""The ASGI 3.0 types that serving speaks, and what it asks of an application beyond them."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Protocol, runtime_checkable

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]


@runtime_checkable
class Drainable(Protocol):
    """An application that can be told of a shutdown before it is cancelled."""

    async def drain(self, seconds: float, /) -> None:
        """Refuse new work, end open streams, let requests finish for at most `seconds`, cancel the rest."""
