"""The signature of a function: its parameters, the context it asks for, its result, its description.

It is read once, at registration. A function that cannot be served is refused here, before a client calls it.
"""

import functools
import inspect
import operator
import sys
import types
from collections.abc import Callable, Iterable
from typing import Any, Union, get_args, get_origin

import msgspec

from mcpbus.features.annotations import (
    check_context,
    check_nearly_context,
    code_of,
    hints_of,
    innermost,
    is_context,
)
from mcpbus.features.dependencies import Plan, find_dependency, make_plan
from mcpbus.features.docstrings import read_docstring
from mcpbus.features.errors import RegistrationError
from mcpbus.features.input_requests.input_required import InputRequired
from mcpbus.features.schemas.parameter import MISSING, Parameter


class Signature(msgspec.Struct, frozen=True):
    """A function as its author wrote it."""

    function: Callable[..., Any]
    owner: str
    """The thing that messages name, such as ``tool 'forecast'``."""
    parameters: tuple[Parameter, ...]
    context: str | None
    """The name of the parameter that receives the Context (or, in a plain function, the SyncContext)."""
    returns: Any
    """The return annotation without `InputRequired`, `MISSING` where nothing is written."""
    asynchronous: bool
    description: str | None
    """What the docstring says, but for what it says of parameters."""
    dependencies: Plan | None = None
    """What fills the parameters that `Depends` on something."""

    @property
    def only_parameter(self) -> Parameter:
        """The one parameter of a function that takes everything in one.

        Raises:
            RegistrationError: there are more, or none.
        """
        if len(self.parameters) != 1:
            names = ", ".join(parameter.name for parameter in self.parameters) or "none"
            raise RegistrationError(
                f"{self.owner}: with a hand-written input_schema the function takes one parameter besides the "
                f"context, which receives all arguments as one dict; it has {names}"
            )
        return self.parameters[0]


def check_function(function: Any, kind: str) -> None:
    """Refuse what is no function, with what to write instead.

    Args:
        function: what is to be registered.
        kind: as what, such as ``tool``.

    Raises:
        RegistrationError: it is none.
    """
    if isinstance(function, str) and kind not in {"resource", "request"}:
        raise RegistrationError(f"a name is given by keyword: write @server.{kind}(name={function!r})")
    if isinstance(function, classmethod):
        name = function.__func__.__qualname__.rpartition("<locals>.")[2]
        raise RegistrationError(
            f"{kind} {name!r}: a class method is registered when its class is there: {_ADDING[kind].format(name)}"
        )
    if inspect.isclass(function):
        raise RegistrationError(
            f"{kind} {function.__name__!r}: this is a class; register a function, or the method of an instance: "
            f"{_ADDING[kind].format('instance.method')}"
        )
    if inspect.iscoroutine(function):
        raise RegistrationError(
            f"{kind} {function.__name__!r}: this is a call of it; register the function itself, without parentheses"
        )
    if not callable(function):
        raise RegistrationError(f"{function!r} cannot be a {kind}: it is not a function")


_ADDING = {
    "tool": "server.add_tool({})",
    "resource": "server.add_resource(uri, {})",
    "prompt": "server.add_prompt({})",
    "completion": "server.completion(ref, argument)({})",
    "request": "server.on_request(method)({})",
}
"""What is written where a decorator cannot stand."""


def read_signature(function: Callable[..., Any], owner: str) -> Signature:
    """Read the signature of `function`, which is one, for `owner`.

    Raises:
        RegistrationError: a parameter that cannot be given by name, an annotation that cannot be resolved, an
            async generator, a method without its instance, or a context of the wrong kind or without an annotation.
    """
    code = code_of(function)
    if inspect.isasyncgenfunction(code) or inspect.isgeneratorfunction(code):
        raise RegistrationError(
            f"{owner}: a generator cannot be served; return the result, report progress with ctx"
        )
    asynchronous = inspect.iscoroutinefunction(code)
    if not asynchronous and inspect.iscoroutinefunction(inspect.unwrap(code)):
        asynchronous, function = True, _awaited(function)
    hints = hints_of(code, owner)
    docstring = read_docstring(innermost(function))
    parameters = []
    context, dependencies = None, {}
    for given in inspect.signature(function).parameters.values():
        if given.kind in {given.VAR_POSITIONAL, given.VAR_KEYWORD, given.POSITIONAL_ONLY}:
            raise RegistrationError(
                f"{owner}: parameter {str(given)!r} cannot be given by name; name each argument"
            )
        if given.name not in hints:
            _check_bare(given.name, function, owner, asynchronous=asynchronous)
        annotation = hints.get(given.name, Any)
        place = f"{owner}, parameter {given.name!r}"
        dependency = find_dependency(annotation, given.default, place)
        if dependency is not None:
            dependencies[given.name] = dependency
        elif is_context(annotation):
            if context is not None:
                raise RegistrationError(
                    f"{owner}: asks for the context twice, as {context!r} and {given.name!r}"
                )
            check_context(annotation, owner, asynchronous=asynchronous)
            context = given.name
        else:
            check_nearly_context(annotation, given.name, owner)
            described = docstring.parameters.get(given.name)
            parameters.append(Parameter(given.name, annotation, given.default, described))
    returns = _final(hints.get("return", MISSING))
    return Signature(
        _with_factories(function, parameters, owner),
        owner,
        tuple(parameters),
        context,
        returns,
        asynchronous,
        docstring.description,
        make_plan(dependencies, owner),
    )


def _awaited(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a plain wrapper of an async function as an async function: it returns a coroutine, or a result at once."""

    @functools.wraps(function)
    async def awaited(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        return await result if inspect.isawaitable(result) else result

    return awaited


def _with_factories(
    function: Callable[..., Any], parameters: Iterable[Parameter], owner: str
) -> Callable[..., Any]:
    """Return a function that makes the defaults of ``Field(default_factory=...)`` when it runs.

    They run where the function does, and only the function sees them: no middleware, and no cache.
    """
    if "pydantic" not in sys.modules:
        return function
    from mcpbus.features.schemas.records import find_factory  # noqa: PLC0415 - the author has imported pydantic

    found = {each.name: find_factory(each, f"{owner}, parameter {each.name!r}") for each in parameters}
    factories = {name: factory for name, factory in found.items() if factory is not None}
    if not factories:
        return function

    @functools.wraps(function)
    def call(**given: Any) -> Any:
        return function(**{name: make() for name, make in factories.items() if name not in given}, **given)

    return call


def _final(returns: Any) -> Any:
    """A return annotation without `InputRequired`, which asks for another run and is never the result."""
    if returns is InputRequired:
        return MISSING
    if get_origin(returns) in {Union, types.UnionType}:
        return functools.reduce(
            operator.or_, (kind for kind in get_args(returns) if kind is not InputRequired)
        )
    return returns


def describe(function: Callable[..., Any]) -> str | None:
    """What the docstring of `function` says, or None."""
    return inspect.getdoc(innermost(function)) or None


def name_of(function: Callable[..., Any]) -> str:
    """The name under which `function` is registered if its author gives no other."""
    inner = innermost(function)
    return str(getattr(inner, "__name__", type(inner).__name__))


def _check_bare(name: str, function: Callable[..., Any], owner: str, *, asynchronous: bool) -> None:
    """Refuse a parameter without an annotation that is hardly meant to be filled by clients."""
    if name in {"self", "cls"}:
        written = f"instance.{name_of(function)}"
        raise RegistrationError(
            f"{owner}: this is a method without its instance, and clients would have to give {name!r}; register it "
            f"of an instance: {_ADDING[owner.partition(' ')[0]].format(written)}"
        )
    if name == "ctx":
        kind = "Context" if asynchronous else "SyncContext"
        raise RegistrationError(
            f"{owner}: {name!r} has no annotation, and clients would have to give it; write {name}: {kind} "
            f"for the context, or its type if it is an argument"
        )
