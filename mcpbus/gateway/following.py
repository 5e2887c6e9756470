"""A gateway that follows the changes of its file while it is open."""

import logging
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs
import trio

from mcpbus.core.concurrency import background
from mcpbus.gateway.entry import Entry
from mcpbus.proxy import Proxy
from mcpbus.server import Lifespan, Server, enter_lifespan

_log = logging.getLogger("mcpbus")

_LOOK_SECONDS: Final = 1.0
"""How often to see whether the file has changed. Editors replace files in many ways, and a poll sees all of them."""

_Stamps: TypeAlias = Mapping[Path, object]
"""What tells a version of each file from another one."""


@attrs.define(eq=False)
class _GatewayServer:
    """One server in the gateway.

    Attributes:
        entry: Its entry.
        leave: Set once it is to go.
        gone: Set once nothing of it is offered any more.
    """

    entry: Entry
    leave: trio.Event = attrs.Factory(trio.Event)
    gone: trio.Event = attrs.Factory(trio.Event)


class Following:
    """The servers of a file, each in the gateway for as long as the file has its entry as it is.

    Args:
        file: The file.
        read: Reads its entries, by their prefixes.
        make: Makes what stands for one server.
        lifespan: The gateway's own, around all this.
    """

    def __init__(
        self,
        file: str | os.PathLike[str],
        read: Callable[[], Mapping[str, Entry]],
        make: Callable[[Entry], Proxy],
        lifespan: Lifespan[Any] | None,
    ) -> None:
        self._file = Path(file)
        self._read = read
        self._make = make
        self._lifespan = lifespan
        self._held: dict[str, _GatewayServer] = {}

    @asynccontextmanager
    async def lifespan(self, server: Server[Any]) -> AsyncIterator[Any]:
        """Keep the servers of the file in a gateway, for as long as the block lasts.

        Raises:
            ValueError: The file cannot be used.
            OSError: It cannot be read.
        """
        seen = self._stamps()
        for prefix, entry in self._read().items():
            self._held[prefix] = _GatewayServer(entry)
        try:
            async with enter_lifespan(self._lifespan, server) as state, background() as nursery:
                for prefix, held in self._held.items():
                    await nursery.start(self._hold, server, prefix, held, self._make(held.entry))
                nursery.start_soon(self._follow, server, nursery, seen)
                yield state
                nursery.cancel_scope.cancel()
        finally:
            self._held.clear()

    async def _follow(self, server: Server[Any], nursery: trio.Nursery, seen: _Stamps) -> None:
        while True:
            await trio.sleep(_LOOK_SECONDS)
            now = self._stamps()
            if now != seen and _is_open(server):
                seen = now
                self._change(server, nursery)

    def _change(self, server: Server[Any], nursery: trio.Nursery) -> None:
        """Take what the file has now. Where that cannot be used, everything stays as it is, and the log says why."""
        try:
            entries = self._read()
            made = {
                prefix: self._make(entry)
                for prefix, entry in entries.items()
                if prefix not in self._held or self._held[prefix].entry != entry
            }
        except (OSError, ValueError) as fault:
            _log.error("the changes of %s are not followed: %s", self._file, fault)
            return
        leaving = [prefix for prefix in self._held if prefix not in entries or prefix in made]
        before = [self._held.pop(prefix) for prefix in leaving]
        for held in before:
            held.leave.set()
        for prefix, proxy in made.items():
            held = self._held[prefix] = _GatewayServer(entries[prefix])
            nursery.start_soon(self._replace, server, prefix, before, held, proxy)

    async def _replace(
        self,
        server: Server[Any],
        prefix: str,
        before: list[_GatewayServer],
        held: _GatewayServer,
        proxy: Proxy,
    ) -> None:
        """Hold a server that came into the file, or whose entry has changed, once those that leave are gone: a name may become its own."""
        for each in before:
            await each.gone.wait()
        try:
            await self._hold(server, prefix, held, proxy, is_open=True)
        except Exception as error:  # noqa: BLE001 - the other servers go on
            _log.error("server %r of %s is not offered: %s", held.entry.name, self._file, error)
            held.gone.set()
            if self._held.get(prefix) is held:
                del self._held[prefix]

    async def _hold(
        self,
        server: Server[Any],
        prefix: str,
        held: _GatewayServer,
        proxy: Proxy,
        *,
        is_open: bool = False,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Offer one server until it is to go. Its calls in flight end before its connections do."""
        async with server.mounting(proxy, prefix=prefix) as detach:
            task_status.started()
            if is_open:  # else whoever opens the gateway waits for all of them
                _log.info("server %r of %s is added", held.entry.name, self._file)
                await proxy.ready()
            await held.leave.wait()
            detach()
            held.gone.set()
            _log.info("server %r of %s is removed", held.entry.name, self._file)

    def _stamps(self) -> _Stamps:
        files = {self._file, *(held.entry.env_file for held in self._held.values())}
        return {file: _stamp(file) for file in files if file is not None}


def _stamp(file: Path) -> object:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _is_open(server: Server[Any]) -> bool:
    try:
        return server.bus is not None
    except RuntimeError:
        return False
