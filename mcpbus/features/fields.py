"""What a pydantic ``Field(...)`` says of a parameter, in `Annotated` or where its default stands.

Its description and its bounds are read as those of anybody else, see `signature`. Whoever has one has imported pydantic; nobody else
pays for it.
"""

import inspect
import sys
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Annotated, Any, Final, get_args, get_origin

import msgspec

from mcpbus.features.errors import RegistrationError

_NOT_TAKEN: Final = {
    "validation_alias": "name the parameter as clients do, or give an input_schema by hand",
    "max_digits": "check it in the function",
    "decimal_places": "check it in the function",
}
"""What would be left without effect, and what to do instead. An alias is a validation alias, too."""


def is_field(value: Any) -> bool:
    """Whether something is a pydantic ``Field(...)``."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(value, pydantic.fields.FieldInfo)


class Factory(msgspec.Struct, frozen=True):
    """A default that is made for each call; clients are told that there is one, and not which."""

    make: Callable[[], Any]


def default_of(annotation: Any, owner: str) -> Any:
    """The default that the last ``Field`` of an annotation has which has one, or a `Factory`; `inspect.Parameter.empty` if none has.

    Raises:
        RegistrationError: Its factory wants to be given something.
    """
    extras = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
    for field in reversed([extra for extra in extras if is_field(extra)]):
        if field.default_factory_takes_validated_data:
            raise RegistrationError(
                f"{owner}: the default_factory of a Field takes nothing; make what rests on other arguments in the function"
            )
        if field.default_factory not in (None, list, dict, set):
            return Factory(field.default_factory)
        if not field.is_required():
            return field.get_default(call_default_factory=True)
    return inspect.Parameter.empty


def with_factories(function: Callable[..., Any], factories: Mapping[str, Factory]) -> Callable[..., Any]:
    """A function that is called as `function` is, with what factories make where nothing is given.

    So they run where the function does, and what they raise is what it raises.
    """

    @wraps(function)
    def call(**given: Any) -> Any:
        return function(
            **{name: each.make() for name, each in factories.items() if name not in given}, **given
        )

    return call


def check_taken(extra: Any, owner: str) -> None:
    """Refuse what pydantic would enforce, and nothing here does.

    Args:
        extra: Part of an annotation, such as a ``Field``, or what that is made of.
        owner: What messages call the parameter.

    Raises:
        RegistrationError: It says such a thing.
    """
    for name, instead in _NOT_TAKEN.items():
        if getattr(extra, name, None) is not None:
            said = "alias" if name == "validation_alias" else name
            raise RegistrationError(f"{owner}: {said} of a Field is not taken: {instead}")


def schema_of(field: Any, owner: str) -> dict[str, Any]:
    """What a ``Field`` adds to the schema beside what is enforced.

    Raises:
        RegistrationError: It has a function for that, which pydantic gives its own schema to change.
    """
    extra = field.json_schema_extra
    if callable(extra):
        raise RegistrationError(
            f"{owner}: json_schema_extra of a Field is a dict here, not a function: write what is added to the schema"
        )
    return {
        **(extra if isinstance(extra, dict) else {}),
        **({"deprecated": True} if field.deprecated else {}),
    }
