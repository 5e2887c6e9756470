"""What a `Server` is given to call, and is refused at once if it cannot be called so: its lifespan and its middleware."""

import inspect
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any


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
