"""The audit log: one line of JSON for each call, written by a thread of its own, so that no call waits for a disk."""

import logging
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread
from time import monotonic, perf_counter
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from mcpbus.core.request_context import Life
from mcpbus.watch.records import ANSWERED
from mcpbus.watch.watch import Watch, fate_name

_log = logging.getLogger("mcpbus")

MOST_WAITING: Final = 10_000
"""Calls whose lines wait to be written; further ones are counted as lost."""
_LOOK_SECONDS: Final = 0.2
_REPLY_SECONDS: Final = 5.0
"""How long a line waits for the fate of its reply."""
_CLOSE_SECONDS: Final = 2.0
_QUIET_SECONDS: Final = 60.0

AuditFunction: TypeAlias = Callable[[dict[str, Any]], object]
Audit: TypeAlias = str | os.PathLike[str] | AuditFunction
"""Where an audit log is written: the path of a file, ``-`` for standard error, or a function."""


class AuditWriter(Protocol):
    """Takes entries, in the thread of the audit log."""

    def write(self, entries: list[dict[str, Any]], /) -> None:
        """Write entries.

        Raises:
            Exception: They were not written.
        """

    def close(self) -> None:
        """Write no more."""


class FileWriter:
    """Appends lines to a file. A file that was moved or removed, as logrotate does it, is made again.

    Args:
        path: The file.

    Raises:
        OSError: It cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = self._open()

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, entries: list[dict[str, Any]]) -> None:
        """See `AuditWriter`."""
        try:
            moved = not os.path.samestat(self._path.stat(), os.fstat(self._descriptor))
        except FileNotFoundError:
            moved = True
        if moved:
            os.close(self._descriptor)
            self._descriptor = self._open()
        data = _lines(entries)
        while data:
            data = data[os.write(self._descriptor, data) :]

    def close(self) -> None:
        """See `AuditWriter`."""
        os.close(self._descriptor)


class StderrWriter:
    """Writes lines to standard error."""

    def write(self, entries: list[dict[str, Any]]) -> None:
        """See `AuditWriter`."""
        sys.stderr.write(_lines(entries).decode())
        sys.stderr.flush()

    def close(self) -> None:
        """See `AuditWriter`."""


class FunctionWriter:
    """Gives each entry to a function.

    Args:
        function: The function.
    """

    def __init__(self, function: AuditFunction) -> None:
        self._function = function

    def write(self, entries: list[dict[str, Any]]) -> None:
        """See `AuditWriter`."""
        for entry in entries:
            self._function(entry)

    def close(self) -> None:
        """See `AuditWriter`."""


def _lines(entries: list[dict[str, Any]]) -> bytes:
    return b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries)


class AuditLog:
    """An observer of a `Watch`, and the thread that writes.

    Args:
        writer: Takes the entries.

    Attributes:
        lost: How many entries were not written.
    """

    def __init__(self, writer: AuditWriter) -> None:
        self._writer = writer
        self._ended: deque[Life] = deque()
        self._waiting: list[Life] = []
        self._epoch = time.time() - perf_counter()
        self._process = str(os.getpid())
        self._closing = Event()
        self._thread = Thread(target=self._run, name="mcpbus audit", daemon=True)
        self._lost_told = 0
        self._quiet_until = 0.0
        self.lost = 0

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def close(self) -> None:
        """Write what is there, for two seconds at most, and end."""
        self._closing.set()
        self._thread.join(_CLOSE_SECONDS)

    def ended(self, life: Life) -> None:
        """See `Watch`. Called in trio's thread, and never waits."""
        if len(self._ended) + len(self._waiting) >= MOST_WAITING:
            self.lost += 1
        else:
            self._ended.append(life)

    # -- in its thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        closing = False
        while not closing:
            closing = self._closing.wait(_LOOK_SECONDS)
            self._write(everything=closing)
        self._writer.close()

    def _write(self, *, everything: bool) -> None:
        ended = [self._ended.popleft() for _ in range(len(self._ended))]
        due: list[Life] = []
        waiting: list[Life] = []
        for life in (*self._waiting, *ended):
            (due if everything or self._is_due(life) else waiting).append(life)
        self._waiting = waiting
        entries = [self._entry(life) for life in due]
        if lost := self.lost - self._lost_told:
            self._lost_told += lost
            entries.append({"time": _iso(time.time()), "process": self._process, "lost": lost})
        if not entries:
            return
        try:
            self._writer.write(entries)
        except Exception as error:  # noqa: BLE001 - a full disk, or the author's function: no call is to blame
            self.lost += len(due)
            if monotonic() >= self._quiet_until:
                self._quiet_until = monotonic() + _QUIET_SECONDS
                _log.error("the audit log could not be written: %s", error)

    def _is_due(self, life: Life) -> bool:
        if life.reply is not None or life.outcome not in ANSWERED:
            return True
        return perf_counter() - life.began - (life.seconds or 0.0) > _REPLY_SECONDS

    def _entry(self, life: Life) -> dict[str, Any]:
        facts = life.facts
        return {
            "time": _iso(self._epoch + life.began + (life.seconds or 0.0)),
            "process": self._process,
            "request": life.number,
            "method": life.method,
            "name": life.name,
            "id": facts.id,
            "owner": facts.owner,
            "client": facts.client,
            "peer": facts.peer,
            "session": facts.session,
            "revision": facts.revision,
            "transport": facts.transport,
            "outcome": life.outcome,
            "error": life.error,
            "seconds": round(life.seconds or 0.0, 6),
            "reply": None if life.reply is None else fate_name(life.reply),
            "messages": life.said,
            "resumes": None if life.first is None else life.first.number,
        }


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def check_audit(audit: object) -> None:
    """Refuse what no audit log can be written to.

    Raises:
        TypeError: It is no path and no function.
        ValueError: It is empty.
    """
    if not isinstance(audit, str | os.PathLike) and not callable(audit):
        raise TypeError(f"audit is the path of a file, '-' for standard error, or a function, not {audit!r}")
    if audit == "":
        raise ValueError("audit is '': write the path of a file, or '-' for standard error")


@contextmanager
def audit_written(audit: Audit, watch: Watch, number: int | None) -> Iterator[None]:
    """Write the audit log of a server that is opened within the block.

    Args:
        audit: Where to.
        watch: Its watch.
        number: Which of several workers this is: each has a file of its own; None if there is one process.

    Raises:
        ValueError: The file cannot be opened.
    """
    log = AuditLog(_writer(audit, number))
    log.start()
    try:
        with watch.observed_by(log):
            yield
    finally:
        log.close()


def _writer(audit: Audit, number: int | None) -> AuditWriter:
    if not isinstance(audit, str | os.PathLike):
        return FunctionWriter(audit)
    path = os.fspath(audit)
    if path == "-":
        return StderrWriter()
    try:
        return FileWriter(Path(path if number is None else f"{path}.{number}"))
    except OSError as error:
        raise ValueError(f"audit is {path!r}, which cannot be opened: {error.strerror}") from error
