"""What the annotations of a function say: what they name, and whether one asks for the context."""

import functools
import inspect
import types
from collections.abc import Callable
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from mcpbus.features.errors import RegistrationError
from mcpbus.features.handler_context import HandlerContext


def innermost(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function in however many partials."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def code_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function itself, or the ``__call__`` of an object that is called like one."""
    inner = innermost(function)
    if inspect.isroutine(inner) or inspect.isclass(inner):
        return inner
    return type(inner).__call__


def hints_of(code: Callable[..., Any], owner: str) -> dict[str, Any]:
    """The annotations of a function by name, `Annotated` as it is.

    Raises:
        RegistrationError: one cannot be resolved.
    """
    try:
        return get_type_hints(code, include_extras=True)
    except NameError as error:
        raise RegistrationError(
            f"{owner}: an annotation cannot be resolved ({error}); annotations are read at run time, so what they "
            f"name must be importable from the module's top level and not only under TYPE_CHECKING"
        ) from error
    except TypeError as error:
        raise RegistrationError(f"{owner}: an annotation cannot be read: {error}") from error


def bare(annotation: Any) -> Any:
    """The class that an annotation is of, without `Annotated`, parameters, and a None beside it."""
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in (Union, types.UnionType):
        members = [each for each in get_args(annotation) if each is not types.NoneType]
        if len(members) == 1:
            return bare(members[0])
    return get_origin(annotation) or annotation


def is_context(annotation: Any) -> bool:
    """Whether it asks for the context."""
    # Not whatever derives from a context: a handler is given no such thing.
    return HandlerContext in getattr(bare(annotation), "__bases__", ())


def check_nearly_context(annotation: Any, name: str, owner: str) -> None:
    """Refuse an annotation that is meant to ask for the context, and does not.

    Raises:
        RegistrationError: it is one; the message says what to write.
    """
    for part in (bare(annotation), *map(bare, get_args(annotation))):
        if is_context(part):
            raise RegistrationError(f"{owner}: {name!r} is always given; write {name}: {part.__name__}")
        module = getattr(part, "__module__", "")
        if getattr(part, "__name__", "") == "Context" and module.partition(".")[0] in {"mcp", "fastmcp"}:
            raise RegistrationError(
                f"{owner}: {name!r} is a {module}.Context; write from mcpbus import Context"
            )


def check_context(annotation: Any, owner: str, *, asynchronous: bool) -> None:
    """Refuse the context of an async function in a plain one, and the other way round.

    Raises:
        RegistrationError: it is so; the message says what to write.
    """
    if bare(annotation).asynchronous is asynchronous:
        return
    if asynchronous:
        raise RegistrationError(
            f"{owner}: is async and takes a SyncContext, which would block; annotate Context"
        )
    raise RegistrationError(
        f"{owner}: is a plain function and takes a Context, whose methods it cannot await; "
        f"annotate SyncContext, or write async def"
    )
