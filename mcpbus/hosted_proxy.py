"""A hosted server as a part of another server: a proxy for it in the same process."""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from mcpbus.bus import Bus
from mcpbus.client.client import Client
from mcpbus.proxy import Proxy

_log = logging.getLogger("mcpbus")


class HostedProxy(Proxy):
    """A proxy for a hosted server, which is open as long as the proxy is. Made by `Hosted.as_server`.

    Args:
        name: The name of the hosted server.
        open_bus: Opens it, as `Hosted.open`.
        checks_tokens: Whether it lets in only clients with a token. No token reaches it here, and the log warns of that.
        **options: As for `Proxy`.
    """

    def __init__(
        self,
        name: str,
        open_bus: Callable[[], AbstractAsyncContextManager[Bus[Any]]],
        *,
        checks_tokens: bool,
        **options: Any,
    ) -> None:
        super().__init__(self._connect, name=name, **options)
        self._open_bus = open_bus
        self._checks_tokens = checks_tokens
        self._bus: Bus[Any] | None = None

    @asynccontextmanager
    async def live(self) -> AsyncIterator[None]:
        """Open the hosted server, and be connected to it, for as long as the block lasts."""
        if self._checks_tokens:
            _log.warning(
                "%r checks tokens, and none reaches it within another server: each client of that may call it",
                self.name,
            )
        async with self._open_bus() as bus:
            self._bus = bus
            try:
                async with super().live():
                    yield
            finally:
                self._bus = None

    def _connect(self, **options: Any) -> AbstractAsyncContextManager[Client]:
        assert self._bus is not None  # noqa: S101 - it is live
        return self._bus.connect(**options)
