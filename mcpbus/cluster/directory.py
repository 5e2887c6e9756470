"""Who else serves and how to reach them, and what is kept of sessions for the time when a process has ended.

Who has a session is settled by epochs: each process that takes a session over has the next one, every write carries it, and one of
an earlier epoch is refused. So a process that was away for a while cannot harm what another one has meanwhile.

Why a process cannot serve together with others: always something that whoever started it can change.

For how long the processes of a directory have been gone.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final, Protocol, TypeAlias

import attrs
import trio

from mcpbus.cluster.signed_ids import new_home
from mcpbus.core.admission import ServerOverloaded
from mcpbus.core.lease import Lease

Accept: TypeAlias = Callable[[trio.abc.Stream], Awaitable[None]]

FIRST_EPOCH: Final = 1
_RELEASED: Final = "~"


def released_home(home: str) -> str:
    """Return the home of the sessions that a process has let go of: nobody listens there, so that whoever is asked next takes them over."""
    return f"{_RELEASED}{home}"


def is_released(home: str) -> bool:
    """Whether a home is such a one."""
    return home.startswith(_RELEASED)


def unreachable_directory() -> ServerOverloaded:
    """Return why nothing is done for which the directory has to be asked."""
    return ServerOverloaded("The directory of sessions cannot be reached; try again later")


class FencedError(Exception):
    """A write was refused: the session has gone, or another process has it."""


@attrs.frozen
class SessionClaim:
    """That a process has a session.

    Attributes:
        name: The session.
        home: The process.
        epoch: Higher each time that a process takes it over.
    """

    name: str
    home: str
    epoch: int = FIRST_EPOCH


@attrs.frozen
class StoredHeldMessage:
    """A message that waits for the client of a session.

    Attributes:
        data: What another process needs to send it.
        seconds: How long it is of use.
    """

    data: bytes
    seconds: float


@attrs.frozen
class StoredSession:
    """What is kept of a session.

    Attributes:
        ownership: Who has it, or had it when it ended.
        record: What is known of it.
        held: What waits for its client, by name.
    """

    ownership: SessionClaim
    record: bytes
    held: Mapping[str, StoredHeldMessage] = attrs.field(factory=dict)


class ClusterDirectory(Protocol):
    """Knows the processes that serve as one, each by its home, and their sessions.

    All but `listen` may raise an OSError: it could not be asked, or did not answer, and may have done it nevertheless. To ask for the
    same once more does no harm.
    """

    async def listen(
        self, home: str, accept: Accept, lease: Lease, *, task_status: trio.TaskStatus[None]
    ) -> None:
        """Enter a process, and call `accept` for each connection to it, in a task; until cancelled.

        Args:
            home: The process.
            accept: Serves a connection, to its end.
            lease: Extended as long as it is known that what the process has is given to nobody else; not at all where that is not given
                away while the process lives.
            task_status: Told once it can be dialled.
        """

    async def homes(self) -> Collection[str]:
        """Return the processes that may be there."""

    async def dial(self, home: str) -> trio.abc.Stream | None:
        """Connect to a process; None if it has ended.

        Raises:
            OSError: It cannot be reached, though it may be there.
            ServerOverloaded: Nor can it be known now where it is.
        """

    async def create(self, ownership: SessionClaim, record: bytes) -> None:
        """Keep what is known of a session that has begun.

        Raises:
            FencedError: Another process has taken it over.
        """

    async def update(self, ownership: SessionClaim, record: bytes) -> None:
        """Keep what is known of a session, in place of what was kept of it.

        Raises:
            FencedError: The process does not have it any more.
        """

    async def remove(self, ownership: SessionClaim) -> None:
        """Forget a session that has ended.

        Raises:
            FencedError: The process does not have it any more.
        """

    async def append_held(
        self, ownership: SessionClaim, held: Mapping[str, StoredHeldMessage], gone: Collection[str]
    ) -> None:
        """Keep messages that wait for the client of a session, and others no longer.

        Args:
            ownership: The session.
            held: Those to be kept, by name.
            gone: The names of the others; there may be none.

        Raises:
            FencedError: The process does not have it any more.
        """

    async def pop_held(self, ownership: SessionClaim, names: Collection[str]) -> None:
        """Keep messages that waited for the client of a session no longer; there may be none of these names.

        Raises:
            FencedError: The process does not have it any more.
        """

    async def release(self, ownerships: Sequence[SessionClaim]) -> None:
        """Let go of sessions of one process: each is at its `released_home` from now on, with the next epoch.

        Those that the process does not have any more are left alone: what was done already may be said once more.
        """

    async def get(self, name: str) -> StoredSession | None:
        """Return what is kept of a session; None if there is no such session."""

    async def claim(self, name: str, ended: str, home: str) -> StoredSession | None:
        """Give a session of a process that has ended to another one, unless somebody else was faster.

        Args:
            name: The session.
            ended: The process that has ended. A process may claim what is its own, of which it has nothing more.
            home: The process that is to have it.

        Returns:
            What is kept of it, with who has it now; None if there is no such session.
        """

    async def claim_round(self, name: str, user: str, seconds: float) -> bool:
        """Use up a round of a call, and return whether nobody had, or the same user.

        Args:
            name: The round.
            user: Names this use of it.
            seconds: For how long that has to be known.
        """

    async def maintain(self, sessions: Collection[SessionClaim], seconds: float) -> Collection[str]:
        """Have what is kept of sessions outlast the process by so many seconds.

        Called about once a second. What ended processes had, and nobody has come for, is forgotten.

        Args:
            sessions: Those that the process has.
            seconds: For how long a session may be idle.

        Returns:
            Those of which it is not sure any more that they are kept, and are the process's. To update one of them tells, or mends it.
        """


@attrs.frozen(kw_only=True)
class Cluster:
    """What makes one process a part of several that serve as one.

    Attributes:
        directory: Knows them all.
        keys: Secrets that nobody else has. The first one proves who made a name, and all of them are accepted, so that they can be
            exchanged one after the other.
        home: This one; a name that none before it had.
        patience: Seconds that it is tried to reach a process, which may be there and cannot be.
        silence: Seconds after which a process that says nothing over a link is not waited for any more.
        forget: Has the others know at once that a process has ended, given its home, by whoever has seen it end; None where all see it.
    """

    directory: ClusterDirectory
    keys: Sequence[bytes] = attrs.field(repr=False)
    home: str = attrs.field(factory=new_home)
    patience: float = 5.0
    silence: float = 30.0
    forget: Callable[[str], Awaitable[None]] | None = attrs.field(default=None, repr=False)


class JoinError(Exception):
    """A process cannot be one of several; the message says why, in one line."""


class DeadNodes:
    """Tells of processes that have ended long ago."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def left(self, gone: Collection[str], seconds: float) -> list[str]:
        """Return which of the processes that are not there were not there for so many seconds.

        Args:
            gone: Those that are not there now; another one is there again, or nothing is kept of it.
            seconds: For how long.
        """
        now = trio.current_time()
        self._since = {home: self._since.get(home, now) for home in gone}
        return [home for home, since in self._since.items() if now - since >= seconds]
