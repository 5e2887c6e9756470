"""A nursery for the background work of a context manager."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio


@asynccontextmanager
async def background() -> AsyncIterator[trio.Nursery]:
    """Open a nursery whose block raises what it raises, not a group around it.

    What the background raises still comes in a group. When the block raises, the background is cancelled.
    """
    raised: Exception | None = None
    async with trio.open_nursery() as nursery:
        try:
            yield nursery
        except Exception as error:  # noqa: BLE001 - raised again below
            raised = error
            nursery.cancel_scope.cancel()
    if raised is not None:
        raise raised


async def cancel_at(event: trio.Event, scope: trio.CancelScope) -> None:
    """Cancel a scope once something has happened."""
    await event.wait()
    scope.cancel()
