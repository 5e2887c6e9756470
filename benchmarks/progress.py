"""What a run says while it goes on, on standard error: a bar, where rich is installed; otherwise a line a turn."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Step = Callable[[str, float], None]
"""Is told of each turn before it begins: what it is, and about how many seconds it takes."""


@contextmanager
def progress(total: float) -> Iterator[Step]:
    """Give what is told of each turn of a run that takes about so many seconds."""
    try:
        from rich.console import Console  # noqa: PLC0415  it may be absent
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn  # noqa: PLC0415
        from rich.table import Column  # noqa: PLC0415
    except ImportError:
        yield _lines(total)
        return
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines(total)
        return
    # What the turn is gives way where the terminal is narrow.
    what = Column(ratio=1, no_wrap=True, overflow="ellipsis")
    columns = (
        BarColumn(bar_width=20),
        TimeElapsedColumn(),
        TextColumn(f"of about {minutes(total)},"),
        TimeRemainingColumn(),
        TextColumn("left"),
        TextColumn("{task.description}", table_column=what),
    )
    # Seldom, because it is drawn on the core of the load; and by what the last minutes took, not the last turn.
    settings: dict[str, Any] = {"refresh_per_second": 2, "transient": True, "speed_estimate_period": 120}
    with Progress(*columns, console=console, expand=True, **settings) as bar:
        task = bar.add_task("", total=total)
        current = 0.0

        def step(what: str, seconds: float) -> None:
            nonlocal current
            bar.update(task, advance=current, description=what)
            current = seconds

        yield step


def _lines(total: float) -> Step:
    done = 0.0

    def step(what: str, seconds: float) -> None:
        nonlocal done
        print(f"[{done / total:4.0%} of about {minutes(total)}] {what}", file=sys.stderr, flush=True)
        done += seconds

    return step


def minutes(seconds: float) -> str:
    """Return how long something takes, in words."""
    return f"{seconds / 60:.0f} minutes" if seconds >= 150 else f"{seconds:.0f} seconds"
