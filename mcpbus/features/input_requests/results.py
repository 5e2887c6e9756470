"""What a client answers, as a handler sees it."""

from collections.abc import Sequence
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

from mcpbus.protocol.keywords import Explained
from mcpbus.protocol.messages import AudioContent, ContentBlock, ImageContent, MetaObject, Role, TextContent

T = TypeVar("T")


class AcceptedElicitation(msgspec.Struct, Generic[T], frozen=True):
    """The user gave what was asked for.

    Attributes:
        data: What was given, of the type that was asked for; None for a URL, whose acceptance is consent alone.
    """

    data: T


class DeclinedElicitation(msgspec.Struct, frozen=True):
    """The user said no."""


class CancelledElicitation(msgspec.Struct, frozen=True):
    """The user closed the question without a choice."""


class ToolUse(
    msgspec.Struct,
    metaclass=Explained,
    frozen=True,
    rename="camel",
    omit_defaults=True,
    tag_field="type",
    tag="tool_use",
):
    """A model's wish to use a tool: its own id for it, the tool's name, and the arguments."""

    id: str
    name: str
    input: dict[str, Any]
    meta: MetaObject | None = msgspec.field(default=None, name="_meta")

    def result(self, content: str | Sequence[ContentBlock], *, is_error: bool = False) -> "ToolUseResult":
        """Return what the model is told of it, in the next message to it.

        Args:
            content: What the tool gave: a text, or blocks of content.
            is_error: Whether it failed.
        """
        blocks: list[ContentBlock] = [TextContent(content)] if isinstance(content, str) else list(content)
        return ToolUseResult(self.id, blocks, is_error=is_error or None)


class ToolUseResult(
    msgspec.Struct,
    metaclass=Explained,
    frozen=True,
    rename="camel",
    omit_defaults=True,
    tag_field="type",
    tag="tool_result",
):
    """What a tool gave that a model used; `tool_use_id` is that of its `ToolUse`."""

    tool_use_id: str
    content: list[ContentBlock]
    structured_content: Any = None
    is_error: bool | None = None
    meta: MetaObject | None = msgspec.field(default=None, name="_meta")


SamplingContent: TypeAlias = TextContent | ImageContent | AudioContent | ToolUse | ToolUseResult


class SamplingResult(msgspec.Struct, frozen=True, rename="camel"):
    """What the client's model wrote.

    Attributes:
        role: Who speaks, normally "assistant".
        content: The blocks of its message; a single one as a list of one.
        model: Which model wrote it.
        stop_reason: Why it stopped, such as "endTurn", "maxTokens" or "toolUse"; None if that is not known.
    """

    role: Role
    content: list[SamplingContent]
    model: str
    stop_reason: str | None = None

    @property
    def text(self) -> str:
        """The text blocks, one after another."""
        return "".join(block.text for block in self.content if isinstance(block, TextContent))

    @property
    def tool_uses(self) -> list[ToolUse]:
        """The tools that it asks to use, before it goes on."""
        return [block for block in self.content if isinstance(block, ToolUse)]


class Root(msgspec.Struct, metaclass=Explained, frozen=True):
    """A folder or file that the client lets the server work in; `uri` begins with file://."""

    uri: str
    name: str | None = None
