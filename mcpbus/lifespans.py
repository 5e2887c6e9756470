"""The lifespan that an author gives a server: what it has to be, and how it is entered."""

import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from typing import Any, Protocol, TypeVar

from mcpbus.core.state import NO_STATE


class Named(Protocol):
    """What has a lifespan."""

    name: str


OwnerT = TypeVar("OwnerT", bound=Named)


@asynccontextmanager
async def enter_lifespan(
    lifespan: Callable[[OwnerT], AbstractAsyncContextManager[Any]] | None, server: OwnerT
) -> AsyncIterator[Any]:
    """Enter the lifespan of a server, and yield what it yields; `NO_STATE` if there is none.

    Raises:
        RuntimeError: It has ended the block by itself; nobody would hear of that.
    """
    if lifespan is None:
        yield NO_STATE
        return
    left, caught = False, None
    try:
        async with lifespan(server) as state:
            try:
                yield state
            except Exception as error:
                caught = error
                raise
            left = True
        if not left:
            raise RuntimeError(
                f"the lifespan of server {server.name!r} has ended the server: a cancel scope or nursery around its yield was "
                f"cancelled, or it caught what was raised there"
            ) from caught
    finally:
        del caught  # its traceback holds this frame: without this, a cycle


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
        signature = inspect.signature(lifespan)
    except ValueError:  # it is written in C: whether it can be called with a server, its call says
        return
    try:
        signature.bind(None)
    except TypeError:
        raise TypeError(f"lifespan is given the server: write {name}(server)") from None
