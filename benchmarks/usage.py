"""What a server uses: processor time and resident memory of its process and of all that it started (proc(5))."""

import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
# proc(5), /proc/PID/stat: counted from behind the command's name, which may hold anything.
_PROCESS_GROUP, _USER, _SYSTEM = 2, 11, 12


def processor_seconds(group: int) -> float:
    """Return the processor time that a process group has used, in steps of 10 ms."""
    return sum(int(fields[_USER]) + int(fields[_SYSTEM]) for _, fields in _members(group)) / _TICKS


def resident_bytes(group: int) -> int:
    """Return the resident memory of a process group; what its processes share is counted once (Pss)."""
    return sum(_resident(process) for process, _ in _members(group))


def _members(group: int) -> list[tuple[Path, list[str]]]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has just ended
            if int(fields[_PROCESS_GROUP]) == group:
                found.append((entry, fields))
    return found


def _resident(process: Path) -> int:
    try:
        lines = (process / "smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
