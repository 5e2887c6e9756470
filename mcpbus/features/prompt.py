"""A prompt: a function whose arguments a person fills, and whose result is a conversation's beginning."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypedDict

import msgspec

from mcpbus.features.arguments import TypedArguments, typed_arguments
from mcpbus.features.content import CONTENT, PromptMessage, PromptResult, adapt, encode_parts, to_blocks
from mcpbus.features.function import Function
from mcpbus.features.option_types import check_kinds, check_told
from mcpbus.features.schemas import python_types
from mcpbus.features.signature import check_function, name_of, read_signature
from mcpbus.features.tool import check_scopes, check_timeout
from mcpbus.protocol import messages as wire
from mcpbus.protocol.keywords import check_keywords
from mcpbus.protocol.results import Tail
from mcpbus.protocol.revisions import LATEST, Revision


class PromptOptions(TypedDict, total=False):
    """How a prompt is registered, by keyword."""

    name: str
    """The function's name if left out."""
    title: str
    description: str
    """The docstring if left out."""
    icons: Iterable[wire.Icon]
    meta: wire.MetaObject
    scopes: Iterable[str]
    """What a token has to allow for it, besides what every request needs; only over HTTP, see `mcpbus.auth`."""
    timeout: float
    """Seconds after which the call is cancelled and answered with an error; no limit if left out."""
    thread: bool
    """False runs a plain function on the trio thread, which it must not block; True by default."""


class RegisteredPrompt(msgspec.Struct, frozen=True, eq=False):
    """A registered prompt."""

    name: str
    function: Function
    title: str | None = None
    description: str | None = None
    icons: tuple[wire.Icon, ...] = ()
    meta: wire.MetaObject | None = None
    scopes: tuple[str, ...] = ()
    """What a token has to allow for it."""
    listed: tuple[wire.PromptArgument, ...] = ()
    """Its arguments, as lists show them."""
    arguments: TypedArguments | None = None
    """Its arguments, as a client gives them; None where an upstream server reads them."""

    def __repr__(self) -> str:
        return f"RegisteredPrompt({self.name!r})"

    def describe(self, revision: Revision) -> wire.PromptDescription:
        """The prompt as a list of `revision` shows it."""
        return wire.PromptDescription(
            self.name,
            self.title if revision.titles else None,
            self.description,
            [_known_argument(argument, revision) for argument in self.listed] or None,
            list(self.icons) if revision.icons and self.icons else None,
            self.meta if revision.item_meta else None,
        )

    def bind(self, given: Mapping[str, str] | None) -> dict[str, Any]:
        """The function's arguments from the strings that a client gives; None if it gives none.

        Raises:
            InvalidArgumentsError: a required one is missing, one is not known, or one is not of its type.
        """
        assert self.arguments is not None  # noqa: S101 - as said there
        return self.arguments.decode(dict(given or {}))

    def encode_result(self, value: Any, revision: Revision, tail: Tail) -> bytes:
        """The result object for what the function returned: a `PromptResult`, messages, or values that the user says.

        Raises:
            TypeError: it has no JSON form.
            ValueError: it holds a File without a uri.
        """
        said = value if isinstance(value, PromptResult) else PromptResult(value)
        messages = [
            wire.WirePromptMessage(message.role, adapt(message.content, revision))
            for message in _messages(said.messages)
        ]
        description = self.description if said.description is None else said.description
        start = b'{"description":%b,' % python_types.encode(description) if description else b"{"
        meta = {name: msgspec.Raw(python_types.encode(each)) for name, each in (said.meta or {}).items()}
        return start + b'"messages":%b%b' % (encode_parts(messages), tail.with_meta(meta))


def make_prompt(function: Callable[..., Any], options: PromptOptions) -> RegisteredPrompt:
    """Make a prompt of `function`.

    Raises:
        RegistrationError: it cannot be one as it is written.
        TypeError: an option is not known.
    """
    check_function(function, "prompt")
    check_keywords("@server.prompt", options, PromptOptions.__annotations__)
    check_kinds("@server.prompt", options)
    name = options.get("name", name_of(function))
    owner = f"prompt {name!r}"
    signature = read_signature(function, owner)
    arguments = typed_arguments(signature)
    made = RegisteredPrompt(
        name=name,
        function=Function(
            signature, options.get("thread", True), check_timeout(options.get("timeout"), owner)
        ),
        title=options.get("title"),
        description=options.get("description", signature.description),
        icons=tuple(options.get("icons", ())),
        meta=options.get("meta"),
        scopes=check_scopes(options.get("scopes", ()), owner),
        listed=_listed(arguments.document),
        arguments=arguments,
    )
    check_told(owner, made.describe(LATEST))
    return made


def _listed(document: Mapping[str, Any]) -> tuple[wire.PromptArgument, ...]:
    required = document.get("required", ())
    return tuple(
        wire.PromptArgument(name, schema.get("title"), schema.get("description"), name in required or None)
        for name, schema in document["properties"].items()
    )


def _known_argument(argument: wire.PromptArgument, revision: Revision) -> wire.PromptArgument:
    return argument if revision.titles else msgspec.structs.replace(argument, title=None)


def _messages(value: Any) -> list[PromptMessage]:
    if isinstance(value, PromptMessage):
        return [value]
    if isinstance(value, list | tuple) and (
        not value or any(isinstance(item, (PromptMessage, str, *CONTENT)) for item in value)
    ):
        return [message for item in value for message in _messages(item)]
    for item in value if isinstance(value, list | tuple) else [value]:
        if isinstance(item, dict) and item.keys() == {"role", "content"}:
            raise TypeError(
                f"a message of a prompt is no dict, which users would read as JSON: write PromptMessage({item['role']!r}, ...)"
            )
    return [PromptMessage("user", block) for block in to_blocks(value)]
