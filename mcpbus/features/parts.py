"""Pieces of content as JSON: the blocks of a result, the messages of a prompt, the contents of a resource."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from mcpbus.features.schemas import jsontypes
from mcpbus.protocol import messages as wire

# From here on `jsontypes.encode` saves more of the time that msgspec takes for text than a copy of the piece costs.
_LONG: Final = 3_000
_MOST_OF: Final[Mapping[type, str]] = {
    wire.TextContent: "text",
    wire.ImageContent: "data",
    wire.AudioContent: "data",
    wire.TextResourceContents: "text",
    wire.BlobResourceContents: "blob",
    wire.EmbeddedResource: "resource",
    wire.WirePromptMessage: "content",
}
"""Where each kind has its text, or the piece that has it."""


def encode_parts(parts: Iterable[msgspec.Struct]) -> bytes:
    """The JSON array of `parts`; raises as `jsontypes.encode` does."""
    return jsontypes.encode_typed([_with_long_text_encoded(part) for part in parts])


def _with_long_text_encoded(part: Any) -> Any:
    name = _MOST_OF.get(type(part))
    if name is None:
        return part
    inner = getattr(part, name)
    if type(inner) is not str:
        encoded = _with_long_text_encoded(inner)
        if encoded is inner:
            return part
    elif len(inner) < _LONG:
        return part
    else:
        encoded = msgspec.Raw(jsontypes.encode(inner))
    return msgspec.structs.replace(part, **{name: encoded})
