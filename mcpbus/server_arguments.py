"""What a `Server` is given, and is refused at once if it cannot be used so; and what it is not given, but is elsewhere."""

import inspect
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import partial
from typing import Any

from mcpbus.core.limits import Limits
from mcpbus.protocol.keywords import Elsewhere
from mcpbus.protocol.validators import check_numbers


def _write(written: str, _value: object) -> str:
    return f"write {written}"


SERVING: Elsewhere = {
    name: partial(_write, f"server.run({written or f'{name}=...'}), or give it to whatever else serves")
    for name, written in {
        "host": 'bind="127.0.0.1:8000"',
        "port": 'bind="127.0.0.1:8000"',
        "stateless_http": 'sessions="stateless"',
        "json_response": 'response="json"',
        "streamable_http_path": 'path="/mcp"',
        "metrics": 'metrics="127.0.0.1:9464"',
        **dict.fromkeys(("bind", "limits", "event_store", "task_store", "cluster", "response", "options")),
        **dict.fromkeys(("path", "sessions", "allowed_hosts", "allowed_origins", "access_log", "workers")),
    }.items()
}
"""What other libraries have in this place; here it is for whatever serves the server."""


def check_lifespan(lifespan: Any) -> None:
    """Refuse a lifespan that is no async context manager of a server.

    Raises:
        TypeError: the message says what to write.
    """
    if lifespan is None:
        return
    if isinstance(lifespan, AbstractAsyncContextManager | AbstractContextManager):
        raise TypeError(
            "lifespan is the function, and is called for each opening: write it without parentheses"
        )
    name, bare = getattr(lifespan, "__name__", "lifespan"), inspect.unwrap(lifespan)
    if bare is lifespan and (inspect.isasyncgenfunction(bare) or inspect.isgeneratorfunction(bare)):
        raise TypeError(
            f"lifespan is an async context manager: write @contextlib.asynccontextmanager above {name}"
        )
    if inspect.isgeneratorfunction(bare):
        raise TypeError(
            f"lifespan is asynchronous: write async def {name}, and @contextlib.asynccontextmanager above it"
        )
    if inspect.iscoroutinefunction(bare):
        raise TypeError(
            f"lifespan yields what handlers share: have {name} yield, and write @contextlib.asynccontextmanager above it"
        )
    try:
        inspect.signature(lifespan).bind(None)
    except TypeError:
        raise TypeError(f"lifespan is given the server: write {name}(server)") from None


def check_middleware(middleware: Sequence[Any]) -> None:
    """Refuse what cannot be called and awaited.

    Raises:
        TypeError: the message says what to write.
    """
    for each in middleware:
        name = getattr(each, "__name__", None)
        if inspect.isclass(each):
            raise TypeError(f"middleware is an object that is called, not its class: write {name}()")
        if not callable(each):
            raise TypeError(f"middleware is a list of async functions, in which {each!r} is none")
        if (
            inspect.isfunction(each)
            and name != "<lambda>"
            and not inspect.iscoroutinefunction(inspect.unwrap(each))
        ):
            raise TypeError(f"middleware is awaited: write async def {name}")


def check_opening(
    *, limits: Any, event_store: Any, task_store: Any, drain_seconds: Any = 0.0, cluster: Any = None
) -> None:
    """Refuse what is no such thing for what a server is opened with; None is as if it were left out.

    Raises:
        TypeError: the message says what to write.
    """
    if limits is not None and not isinstance(limits, Limits):
        raise TypeError(f"limits is a Limits(...), not {limits!r}")
    for name, given, method, example in (
        ("event_store", event_store, "append", "mcpbus.stores.SqliteEventStore('events.db') or the like"),
        ("task_store", task_store, "take_up", "mcpbus.tasks.SqliteTaskStore('tasks.db') or the like"),
    ):
        if given is not None and (isinstance(given, type) or not hasattr(given, method)):
            raise TypeError(f"{name} is {example}, not {given!r}")
    if isinstance(cluster, str | type):
        raise TypeError(f"cluster is a mcpbus.cluster.Redis('redis://...'), not {cluster!r}")
    check_numbers("Server", drain_seconds=drain_seconds)
