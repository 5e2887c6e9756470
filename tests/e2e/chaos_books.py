"""The books of several processes in sum, those that were killed among them.

Each process writes down what its books have after each step of a task, in memory that it shares with a file, where it is whatever ends
the process. So of one that was killed all is known but the step in which that came. What it had not settled is lost with it, but for
what was kept for clients: whoever goes on with their sessions adopts that.
"""

import mmap
import os
import struct
from contextlib import contextmanager
from pathlib import Path

import attrs
import trio

_FIELDS = (
    *("emitted", "adopted", "told", "moved", "delivered"),
    *("stored", "discarded", "refused", "pending"),
)
_ENTRY = struct.Struct(f"={len(_FIELDS)}q")
_FOLDER = "CHAOS_BOOKS"


@attrs.frozen
class Books:
    """What the books of one process have, or of several in sum; see `mcpbus.Statistics`.

    Attributes:
        told: How many messages it has told other processes, which adopt them.
        pending: How many have no fate, wherever they are.
    """

    emitted: int = 0
    adopted: int = 0
    told: int = 0
    moved: int = 0
    delivered: int = 0
    stored: int = 0
    discarded: int = 0
    refused: int = 0
    pending: int = 0

    @property
    def missing(self):
        settled = self.moved + self.delivered + self.stored + self.discarded + self.refused
        return self.emitted + self.adopted - settled - self.pending

    def __add__(self, other):
        return Books(*(a + b for a, b in zip(attrs.astuple(self), attrs.astuple(other), strict=True)))


class Recorder(trio.abc.Instrument):
    """Writes down what the books of this process have.

    Two entries take turns, of which the first byte tells the newer one: so there always is one that is whole.

    Args:
        ledger: The books.
    """

    def __init__(self, ledger):
        self.told = 0
        self._ledger = ledger
        path = Path(os.environ[_FOLDER], str(os.getpid()))
        path.write_bytes(bytes(1 + 2 * _ENTRY.size))
        with path.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), 0)

    def after_task_step(self, _task):
        now = self._ledger
        newer = 1 - self._shared[0]
        _ENTRY.pack_into(
            self._shared,
            1 + newer * _ENTRY.size,
            *(now.emitted, now.adopted, self.told, now.moved, now.delivered),
            *(now.stored, sum(now.discarded.values()), now.refused, sum(now.pending.values())),
        )
        self._shared[0] = newer


class Shelf:
    """The folder with the books of all processes: ``with shelf() as books``."""

    def __init__(self, folder):
        self._folder = Path(folder)

    def read(self):
        """Return the books of each process, by its id."""
        return {int(path.name): _read(path.read_bytes()) for path in self._folder.iterdir()}

    async def faults(self, killed, seconds=10.0):
        """Return what is wrong with the books, once nobody asks anything any more and what is on its way has had time to end."""
        with trio.move_on_after(seconds):
            while _pending(self.read(), killed):  # noqa: ASYNC110 - a process tells nobody
                await trio.sleep(0.05)
        return faults(self.read(), killed)


@contextmanager
def shelf(folder):
    """Have the processes that are started in the block put their books into a folder."""
    os.environ[_FOLDER] = str(folder)
    try:
        yield Shelf(folder)
    finally:
        del os.environ[_FOLDER]


def total(books):
    """Return the sum of some books."""
    return sum(books, Books())


def faults(books, killed):
    """Return what is wrong with the books of processes, given by their ids, of which some were killed."""
    found = [
        f"the books of {process} do not balance: {each}" for process, each in books.items() if each.missing
    ]
    found += [f"messages of {process} have no fate: {books[process]}" for process in _pending(books, killed)]
    whole, lost = total(books.values()), total(books[process] for process in killed if process in books)
    if not whole.moved <= whole.adopted <= whole.moved + whole.told + lost.pending:
        found.append(
            f"{whole.adopted} messages were adopted, where {whole.moved} were handed over, {whole.told} told, "
            f"and {lost.pending} had those that were killed"
        )
    return found


def _pending(books, killed):
    return [process for process, each in books.items() if each.pending and process not in killed]


def _read(data):
    return Books(*_ENTRY.unpack_from(data, 1 + data[0] * _ENTRY.size))
