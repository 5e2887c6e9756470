"""What a function may return besides plain values, and how values become content blocks.

A block that a revision does not know is turned into the nearest one that it knows, so that an author writes for the
latest revision and every client gets what it can show: audio becomes an embedded resource in 2024-11-05, a resource
link becomes text before 2025-06-18 (rules F-16 and O-3).

Pieces of content as JSON: the blocks of a result, the messages of a prompt, the contents of a resource.
"""

from base64 import b64encode
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final, get_args

import attrs
import msgspec

from mcpbus.features.schemas import python_types
from mcpbus.protocol import messages as wire
from mcpbus.protocol.keywords import Elsewhere, Explained, explained
from mcpbus.protocol.messages import (
    Annotations,
    AudioContent,
    BlobResourceContents,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    MetaObject,
    ResourceLink,
    Role,
    TextContent,
    TextResourceContents,
)
from mcpbus.protocol.revisions import Revision

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
    return python_types.encode_typed([_with_long_text_encoded(part) for part in parts])


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
        encoded = msgspec.Raw(python_types.encode(inner))
    return msgspec.structs.replace(part, **{name: encoded})


class _Described(msgspec.Struct, metaclass=Explained, frozen=True, kw_only=True):
    """What may be said of a piece of content, by keyword."""

    ELSEWHERE: ClassVar[Elsewhere] = {
        "path": lambda path: f"write data=Path({str(path)!r}).read_bytes()",
        "format": lambda kind: f"write mime_type='image/{kind}' or the like",
    }

    annotations: Annotations | None = None
    meta: MetaObject | None = None


def _check_bytes(content: "Image | Audio") -> None:
    if not isinstance(content.data, bytes | bytearray | memoryview):
        kind = type(content).__name__
        raise TypeError(
            f"{kind} takes the bytes themselves, not {content.data!r}; such as {kind}(path.read_bytes())"
        )


class Image(_Described, frozen=True):
    """An image, such as ``Image(png_bytes)``."""

    data: bytes
    mime_type: str = "image/png"

    def __post_init__(self) -> None:
        _check_bytes(self)

    def to_block(self) -> ImageContent:
        """The image as it goes over the wire, in Base64."""
        return ImageContent(_base64(self.data), self.mime_type, self.annotations, self.meta)


class Audio(_Described, frozen=True):
    """A piece of audio, such as ``Audio(wav_bytes)``."""

    data: bytes
    mime_type: str = "audio/wav"

    def __post_init__(self) -> None:
        _check_bytes(self)

    def to_block(self) -> AudioContent:
        """The audio as it goes over the wire, in Base64."""
        return AudioContent(_base64(self.data), self.mime_type, self.annotations, self.meta)


class File(_Described, frozen=True):
    """A file's contents: an embedded resource in a tool's or prompt's result, the contents of a resource in its own.

    Args:
        data: text, or bytes.
        uri: what names it; a resource that is read has its own and needs none here.
        mime_type: ``text/plain`` or ``application/octet-stream`` if left out, by the kind of `data`.
        annotations: hints for the client; only where the file is embedded.
        meta: the ``_meta`` of the contents.
    """

    data: str | bytes
    uri: str | None = None
    mime_type: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.data, str | bytes | bytearray | memoryview):
            raise TypeError(f"File takes text or bytes, not {self.data!r}; such as File(path.read_bytes())")

    def to_block(self) -> EmbeddedResource:
        """The file as an embedded resource.

        Raises:
            ValueError: it has no `uri`.
        """
        if self.uri is None:
            raise ValueError("a File in a result needs a uri, by which the client may name it")
        return EmbeddedResource(self.to_contents(self.uri, None), self.annotations)

    def to_contents(self, uri: str, mime_type: str | None) -> TextResourceContents | BlobResourceContents:
        """The file as the contents of a resource; its own `uri` and `mime_type` come first."""
        uri = self.uri or uri
        mime_type = self.mime_type or mime_type
        if isinstance(self.data, str):
            return TextResourceContents(uri, self.data, mime_type or "text/plain", self.meta)
        return BlobResourceContents(
            uri, _base64(self.data), mime_type or "application/octet-stream", self.meta
        )


@explained
@attrs.frozen
class ToolResult:
    """A tool's result in full, where a plain return value does not say enough.

    Args:
        content: what the model reads: a value, or a list of values and content blocks; nothing if the list is empty.
        structured: the ``structuredContent``, any JSON value; it must conform to the tool's output schema.
            Clients of 2025-06-18 and 2025-11-25 get it only if it is an object, older ones never. If `content` is
            left out, they read its JSON.
        is_error: whether the tool failed.
        meta: the ``_meta`` of the result.
    """

    content: Any = None
    structured: Any = msgspec.UNSET
    is_error: bool = attrs.field(default=False, kw_only=True)
    meta: MetaObject | None = attrs.field(default=None, kw_only=True)


def _sole_block(content: Any) -> ContentBlock:
    blocks = to_blocks(content)
    if len(blocks) != 1:
        raise TypeError(
            f"a PromptMessage holds one piece of content, not {content!r}; return a list of messages, one for each piece"
        )
    return blocks[0]


def _check_role(_message: object, _field: object, role: Any) -> None:
    if role not in get_args(Role):
        raise ValueError(f"the role of a PromptMessage is 'user' or 'assistant', not {role!r}")


@explained
@attrs.frozen
class PromptMessage:
    """One message of a prompt, such as ``PromptMessage("assistant", "Which city?")``.

    Args:
        role: who says it, ``"user"`` or ``"assistant"``.
        content: what is said: text, an `Image`, `Audio` or `File`, a content block, or data that becomes JSON.

    Attributes:
        role: who says it.
        content: the one content block that it became.

    Raises:
        TypeError: the content has no JSON form, or is not one piece.
        ValueError: the role is another one, or the content is a File without a uri.
    """

    role: Role = attrs.field(validator=_check_role)
    content: ContentBlock = attrs.field(converter=_sole_block)


@explained
@attrs.frozen
class PromptResult:
    """A prompt's result in full, where its messages do not say enough.

    Args:
        messages: What a prompt may return besides: text, content, a `PromptMessage`, or a list of these.
        description: What this result is for; if left out, what the prompt is for.
        meta: The ``_meta`` of the result.
    """

    messages: Any
    description: str | None = attrs.field(default=None, kw_only=True)
    meta: MetaObject | None = attrs.field(default=None, kw_only=True)


HELPERS = (Image, Audio, File)
BLOCKS = (TextContent, ImageContent, AudioContent, ResourceLink, EmbeddedResource)
CONTENT = HELPERS + BLOCKS
"""The types whose values are content and not data."""


def to_blocks(value: Any) -> list[ContentBlock]:
    """`value` as content blocks: text as text, content as itself, anything else as its JSON.

    A list or tuple that holds content gives one block for each element; one of plain values only is data.

    Raises:
        TypeError: `value` has no JSON form, or is a block that the protocol does not know so.
        ValueError: a File without a uri.
    """
    match value:
        case None:
            return []
        case str():
            return [TextContent(value)]
        case Image() | Audio() | File():
            return [value.to_block()]
        case TextContent() | ImageContent() | AudioContent() | ResourceLink() | EmbeddedResource():
            _check_block(value)
            return [value]
        case list() | tuple() if any(isinstance(element, CONTENT) for element in value):
            return [block for element in value for block in to_blocks(element)]
        case ToolResult() | PromptMessage() | PromptResult():
            raise TypeError(f"this is no content, and nothing that is shown as data: {value!r}")
        case _:
            return [TextContent(python_types.encode(value).decode())]


def _check_block(block: ContentBlock) -> None:
    """Refuse what clients would: a block is made without a look at what is in it."""
    parts: list[Any] = [block]
    if isinstance(block, EmbeddedResource):
        if not isinstance(block.resource, TextResourceContents | BlobResourceContents):
            raise TypeError(
                f"an EmbeddedResource holds TextResourceContents or BlobResourceContents, not {block.resource!r}; "
                f"a File with a uri is embedded by itself"
            )
        parts.append(block.resource)
    for part in parts:
        try:
            msgspec.convert(python_types.to_builtins(part), type(part))
        except msgspec.ValidationError as error:
            raise TypeError(
                f"this is no {type(part).__name__} of the protocol: {error}, in {part!r}"
            ) from error


def encode_content(value: Any, revision: Revision) -> bytes:
    """The JSON array of content blocks for `value`, as `revision` knows them; raises as `to_blocks` does."""
    return encode_parts(adapt(block, revision) for block in to_blocks(value))


def encode_text(text: str) -> bytes:
    """The JSON array of one text block."""
    return b'[{"type":"text","text":%b}]' % python_types.encode(text)


def adapt(block: ContentBlock, revision: Revision) -> ContentBlock:
    """`block` as a client of `revision` understands it."""
    if isinstance(block, AudioContent) and not revision.audio:
        # The URI is only there because the revision wants one; nothing can be read by it.
        blob = BlobResourceContents("urn:mcpbus:audio", block.data, block.mime_type)
        return EmbeddedResource(blob, known_annotations(block.annotations, revision))
    if isinstance(block, ResourceLink) and not revision.resource_link:
        return TextContent(_link_text(block), known_annotations(block.annotations, revision))
    changes: dict[str, Any] = {}
    if not revision.item_meta:
        changes["meta"] = None
        if isinstance(block, EmbeddedResource):
            changes["resource"] = msgspec.structs.replace(block.resource, meta=None)
    if not revision.last_modified:
        changes["annotations"] = known_annotations(block.annotations, revision)
    if isinstance(block, ResourceLink) and not revision.icons:
        changes["icons"] = None
    return msgspec.structs.replace(block, **changes) if changes else block


def known_annotations(annotations: Annotations | None, revision: Revision) -> Annotations | None:
    """`annotations` without what `revision` lacks."""
    if annotations is None or revision.last_modified:
        return annotations
    return msgspec.structs.replace(annotations, last_modified=None)


def _link_text(link: ResourceLink) -> str:
    text = f"{link.title or link.name}: {link.uri}"
    return f"{text} ({link.description})" if link.description else text


def _base64(data: bytes) -> str:
    return b64encode(data).decode("ascii")
