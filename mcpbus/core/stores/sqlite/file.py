"""An SQLite file whose statements run in worker threads, one at a time, and that is closed when none runs.

To have a thread do something takes longer than most of what it is to do, and so does the end of a transaction. So a thread does all that
has come while another one was at work, and what is done together, such as many a little that is to be kept, is handed over together.
"""

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, TypeVar

import attrs
import trio

from mcpbus.core.stores.protocol import Promise

T = TypeVar("T")

LOOK_SECONDS: Final = 10.0
"""How often it is looked whether the file is still there, as long as it is used."""
_MOST_AT_ONCE: Final = 64
"""How many things one thread does. Those that come later wait for it."""
_CUT_SHORT: Final = "the thread that was to do it ended early"
_log = logging.getLogger("mcpbus")


@attrs.define(eq=False, kw_only=True)
class _SqlJob(Promise):
    """What is done in a thread.

    Attributes:
        function: What is to be done with the connection; given the items of all that are in a row with the same one.
        item: What it is given.
        waiting: Where it is until a thread has it.
        error: See `Promise`. A thread that ends before it has noted what came of all its jobs, for want of memory perhaps, leaves
            the others with an error.
    """

    function: Callable[[Sequence[Any]], Any]
    item: Any
    waiting: "list[_SqlJob]"
    error: BaseException | None = attrs.field(factory=lambda: sqlite3.OperationalError(_CUT_SHORT))

    def take(self, result: Any, error: BaseException | None) -> None:
        """Note what came of it."""
        self.result, self.error = result, error

    def withdraw(self) -> None:
        """See `Promise`. What no thread has yet is not done."""
        super().withdraw()
        with suppress(ValueError):
            self.waiting.remove(self)


class SqliteFile:
    """A connection, and the turns at it.

    Args:
        connection: Made with `check_same_thread=False`. It is this object's to close.
        path: Where its file is, which is looked for now and then: SQLite goes on with one that somebody has removed, in whose place
            there is nothing, or another one, at the next start.
    """

    def __init__(self, connection: sqlite3.Connection, path: str | Path) -> None:
        self.connection = connection
        self._path = Path(path).absolute()  # as SQLite opened it: a program may go to another folder
        self._identity = self._found = _identify(self._path)
        self._looked = time.monotonic()
        self._token: trio.lowlevel.TrioToken
        self._waiting: list[_SqlJob] = []
        self._busy = False  # whether a thread has jobs, or their ends are on their way
        # SQLite crashes the process when a connection is closed between two steps of another thread's statement, and
        # whoever closes is no task that could wait for its turn.
        self._in_use = threading.Lock()

    async def run(self, function: Callable[[], T]) -> T:
        """Run a function that uses the connection, in a worker thread, after all that came before.

        One that is cancelled while it runs goes on in its thread, before those that come later: it is not known then what
        became of it.

        Raises:
            sqlite3.ProgrammingError: The file is closed.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        result: T = await self.run_together(lambda _: function(), None)
        return result

    def run_together(self, function: Callable[[Sequence[T]], object], item: T) -> Promise:
        """Run a function as `run` does, but once for all in a row that want the same one, given the items of all.

        Where that raises, it is run again for each alone, unless the file is at fault.

        Returns:
            What is to be awaited, or heard of. It ends with an `sqlite3.ProgrammingError` if the file is closed.
        """
        job = _SqlJob(function=function, item=item, waiting=self._waiting)
        self._token = trio.lowlevel.current_trio_token()
        self._waiting.append(job)
        if not self._busy:
            # Others ask for something in the same turn of the scheduler, and a thread that begins in it has to share the processor.
            self._busy = True
            self._token.run_sync_soon(self._begin)
        return job

    def close(self) -> None:
        """Close the file, when the function that runs now, if one does, has returned. It cannot be used any more."""
        with self._in_use:
            self.connection.close()

    def _begin(self) -> None:
        jobs = self._waiting[:_MOST_AT_ONCE]
        del self._waiting[:_MOST_AT_ONCE]
        self._busy = bool(jobs)
        if not jobs:
            return
        try:
            trio.lowlevel.start_thread_soon(partial(self._do, jobs), lambda _: self._tell(jobs))
        except Exception as error:  # noqa: BLE001 - there are too many threads, or no memory: whoever waits is told
            for job in jobs:
                job.take(None, error)
            self._tell(jobs)

    def _end(self, jobs: Sequence[_SqlJob]) -> None:
        self._begin()
        for job in jobs:
            job.end()

    def _tell(self, jobs: Sequence[_SqlJob]) -> None:
        """Have those who wait hear of it; from any thread."""
        try:
            self._token.run_sync_soon(self._end, jobs)
        except trio.RunFinishedError:
            self._busy = False  # all who waited were cancelled

    # -- in the thread ---------------------------------------------------------------------------

    def _do(self, jobs: Sequence[_SqlJob]) -> None:
        with self._in_use:
            if time.monotonic() - self._looked > LOOK_SECONDS:
                self._look()
            for function, in_a_row in groupby(jobs, attrgetter("function")):
                row = list(in_a_row)
                result, error = _call(function, row)
                # Where the file is at fault, it is for each of them, and would have each wait for it.
                apart = len(row) > 1 and error is not None and not isinstance(error, sqlite3.OperationalError)
                for job in row:
                    job.take(*(_call(function, [job]) if apart else (result, error)))

    def _look(self) -> None:
        self._looked = time.monotonic()
        try:
            found = _identify(self._path)
        except OSError:  # it cannot be known: a folder on the network, say
            return
        if found == self._found:
            return
        self._found = found
        if found == self._identity:
            _log.warning("%s is the file again that this process uses: nothing is lost", self._path)
            return
        _log.error(
            "%s %s: what is kept since then is lost when this process ends; end it, and start it again",
            self._path,
            "is not there any more" if found is None else "is another file now",
        )


def _identify(path: Path) -> tuple[int, int] | None:
    """Return what tells a file from another one that takes its place; None if there is none.

    Raises:
        OSError: It cannot be found out.
    """
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


def _call(
    function: Callable[[Sequence[Any]], Any], row: Sequence[_SqlJob]
) -> tuple[Any, BaseException | None]:
    try:
        return function([job.item for job in row]), None
    except BaseException as error:  # noqa: BLE001 - raised where it is waited for
        return None, error
