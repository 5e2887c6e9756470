"""What a server uses: processor time and resident memory of its process and of all that it started (proc(5))."""

import time
from pathlib import Path

# proc(5), /proc/PID/stat: counted from behind the command's name, which may hold anything.
_PARENT, _SESSION = 1, 3  # a server begins a session, and keeps it, whatever groups its processes make
# The clock of a process (clock_getcpuclockid(3)) is its id and this kind, as the kernel's linux/posix-timers.h makes it.
_KIND_BITS, _SCHEDULED = 3, 2


def processor_seconds(group: int) -> float:
    """Return the processor time that the processes of a group have used, to the nanosecond."""
    return sum(_used(int(process.name)) for process in _members(group))


def processes(group: int) -> list[int]:
    """Return the processes of a group."""
    return [int(process.name) for process in _members(group)]


def resident_bytes(group: int) -> int:
    """Return the resident memory of a process group; what its processes share is counted once (Pss)."""
    return sum(_resident(process) for process in _members(group))


def _members(group: int) -> list[Path]:
    """Return the folders of the processes in a session, and of all that they started, in whatever session that is."""
    found, others = [], []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has just ended
            if int(fields[_SESSION]) == group:
                found.append(entry)
            else:
                others.append((fields[_PARENT], entry))
    for member in found:  # grows meanwhile
        found.extend(entry for parent, entry in others if parent == member.name)
    return found


def _used(process: int) -> float:
    try:
        return time.clock_gettime(~process << _KIND_BITS | _SCHEDULED)
    except OSError:
        return 0.0  # it has just ended


def _resident(process: Path) -> int:
    try:
        lines = (process / "smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
