"""What a client's model is told: messages, each of one or several blocks of content.

A model that may use tools asks for one with a `ToolUse`, and reads what came of it in the very next message
(2025-11-25, Sampling, "Tool Use and Result Balance").
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import msgspec

from mcpbus.features.asking.answers import SamplingContent, SamplingResult, ToolUse, ToolUseResult
from mcpbus.features.schemas import jsontypes
from mcpbus.protocol.messages import ContentBlock, MetaObject, Role, TextContent
from mcpbus.protocol.revisions import Revision


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
    message = jsontypes.to_builtins(item)
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
