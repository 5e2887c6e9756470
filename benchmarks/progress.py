"""What a run says while it goes on, on standard error: a bar, where rich is installed; otherwise a line a turn."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(total: int) -> Iterator[Callable[[str], None]]:
    """Give what is told of each turn before it begins."""
    try:
        from rich.console import Console  # noqa: PLC0415  it may be absent
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415
    except ImportError:
        yield _lines(total)
        return
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines(total)
        return
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    # Seldom, because it is drawn on the core of the load.
    with Progress(*columns, console=console, refresh_per_second=2, transient=True) as bar:
        task = bar.add_task("", total=total)
        begun = 0

        def step(what: str) -> None:
            nonlocal begun
            bar.update(task, completed=begun, description=what)
            begun += 1

        yield step


def _lines(total: int) -> Callable[[str], None]:
    begun = 0

    def step(what: str) -> None:
        nonlocal begun
        begun += 1
        print(f"[{begun}/{total}] {what}", file=sys.stderr, flush=True)

    return step
