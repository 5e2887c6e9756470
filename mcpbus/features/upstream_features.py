"""What another server offers, as it describes it in its lists, made into features of this one.

Nothing is held against a schema here: that is for the server to do whose it is. So a function is called with all that a client gave in
one piece: a tool and a prompt with `arguments`, a dict, and a resource with `uri`; each with the context as `ctx`.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, Self, TypeAlias, TypeVar

import attrs
import msgspec

from mcpbus.features.arguments import Given, InvalidArgumentsError
from mcpbus.features.completion import Completer
from mcpbus.features.content import encode_parts
from mcpbus.features.errors import RegistrationError
from mcpbus.features.function import Function
from mcpbus.features.output import Output, unchecked_output
from mcpbus.features.prompt import RegisteredPrompt
from mcpbus.features.resource import RegisteredResource
from mcpbus.features.schemas import python_types
from mcpbus.features.schemas.parameter import MISSING, Parameter
from mcpbus.features.signature import Signature
from mcpbus.features.tool import Tool
from mcpbus.features.uri_templates import Template, compile_template
from mcpbus.protocol import messages as wire
from mcpbus.protocol.http.mirrored_parameters import mirrored_parameters
from mcpbus.protocol.large import decode_without_gc
from mcpbus.protocol.results import Tail
from mcpbus.protocol.revisions import Revision
from mcpbus.protocol.uris import without_path

Relay: TypeAlias = Callable[..., Awaitable[Any]]
"""Asks the other server, and returns what a function of an author's would."""

_T = TypeVar("_T")
_CONTEXT: Final = "ctx"
_VARIABLE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.]*")
_EXPRESSION: Final = re.compile(r"\{[+#./;?&]?([^{}]*)\}")


class _Unchecked(msgspec.Struct, frozen=True, eq=False):
    """The arguments of another server's tool, see `Arguments`: its function receives them all, whatever they are."""

    schema: msgspec.Raw
    document: dict[str, Any]

    call_reader = None

    def strictly(self) -> Self:
        return self

    def decode(self, given: Given) -> dict[str, Any]:
        try:
            read = given if isinstance(given, dict) else decode_without_gc(msgspec.json.decode, given)
        except (msgspec.DecodeError, RecursionError) as error:
            raise InvalidArgumentsError(str(error)) from error
        return {"arguments": read}


class _ForeignPrompt(RegisteredPrompt, frozen=True, eq=False):
    def bind(self, given: Mapping[str, str] | None) -> dict[str, Any]:
        """See `RegisteredPrompt.bind`; what is missing, or too much, its own server says."""
        return {"arguments": None if given is None else dict(given)}


class _ForeignResource(RegisteredResource, frozen=True, eq=False):
    foreign = True

    def bind(self, values: Mapping[str, str | list[str]]) -> dict[str, Any]:
        """See `RegisteredResource.bind`: all that it takes is the URI."""
        return dict(values)

    def encode_result(self, value: Any, uri: str, revision: Revision, tail: Tail) -> bytes:
        """See `RegisteredResource.encode_result`. There may be no contents, where it stands for a folder, say."""
        if isinstance(value, list) and not value:
            return b'{"contents":%b%b' % (encode_parts(value), tail.cacheable(self.ttl, self.cache_scope))
        return RegisteredResource.encode_result(self, value, uri, revision, tail)


@attrs.frozen
class ForeignTemplate:
    """A template of another server's, which is given the whole URI: what matches it is known where the template can be inverted.

    Attributes:
        text: The template.
        added: What was put before the path of its URIs by the servers that have mounted this one.
    """

    text: str
    added: str = ""
    _inverted: Template | None = attrs.field(default=None, repr=False)

    @classmethod
    def read(cls, text: str) -> Self:
        """Read a template; one that cannot be inverted matches nothing."""
        try:
            inverted = compile_template(text, f"resource {text!r}", unsafe_paths=True)
        except RegistrationError:
            inverted = None
        return cls(text, inverted=inverted)

    def match(self, uri: str) -> dict[str, str] | None:
        """Return the URI that its server knows, if the template expands to `uri`."""
        below = without_path(uri, self.added) if self.added else uri
        if self._inverted is None or below is None or self._inverted.match(below) is None:
            return None
        return {"uri": below}

    def is_loose(self, _uri: str) -> bool:
        """Return False: no upstream server may take a URI from another one by a closer template."""
        return False

    def moved(self, text: str, _owner: str) -> Self:
        """Return the same as it is offered by a server that has mounted its own."""
        added = text.partition("://")[2][: len(text) - len(self.text)]
        return attrs.evolve(self, text=text, added=added + self.added)

    @property
    def variables(self) -> list[str]:
        """The names of its variables."""
        expressions = (found.split(",") for found in _EXPRESSION.findall(self.text))
        return [found[0] for names in expressions for name in names if (found := _VARIABLE.match(name))]


class _AnyUri:
    """The template of the resources that are in no list of their server, which may have any URI."""

    def match(self, uri: str) -> dict[str, str]:
        return {"uri": uri}

    def is_loose(self, _uri: str) -> bool:
        return False

    def moved(self, _text: str, _owner: str) -> Self:
        return self


def foreign_tool(
    described: Mapping[str, Any], relay: Relay, *, scopes: tuple[str, ...] = (), timeout: float | None = None
) -> Tool:
    """Make a tool of what a list says of it.

    Args:
        described: An entry of ``tools/list``.
        relay: Is called with the name, `arguments` and `ctx`.
        scopes: What a token has to allow for it.
        timeout: Seconds after which a call of it fails; None for no limit.

    Raises:
        RegistrationError: It cannot be one; the message says what is wrong.
    """
    said = _read(described, wire.ToolDescription, "tool")
    owner = f"tool {said.name!r}"
    execution = described.get("execution")
    if isinstance(execution, dict) and execution.get("taskSupport") == "required":
        raise RegistrationError(f"{owner}: its calls are tasks always, which are not passed on")
    if not isinstance(said.input_schema, dict):
        raise RegistrationError(f"{owner}: its input schema is no object")
    try:
        mirrored = mirrored_parameters(said.input_schema)
    except ValueError as error:
        raise RegistrationError(f"{owner}: {error}") from None
    return Tool(
        said.name,
        _function(_naming(relay, said.name), owner, timeout=timeout),
        _Unchecked(_encode(said.input_schema), said.input_schema),
        None if said.output_schema is None else _output(said.output_schema, owner),
        title=said.title,
        description=said.description,
        annotations=said.annotations,
        icons=tuple(said.icons or ()),
        meta=said.meta,
        mirrored=mirrored,
        scopes=scopes,
    )


def unlisted_tool(
    name: str, relay: Relay, *, scopes: tuple[str, ...] = (), timeout: float | None = None
) -> Tool:
    """Make what calls a tool of which no list has more than its name; as `foreign_tool` in all else."""
    return foreign_tool(
        {"name": name, "inputSchema": {"type": "object"}}, relay, scopes=scopes, timeout=timeout
    )


def unlisted_prompt(
    name: str, relay: Relay, *, scopes: tuple[str, ...] = (), timeout: float | None = None
) -> RegisteredPrompt:
    """Make what gets a prompt of which no list has more than its name; as `foreign_prompt` in all else."""
    return foreign_prompt({"name": name}, relay, scopes=scopes, timeout=timeout)


def foreign_prompt(
    described: Mapping[str, Any], relay: Relay, *, scopes: tuple[str, ...] = (), timeout: float | None = None
) -> RegisteredPrompt:
    """Make a prompt of an entry of ``prompts/list``, as `foreign_tool` makes a tool."""
    said = _read(described, wire.PromptDescription, "prompt")
    listed = tuple(said.arguments or ())
    parameters = [Parameter(each.name, str) for each in listed]
    return _ForeignPrompt(
        said.name,
        _function(_naming(relay, said.name), f"prompt {said.name!r}", parameters, timeout),
        title=said.title,
        description=said.description,
        icons=tuple(said.icons or ()),
        meta=said.meta,
        scopes=scopes,
        listed=listed,
    )


def foreign_resource(
    described: Mapping[str, Any], relay: Relay, *, scopes: tuple[str, ...] = (), timeout: float | None = None
) -> RegisteredResource:
    """Make a resource of an entry of ``resources/list``; `relay` is called with `uri` and `ctx`. As `foreign_tool` in all else."""
    said = _read(described, wire.ResourceDescription, "resource")
    return _ForeignResource(
        said.uri,
        _function(_naming(relay, said.uri), f"resource {said.uri!r}", timeout=timeout),
        said.name,
        title=said.title,
        description=said.description,
        mime_type=said.mime_type,
        annotations=said.annotations,
        size=said.size,
        icons=tuple(said.icons or ()),
        meta=said.meta,
        scopes=scopes,
    )


def foreign_template(
    described: Mapping[str, Any], relay: Relay, *, scopes: tuple[str, ...] = (), timeout: float | None = None
) -> RegisteredResource:
    """Make a template of an entry of ``resources/templates/list``; as `foreign_resource` in all else."""
    said = _read(described, wire.ResourceTemplate, "resource template")
    template = ForeignTemplate.read(said.uri_template)
    return _ForeignResource(
        said.uri_template,
        _function(
            relay,
            f"resource {said.uri_template!r}",
            [Parameter(name, str) for name in template.variables],
            timeout,
        ),
        said.name,
        title=said.title,
        description=said.description,
        mime_type=said.mime_type,
        annotations=said.annotations,
        icons=tuple(said.icons or ()),
        meta=said.meta,
        template=template,
        scopes=scopes,
    )


def unlisted_resources(
    relay: Relay, *, scopes: tuple[str, ...] = (), timeout: float | None = None
) -> RegisteredResource:
    """Make what reads the resources that are in no list of their server."""
    return _ForeignResource(
        "", _function(relay, "a resource", timeout=timeout), "", template=_AnyUri(), scopes=scopes
    )


def foreign_completer(ref: str, argument: str, relay: Relay, timeout: float | None = None) -> Completer:
    """Make what proposes values for an argument of a prompt, or a variable of a template.

    Args:
        ref: The prompt's name, or the template.
        argument: Its argument.
        relay: Is called with the two, `value`, `chosen` and `ctx`.
        timeout: Seconds after which that fails; None for no limit.
    """

    async def complete(**given: Any) -> Any:
        return await relay(ref, argument, **given)

    parameters = [Parameter("value", str), Parameter("chosen", dict)]
    return Completer(
        ref, argument, _function(complete, f"completion of {argument!r} in {ref!r}", parameters, timeout)
    )


def _read(described: Mapping[str, Any], kind: type[_T], noun: str) -> _T:
    try:
        return msgspec.convert(described, kind)
    except msgspec.ValidationError as error:
        raise RegistrationError(f"{noun} {described.get('name')!r}: {error}") from None


def _function(
    relay: Relay, owner: str, parameters: Iterable[Parameter] = (), timeout: float | None = None
) -> Function:
    signature = Signature(
        relay, owner, tuple(parameters), _CONTEXT, MISSING, asynchronous=True, description=None
    )
    return Function(signature, timeout=timeout)


def _naming(relay: Relay, name: str) -> Relay:
    async def named(**given: Any) -> Any:
        return await relay(name, **given)

    return named


def _output(schema: Any, owner: str) -> Output:
    if not isinstance(schema, dict):
        raise RegistrationError(f"{owner}: its output schema is no object")
    return unchecked_output(schema)


def _encode(schema: dict[str, Any]) -> msgspec.Raw:
    return msgspec.Raw(python_types.encode(schema))
