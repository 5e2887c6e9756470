"""Questions to an issuer that several want answered at the same time, and that are put once."""

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import trio

from mcpbus.auth.verifier import VerifierUnavailableError

T = TypeVar("T")


class IntrospectionCall(Generic[T]):
    """A question that is being put; whoever waits for its answer may leave, and the others get it. With the last one it is given up.

    Args:
        put: Puts it, and returns the answer.
        name: What it is about, for who looks at trio's tasks.

    Attributes:
        waiting: How many wait for its answer.
    """

    def __init__(self, put: Callable[[], Awaitable[T]], name: str) -> None:
        self.waiting = 0
        self._ended = trio.Event()
        self._scope = trio.CancelScope()
        self._answer: T | VerifierUnavailableError
        trio.lowlevel.spawn_system_task(self._run, put, name=name)

    async def _run(self, put: Callable[[], Awaitable[T]]) -> None:
        try:
            with self._scope:
                self._answer = await put()
        except VerifierUnavailableError as failure:
            self._answer = failure
        except Exception as failure:  # noqa: BLE001 - it ends all of trio otherwise
            self._answer = VerifierUnavailableError(f"asking failed: {failure!r}")
        finally:
            self._ended.set()

    async def answer(self) -> T:
        """Wait for the answer.

        Raises:
            VerifierUnavailableError: There is none.
        """
        self.waiting += 1
        try:
            await self._ended.wait()
        finally:
            self.waiting -= 1
            if not self.waiting:
                self._scope.cancel()  # does nothing once there is an answer
        if isinstance(self._answer, VerifierUnavailableError):
            # Each who waits has one of their own, which tells of their own way only.
            raise VerifierUnavailableError(str(self._answer), self._answer.retry_after)
        return self._answer
