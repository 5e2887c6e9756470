"""What a pydantic ``Field(...)`` says of a parameter, in `Annotated` or where its default stands.

Its description and its bounds are read as those of anybody else, see `signature`. Whoever has one has imported pydantic; nobody else
pays for it.
"""

import inspect
import sys
from typing import Annotated, Any, Final, get_args, get_origin

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


def default_of(annotation: Any, owner: str) -> Any:
    """The default that the last ``Field`` of an annotation has which has one; `inspect.Parameter.empty` if none has.

    Raises:
        RegistrationError: It has a factory.
    """
    extras = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
    for field in reversed([extra for extra in extras if is_field(extra)]):
        if field.default_factory not in (None, list, dict, set):
            raise RegistrationError(
                f"{owner}: a Field with a default_factory cannot be told to clients; write the default, or None and make it in the function"
            )
        if not field.is_required():
            return field.get_default(call_default_factory=True)
    return inspect.Parameter.empty


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


def schema_of(field: Any) -> dict[str, Any]:
    """What a ``Field`` adds to the schema beside what is enforced."""
    extra = field.json_schema_extra
    return {
        **(extra if isinstance(extra, dict) else {}),
        **({"deprecated": True} if field.deprecated else {}),
    }
