"""A method of an extension: a function whose parameters are a request's, and whose result is an object.

What a server declares of extensions, refused at once if clients could not be told.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypedDict

import msgspec

from mcpbus.features.arguments import Arguments, read_arguments
from mcpbus.features.errors import RegistrationError
from mcpbus.features.function import Function
from mcpbus.features.option_types import check_kinds, check_told
from mcpbus.features.schemas import python_types
from mcpbus.features.schemas.parameter import MISSING
from mcpbus.features.signature import Signature, check_function, read_signature
from mcpbus.features.tool import check_scopes, check_timeout
from mcpbus.protocol.extensions import TASKS, is_identifier, is_left_to_extensions
from mcpbus.protocol.keywords import check_keywords
from mcpbus.protocol.messages import decode_params
from mcpbus.protocol.results import Tail

_NOT_WHOLE = (
    "the result of a request is an object: return a dict, a dataclass or the like, or None for an empty one"
)


class RequestOptions(TypedDict, total=False):
    """How a method of an extension is registered, by keyword."""

    extension: str
    """The identifier of the extension, one of `Server(extensions=...)`: a client that did not declare it is refused.
    Everybody may send such requests if it is left out."""
    scopes: Iterable[str]
    """What a token has to allow for it, besides what every request needs; only over HTTP, see `mcpbus.auth`."""
    timeout: float
    """Seconds after which the call is cancelled and answered with an error; no limit if left out."""
    thread: bool
    """False runs a plain function on the trio thread, which it must not block; True by default."""


class ExtensionMethod(msgspec.Struct, frozen=True, eq=False):
    """A registered method."""

    name: str
    function: Function
    arguments: Arguments
    extension: str | None = None
    scopes: tuple[str, ...] = ()
    """What a token has to allow for it."""

    def decode(self, params: msgspec.Raw) -> dict[str, Any]:
        """The function's keyword arguments.

        Raises:
            InvalidArgumentsError: the params are not what it takes.
        """
        members = decode_params(dict[str, msgspec.Raw], params)
        members.pop("_meta", None)
        return self.arguments.decode(msgspec.json.encode(members))

    def encode_result(self, value: Any, tail: Tail) -> bytes:
        """The result object for what the function returned.

        Raises:
            TypeError: it is no object, or has no JSON form.
        """
        encoded = b"{}" if value is None else python_types.encode(value)
        if not encoded.startswith(b"{"):
            raise TypeError(f"{self.name} returned {type(value).__name__}; {_NOT_WHOLE}")
        return tail.whole(msgspec.json.decode(encoded, type=dict[str, msgspec.Raw]))


def make_extension_method(
    name: str, function: Callable[..., Any], options: RequestOptions, extensions: Collection[str]
) -> ExtensionMethod:
    """Make a method of `function`.

    Args:
        name: What clients call it.
        function: What answers.
        options: See `RequestOptions`.
        extensions: What the server declares.

    Raises:
        RegistrationError: it cannot be one as it is written.
        TypeError: an option is not known.
    """
    owner = f"request {name!r}"
    if not is_left_to_extensions(name):
        raise RegistrationError(
            f"{owner}: that is a method of the protocol, or looks like one, or is not visible ASCII alone; "
            f"write on_request('com.example/search') or the like"
        )
    check_function(function, "request")
    check_keywords("@server.on_request", options, RequestOptions.__annotations__)
    check_kinds("@server.on_request", options)
    extension = options.get("extension")
    if extension is not None and extension not in extensions:
        raise RegistrationError(
            f"{owner}: the server does not declare {extension!r}: write Server(..., extensions={{{extension!r}: {{}}}})"
        )
    signature = read_signature(function, owner)
    if any(parameter.name == "_meta" for parameter in signature.parameters):
        raise RegistrationError(f"{owner}: `_meta` is no parameter; take a context, and read ctx.meta")
    _check_result(signature)
    return ExtensionMethod(
        name,
        Function(signature, options.get("thread", True), check_timeout(options.get("timeout"), owner)),
        read_arguments(signature, None),
        extension,
        check_scopes(options.get("scopes", ()), owner),
    )


def _check_result(signature: Signature) -> None:
    """Refuse a return annotation that is no object.

    Raises:
        RegistrationError: it is none, or has no JSON form.
    """
    if signature.returns is MISSING:
        return
    from mcpbus.features.schemas.validation import value_validator  # noqa: PLC0415 - pydantic comes with the first tool

    try:
        validator = value_validator(signature.returns, f"{signature.owner}, return annotation")
        document = validator.schema("serialization")
    except (TypeError, ValueError, NotImplementedError) as error:
        raise RegistrationError(
            f"{signature.owner}: its return annotation has no JSON form: {error}"
        ) from error
    if not _may_be_object(document):
        raise RegistrationError(f"{signature.owner}: {_NOT_WHOLE}, not {document.get('type', 'that')}")


def _may_be_object(schema: Mapping[str, Any]) -> bool:
    """Whether a value may be an object, or is always null; that it may also be null is not enough."""
    if "anyOf" in schema:
        return any(map(_may_be_object, (each for each in schema["anyOf"] if each.get("type") != "null")))
    return schema.get("type", "object") in {"object", "null"}


def check_extensions(extensions: Any) -> None:
    """Refuse what is no settings by identifier.

    Raises:
        TypeError: it is another kind of thing.
        ValueError: a name is no identifier, or that of tasks.
        RegistrationError: JSON cannot say it.
    """
    if not isinstance(extensions, Mapping):
        raise TypeError(
            f"extensions is a dict of settings by identifier: write extensions={{'com.example/search': {{}}}}, not {extensions!r}"
        )
    for identifier, settings in extensions.items():
        if not is_identifier(identifier):
            raise ValueError(
                f"extensions: {identifier!r} is no identifier: write a domain of yours turned round, a slash and a name, "
                f"such as 'com.example/search'"
            )
        if identifier == TASKS:
            raise ValueError(
                f"extensions: {TASKS} is declared by itself: write @server.tool(task='optional')"
            )
        if not isinstance(settings, Mapping):
            raise TypeError(
                f"extensions: the settings of {identifier!r} are a dict, {{}} if there are none, not {settings!r}"
            )
        check_told(f"extension {identifier!r}", settings)
