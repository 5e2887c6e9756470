"""Calls that do not fit what is called: one sentence for each, that says what to write instead.

Python's own words name what is wrong, and stop there. What authors call says what would be right, if it is `explained`; whoever calls it
as it is meant to be pays for one more call, and classes of which there are many at work go without.
"""

import inspect
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import wraps
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar, get_args

import msgspec

F = TypeVar("F", bound=Callable[..., Any])

Elsewhere: TypeAlias = Mapping[str, Callable[[Any], str]]
"""Options that belong somewhere else, or have another name here: what to write instead, given the value."""

_NOTHING: Elsewhere = MappingProxyType({})
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def check_keywords(
    owner: str, given: Mapping[str, Any], known: Collection[str], elsewhere: Elsewhere = _NOTHING
) -> None:
    """Refuse keywords that are not known.

    Args:
        owner: What was called, such as ``@server.tool``.
        given: The keywords.
        known: Those that there are.
        elsewhere: Those that are not here.

    Raises:
        TypeError: One is not known; the message names what to write, or the nearest that is, or all.
    """
    if (fault := _unknown(owner, given, known, elsewhere)) is not None:
        raise TypeError(fault)


def _unknown(
    owner: str, given: Mapping[str, Any], known: Collection[str], elsewhere: Elsewhere
) -> str | None:
    for name, value in given.items():
        if name not in known:
            return f"{owner} has no option {name!r}; {_hint(name, value, known, elsewhere)}"
    return None


def _hint(name: str, value: Any, known: Collection[str], elsewhere: Elsewhere) -> str:
    if name in elsewhere:
        return elsewhere[name](value)
    import difflib  # noqa: PLC0415 - only who has made a mistake waits for it

    # On the wire, and in other libraries, the same is written in camelCase.
    typed = _HUMP.sub("_", name).lower()
    for near in difflib.get_close_matches(typed, [*known, *elsewhere], n=1):
        instead = f" {elsewhere[near](value)}" if near in elsewhere else ""
        return f"did you mean {near!r}?{instead}"
    return (
        f"there {'is' if len(known) == 1 else 'are'} {', '.join(sorted(known))}" if known else "it takes none"
    )


def explained(target: F) -> F:
    """Have calls of a function or a class that do not fit raise a TypeError that says what would.

    Written below ``@asynccontextmanager``, and above ``@attrs.frozen``. A struct has `Explained` for its metaclass instead.
    """
    return explained_as()(target)


def explained_as(
    owner: str | None = None, elsewhere: Elsewhere | Callable[[], Elsewhere] = _NOTHING
) -> Callable[[F], F]:
    """Make a decorator that is as `explained`.

    Args:
        owner: What is called, as its caller writes it; the name of the function, with that of its class, if left out.
        elsewhere: As for `check_keywords`; or a function that returns it, which is called for an error alone.
    """

    def decorate(target: F) -> F:
        if isinstance(target, type):
            made: type[Any] = target
            made.__init__ = _explained(made.__init__, owner or f"{made.__name__}()", elsewhere)
            return target
        return _explained(target, owner, elsewhere)

    return decorate


def _explained(function: F, owner: str | None, elsewhere: Elsewhere | Callable[[], Elsewhere]) -> F:
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            if _was_entered(error):
                raise
            others = elsewhere() if callable(elsewhere) else elsewhere
            raise TypeError(_misfit(owner, function, args, kwargs, others) or str(error)) from None

    return call  # type: ignore[return-value]  # it is called alike


class Explained(msgspec.StructMeta):
    """The metaclass of structs that say what would be right: of those that authors make, each of which takes longer by half a microsecond.

    What a class has for its ``ELSEWHERE`` is as for `check_keywords`.
    """

    ELSEWHERE: Elsewhere = _NOTHING

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:  # noqa: N805 - of a metaclass
        """Make one.

        Raises:
            TypeError: It cannot be made of that; the message says of what.
        """
        try:
            return super().__call__(*args, **kwargs)
        except TypeError as error:
            if _was_entered(error):
                raise
            # On the wire they say what they are by a member of their own.
            elsewhere = {**cls.ELSEWHERE, str(cls.__struct_config__.tag_field): _says_class}
            raise TypeError(
                _misfit(f"{cls.__name__}()", cls, args, kwargs, elsewhere) or str(error)
            ) from None


def _says_class(_value: Any) -> str:
    return "leave it out: the class says that"


def _was_entered(error: TypeError) -> bool:
    """Tell whether what was called has raised it, rather than refused its arguments."""
    return error.__traceback__ is not None and error.__traceback__.tb_next is not None


def _misfit(
    owner: str | None,
    called: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    elsewhere: Elsewhere,
) -> str | None:
    """Say why a call does not fit; None if Python's own words have to do."""
    parameters = [*inspect.signature(called).parameters.values()]
    if args and parameters and parameters[0].name == "self":
        owner = owner or f"{type(args[0]).__name__}.{called.__name__}()"
        parameters, args = parameters[1:], args[1:]
    owner = owner or f"{called.__name__}()"
    others = [each for each in parameters if each.kind in {each.VAR_POSITIONAL, each.VAR_KEYWORD}]
    named = [each for each in parameters if each not in others]
    by_place = [each.name for each in named if each.kind is not each.KEYWORD_ONLY]
    by_name = [each.name for each in named if each.kind is not each.POSITIONAL_ONLY and each.name[0] != "_"]
    takes_any = any(each.kind is each.VAR_KEYWORD for each in others)
    if not takes_any and (unknown := _unknown(owner, kwargs, by_name, elsewhere)) is not None:
        return unknown
    if len(args) > len(by_place):
        # What ``**options: Unpack[...]`` says of them.
        kinds = [kind for each in others for kind in get_args(each.annotation)]
        options = [*by_name, *(name for kind in kinds for name in kind.__annotations__)]
        return _too_many(owner, by_place, [name for name in options if name not in by_place])
    required = [each.name for each in named if each.default is each.empty and each.name not in kwargs]
    missing = [repr(name) for name in required if name not in by_place[: len(args)]]
    return f"{owner} needs {_enumerated(missing)}" if missing else None


def _too_many(owner: str, by_place: Sequence[str], by_name: Sequence[str]) -> str:
    taken = f"{owner} takes {_enumerated(by_place) or 'nothing'}"
    if by_name:
        return f"{taken} by position; give the rest by keyword: {by_name[0]}=..."
    return f"{taken} alone" if by_place else taken


def _enumerated(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), *words[-1:]] if len(words) > 1 else words)
