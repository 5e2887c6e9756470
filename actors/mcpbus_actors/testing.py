"""What tests of actors need; it works under ``trio.testing.MockClock`` and never waits in real time.

```python
async def test_sensor_reports(autojump_clock):
    async with actors.open_system() as system:
        probe = Probe(system)
        system.spawn(Sensor, probe.address)
        reading = await probe.expect(Reading, timeout=5.0)
```
"""

from collections import deque
from typing import Any, TypeVar

import trio
import trio.testing

from mcpbus_actors._address import Address
from mcpbus_actors._context import ActorContext
from mcpbus_actors._mailbox import CAPACITY
from mcpbus_actors._messages import StopReason
from mcpbus_actors.system import ActorSystem

T = TypeVar("T")


class Probe:
    """An actor that keeps what it is told, for a test to look at.

    Attributes:
        address: What to hand to the actors under test.
        messages: Everything it was told so far, in order.
    """

    def __init__(self, system: ActorSystem, *, name: str | None = None, capacity: int = CAPACITY) -> None:
        self.messages: list[Any] = []
        self._system = system
        self._unseen: deque[Any] = deque()
        self._told = trio.Event()
        self._cell: ActorContext[Any]
        self.address: Address[Any] = system.spawn(self._start, name=name, capacity=capacity)

    def _start(self, cell: ActorContext[Any]) -> "Probe":
        self._cell = cell
        return self

    def handle(self, message: Any) -> None:
        """Keep a message."""
        self.messages.append(message)
        self._unseen.append(message)
        self._told.set()

    async def expect(self, kind: type[T], timeout: float = 1.0) -> T:  # noqa: ASYNC109 - a bound of the wish
        """Return the next message, waiting for it if there is none, and insist on its type.

        Args:
            kind: The type it must have.
            timeout: Seconds to wait at most.

        Raises:
            AssertionError: It has another type, or none came in time.
        """
        with trio.move_on_after(timeout):
            while not self._unseen:
                self._told = trio.Event()
                await self._told.wait()
        if not self._unseen:
            raise AssertionError(f"no {kind.__name__} within {timeout} s; so far: {self.messages!r}")
        message = self._unseen.popleft()
        if not isinstance(message, kind):
            raise AssertionError(f"{message!r} is not a {kind.__name__}")  # noqa: TRY004 - a test fails
        return message

    async def expect_nothing(self, seconds: float = 0.0) -> None:
        """Wait until the world is quiet and so many seconds have passed; insist that nothing was told.

        Raises:
            AssertionError: Something was.
        """
        await trio.sleep(seconds)
        await wait_until_idle(self._system)
        if self._unseen:
            raise AssertionError(f"expected nothing, was told {list(self._unseen)!r}")

    def watch(self, address: Address[Any]) -> None:
        """Have the probe told ``Stopped`` when an actor ends."""
        self._cell.watch(address)

    def stop(self, reason: StopReason | None = None) -> None:
        """End the probe."""
        self._cell.stop(reason)


async def wait_until_idle(system: ActorSystem) -> None:
    """Wait until the system is quiet: nothing queued, and every task of the run blocked.

    Time does not pass meanwhile: what sleeps counts as blocked.
    """
    await trio.testing.wait_all_tasks_blocked()
    while system.dispatcher.busy:
        await trio.testing.wait_all_tasks_blocked()
