"""A resource: a function behind one URI, or behind all the URIs of a template."""

from collections.abc import Callable, Collection, Iterable, Mapping
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Final,
    Protocol,
    TypedDict,
    Union,
    get_args,
    get_origin,
)

import msgspec

from mcpbus.features.arguments import InvalidArgumentsError, TypedArguments, typed_arguments
from mcpbus.features.content import CONTENT, File, PromptMessage, ToolResult, encode_parts, known_annotations
from mcpbus.features.errors import RegistrationError, ResourceNotFoundError
from mcpbus.features.function import Function
from mcpbus.features.option_types import check_kinds, check_told
from mcpbus.features.schemas import python_types
from mcpbus.features.schemas.parameter import MISSING
from mcpbus.features.signature import (
    Signature,
    check_function,
    describe,
    name_of,
    read_signature,
)
from mcpbus.features.tool import check_scopes, check_timeout
from mcpbus.features.uris import check_uri, is_template
from mcpbus.protocol import messages as wire
from mcpbus.protocol.keywords import check_keywords
from mcpbus.protocol.results import CacheScope, Tail
from mcpbus.protocol.revisions import LATEST, Revision
from mcpbus.protocol.validators import told_seconds_fault

if TYPE_CHECKING:  # what inverts templates: most servers have none
    from mcpbus.features.uri_templates import Template


class ResourceOptions(TypedDict, total=False):
    """How a resource is registered, by keyword."""

    name: str
    """The function's name if left out."""
    title: str
    description: str
    """The docstring if left out."""
    mime_type: str
    """If left out: ``text/plain`` for str, ``application/octet-stream`` for bytes, ``application/json`` for data."""
    annotations: wire.Annotations
    size: int
    """In bytes; only for a fixed URI."""
    icons: Iterable[wire.Icon]
    meta: wire.MetaObject
    scopes: Iterable[str]
    """What a token has to allow for it, besides what every request needs; only over HTTP, see `mcpbus.auth`."""
    timeout: float
    """Seconds after which reading is cancelled and answered with an error; no limit if left out."""
    thread: bool
    """False runs a plain function on the trio thread, which it must not block; True by default."""
    ttl: float
    """Seconds for which clients may reuse what they read; 0 by default."""
    cache_scope: CacheScope
    """``public`` if everybody reads the same and a proxy may serve it to others; ``private`` by default."""
    unsafe_paths: bool
    """True hands over whatever a URI says, for a function that opens no file by it. By default a URI names nothing
    where a variable holds an absolute path, a drive letter, a ``..`` between slashes, or a NUL. Only for templates."""


class UriPattern(Protocol):
    """Which URIs a template expands to."""

    def match(self, uri: str) -> Mapping[str, str | list[str]] | None:
        """What the function is given for a URI; None if the template does not expand to it."""

    def is_loose(self, uri: str) -> bool:
        """Return whether the URI, which matches, is not spelled as the template expands to it."""

    def moved(self, text: str, owner: str, /) -> "UriPattern":
        """The same as a server has it that has mounted its own: under another text, for another owner."""


class RegisteredResource(msgspec.Struct, frozen=True, eq=False):
    """A registered resource; it has a `template` if it has no fixed URI."""

    uri: str
    """The URI, or the text of the template."""
    function: Function
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    annotations: wire.Annotations | None = None
    size: int | None = None
    icons: tuple[wire.Icon, ...] = ()
    meta: wire.MetaObject | None = None
    ttl: float = 0.0
    cache_scope: CacheScope = "private"
    template: UriPattern | None = None
    scopes: tuple[str, ...] = ()
    """What a token has to allow for it."""
    arguments: TypedArguments | None = None
    """The variables of its URI; None where an upstream server reads the URI."""
    foreign: ClassVar[bool] = False
    """Whether an upstream server reads it."""

    def __repr__(self) -> str:
        return f"RegisteredResource({self.uri!r})"

    def describe(self, revision: Revision) -> wire.ResourceDescription | wire.ResourceTemplate:
        """The resource as a list of `revision` shows it."""
        common: dict[str, Any] = {
            "name": self.name,
            "title": self.title if revision.titles else None,
            "description": self.description,
            "mime_type": self.mime_type,
            "annotations": known_annotations(self.annotations, revision),
            "icons": list(self.icons) if revision.icons and self.icons else None,
            "meta": self.meta if revision.item_meta else None,
        }
        if self.template is not None:
            return wire.ResourceTemplate(uri_template=self.uri, **common)
        return wire.ResourceDescription(uri=self.uri, size=self.size, **common)

    def bind(self, values: Mapping[str, str | list[str]]) -> dict[str, Any]:
        """The function's arguments from the variables of a URI.

        Raises:
            ResourceNotFoundError: a variable is not what the function takes, so the URI names nothing.
        """
        if self.arguments is None:
            return {}
        try:
            return self.arguments.decode(dict(values))
        except InvalidArgumentsError as error:
            raise ResourceNotFoundError(str(error)) from error

    def encode_result(self, value: Any, uri: str, revision: Revision, tail: Tail) -> bytes:
        """The result object for what the function returned.

        Raises:
            TypeError: it is nothing, or has no JSON form.
        """
        values = value if _is_list_of_contents(value) else [value]
        contents = [self._contents(item, uri) for item in values]
        if not revision.item_meta:
            contents = [msgspec.structs.replace(item, meta=None) for item in contents]
        return b'{"contents":%b%b' % (encode_parts(contents), tail.cacheable(self.ttl, self.cache_scope))

    def _contents(self, value: Any, uri: str) -> wire.TextResourceContents | wire.BlobResourceContents:
        match value:
            case wire.TextResourceContents() | wire.BlobResourceContents():
                return value
            case File():
                return value.to_contents(uri, self.mime_type)
            case str() | bytes():
                return File(value).to_contents(uri, self.mime_type)
            case bytearray() | memoryview():
                return self._contents(bytes(value), uri)
            case None:
                raise TypeError(
                    f"resource {self.uri!r} returned nothing; raise ResourceNotFoundError if there is none"
                )
            case _ if isinstance(value, _FOR_TOOLS_AND_PROMPTS):
                raise TypeError(
                    f"resource {self.uri!r} returned what tools and prompts return: {value!r}; return text, bytes, data or a File"
                )
            case _:
                text = python_types.encode(value).decode()
                return File(text).to_contents(uri, self.mime_type or "application/json")


def require_uri(uri: Any) -> None:
    """Refuse what stands where a URI is to be given.

    Raises:
        TypeError: it is no text.
    """
    if not isinstance(uri, str):
        name = getattr(uri, "__name__", "name")
        raise TypeError(f'a resource needs a URI: write @server.resource("data://{name}")')


def make_resource(uri: str, function: Callable[..., Any], options: ResourceOptions) -> RegisteredResource:
    """Make a resource, or a template if `uri` has variables, of `function`.

    Raises:
        RegistrationError: it cannot be one as it is written.
        TypeError: there is no URI, or an option is not known.
    """
    require_uri(uri)
    check_function(function, "resource")
    check_keywords("@server.resource", options, ResourceOptions.__annotations__)
    check_kinds("@server.resource", options)
    if options.get("cache_scope", "private") not in get_args(CacheScope):
        raise TypeError(
            f"@server.resource: cache_scope is 'public' or 'private', not {options['cache_scope']!r}"
        )
    owner = f"resource {uri!r}"
    ttl = options.get("ttl") or 0.0
    if (fault := told_seconds_fault("ttl", ttl, 0)) is not None:
        raise RegistrationError(f"{owner}: {fault}")
    signature = read_signature(function, owner)
    template = arguments = None
    if is_template(uri):
        arguments = typed_arguments(signature)
        template = _read_template(uri, signature, options, arguments.document.get("required", ()))
    else:
        _check_fixed(uri, signature, options)
    made = RegisteredResource(
        uri=uri,
        function=Function(
            signature, options.get("thread", True), check_timeout(options.get("timeout"), owner)
        ),
        name=options.get("name", name_of(function)),
        title=options.get("title"),
        description=options.get("description", describe(function)),
        mime_type=options.get("mime_type", _mime_type(signature.returns)),
        annotations=options.get("annotations"),
        size=options.get("size"),
        icons=tuple(options.get("icons", ())),
        meta=options.get("meta"),
        ttl=ttl,
        cache_scope=options.get("cache_scope", "private"),
        template=template,
        scopes=check_scopes(options.get("scopes", ()), owner),
        arguments=arguments,
    )
    check_told(owner, made.describe(LATEST))
    return made


def _check_fixed(uri: str, signature: Signature, options: ResourceOptions) -> None:
    owner = signature.owner
    check_uri(uri, owner)
    if "unsafe_paths" in options:
        raise RegistrationError(f"{owner}: a fixed URI has no variables for which unsafe_paths could matter")
    if signature.parameters:
        name = signature.parameters[0].name
        raise RegistrationError(
            f"{owner}: a fixed URI has no variables, but the function takes {name!r}; write {{{name}}} into the URI"
        )


def _read_template(
    uri: str, signature: Signature, options: ResourceOptions, required: Collection[str]
) -> "Template":
    from mcpbus.features.uri_templates import compile_template  # noqa: PLC0415 - as said above

    template = compile_template(uri, signature.owner, unsafe_paths=options.get("unsafe_paths", False))
    _check_variables(template, signature, required)
    if "size" in options:
        raise RegistrationError(f"{signature.owner}: a template has no size")
    return template


def _check_variables(template: "Template", signature: Signature, required: Collection[str]) -> None:
    taken = {parameter.name for parameter in signature.parameters}
    for name in sorted(template.variables - taken):
        raise RegistrationError(
            f"{signature.owner}: the function takes no {name!r}, which the URI has; give it a parameter {name}"
        )
    for name in sorted(taken - template.variables):
        raise RegistrationError(
            f"{signature.owner}: the URI has no {name!r}, which the function takes; write {{{name}}} into the URI"
        )
    for parameter in signature.parameters:
        if parameter.name in required and parameter.name in template.optional:
            raise RegistrationError(
                f"{signature.owner}: a URI may leave the query variable {parameter.name!r} out; give it a default"
            )


def _mime_type(returns: Any) -> str | None:
    """What all that is read will be, by the annotation; None if that is for each value to say."""
    if get_origin(returns) is Annotated:
        return _mime_type(get_args(returns)[0])
    if get_origin(returns) in {Union, UnionType}:
        found = {_mime_type(kind) for kind in get_args(returns) if kind is not NoneType}
        return found.pop() if len(found) == 1 else None
    for kind, mime_type in _OF_KINDS.items():
        if returns is kind:  # an annotation need have no hash
            return mime_type
    return _json_of(returns)


def _json_of(returns: Any) -> str | None:
    from mcpbus.features.schemas.validation import value_validator  # noqa: PLC0415 - pydantic comes with the first tool

    try:
        value_validator(returns, "return annotation").schema("serialization")
    except (TypeError, ValueError, NotImplementedError):
        return None
    return "application/json"


def _is_list_of_contents(value: Any) -> bool:
    kinds = (File, wire.TextResourceContents, wire.BlobResourceContents)
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(item, kinds) for item in value)


_FOR_TOOLS_AND_PROMPTS = (PromptMessage, ToolResult, *CONTENT)
_OF_KINDS: Final[dict[Any, str | None]] = {
    str: "text/plain",
    bytes: "application/octet-stream",
    **dict.fromkeys((MISSING, Any, None, File, wire.TextResourceContents, wire.BlobResourceContents)),
}
