"""How a function asks for what other functions make: `Depends`."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, TypeVar, overload

import msgspec

from mcpbus.protocol.keywords import explained

T = TypeVar("T")


class Dependency(msgspec.Struct, frozen=True):
    """What `Depends` makes: it stands where a parameter's default, or what `Annotated` says of it, is looked for."""

    provider: Callable[..., Any]
    thread: bool


@overload
def Depends(provider: Callable[..., AbstractAsyncContextManager[T]], *, thread: bool = ...) -> T: ...
@overload
def Depends(provider: Callable[..., AbstractContextManager[T]], *, thread: bool = ...) -> T: ...
@overload
def Depends(provider: Callable[..., AsyncIterator[T]], *, thread: bool = ...) -> T: ...
@overload
def Depends(provider: Callable[..., Iterator[T]], *, thread: bool = ...) -> T: ...
@overload
def Depends(provider: Callable[..., Awaitable[T]], *, thread: bool = ...) -> T: ...
@overload
def Depends(provider: Callable[..., T], *, thread: bool = ...) -> T: ...
@explained
def Depends(provider: Callable[..., Any], *, thread: bool = True) -> Any:  # noqa: N802 - FastAPI's name for it
    """Fill a parameter with what another function makes, and not with what a client says.

    Write it as the default of a parameter, ``db: Database = Depends(connect)``, or in its annotation,
    ``db: Annotated[Database, Depends(connect)]``. The parameter is no argument of the tool.

    `connect` is called for each call of the handler, once, however many ask for it. It may be async or plain; where it
    is a generator of one value, or was made by `contextlib.asynccontextmanager` or `contextlib.contextmanager`, what
    follows the ``yield`` runs when the handler has ended. It may take the context, and depend on further functions. What
    it raises counts as raised by the handler.

    Args:
        provider: makes it.
        thread: False runs a plain provider on the trio thread, which it must not block.
    """
    return Dependency(provider, thread)
