"""What a function's signature says: its parameters, the context it asks for, its result, its description.

Read once, at registration; whatever cannot be served is refused here, before a client could trip over it.
"""

import copy
import datetime as dt
import functools
import inspect
import operator
import re
import types
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from mcpbus.features import fields
from mcpbus.features.annotations import (
    check_context,
    check_nearly_context,
    code_of,
    hints_of,
    innermost,
    is_context,
)
from mcpbus.features.asking.input_required import InputRequired
from mcpbus.features.dependencies import Plan, find_dependency, make_plan
from mcpbus.features.docstrings import read_docstring
from mcpbus.features.errors import RegistrationError
from mcpbus.features.schemas import jsontypes

MISSING: Any = inspect.Parameter.empty
"""Stands for an absent default or an absent annotation, where None would be a value."""


class Parameter(msgspec.Struct, frozen=True):
    """One parameter that a client fills."""

    name: str
    annotation: Any
    """As written, `Any` where nothing is; descriptions and constraints are in one `msgspec.Meta`."""
    default: Any = MISSING
    """As written; a `fields.Factory` is called by the function of the `Signature` itself."""
    by_field: bool = False
    """Whether the default is that of a pydantic ``Field``: a call has to give it, since the function has none, or the ``Field``."""

    @property
    def required(self) -> bool:
        """Whether the client has to give it."""
        return self.default is MISSING

    @property
    def meta(self) -> msgspec.Meta | None:
        """What `Annotated` says about it."""
        if get_origin(self.annotation) is Annotated:
            for extra in get_args(self.annotation)[1:]:
                if isinstance(extra, msgspec.Meta):
                    return extra
        return None


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

    def defaults_by_fields(self) -> dict[str, Any]:
        """What a call gives where its client says nothing, and the function has a ``Field``; the caller's own."""
        return {each.name: copy.deepcopy(each.default) for each in self.parameters if each.by_field}

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
            parameters.append(_read_parameter(given, annotation, described, place))
    factories = {each.name: each.default for each in parameters if isinstance(each.default, fields.Factory)}
    returns = _final(hints.get("return", MISSING))
    return Signature(
        fields.with_factories(function, factories) if factories else function,
        owner,
        tuple(parameters),
        context,
        returns,
        asynchronous,
        docstring.description,
        make_plan(dependencies, owner),
    )


def _read_parameter(
    given: inspect.Parameter, annotation: Any, described: str | None, place: str
) -> Parameter:
    """Read a parameter that a client fills, and the docstring describes, or does not."""
    default = given.default
    if fields.is_field(default):
        annotation, default = Annotated[annotation, default], MISSING
    if by_field := default is MISSING:
        default = fields.default_of(annotation, place)
        by_field = default is not MISSING and not isinstance(default, fields.Factory)
    annotation = _gather_meta(_with_description(annotation, described), place)
    return Parameter(given.name, annotation, default, by_field)


def _final(returns: Any) -> Any:
    """A return annotation without `InputRequired`, which asks for another run and is never the result."""
    if returns is InputRequired:
        return MISSING
    if get_origin(returns) in {Union, types.UnionType}:
        return functools.reduce(
            operator.or_, (kind for kind in get_args(returns) if kind is not InputRequired)
        )
    return returns


def check_convertible(signature: Signature) -> None:
    """Refuse parameters that no text of a client could become.

    Raises:
        RegistrationError: an annotation has no JSON form.
    """
    for parameter in signature.parameters:
        try:
            jsontypes.check_convertible(parameter.annotation)
        except (TypeError, NotImplementedError) as error:
            raise RegistrationError(
                f"{signature.owner}, parameter {parameter.name!r}: no text can become this type: {error}"
            ) from error


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


def _with_description(annotation: Any, description: str | None) -> Any:
    """An annotation that says what the docstring says, unless it says something itself."""
    if description is None:
        return annotation
    bare, *extras = get_args(annotation) if get_origin(annotation) is Annotated else (annotation,)
    return Annotated[(bare, description, *extras)]


def _gather_meta(annotation: Any, owner: str) -> Any:
    """Fold what `Annotated` carries into one `msgspec.Meta`.

    A bare string is the description. Constraints in the common vocabulary of annotated-types (``ge``, ``max_length``
    and so on, which pydantic's ``Field`` carries too) are taken over, so that none is silently left unenforced.
    """
    if annotation is dt.datetime:
        return _DATETIME
    origin = get_origin(annotation)
    if origin is None or origin is Literal:
        return annotation
    if origin is not Annotated:
        inner = tuple(_gather_meta(part, owner) for part in get_args(annotation))
        if inner == get_args(annotation):
            return annotation
        return Union[inner] if origin is types.UnionType else origin[inner]  # noqa: UP007  # it has to be built
    bare, *extras = get_args(annotation)
    found = _read_meta(extras, owner)
    bare = _bind_inside(bare, found, owner)
    if "tz" not in found:  # where that is said, msgspec knows the format
        bare = _gather_meta(bare, owner)
    return Annotated[bare, _make_meta(found, owner)] if found else bare


def _bind_inside(bare: Any, found: dict[str, Any], owner: str) -> Any:
    """Give the bounds of what may be None to what else it may be, where msgspec wants them; pydantic takes them outside."""
    bounds = {name: found[name] for name in _BOUNDS if name in found}
    others = [kind for kind in get_args(bare) if kind is not types.NoneType]
    if not bounds or get_origin(bare) not in {Union, types.UnionType} or len(others) != 1:
        return bare
    for name in bounds:
        del found[name]
    return Annotated[others[0], _make_meta(bounds, owner)] | None


def _make_meta(found: dict[str, Any], owner: str) -> msgspec.Meta:
    try:
        return msgspec.Meta(**found)
    except (TypeError, ValueError, re.error) as error:
        raise RegistrationError(f"{owner}: {error}") from error


def _read_meta(extras: Iterable[Any], owner: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for extra in _flatten(extras):
        if isinstance(extra, str):
            found["description"] = extra
            continue
        fields.check_taken(extra, owner)
        said = {field: getattr(extra, field, None) for field in (*_BOUNDS, *_TOLD)}
        if fields.is_field(extra):
            said["extra_json_schema"] = fields.schema_of(extra, owner) or None
        found |= {field: value for field, value in said.items() if value is not None}
    return found


def _flatten(extras: Iterable[Any]) -> Iterable[Any]:
    for extra in extras:
        yield extra
        yield from getattr(extra, "metadata", None) or ()


# msgspec says the format only of what must have an offset. One without is taken too, but nobody need know.
_DATETIME = Annotated[dt.datetime, msgspec.Meta(extra_json_schema={"format": "date-time"})]
_BOUNDS = ("gt", "ge", "lt", "le", "multiple_of", "pattern", "min_length", "max_length", "tz")
_TOLD = ("title", "description", "examples", "extra_json_schema", "extra")
