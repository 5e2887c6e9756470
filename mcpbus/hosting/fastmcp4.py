"""The two places in which FastMCP 4 looks past the kernel of the SDK: the name of its transport, and `ctx.elicit` in revision 2026-07-28."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, Final

from mcpbus.protocol.routes import TransportKind

_log = logging.getLogger("mcpbus")

_hosted: Final = ContextVar("mcpbus hosted call", default=False)
"""Whether the code that runs belongs to a call that mcpbus hosts."""
_eliciting: Final = ContextVar("mcpbus hosted elicitation", default=False)
"""Whether it is within `ctx.elicit` of such a call."""

_WRAPPED: Final = "_mcpbus_wrapped"


def prepare() -> None:
    """Let `ctx.elicit` reach clients of 2026-07-28 in calls that mcpbus hosts, and nowhere else.

    FastMCP refuses an elicitation in that revision before it sends anything, since its own transports have no way to send
    it. The change has no effect in calls on its own transports. A release without these names loses this alone, which is logged.
    """
    from fastmcp.server import context  # noqa: PLC0415 - there is one where a FastMCP was made

    kind: Any = context.Context
    if getattr(kind, _WRAPPED, False):
        return
    elicit, is_modern = getattr(kind, "elicit", None), getattr(kind, "_is_modern_protocol", None)
    if elicit is None or is_modern is None:
        _log.warning(
            "this release of FastMCP has no Context._is_modern_protocol: ctx.elicit reaches no client of 2026-07-28"
        )
        return

    @wraps(elicit)
    async def elicit_hosted(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not _hosted.get():
            return await elicit(self, *args, **kwargs)
        token = _eliciting.set(True)
        try:
            return await elicit(self, *args, **kwargs)
        finally:
            _eliciting.reset(token)

    @wraps(is_modern)
    def is_modern_hosted(self: Any) -> bool:
        return not _eliciting.get() and bool(is_modern(self))

    kind.elicit, kind._is_modern_protocol = elicit_hosted, is_modern_hosted  # noqa: SLF001 - see above
    setattr(kind, _WRAPPED, True)


@contextmanager
def hosted_call(transport: TransportKind) -> Iterator[None]:
    """Mark the block as a hosted call over this transport, whose name `ctx.transport` returns."""
    from fastmcp.server.context import reset_transport, set_transport  # noqa: PLC0415 - as above

    name = set_transport("stdio" if transport is TransportKind.DUPLEX else "streamable-http")
    hosted = _hosted.set(True)
    try:
        yield
    finally:
        _hosted.reset(hosted)
        reset_transport(name)
