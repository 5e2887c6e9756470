"""The lines of code at which a handler is, in its own task, in tasks that it started, and in a worker thread.

Nothing is recorded for this: the coroutine of a task knows where it waits. Where trio or Python changes, a stack is cut short, and no more.
"""

import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Final

import mcpbus_actors
import trio
from mcpbus_actors import EagerTask, Task

from mcpbus.watch.views import StackFrame

MOST_FRAMES: Final = 60
_MOST_CHILDREN: Final = 8
_THREAD_CALL: Final = "WorkerThreads.run"
_JOB: Final = "_ThreadJob.run"
_NURSERY_END: Final = "Nursery._nested_child_finished"


def _folders() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    packages = [Path(trio.__file__).parent, Path(mcpbus_actors.__file__).parent, Path(__file__).parent.parent]
    return (*map(str, packages), *(paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")))


_FOREIGN: Final = _folders()


def where(frames: list[StackFrame]) -> StackFrame | None:
    """Return the innermost frame of the author's code in the handler's own task, or else the innermost of all."""
    own = [frame for frame in frames if frame.own]
    near = [frame for frame in own if not frame.depth]
    return (near or own or frames or [None])[-1]  # type: ignore[list-item]  # None for no frame


class Coroutines:
    """The coroutines of tasks at one moment, in trio's thread; found once for all that look."""

    def __init__(self) -> None:
        self._started: dict[int, Any] | None = None

    def stack_of(self, task: Task | None) -> list[StackFrame]:
        """Return the frames of a handler's task, outermost first; none of a task that has ended."""
        coroutine = self._find(task)
        return [] if coroutine is None else list(_walk(coroutine, 0))[:MOST_FRAMES]

    def _find(self, task: Task | None) -> Any:
        if task is None:
            return None
        if isinstance(task, EagerTask):
            return None if task.outcome is not None else task.coroutine
        if self._started is None:
            self._started = dict(_started_tasks())
        return self._started.get(id(task))


def _started_tasks() -> Iterator[tuple[int, Any]]:
    """Yield the tasks that actors have started, which do not name their trio tasks: these have them as an argument."""
    root = trio.lowlevel.current_root_task()
    for each in () if root is None else _tasks_below(root):
        frame = getattr(each.coro, "cr_frame", None)
        if frame is not None and frame.f_code.co_name == "_run" and "task" in frame.f_locals:
            yield id(frame.f_locals["task"]), each.coro


def _tasks_below(task: trio.lowlevel.Task) -> Iterator[trio.lowlevel.Task]:
    for nursery in task.child_nurseries:
        for child in nursery.child_tasks:
            yield child
            yield from _tasks_below(child)


def _walk(waiting: Any, depth: int) -> Iterator[StackFrame]:
    """Follow what a coroutine waits for."""
    for _ in range(MOST_FRAMES):
        frame = _attribute(waiting, "frame")
        if not isinstance(frame, FrameType):
            return
        yield _view(frame, depth)
        name = frame.f_code.co_qualname
        if name.endswith(_THREAD_CALL):
            yield from _thread_of(frame.f_locals.get("job"), depth)
            return
        if name.endswith(_NURSERY_END):
            children = list(getattr(frame.f_locals.get("self"), "child_tasks", ()))
            for child in children[:_MOST_CHILDREN]:
                yield from _walk(child.coro, depth + 1)
            return
        following = _attribute(waiting, "await")
        if following is None:
            return
        waiting = following


def _attribute(waiting: Any, what: str) -> Any:
    """Return the frame of a coroutine, a generator or an asynchronous one, or what it waits for."""
    names = {"frame": ("cr_frame", "gi_frame", "ag_frame"), "await": ("cr_await", "gi_yieldfrom", "ag_await")}
    for name in names[what]:
        found = getattr(waiting, name, None)
        if found is not None:
            return found
    return None


def _thread_of(job: object, depth: int) -> Iterator[StackFrame]:
    """Find the thread in which a job runs, and return its frames, outermost first."""
    for innermost in sys._current_frames().values():  # noqa: SLF001 - the one way to see other threads
        found: list[FrameType] = []
        frame: FrameType | None = innermost
        while frame is not None:
            if frame.f_code.co_qualname == _JOB and frame.f_locals.get("self") is job:
                yield from (_view(each, depth, thread=True) for each in reversed(found))
                return
            found.append(frame)
            frame = frame.f_back


def _view(frame: FrameType, depth: int, *, thread: bool = False) -> StackFrame:
    file = frame.f_code.co_filename
    own = not file.startswith((*_FOREIGN, "<frozen"))
    return StackFrame(file, frame.f_lineno, frame.f_code.co_name, own, depth, thread)
