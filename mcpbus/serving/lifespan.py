"""The ASGI lifespan: what an application does before its first and after its last request.

hypercorn has its own, which serves on when the lifespan has died under running requests, and stumbles over an
application that returns from it at once.
"""

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Literal

import trio
from mcpbus_actors import split_failure

from mcpbus.serving.asgi import AsgiApp, Message
from mcpbus.serving.errors import LifespanError

_logger = logging.getLogger("mcpbus.serving")

_SECONDS = 60.0

_Phase = Literal["startup", "shutdown"]


@asynccontextmanager
async def lifespan(app: AsgiApp) -> AsyncGenerator[dict[str, object]]:
    """Run the application's lifespan around the block; gives the state that each request's scope starts from.

    An application that raises before its start is complete, or returns, has no lifespan (the ASGI specification wants
    it served all the same). An exception that it raises later ends the block.

    Raises:
        LifespanError: It said that its start or its stop failed, or raised in its stop, or took more than a minute.
    """
    life = _LifespanTask(app)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(life.run)
        if await life.reach("startup"):
            yield life.state
            await life.reach("shutdown")
        nursery.cancel_scope.cancel()
    if life.failure is not None:
        raise life.failure


class _LifespanTask:
    def __init__(self, app: AsgiApp) -> None:
        self._app = app
        self._received: set[_Phase] = set()
        self._asked = {"startup": trio.Event(), "shutdown": trio.Event()}
        self._done = {"startup": trio.Event(), "shutdown": trio.Event()}
        self.state: dict[str, object] = {}
        self.failure: LifespanError | None = None

    async def run(self) -> None:
        scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": self.state}
        try:
            await self._app(scope, self._receive, self._send)
        except Exception as error:
            if self.failure is not None:
                return  # it has said so already
            if self._asked["shutdown"].is_set():
                self.failure = LifespanError(
                    f"the application's shutdown raised {type(error).__name__}: {error}"
                )
                self.failure.__cause__ = error
            elif self._done["startup"].is_set():
                raise
            elif self._received:
                _logger.warning(
                    "the application raised in its lifespan; it is served without one", exc_info=error
                )
        except trio.Cancelled as error:
            if split_failure(error)[1] is not None:
                raise
            # The nursery that this runs in would take it for its own, and end all that is served, without a word.
            raise LifespanError(f"the application's lifespan raised {error!r}, which it has kept") from error
        finally:
            for done in self._done.values():
                done.set()

    async def reach(self, phase: _Phase) -> bool:
        """Let the application do this part of its life; whether nothing failed."""
        self._asked[phase].set()
        with trio.move_on_after(_SECONDS) as limit:
            await self._done[phase].wait()
        if limit.cancelled_caught:
            self.failure = LifespanError(f"the application's {phase} took more than {_SECONDS:g} s")
        return self.failure is None

    async def _receive(self) -> Message:
        for phase in ("startup", "shutdown"):
            if phase not in self._received:
                await self._asked[phase].wait()
                self._received.add(phase)
                return {"type": f"lifespan.{phase}"}
        await trio.sleep_forever()
        raise AssertionError

    async def _send(self, message: Message) -> None:
        _, phase, outcome = message["type"].split(".")
        if outcome == "failed":
            self.failure = LifespanError(f"the application's {phase} failed: {message.get('message', '')}")
        self._done[phase].set()
