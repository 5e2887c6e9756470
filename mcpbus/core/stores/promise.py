"""How a store tells of the end of what it was asked for, without a task that waits for it."""

from collections.abc import Callable, Generator
from functools import partial
from typing import Any

import attrs
import trio


@attrs.define(eq=False)
class Promise:
    """What a store does that was asked to keep something. To be awaited; or to be heard of, by one at most.

    Attributes:
        ended: Whether it has ended.
        result: What came of it.
        error: What was raised, if anything was.
        told: Called in trio's thread when it ends, if it has not.
    """

    ended: bool = False
    result: Any = None
    error: BaseException | None = None
    told: Callable[[], object] | None = None

    def end(self) -> None:
        """Say that it has ended. In trio's thread."""
        self.ended = True
        told, self.told = self.told, None
        if told is not None:
            told()

    def withdraw(self) -> None:
        """Take note that nobody wants to hear of it any more."""
        self.told = None

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._wait().__await__()

    async def _wait(self) -> Any:
        if self.ended:
            await trio.lowlevel.checkpoint()
        else:
            self.told = partial(trio.lowlevel.reschedule, trio.lowlevel.current_task())
            await trio.lowlevel.wait_task_rescheduled(self._abort)
        if self.error is not None:
            raise self.error
        return self.result

    def _abort(self, _: object) -> trio.lowlevel.Abort:
        self.withdraw()
        return trio.lowlevel.Abort.SUCCEEDED
