"""The links of a process to the others: dialled where one is needed, accepted from whoever has the key, and forgotten once lost."""

import logging
from typing import Final, Protocol

import trio

from mcpbus.cluster.directory import Cluster
from mcpbus.cluster.link import LOST, Link, LinkHandler
from mcpbus.cluster.link_handshake import LinkReader, greet
from mcpbus.cluster.messages import OtherVersionError
from mcpbus.core.admission import ServerOverloaded
from mcpbus.core.limit_monitor import RateLimitedLogger

_log = logging.getLogger("mcpbus")

_GREET_SECONDS: Final = 5.0
"""How long it may take to connect, and to greet."""
_PAUSE_SECONDS: Final = 0.05
_LONGEST_PAUSE: Final = 0.5
"""Between two attempts at that: each pause is twice the last one."""
_MOST_STRANGERS: Final = 64
"""Connections at once that have not been greeted."""


class LinkedService(LinkHandler, Protocol):
    """Who serves what comes over links, and hears of them."""

    def on_linked(self, link: Link, /) -> None:
        """Take note of a new link."""

    def on_link_lost(self, link: Link, /) -> None:
        """Take note that a link is lost."""


class LinkPool:
    """The links of one process.

    Args:
        cluster: Who may be linked, and where they are.
        nursery: Where links run that are dialled.
        service: Serves what comes over them.
        complaints: Where it is told why somebody cannot be linked.

    Attributes:
        by_home: All of them, by the process at the other end.
        closed: Whether no more are accepted.
    """

    def __init__(
        self, cluster: Cluster, nursery: trio.Nursery, service: LinkedService, complaints: RateLimitedLogger
    ) -> None:
        self._cluster = cluster
        self._nursery = nursery
        self._service = service
        self._complaints = complaints
        self.by_home: dict[str, list[Link]] = {}
        self.closed = False
        self._ended = False
        self._dials: dict[str, _Dial] = {}
        self._strangers = 0

    def find(self, home: str) -> Link | None:
        """Return the link to a process, if there is one now."""
        for link in self.by_home.get(home, ()):
            if not link.closed:
                return link
        return None

    async def reach(self, home: str) -> Link | None:
        """Return a link to a process; None if it has ended.

        Raises:
            ServerOverloaded: It may be there, and cannot be reached.
        """
        await trio.lowlevel.checkpoint()
        link = self.find(home)
        if link is not None:
            return link
        dial = self._dials.get(home)
        if dial is None:
            if self._ended:
                raise unreachable()
            dial = self._dials[home] = _Dial()
            self._nursery.start_soon(self._run_dialled, home, dial)
        await dial.done.wait()
        if dial.link is None and not dial.ended:
            raise dial.refused or unreachable()
        return dial.link

    async def leave(self) -> None:
        """End all links in order: what still comes over them is asked elsewhere."""
        self.closed = True
        async with trio.open_nursery() as nursery:
            for links in self.by_home.values():
                for link in links:
                    nursery.start_soon(link.close_gracefully)

    def end(self) -> None:
        """Dial nobody from now on: where links run has ended."""
        self._ended = True

    async def _run_dialled(self, home: str, dial: "_Dial") -> None:
        try:
            with trio.move_on_after(self._cluster.patience):
                pause = _PAUSE_SECONDS
                while not await self._try_to_dial(home, dial):
                    await trio.sleep(pause)
                    pause = min(2 * pause, _LONGEST_PAUSE)
        finally:
            del self._dials[home]
            dial.done.set()
        if dial.link is not None:
            await self._run(dial.link)

    async def _try_to_dial(self, home: str, dial: "_Dial") -> bool:
        """Connect to a process; return whether there is nothing more to be tried."""
        try:
            with trio.fail_after(_GREET_SECONDS):
                stream = await self._cluster.directory.dial(home)
                if stream is None:
                    dial.ended = True
                else:
                    dial.link = await self._greet(stream, home)
        except OtherVersionError as why:
            self._complaints.warn("sessions, calls and tasks of another process cannot be asked for: %s", why)
            dial.refused = ServerOverloaded(
                "The process that has this session, call or task is of another version"
            )
        except ServerOverloaded as why:
            dial.refused = why
        except (*LOST, trio.TooSlowError) as why:  # it may be about to end
            _log.info("process %s cannot be reached: %s", home, why)
            return False
        return True

    async def accept(self, stream: trio.abc.Stream) -> None:
        """Serve a connection to here."""
        link = None
        if self._strangers < _MOST_STRANGERS and not self.closed:
            self._strangers += 1
            try:
                with trio.move_on_after(_GREET_SECONDS):
                    link = await self._greet(stream, None)
            except Exception as why:  # noqa: BLE001 - whatever a stranger says ends their connection alone
                self._complaints.warn("a connection from no process of this server was closed: %s", why)
            finally:
                self._strangers -= 1
        if link is None:
            await trio.aclose_forcefully(stream)
        else:
            await self._run(link)

    async def _greet(self, stream: trio.abc.Stream, dialled: str | None) -> Link:
        """Make a link of a connection."""
        try:
            incoming = LinkReader(stream)
            home = await greet(stream, incoming, self._cluster.keys, self._cluster.home, dialled)
        except BaseException:
            await trio.aclose_forcefully(stream)
            raise
        silence = self._cluster.silence
        link = Link(incoming, home, self._service, dialled=dialled is not None, silence=silence)
        self.by_home.setdefault(home, []).append(link)
        self._service.on_linked(link)
        return link

    async def _run(self, link: Link) -> None:
        try:
            await link.run()
        except* LOST as why:
            said = "; ".join(str(each) or repr(each) for each in why.exceptions)
            _log.info("the link to process %s has ended: %s", link.home, said)
        finally:
            links = self.by_home[link.home]
            links.remove(link)
            if not links:
                del self.by_home[link.home]
        self._service.on_link_lost(link)


class _Dial:
    """An attempt to reach a process.

    Attributes:
        done: Set when it is over.
        link: What came of it.
        ended: Whether nobody is there any more.
        refused: Why it was not tried for longer.
    """

    def __init__(self) -> None:
        self.done = trio.Event()
        self.link: Link | None = None
        self.ended = False
        self.refused: ServerOverloaded | None = None


def unreachable() -> ServerOverloaded:
    """Return why a request is not served whose process cannot be reached."""
    return ServerOverloaded("The process that has this session, call or task cannot be reached")
