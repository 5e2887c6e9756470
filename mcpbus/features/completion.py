"""A completion: a function that proposes values for one argument of a prompt, or one variable of a template."""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from mcpbus.features.errors import RegistrationError
from mcpbus.features.function import Function
from mcpbus.features.schemas import python_types
from mcpbus.features.signature import check_function, read_signature
from mcpbus.protocol.keywords import Explained
from mcpbus.protocol.results import Tail

MOST_VALUES = 100
"""The most values that one answer may hold (rule Q-3)."""


class Completion(msgspec.Struct, metaclass=Explained, frozen=True):
    """Values with what is known of the rest, where a list does not say enough.

    Args:
        values: the best ones first; past 100 they are cut.
        total: how many there are altogether, if that is known.
        has_more: whether there are more, if `total` is not known.
    """

    values: Iterable[str]
    total: int | None = None
    has_more: bool | None = None


class Completer(msgspec.Struct, frozen=True, eq=False):
    """A registered completion."""

    ref: str
    """The name of the prompt, or the text of the template."""
    argument: str
    function: Function

    def bind(self, value: str, chosen: dict[str, str]) -> dict[str, Any]:
        """The function's arguments: what was typed and, if it takes a second one, what was chosen for others."""
        given = (value, chosen)
        return {
            parameter.name: item
            for parameter, item in zip(self.function.signature.parameters, given, strict=False)
        }

    def encode_result(self, value: Any, tail: Tail) -> bytes:
        """The result object for what the function returned.

        Raises:
            TypeError: it is neither a list of strings, nor a `Completion` of them.
        """
        return encode_completion(value if isinstance(value, Completion) else Completion(value), tail)


NOTHING = Completion(())
"""Completes an argument for which no function is registered."""


def encode_completion(completion: Completion, tail: Tail) -> bytes:
    """The result object of a completion, cut to 100 values.

    Raises:
        TypeError: its values are not strings.
    """
    if isinstance(completion.values, str):
        raise TypeError("a completion is a list of strings, not one string")
    values = list(completion.values)
    if not all(isinstance(value, str) for value in values):
        raise TypeError("a completion is a list of strings")
    total, has_more = completion.total, completion.has_more
    if len(values) > MOST_VALUES:
        total = len(values) if total is None else total
        has_more = True
    elif has_more is None:
        has_more = total is not None and total > len(values)
    body: dict[str, Any] = {"values": values[:MOST_VALUES], "hasMore": has_more}
    if total is not None:
        body["total"] = total
    return b'{"completion":%b%b' % (python_types.encode(body), tail.plain)


def make_completer(
    ref: str, argument: str, function: Callable[..., Any], *, thread: bool, timeout: float | None
) -> Completer:
    """Make a completion of `function`, which takes what was typed and, if it likes, what was chosen for others.

    Raises:
        RegistrationError: it takes other parameters than these, besides a context.
    """
    check_function(function, "completion")
    owner = f"completion of {argument!r} in {ref!r}"
    signature = read_signature(function, owner)
    if not 1 <= len(signature.parameters) <= 2:
        raise RegistrationError(
            f"{owner}: the function takes what was typed (str) and, optionally, the arguments chosen already "
            f"(dict[str, str]), besides the context"
        )
    return Completer(ref, argument, Function(signature, thread, timeout))
