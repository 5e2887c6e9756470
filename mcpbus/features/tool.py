"""A tool: a function with a name, a schema for what it takes, and perhaps one for what it gives."""

import re
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias, TypedDict, Unpack

import msgspec

from mcpbus.features.arguments import Arguments, read_arguments
from mcpbus.features.content import ToolResult, encode_content, encode_text
from mcpbus.features.errors import RegistrationError
from mcpbus.features.function import Function
from mcpbus.features.option_types import check_kinds, check_lists, check_members, check_plain, check_told
from mcpbus.features.output import Output, read_output
from mcpbus.features.schemas import python_types
from mcpbus.features.schemas.json_schema import HandWritten
from mcpbus.features.signature import check_function, describe, name_of, read_signature
from mcpbus.protocol import messages as wire
from mcpbus.protocol.extensions import TaskOption, TaskSupport, read_support
from mcpbus.protocol.http.mirrored_parameters import MirroredParameter, mirrored_parameters
from mcpbus.protocol.keywords import check_keywords, explained
from mcpbus.protocol.results import Tail
from mcpbus.protocol.revisions import LATEST, Revision, Structured
from mcpbus.protocol.scopes import read_scopes

Visible: TypeAlias = Callable[[Any, "Tool"], bool]
"""``visible(principal, tool)``: whether this principal (None for an unauthenticated client) may see and call the tool."""

# What every revision's text and the official rule for names (SEP-986) both admit (rule F-10).
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class ToolOptions(TypedDict, total=False):
    """How a tool is registered, by keyword."""

    name: str
    """1 to 64 letters, digits, ``_``, ``-`` and ``.``; the function's name if left out."""
    title: str
    description: str
    """The docstring if left out."""
    annotations: wire.ToolAnnotations
    icons: Iterable[wire.Icon]
    tags: Iterable[str]
    """Words of the author's, for `Server.enable`, `Server.disable` and `visible`; clients are not shown them."""
    meta: wire.MetaObject
    input_schema: HandWritten
    """A JSON Schema by hand; the function then takes one parameter besides the context: all arguments, as one dict."""
    output_schema: HandWritten
    """A JSON Schema by hand, to which what the function returns (or a ToolResult's `structured`) must conform."""
    timeout: float
    """Seconds after which the call is cancelled and fails; no limit if left out."""
    thread: bool
    """False runs a plain function on the trio thread, which it must not block; True by default."""
    replay: bool
    """Whether a call that waited for the client's answer, and is lost, may be run again from the top with the answers
    so far; what it does before it asks must bear repeating. True by default where the annotations say that the tool
    is read-only or idempotent, else False."""
    task: TaskOption
    """``"optional"`` or ``"required"`` makes each call a task where the client declared that it takes tasks; required
    refuses the others. A `TaskSupport` says more."""
    scopes: Iterable[str]
    """What a token has to allow for it, besides what every request needs; only over HTTP, see `mcpbus.auth`."""
    visible: Visible
    """Who sees it, besides whom the server's own `visible` admits."""


class Tool(msgspec.Struct, frozen=True, eq=False):
    """A registered tool."""

    name: str
    function: Function
    arguments: Arguments
    output: Output | None
    title: str | None = None
    description: str | None = None
    annotations: wire.ToolAnnotations | None = None
    icons: tuple[wire.Icon, ...] = ()
    meta: wire.MetaObject | None = None
    visible: Visible | None = None
    replay: bool = False
    """Whether it may be run again from the top after a call of it was lost."""
    mirrored: tuple[MirroredParameter, ...] = ()
    """The arguments that HTTP mirrors into ``Mcp-Param-*`` headers."""
    task: TaskSupport | None = None
    """How its calls become tasks; None if they do not."""
    scopes: tuple[str, ...] = ()
    """What a token has to allow for it."""
    tags: frozenset[str] = frozenset()
    """Words of the author's, by which tools are told apart."""

    def __repr__(self) -> str:
        return f"Tool({self.name!r})"

    def describe(self, revision: Revision) -> wire.ToolDescription:
        """The tool as a list of `revision` shows it."""
        return wire.ToolDescription(
            self.name,
            self.arguments.schema,
            self.title if revision.titles else None,
            self.description,
            None if self.output is None else self.output.schema(revision),
            self.annotations if revision.annotations else None,
            list(self.icons) if revision.icons and self.icons else None,
            self.meta if revision.item_meta else None,
        )

    def encode_result(self, value: Any, revision: Revision, tail: Tail) -> bytes:
        """The result object for what the function returned.

        Raises:
            NonConformingResultError: it does not conform to the output schema.
            TypeError: it has no JSON form.
            ValueError: it holds a File without a uri.
        """
        if type(value) is str and self.output is None:
            return b'{"content":[{"type":"text","text":%b}]%b' % (python_types.encode(value), tail.plain)
        if isinstance(value, ToolResult):
            return self._encode_tool_result(value, revision, tail)
        if self.output is None:
            return b'{"content":%b%b' % (encode_content(value, revision), tail.plain)
        encoded = self.output.encode(value)
        return _result(encode_text(encoded.decode()), self.output.structure(encoded, revision), tail.plain)

    def _encode_tool_result(self, result: ToolResult, revision: Revision, tail: Tail) -> bytes:
        meta = result.meta or {}
        end = tail.with_meta({name: msgspec.Raw(python_types.encode(value)) for name, value in meta.items()})
        if result.is_error:
            end = b',"isError":true' + end
        structured = None
        content = result.content
        if result.structured is not msgspec.UNSET:
            held = None if result.is_error else self.output
            encoded = (python_types.encode if held is None else held.encode)(result.structured)
            if self.output is not None:
                structured = self.output.structure(encoded, revision)
            elif _admits(revision.structured_content, encoded):
                structured = encoded
            if content is None:
                content = encoded.decode()
        elif self.output is not None and not result.is_error:
            self.output.check_left_out()
        # A list of nothing is no content here, where it stands for blocks; a function that returns one returns data.
        nothing = isinstance(content, list | tuple) and not content
        return _result(b"[]" if nothing else encode_content(content, revision), structured, end)


@explained
def tool(function: Callable[..., Any], /, **options: Unpack[ToolOptions]) -> Tool:
    """Make a tool of `function`, to be added to a server or a session.

    Raises:
        RegistrationError: it cannot be one as it is written.
        TypeError: an option is not known.
    """
    check_function(function, "tool")
    check_keywords("@server.tool", options, ToolOptions.__annotations__)
    check_kinds("@server.tool", options)
    name = options.get("name", name_of(function))
    check_name(name)
    owner = f"tool {name!r}"
    check_lists(tags=options.get("tags", ()))
    check_plain(f"{owner}: ", "visible", options.get("visible"))
    annotations = options.get("annotations")
    if annotations is not None and not isinstance(annotations, wire.ToolAnnotations):
        raise RegistrationError(
            f"{owner}: annotations are ToolAnnotations(read_only_hint=True) or the like, not {annotations!r}"
        )
    if annotations is not None:
        check_members(owner, annotations)
    signature = read_signature(function, owner)
    arguments = read_arguments(signature, options.get("input_schema"))
    made = Tool(
        name=name,
        function=Function(
            signature, options.get("thread", True), check_timeout(options.get("timeout"), owner)
        ),
        arguments=arguments,
        output=read_output(signature, options.get("output_schema")),
        title=options.get("title"),
        description=options.get(
            "description", describe(function) if "input_schema" in options else signature.description
        ),
        annotations=annotations,
        icons=tuple(options.get("icons", ())),
        meta=options.get("meta"),
        visible=options.get("visible"),
        replay=options.get("replay", _bears_repeating(annotations)),
        mirrored=_mirrored(arguments.document, owner),
        task=_task_support(options.get("task"), owner),
        scopes=check_scopes(options.get("scopes", ()), owner),
        tags=frozenset(options.get("tags", ())),
    )
    check_told(owner, made.describe(LATEST))
    return made


def check_name(name: str) -> None:
    """Refuse a name that not every client takes.

    Raises:
        RegistrationError: it is one.
    """
    if not _NAME.fullmatch(name):
        raise RegistrationError(
            f"tool {name!r}: a name is 1 to 64 letters, digits, '_', '-' or '.', which every client takes; give name="
        )


def _mirrored(schema: dict[str, Any], owner: str) -> tuple[MirroredParameter, ...]:
    try:
        return mirrored_parameters(schema)
    except ValueError as error:
        raise RegistrationError(f"{owner}: {error}") from error


def _task_support(option: TaskOption | None, owner: str) -> TaskSupport | None:
    try:
        return read_support(option)
    except ValueError as error:
        raise RegistrationError(f"{owner}: {error}") from error


def _bears_repeating(annotations: wire.ToolAnnotations | None) -> bool:
    return annotations is not None and bool(annotations.read_only_hint or annotations.idempotent_hint)


def error_result(text: str, tail: Tail) -> bytes:
    """The result object of a tool that failed, with what the model may read (rules F-13 and F-15)."""
    # What an exception says may hold undecodable bytes, as lone surrogates; its result must still get out.
    return b'{"content":%b,"isError":true%b' % (
        encode_text(text.encode(errors="replace").decode()),
        tail.plain,
    )


def check_timeout(timeout: Any, owner: str) -> float | None:
    """Refuse a timeout that is no time.

    Raises:
        RegistrationError: it is not positive.
    """
    if timeout is not None and not (isinstance(timeout, int | float) and timeout > 0):
        raise RegistrationError(f"{owner}: a timeout is a positive number of seconds, not {timeout!r}")
    return timeout


def check_scopes(scopes: Any, owner: str) -> tuple[str, ...]:
    """Refuse scopes that are none.

    Raises:
        RegistrationError: one is none, or they are no list.
    """
    try:
        return read_scopes(scopes, owner)
    except ValueError as error:
        raise RegistrationError(str(error)) from None


def _admits(structured: Structured, encoded: bytes) -> bool:
    return structured is Structured.ANY or (structured is Structured.OBJECT and encoded.startswith(b"{"))


def _result(content: bytes, structured: bytes | None, end: bytes) -> bytes:
    if structured is None:
        return b'{"content":%b%b' % (content, end)
    return b'{"content":%b,"structuredContent":%b%b' % (content, structured, end)
