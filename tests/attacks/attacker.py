"""The attacker: connections that send exactly what an attack needs, in a loop or once."""

import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import trio

sys.path.append(str(Path(__file__).parents[1] / "e2e"))

import test_memory_attacks as memory
from test_memory_attacks import encoded, modern, post
from wire import LEGACY, call, initialize, message

__all__ = [
    "LEGACY",
    "SECONDS",
    "Attacker",
    "call",
    "encoded",
    "flooding",
    "initialize",
    "memory",
    "message",
    "modern",
    "post",
    "request",
]

SECONDS = 4.0
"""For how long an attack goes on that has no end of its own."""


class Attacker(memory.Attacker):
    """An attacker of one server.

    Args:
        port: The port of the server.
        nursery: Where its tasks run.
        go: The file at whose appearance a hostile upstream server attacks.
    """

    def __init__(self, port: int, nursery: trio.Nursery, go: Path) -> None:
        super().__init__(port, nursery)
        self._go = go

    def go(self) -> None:
        """Let the upstream server attack."""
        self._go.touch()

    async def repeat(
        self, tasks: int, once: Callable[[], Awaitable[object]], seconds: float = SECONDS
    ) -> None:
        """Do something again and again in so many tasks at once, each time on new connections."""

        async def go_on() -> None:
            while True:
                with suppress(OSError, trio.BrokenResourceError, trio.ClosedResourceError, AssertionError):
                    await once()
                await trio.lowlevel.checkpoint()

        with trio.move_on_after(seconds):
            async with trio.open_nursery() as nursery:
                for _ in range(tasks):
                    nursery.start_soon(go_on)

    async def exchange(self, *pieces: bytes, wait: float = 2.0) -> bytes:
        """Send bytes on a new connection, and return what comes until the server closes it or falls silent."""
        answer = b""
        async with (
            await trio.open_tcp_stream("127.0.0.1", self._port) as stream,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(self._send, stream, *pieces)
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                while True:
                    with trio.move_on_after(wait) as patience:
                        data = await stream.receive_some()
                    if patience.cancelled_caught or not data:
                        break
                    answer = (answer + data)[-65536:]
            nursery.cancel_scope.cancel()
        return answer

    async def flood(
        self, *pieces: bytes, tasks: int = 10, seconds: float = SECONDS, wait: float = 0.5
    ) -> None:
        """Send the same again and again, on new connections."""
        await self.repeat(tasks, lambda: self.exchange(*pieces, wait=wait), seconds)

    async def call(self, tool: str, arguments: object = None, *, wait: float = 5.0, **options: Any) -> bytes:
        """Call a tool over a new connection."""
        return await self.exchange(request(tool, arguments, **options), wait=wait)


def request(
    tool: str,
    arguments: object = None,
    *,
    headers: Mapping[str, str] | None = None,
    meta: Mapping[str, Any] | None = None,
    **options: Any,
) -> bytes:
    """A call in a request of its own, whose connection ends with it."""
    body, mirrored = modern("tools/call", {"name": tool, "arguments": arguments or {}}, name=tool, **options)
    body["params"]["_meta"] |= meta or {}
    return post(encoded(body), {**mirrored, "connection": "close", **(headers or {})})


def flooding(*pieces: bytes, **options: Any) -> Callable[[Attacker], Awaitable[None]]:
    """An attack that sends the same again and again, see `Attacker.flood`."""

    async def attack(attacker: Attacker) -> None:
        await attacker.flood(*pieces, **options)

    return attack
