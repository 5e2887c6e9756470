"""What became of changes in the other processes, for who wants to know: each keeps for a while what it was told by the others.

Nothing more is sent for that than a number with each change, unless somebody asks.
"""

from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol

import trio

from mcpbus.cluster.link import Link
from mcpbus.cluster.messages import Fates, FrameKind, decode_fates, decode_number, encode
from mcpbus.cluster.session_sender import fate_of
from mcpbus.core.admission import ServerOverloaded
from mcpbus.core.receipt import Broadcast, Fate
from mcpbus.protocol.routes import Reason

_MOST_KEPT: Final = 10_000
"""How many changes of others are remembered, each with its receipts."""
_ATTEMPTS: Final = 5
"""How often a process is asked when a link to it is lost."""
_PAUSE_SECONDS: Final = 0.05
"""Before it is asked once more what it does not know yet; each pause is twice the last one."""
_UNREACHABLE: Final = Fate.discarded(Reason.UNREACHABLE)
_UNKNOWN: Final[Mapping[Fate, int]] = {_UNREACHABLE: 1}


class ChangePeers(Protocol):
    """Leads to the other processes that serve as one; see `mcpbus.cluster.node.Node`."""

    async def reach(self, home: str, /) -> Link | None:
        """Return a link to a process; None if it has ended."""

    def start(self, function: Callable[..., Awaitable[object]], /, *args: Any) -> None:
        """Run a task until this process ends."""


class ChangeFates:
    """The changes that this process tells the others, and those that they tell it.

    Args:
        others: Leads to them.
    """

    def __init__(self, others: ChangePeers) -> None:
        self._others = others
        self._last = 0
        self._kept: OrderedDict[tuple[str, int], Broadcast] = OrderedDict()
        self._held = 0

    def next_number(self) -> int:
        """Return a number for a change of this process, which none before it had."""
        self._last += 1
        return self._last

    def keep(self, home: str, number: int, broadcast: Broadcast) -> None:
        """Remember for a while what another process has told this one."""
        self._kept[home, number] = broadcast
        self._held += 1 + len(broadcast)
        while self._held > _MOST_KEPT:
            _, oldest = self._kept.popitem(last=False)
            self._held -= 1 + len(oldest)

    def elsewhere(self, number: int, told: Mapping[str, Link], untold: int) -> "RemoteChangeFates":
        """Return what tells the fates of a change of this process.

        Args:
            number: The change.
            told: The processes that were told, and over which links.
            untold: How many others could not be.
        """
        return RemoteChangeFates(self._others, number, told, untold)

    def asked(self, link: Link, channel: int, payload: bytes) -> None:
        """See `mcpbus.cluster.link.LinkHandler`."""
        broadcast = self._kept.get((link.home, decode_number(payload)))
        if broadcast is None:
            link.send(FrameKind.FATES, channel, encode(Fates([])))
        else:
            answer = _FateReplyChannel(link, channel, broadcast)
            link.enter(channel, answer)
            self._others.start(answer.run)


class _FateReplyChannel:
    """Tells what became of all copies, once it is known, or nobody asks any more; a `mcpbus.cluster.link.LinkChannel`."""

    def __init__(self, link: Link, channel: int, broadcast: Broadcast) -> None:
        self._link = link
        self._channel = channel
        self._broadcast = broadcast
        self._asked = trio.CancelScope()

    async def run(self) -> None:
        """Wait, and tell it."""
        with self._asked:
            fates = await self._broadcast.settled()
            said = [
                (f.kind.value, None if f.reason is None else f.reason.value, n) for f, n in fates.items() if f
            ]
            self._link.send(FrameKind.FATES, self._channel, encode(Fates(said, known=True)))
        self._link.leave(self._channel)

    def take(self, kind: int, _payload: bytes) -> None:
        """See `LinkChannel`."""
        if kind == FrameKind.GONE:
            self._asked.cancel()

    def lose(self) -> None:
        """See `LinkChannel`."""
        self._asked.cancel()


class RemoteChangeFates:
    """The fates of a change in the other processes; see `mcpbus.core.receipt.RemoteFates`."""

    def __init__(self, others: ChangePeers, number: int, told: Mapping[str, Link], untold: int) -> None:
        self._others = others
        self._number = number
        self._told = told
        self._untold = untold

    async def settled(self) -> Mapping[Fate, int]:
        """See `mcpbus.core.receipt.RemoteFates`."""
        counts = Counter({_UNREACHABLE: self._untold} if self._untold else {})

        async def ask(home: str, over: Link) -> None:
            counts.update(await self._ask(home, over))

        async with trio.open_nursery() as nursery:
            for home, over in self._told.items():
                nursery.start_soon(ask, home, over)
        return counts

    async def _ask(self, home: str, over: Link) -> Mapping[Fate, int]:
        for attempt in range(_ATTEMPTS):
            try:
                link = await self._others.reach(home)
            except ServerOverloaded:
                link = None
            if link is None:
                break
            told = await _Question(link, self._number).answered()
            if told is not None and told.known:
                return _count(told)
            if told is not None:
                if link is over:
                    break  # it was told before it was asked, and has forgotten it
                # What was said over a link that was lost may be read later than what was said over the next one.
                await trio.sleep(_PAUSE_SECONDS * 2**attempt)
        return _UNKNOWN


def _count(told: Fates) -> Mapping[Fate, int]:
    """Return how many copies have which fate; all that are not known here are one."""
    counts: Counter[Fate] = Counter()
    for verdict, reason, number in told.fates:
        counts[fate_of(verdict, reason)] += number
    return counts


class _Question:
    """Asks a process for the fates of a change; a `mcpbus.cluster.link.LinkChannel`."""

    def __init__(self, link: Link, number: int) -> None:
        self._done = trio.Event()
        self._told: Fates | None = None
        self._link = link
        self._channel = link.open(self, encode(number), FrameKind.ASK)
        if link.closed:
            self.lose()

    async def answered(self) -> Fates | None:
        """Return what it says; None if the link was lost before."""
        try:
            await self._done.wait()
        finally:
            if not self._done.is_set():
                self._link.send(FrameKind.GONE, self._channel)
            self._link.leave(self._channel)
        return self._told

    def take(self, kind: int, payload: bytes) -> None:
        """See `LinkChannel`."""
        if kind == FrameKind.FATES:
            self._told = decode_fates(payload)
        self._done.set()

    def lose(self) -> None:
        """See `LinkChannel`."""
        self._done.set()
