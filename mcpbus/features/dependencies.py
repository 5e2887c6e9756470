"""What is made for a function before it is called: a plan of providers, in order, each of them once.

Read once, at registration, from what the parameters of the function say, and those of its providers.

How a function asks for what other functions make: `Depends`.
"""

import enum
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterator, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from typing import Annotated, Any, TypeVar, get_args, get_origin, overload

import msgspec

from mcpbus.features.annotations import (
    check_context,
    check_nearly_context,
    code_of,
    hints_of,
    innermost,
    is_context,
)
from mcpbus.features.errors import RegistrationError
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


class ProviderKind(enum.Enum):
    """What calling a provider gives."""

    VALUE = "the value"
    COROUTINE = "what is awaited for the value"
    MANAGER = "what is entered for the value, and left in the end"
    ASYNC_MANAGER = "the same, asynchronously"


class Step(msgspec.Struct, frozen=True):
    """One provider, and what it takes."""

    provider: Callable[..., Any]
    """Gives what `kind` says; a generator function has been made one that gives a context manager."""
    kind: ProviderKind
    thread: bool
    """Whether a plain one runs in a worker thread."""
    context: str | None
    """The name of its parameter that receives the context."""
    needs: Mapping[str, int]
    """The numbers of the steps that fill its other parameters."""

    @property
    def asynchronous(self) -> bool:
        """Whether it is async, and takes a `Context`; a plain one takes a `SyncContext`."""
        return self.kind in {ProviderKind.COROUTINE, ProviderKind.ASYNC_MANAGER}


class Plan(msgspec.Struct, frozen=True):
    """The providers of a function."""

    steps: tuple[Step, ...]
    """In the order in which they are called."""
    needs: Mapping[str, int]
    """The numbers of the steps that fill the function's own parameters."""
    dependencies: Mapping[str, Dependency]
    """Of the function: what it was made of."""
    owner: str
    """What messages call the function."""
    providers: frozenset[Hashable]
    """All that is called, as it was written."""

    def replacing(self, others: Mapping[Any, Callable[..., Any]]) -> "Plan":
        """Return the plan with other providers in the place of some.

        Raises:
            RegistrationError: As for `make_plan`.
        """
        return self if self.providers.isdisjoint(others) else _plan(self.dependencies, self.owner, others)

    @property
    def opens(self) -> bool:
        """Whether something is open while the function runs, and closed afterwards: no thread may go on with it then."""
        return any(step.kind in {ProviderKind.MANAGER, ProviderKind.ASYNC_MANAGER} for step in self.steps)

    def runs_within(self, thread: bool) -> bool:
        """Whether all of them are plain, and run where a plain function with this option does: then they run with it, in one go."""
        return all(not step.asynchronous and step.thread is thread for step in self.steps)


def find_dependency(annotation: Any, default: Any, owner: str) -> Dependency | None:
    """What a parameter depends on, by its annotation or its default.

    Raises:
        RegistrationError: it is meant to depend on something, and does not.
    """
    extras = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
    found = None
    for written in (*extras, default):
        if isinstance(written, Dependency):
            found = written
        elif type(written).__name__ == "Depends":
            module = type(written).__module__.partition(".")[0]
            raise RegistrationError(
                f"{owner}: this is a Depends of {module}; write from mcpbus import Depends"
            )
    if found is not None and not callable(found.provider):
        raise RegistrationError(
            f"{owner}: Depends takes the function that makes it, without parentheses, not {found.provider!r}"
        )
    return found


def make_plan(dependencies: Mapping[str, Dependency], owner: str) -> Plan | None:
    """The plan that fills these parameters; None if there are none.

    Raises:
        RegistrationError: a provider takes what nobody fills, or depends on itself.
    """
    return _plan(dependencies, owner, {}) if dependencies else None


def _plan(
    dependencies: Mapping[str, Dependency], owner: str, others: Mapping[Any, Callable[..., Any]]
) -> Plan:
    steps: dict[Hashable, Step] = {}
    needs = {name: _add(dependency, steps, (), owner, others) for name, dependency in dependencies.items()}
    return Plan(tuple(steps.values()), needs, dependencies, owner, frozenset(steps))


def _add(
    dependency: Dependency,
    steps: dict[Hashable, Step],
    above: tuple[Hashable, ...],
    owner: str,
    others: Mapping[Any, Callable[..., Any]],
) -> int:
    """Add a provider to the steps, after all that it needs itself, unless it is there; return its number."""
    key = _key(dependency.provider)
    provider = others.get(key, dependency.provider)
    owner = f"{owner}, {_name(provider)!r}"
    if key in above:
        raise RegistrationError(f"{owner}: depends on itself")
    if key not in steps:
        code = code_of(provider)
        hints = hints_of(code.__init__ if inspect.isclass(code) else code, owner)
        kind, factory = _kind(provider, code)
        asynchronous = kind in {ProviderKind.COROUTINE, ProviderKind.ASYNC_MANAGER}
        context, needs = None, {}
        for given in inspect.signature(provider).parameters.values():
            annotation = hints.get(given.name, Any)
            found = find_dependency(annotation, given.default, f"{owner}, parameter {given.name!r}")
            if is_context(annotation):
                check_context(annotation, owner, asynchronous=asynchronous)
                context = given.name
            elif found is not None:
                needs[given.name] = _add(found, steps, (*above, key), owner, others)
            else:
                check_nearly_context(annotation, given.name, owner)
                _check_filled(given, owner)
        steps[key] = Step(factory, kind, dependency.thread, context, needs)
    return list(steps).index(key)


def _kind(provider: Callable[..., Any], code: Callable[..., Any]) -> tuple[ProviderKind, Callable[..., Any]]:
    """What calling a provider gives, and what is called: a context manager is made of a generator."""
    if inspect.isasyncgenfunction(code):
        return ProviderKind.ASYNC_MANAGER, asynccontextmanager(provider)
    if inspect.isgeneratorfunction(code):
        return ProviderKind.MANAGER, contextmanager(provider)
    if inspect.iscoroutinefunction(code):
        return ProviderKind.COROUTINE, provider
    # What contextlib's decorators have made of a generator.
    wrapped = inspect.unwrap(code)
    if inspect.isasyncgenfunction(wrapped):
        return ProviderKind.ASYNC_MANAGER, provider
    return (ProviderKind.MANAGER if inspect.isgeneratorfunction(wrapped) else ProviderKind.VALUE), provider


def _check_filled(given: inspect.Parameter, owner: str) -> None:
    has_default = given.default is not given.empty and not _is_field(given.default)
    optional = given.kind in {given.VAR_POSITIONAL, given.VAR_KEYWORD} or has_default
    if given.kind is given.POSITIONAL_ONLY or not optional:
        raise RegistrationError(
            f"{owner}: nobody fills its parameter {given.name!r}; give it a default, or Depends(...), "
            f"and take what the client says in the handler itself"
        )


def _is_field(value: Any) -> bool:
    """Whether a default is a ``Field`` of pydantic."""
    return type(value).__name__ == "FieldInfo" and type(value).__module__ == "pydantic.fields"


def _key(provider: object) -> Hashable:
    """What tells it from others; a bound method is the same each time it is looked up."""
    return id(provider) if type(provider).__hash__ is None else provider


def _name(provider: Callable[..., Any]) -> str:
    inner = innermost(provider)
    return str(getattr(inner, "__name__", type(inner).__name__))
