"""The machine that figures depend on, and how it is divided: servers on one processor core, the load on another."""

import datetime as dt
import os
import platform
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import mcpbus

PACKAGES = (
    "mcpbus",
    "trio",
    "hypercorn",
    "httptools",
    "h11",
    "h2",
    "msgspec",
    "attrs",
    "uvicorn",
    "uvloop",
)


def cores() -> tuple[set[int], set[int]]:
    """Return the core of the servers and that of the load; both are all there is, where there is but one."""
    available = sorted(os.sched_getaffinity(0))
    if len(available) < 2:
        return set(available), set(available)
    return {available[0]}, {available[-1]}


SERVER_CORE, LOAD_CORE = cores()


@contextmanager
def on_core(core: set[int]) -> Iterator[None]:
    """Run this thread, and let processes start, on a core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, core)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def raise_file_limit() -> int:
    """Allow this process and those that it starts as many open files as they may have, and return how many."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


BUSY = 0.1
"""What share of its processors others take of a machine that is called busy."""

_IDLE = slice(3, 5)  # of the times of a processor: idle, and waiting for a disk


def busy(seconds: float = 1.0) -> float:
    """Return what share of the processors is taken while we do nothing; 0 where the system does not say."""
    before = _times()
    time.sleep(seconds)
    spent = [after - earlier for earlier, after in zip(before, _times(), strict=True)]
    return 1 - sum(spent[_IDLE]) / sum(spent) if any(spent) else 0.0


def _times() -> list[int]:
    try:
        first = Path("/proc/stat").read_text().splitlines()[0]
    except FileNotFoundError:
        return []
    return [int(each) for each in first.split()[1:9]]


def idle_seconds(cores: set[int]) -> float:
    """Return for how many seconds some processors have done nothing, all together, since the machine has run; 0 where the system does not say."""
    try:
        lines = Path("/proc/stat").read_text().splitlines()
    except FileNotFoundError:
        return 0.0
    names = {f"cpu{core}" for core in cores}
    ticks = sum(sum(map(int, line.split()[1:][_IDLE])) for line in lines if line.split(" ")[0] in names)
    return ticks / os.sysconf("SC_CLK_TCK")


def describe(others: float = 0.0) -> dict[str, Any]:
    """Return what figures depend on; nothing that tells whose machine it is.

    Args:
        others: What others took of its processors, as `busy` says.
    """
    return {
        "busy": round(others, 2),
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "processor": _processor(),
        "processors": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "packages": {package: version_of(package) for package in PACKAGES},
    }


def version_of(package: str) -> str:
    """Return the version of a package that is installed, or say that it is not."""
    if package == mcpbus.__name__:
        return mcpbus.__version__
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    except FileNotFoundError:
        pass
    return platform.processor() or "unknown processor"
