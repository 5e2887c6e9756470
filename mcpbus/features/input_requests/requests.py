"""The questions that a client can be asked: each knows what it needs, what goes out, and what an answer means.

What a client's model is told: messages, each of one or several blocks of content.

A model that may use tools asks for one with a `ToolUse`, and reads what came of it in the very next message
(2025-11-25, Sampling, "Tool Use and Result Balance").
"""

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, Generic, Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

import attrs
import msgspec

from mcpbus.features.input_requests.errors import invalid_answer
from mcpbus.features.input_requests.forms import Form, make_form, with_enum_names, without_defaults
from mcpbus.features.input_requests.results import (
    AcceptedElicitation,
    CancelledElicitation,
    DeclinedElicitation,
    Root,
    SamplingContent,
    SamplingResult,
    ToolUse,
    ToolUseResult,
)
from mcpbus.features.option_types import check_kinds
from mcpbus.features.schemas import python_types
from mcpbus.features.uris import uri_fault
from mcpbus.protocol.keywords import Explained, explained
from mcpbus.protocol.messages import ContentBlock, MetaObject, Role, TextContent
from mcpbus.protocol.revisions import Revision
from mcpbus.protocol.validators import check_text, one_of, text


class _SamplingMessage(msgspec.Struct, rename="camel"):
    role: Role
    content: list[SamplingContent]
    meta: MetaObject | None = msgspec.field(default=None, name="_meta")


@runtime_checkable
class _Helper(Protocol):
    """What authors write in place of a block, such as `Image`."""

    def to_block(self) -> ContentBlock:
        """The block that it stands for."""


def read_conversation(given: Any) -> list[dict[str, Any]]:
    """Return messages as they are sent, each with a list of blocks.

    Args:
        given: What the user says, a text, `Image` or `Audio`, or a single message; or, in order, what the user says, what a model answered
            before (`SamplingResult`), and messages, ``{"role": ..., "content": ...}`` or a `PromptMessage`, whose content is
            a text, an `Image`, an `Audio` or a block, or a list of them.

    Raises:
        TypeError: Something in it has no JSON form.
        ValueError: It is no conversation; the text says which message breaks which rule.
    """
    several = isinstance(given, Sequence) and not isinstance(given, str)
    messages = [_plain(item) for item in (given if several else [given])]
    open_uses: set[str] = set()
    for number, message in enumerate(messages):
        try:
            blocks = msgspec.convert(message, _SamplingMessage).content
        except msgspec.ValidationError as error:
            raise ValueError(f"messages[{number}]: {error}") from error
        results = {block.tool_use_id for block in blocks if isinstance(block, ToolUseResult)}
        if results != open_uses:
            asked = ", ".join(sorted(open_uses)) or "none"
            raise ValueError(f"messages[{number}] must have results of what the last one asked for: {asked}")
        if results and not all(isinstance(block, ToolUseResult) for block in blocks):
            raise ValueError(f"messages[{number}]: beside the result of a tool there are only other results")
        open_uses = {block.id for block in blocks if isinstance(block, ToolUse)}
    if open_uses:
        raise ValueError(f"after the last message results are missing: {', '.join(sorted(open_uses))}")
    return messages


def _plain(item: Any) -> dict[str, Any]:
    if isinstance(item, str | _Helper):
        item = {"role": "user", "content": item}
    elif isinstance(item, SamplingResult):
        item = {"role": item.role, "content": item.content}
    if isinstance(item, Mapping) and "content" in item:
        content = item["content"]
        item = {
            **item,
            "content": [
                _block(part) for part in (content if isinstance(content, list | tuple) else [content])
            ],
        }
    message = python_types.to_builtins(item)
    if not isinstance(message, dict):
        raise ValueError(f"a message is a text or has a role and content, unlike {item!r}")  # noqa: TRY004
    content = message.get("content")
    return {**message, "content": [content]} if isinstance(content, dict) else message


def _block(part: Any) -> Any:
    if isinstance(part, str):
        return TextContent(part)
    return part.to_block() if isinstance(part, _Helper) else part


def fit(messages: Sequence[dict[str, Any]], revision: Revision) -> list[dict[str, Any]]:
    """Return messages as a revision has them.

    Args:
        messages: From `read_conversation`.
        revision: Before 2025-11-25 a message has one block, so each becomes a message of its own, and no `_meta`.
    """
    fitted: list[dict[str, Any]] = []
    for message in messages:
        blocks = [_fit_block(block, revision) for block in message["content"]]
        if not revision.sampling_features:
            fitted += [{"role": message["role"], "content": block} for block in blocks]
        else:
            fitted.append({**message, "content": blocks[0] if len(blocks) == 1 else blocks})
    return fitted


def _fit_block(block: dict[str, Any], revision: Revision) -> dict[str, Any]:
    """A block without what a revision lacks."""
    if not revision.item_meta:
        block = _without("_meta", block)
    if not revision.last_modified and isinstance(block.get("annotations"), dict):
        block = {**block, "annotations": _without("lastModified", block["annotations"])}
    return block


def _without(member: str, value: dict[str, Any]) -> dict[str, Any]:
    return {name: item for name, item in value.items() if name != member}


T = TypeVar("T")

OnProgress: TypeAlias = Callable[[float, float | None, str | None], object]
"""Told how far the client is with a question: the progress, the total if that is known, and in words if it says so."""

Required = dict[str, dict[str, Any]]
"""Client capabilities that are needed and were not declared; empty if all were."""


@runtime_checkable
class InputRequest(Protocol):
    """Something to ask a client."""

    @property
    def method(self) -> str:
        """The protocol's method for it."""

    @property
    def label(self) -> str:
        """Begins the key that is made for it where none is given."""

    def foreign(self, revision: Revision) -> str | None:
        """Return what of it `revision` does not have, in words; None if it has all."""

    def lacks(self, capabilities: Mapping[str, Any], revision: Revision) -> Required:
        """Return what a client with these capabilities would have to declare besides."""

    def params(self, revision: Revision) -> dict[str, Any]:
        """Return the parameters of the request, as `revision` has them."""

    def read(self, answer: Any) -> Any:
        """Turn the client's answer, decoded JSON, into what the handler gets.

        Raises:
            InvalidInputError: It is not of the right form.
        """


def check_questions(questions: Any) -> None:
    """Refuse what cannot be asked.

    Raises:
        TypeError: It does not map keys to questions.
    """
    if not isinstance(questions, Mapping):
        raise TypeError(f"questions are given by key, as in {{'name': Elicit(...)}}, not as {questions!r}")
    for key, question in questions.items():
        if not isinstance(key, str) or isinstance(question, type) or not isinstance(question, InputRequest):
            kinds = "Elicit, ElicitUrl, Sample and ListRoots"
            raise TypeError(
                f"under {key!r} is {question!r}; what is asked by a text as key is one of {kinds}"
            )


class _ElicitResult(msgspec.Struct):
    action: Literal["accept", "decline", "cancel"]
    content: dict[str, Any] | None = None


@explained
@attrs.frozen
class Elicit(Generic[T]):
    """Ask the user to fill in a form.

    Attributes:
        message: What the user is told.
        schema: A type whose fields are the form's, or a JSON Schema; see `mcpbus.features.input_requests.forms`.

    Raises:
        TypeError: `schema` is no form, or `message` no text.
    """

    method: ClassVar[str] = "elicitation/create"
    label: ClassVar[str] = "elicit"

    message: str = attrs.field(validator=text)
    schema: type[T] | Mapping[str, Any]
    _form: Form = attrs.field(init=False, repr=False, eq=False)

    @_form.default
    def _make_form(self) -> Form:
        return make_form(self.schema)

    def foreign(self, revision: Revision) -> str | None:
        """See `InputRequestItem.foreign`."""
        if "form" not in revision.elicitation_modes:
            return "elicitation"
        return "lists in forms" if self._form.has_lists and not revision.lists_in_forms else None

    def lacks(self, capabilities: Mapping[str, Any], revision: Revision) -> Required:
        """See `InputRequestItem.lacks`; an elicitation capability without modes means forms."""
        declared = capabilities.get("elicitation")
        able = isinstance(declared, Mapping) and ("form" in declared or "url" not in declared)
        return {} if able and "form" in revision.elicitation_modes else {"elicitation": {"form": {}}}

    def params(self, revision: Revision) -> dict[str, Any]:
        """See `InputRequestItem.params`."""
        schema = self._form.schema
        if not revision.titled_choices:
            schema = with_enum_names(schema)
        if not revision.defaults_in_forms:
            schema = without_defaults(schema)
        return {"message": self.message, "requestedSchema": schema}

    def read(self, answer: Any) -> AcceptedElicitation[T] | DeclinedElicitation | CancelledElicitation:
        """See `InputRequestItem.read`."""
        result = _convert(answer, _ElicitResult)
        if result.action != "accept":
            return DeclinedElicitation() if result.action == "decline" else CancelledElicitation()
        try:
            return AcceptedElicitation(self._form.read(result.content or {}))
        except ValueError as error:
            raise invalid_answer(str(error)) from error


class ElicitUrl(msgspec.Struct, metaclass=Explained, frozen=True):
    """Ask the user to open a page, for what must not pass through the client: credentials, payments.

    Attributes:
        message: What the user is told.
        url: The page; it must not be authenticated beforehand.
        elicitation_id: What `Session.elicitation_complete` names later, in revision 2025-11-25; unguessable.

    Raises:
        TypeError: One of these is no text.
        ValueError: `url` is no absolute URL: clients refuse it.
    """

    method: ClassVar[str] = "elicitation/create"
    label: ClassVar[str] = "elicit-url"

    message: str
    url: str
    elicitation_id: str = msgspec.field(default_factory=lambda: secrets.token_urlsafe(16))

    def __post_init__(self) -> None:
        check_text("ElicitUrl", message=self.message, url=self.url, elicitation_id=self.elicitation_id)
        fault = uri_fault(self.url, "https://")
        if fault is not None:
            raise ValueError(f"ElicitUrl: {fault}")

    def foreign(self, revision: Revision) -> str | None:
        """See `InputRequestItem.foreign`."""
        return None if "url" in revision.elicitation_modes else "elicitation by URL"

    def lacks(self, capabilities: Mapping[str, Any], revision: Revision) -> Required:
        """See `InputRequestItem.lacks`."""
        declared = capabilities.get("elicitation")
        able = isinstance(declared, Mapping) and "url" in declared
        return {} if able and "url" in revision.elicitation_modes else {"elicitation": {"url": {}}}

    def params(self, revision: Revision) -> dict[str, Any]:
        """See `InputRequestItem.params`."""
        params = {"mode": "url", "message": self.message, "url": self.url}
        if revision.elicitation_ids:
            params["elicitationId"] = self.elicitation_id
        return params

    def read(self, answer: Any) -> AcceptedElicitation[None] | DeclinedElicitation | CancelledElicitation:
        """See `InputRequestItem.read`."""
        action = _convert(answer, _ElicitResult).action
        if action == "accept":
            return AcceptedElicitation(None)
        return DeclinedElicitation() if action == "decline" else CancelledElicitation()


_CHECKED: Final = (
    "max_tokens",
    "system_prompt",
    "temperature",
    "stop_sequences",
    "model_preferences",
    "metadata",
    "tool_choice",
)


class _Tool(msgspec.Struct, rename="camel"):
    name: str
    input_schema: dict[str, Any]
    description: str | None = None


@explained
@attrs.frozen(kw_only=True)
class Sample:
    """Ask the client's model to write something.

    Attributes:
        messages: What it is told: a text or `Image` of the user; or, in order, texts and images of the user, what it
            answered before (`SamplingResult`), and messages, ``{"role": ..., "content": ...}`` or a `PromptMessage`.
        max_tokens: How long it may be.
        system_prompt: The system prompt that the server would like.
        temperature: How much chance there should be.
        stop_sequences: Texts that end it.
        include_context: Whether the client adds context of servers: "none", "thisServer" or "allServers".
        model_preferences: The protocol's ModelPreferences.
        metadata: For the model's provider.
        tools: Tools that the model may use, described as in tools/list.
        tool_choice: The protocol's ToolChoice.

    Raises:
        TypeError: Something in it has no JSON form, or an option is of another kind.
        ValueError: The messages are no conversation, or a tool is not described as in tools/list.
    """

    method: ClassVar[str] = "sampling/createMessage"
    label: ClassVar[str] = "sample"

    messages: str | Sequence[Any] = attrs.field(kw_only=False)
    max_tokens: int = 1024
    system_prompt: str | None = None
    temperature: float | None = None
    stop_sequences: Sequence[str] | None = None
    include_context: Literal["none", "thisServer", "allServers"] | None = attrs.field(
        default=None, validator=attrs.validators.optional(one_of("none", "thisServer", "allServers"))
    )
    model_preferences: Mapping[str, Any] | None = None
    metadata: Mapping[str, Any] | None = None
    tools: Sequence[Any] | None = None
    tool_choice: Mapping[str, Any] | None = None
    _conversation: list[dict[str, Any]] = attrs.field(init=False, repr=False, eq=False)

    _kinds: frozenset[str] = attrs.field(init=False, repr=False, eq=False)

    @_conversation.default
    def _read(self) -> list[dict[str, Any]]:
        return read_conversation(self.messages)

    @_kinds.default
    def _find_kinds(self) -> frozenset[str]:
        return frozenset(block["type"] for message in self._conversation for block in message["content"])

    def __attrs_post_init__(self) -> None:
        check_kinds("Sample", {name: getattr(self, name) for name in _CHECKED})
        for tool in self.tools or ():
            try:
                msgspec.convert(python_types.to_builtins(tool), _Tool)
            except msgspec.ValidationError as error:
                raise ValueError(f"a tool is described as in tools/list: {error}, in {tool!r}") from error

    def foreign(self, revision: Revision) -> str | None:
        """See `InputRequestItem.foreign`."""
        if self._uses_tools and not revision.sampling_features:
            return "tools in sampling"
        return "audio in sampling" if "audio" in self._kinds and not revision.audio else None

    @property
    def _uses_tools(self) -> bool:
        # A client that knows no tools knows nothing of those either that were used before.
        return self.tools is not None or self.tool_choice is not None or "tool_use" in self._kinds

    def lacks(self, capabilities: Mapping[str, Any], revision: Revision) -> Required:
        """See `InputRequestItem.lacks`."""
        declared = capabilities.get("sampling")
        needed: dict[str, Any] = {}
        if self._uses_tools:
            needed["tools"] = {}
        if self.include_context not in {None, "none"} and revision.sampling_features:
            needed["context"] = {}
        if "tools" in needed and not revision.sampling_features:
            return {"sampling": needed}
        able = isinstance(declared, Mapping) and all(feature in declared for feature in needed)
        return {} if able else {"sampling": needed}

    def params(self, revision: Revision) -> dict[str, Any]:
        """See `InputRequestItem.params`."""
        params = {
            "messages": fit(self._conversation, revision),
            "maxTokens": self.max_tokens,
            "systemPrompt": self.system_prompt,
            "temperature": self.temperature,
            "stopSequences": self.stop_sequences,
            "includeContext": self.include_context,
            "modelPreferences": self.model_preferences,
            "metadata": self.metadata,
            "tools": self.tools,
            "toolChoice": self.tool_choice,
        }
        return {key: value for key, value in params.items() if value is not None}

    def read(self, answer: Any) -> SamplingResult:
        """See `InputRequestItem.read`."""
        if isinstance(answer, dict) and isinstance(answer.get("content"), dict):
            answer = {**answer, "content": [answer["content"]]}
        return _convert(answer, SamplingResult)


class _ListRootsResult(msgspec.Struct):
    roots: list[Root]


class ListRoots(msgspec.Struct, metaclass=Explained, frozen=True):
    """Ask which folders and files the client lets the server work in."""

    method: ClassVar[str] = "roots/list"
    label: ClassVar[str] = "roots"

    def foreign(self, revision: Revision) -> str | None:  # noqa: ARG002 - every one has it
        """See `InputRequestItem.foreign`."""
        return None

    def lacks(self, capabilities: Mapping[str, Any], revision: Revision) -> Required:  # noqa: ARG002 - every one has it
        """See `InputRequestItem.lacks`."""
        return {} if isinstance(capabilities.get("roots"), Mapping) else {"roots": {}}

    def params(self, revision: Revision) -> dict[str, Any]:  # noqa: ARG002 - every one has it
        """See `InputRequestItem.params`."""
        return {}

    def read(self, answer: Any) -> list[Root]:
        """See `InputRequestItem.read`."""
        return _convert(answer, _ListRootsResult).roots


def _convert(answer: Any, kind: type[T]) -> T:
    try:
        return msgspec.convert(answer, kind)
    except msgspec.ValidationError as error:
        raise invalid_answer(str(error)) from error
