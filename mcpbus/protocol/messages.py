"""The shapes of MCP: what arrives in the params of each method we serve, and what leaves in results.

Every shape follows the published schemas (schema/<revision>/schema.ts). They hold the union of all revisions; which members a
revision knows is in `revisions`, and whoever describes a thing leaves out what the governing revision lacks. Members that are absent
stay absent on the wire; a null where a member may be absent is read as absent.
"""

from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar

import msgspec

from mcpbus.protocol.enums import LogLevel
from mcpbus.protocol.errors import invalid_params
from mcpbus.protocol.jsonrpc import LONGEST_ID, NO_PARAMS, BoundedId
from mcpbus.protocol.keywords import Explained

_T = TypeVar("_T")

MetaObject: TypeAlias = dict[str, Any]
Uri: TypeAlias = Annotated[str, msgspec.Meta(max_length=8192)]
"""A URI that a client names: matched against templates, and kept for as long as it is subscribed to."""
TaskId: TypeAlias = Annotated[str, msgspec.Meta(max_length=LONGEST_ID)]
Role: TypeAlias = Literal["user", "assistant"]
ListName: TypeAlias = Literal["tools", "prompts", "resources"]
"""A list whose changes clients are told of; part of the notification's name."""


class _WireStruct(msgspec.Struct, rename="camel", omit_defaults=True, frozen=True):
    """What all shapes have in common: camelCase on the wire, and members left out rather than null."""


# -- parts of descriptions ---------------------------------------------------------------------------------------------


class Icon(_WireStruct, metaclass=Explained, frozen=True):
    """An image for a user interface: `src` is an https or data URI, `sizes` like "48x48" or "any" (rule B-9)."""

    src: str
    mime_type: str | None = None
    sizes: list[str] | None = None
    theme: Literal["light", "dark"] | None = None


class Implementation(_WireStruct, frozen=True):
    """Who a client or a server is (rule B-10)."""

    name: str
    version: str
    title: str | None = None
    description: str | None = None
    website_url: str | None = None
    icons: list[Icon] | None = None


class Annotations(_WireStruct, metaclass=Explained, frozen=True):
    """Hints about content: for whom, how important from 0 to 1, and last modified when (ISO 8601) (rule R-8)."""

    audience: list[Role] | None = None
    priority: float | None = None
    last_modified: str | None = None


class ToolAnnotations(_WireStruct, metaclass=Explained, frozen=True):
    """Hints about what a tool does; clients do not trust them (rule F-17)."""

    title: str | None = None
    read_only_hint: bool | None = None
    destructive_hint: bool | None = None
    idempotent_hint: bool | None = None
    open_world_hint: bool | None = None


# -- descriptions, as lists carry them ---------------------------------------------------------------------------------


class ToolDescription(_WireStruct, frozen=True):
    """One entry of tools/list. The schemas are JSON Schema objects, `msgspec.Raw` if they are already encoded."""

    name: str
    input_schema: Any
    title: str | None = None
    description: str | None = None
    output_schema: Any = None
    annotations: ToolAnnotations | None = None
    icons: list[Icon] | None = None
    meta: MetaObject | None = msgspec.field(default=None, name="_meta")


class ResourceDescription(_WireStruct, frozen=True):
    """One entry of resources/list. `size` is in bytes, before any encoding."""

    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    annotations: Annotations | None = None
    size: int | None = None
    icons: list[Icon] | None = None
    meta: MetaObject | None = msgspec.field(default=None, name="_meta")


class ResourceTemplate(_WireStruct, frozen=True):
    """One entry of resources/templates/list; `uri_template` is RFC 6570 (rule R-5)."""

    uri_template: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    annotations: Annotations | None = None
    icons: list[Icon] | None = None
    meta: MetaObject | None = msgspec.field(default=None, name="_meta")


class PromptArgument(_WireStruct, frozen=True):
    """One argument of a prompt."""

    name: str
    title: str | None = None
    description: str | None = None
    required: bool | None = None


class PromptDescription(_WireStruct, frozen=True):
    """One entry of prompts/list."""

    name: str
    title: str | None = None
    description: str | None = None
    arguments: list[PromptArgument] | None = None
    icons: list[Icon] | None = None
    meta: MetaObject | None = msgspec.field(default=None, name="_meta")


# -- content -----------------------------------------------------------------------------------------------------------


class TextResourceContents(_WireStruct, metaclass=Explained, frozen=True):
    """The contents of a resource, as text."""

    uri: str
    text: str
    mime_type: str | None = None
    meta: MetaObject | None = msgspec.field(default=None, name="_meta")


class BlobResourceContents(_WireStruct, metaclass=Explained, frozen=True):
    """The contents of a resource, as Base64."""

    uri: str
    blob: str
    mime_type: str | None = None
    meta: MetaObject | None = msgspec.field(default=None, name="_meta")


class TextContent(_WireStruct, metaclass=Explained, frozen=True, tag_field="type", tag="text"):
    """A block of text."""

    text: str
    annotations: Annotations | None = None
    meta: MetaObject | None = msgspec.field(default=None, name="_meta")


class ImageContent(_WireStruct, metaclass=Explained, frozen=True, tag_field="type", tag="image"):
    """An image; `data` is Base64."""

    data: str
    mime_type: str
    annotations: Annotations | None = None
    meta: MetaObject | None = msgspec.field(default=None, name="_meta")


class AudioContent(_WireStruct, metaclass=Explained, frozen=True, tag_field="type", tag="audio"):
    """A piece of audio, from 2025-03-26; `data` is Base64."""

    data: str
    mime_type: str
    annotations: Annotations | None = None
    meta: MetaObject | None = msgspec.field(default=None, name="_meta")


class ResourceLink(
    ResourceDescription, metaclass=Explained, frozen=True, tag_field="type", tag="resource_link"
):
    """A resource that the client may read, from 2025-06-18."""


class EmbeddedResource(_WireStruct, metaclass=Explained, frozen=True, tag_field="type", tag="resource"):
    """A resource with its contents."""

    resource: Any
    """TextResourceContents or BlobResourceContents: the wire tells them apart by their members, not by a tag."""
    annotations: Annotations | None = None
    meta: MetaObject | None = msgspec.field(default=None, name="_meta")


ContentBlock: TypeAlias = TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource


class WirePromptMessage(_WireStruct, frozen=True):
    """One message of a prompt (rule O-3)."""

    role: Role
    content: ContentBlock


# -- params ------------------------------------------------------------------------------------------------------------


MOST_OF_CLIENT: Final = 64 * 1024
"""How many bytes a client may say of itself: the params of initialize, which are kept, and the `_meta` of a request."""


class InitializeParams(_WireStruct, frozen=True):
    """initialize, legacy only."""

    protocol_version: str
    capabilities: dict[str, Any]
    client_info: Implementation


class ListParams(_WireStruct, frozen=True):
    """tools/list, resources/list, resources/templates/list, prompts/list. An empty cursor is a cursor (rule I-2)."""

    cursor: str | None = None


_NULL: Final = ord("n")
_BRACE: Final = ord("{")


class CallToolParams(_WireStruct, frozen=True, gc=False):
    """tools/call. `arguments` is a JSON object, `{}` if there was none (rules F-14, F-21)."""

    name: str
    arguments: msgspec.Raw = NO_PARAMS

    def __post_init__(self) -> None:
        """Refuse arguments that are not an object.

        Raises:
            ValueError: which msgspec turns into its ValidationError.
        """
        start = memoryview(self.arguments)[0]
        if start == _NULL:
            msgspec.structs.force_setattr(self, "arguments", NO_PARAMS)
        elif start != _BRACE:
            raise ValueError("Expected `object` - at `$.arguments`")


class GetPromptParams(_WireStruct, frozen=True):
    """prompts/get."""

    name: str
    arguments: dict[str, str] | None = None


class ReadResourceParams(_WireStruct, frozen=True):
    """resources/read."""

    uri: Uri


class SubscribeParams(_WireStruct, frozen=True):
    """resources/subscribe and resources/unsubscribe, legacy only."""

    uri: Uri


class PromptReference(_WireStruct, frozen=True, tag_field="type", tag="ref/prompt"):
    """The prompt whose argument is completed."""

    name: str
    title: str | None = None


class ResourceTemplateReference(_WireStruct, frozen=True, tag_field="type", tag="ref/resource"):
    """The resource template whose variable is completed."""

    uri: Uri


class CompletionArgument(_WireStruct, frozen=True):
    """What has been typed so far."""

    name: str
    value: str


class CompletionContext(_WireStruct, frozen=True):
    """What has been chosen for other arguments, from 2025-06-18 (rule Q-4)."""

    arguments: dict[str, str] | None = None


class CompleteParams(_WireStruct, frozen=True):
    """completion/complete."""

    ref: PromptReference | ResourceTemplateReference
    argument: CompletionArgument
    context: CompletionContext | None = None


class SetLevelParams(_WireStruct, frozen=True):
    """logging/setLevel, legacy only."""

    level: LogLevel


class SubscriptionFilter(_WireStruct, frozen=True):
    """What a listen wants to hear of, and, in its acknowledgement, what it will (rules S-4, S-12)."""

    tools_list_changed: bool = False
    prompts_list_changed: bool = False
    resources_list_changed: bool = False
    resource_subscriptions: tuple[Uri, ...] = ()
    task_ids: tuple[TaskId, ...] = ()
    """From the tasks extension (rule TX-12)."""


class ListenParams(_WireStruct, frozen=True):
    """subscriptions/listen, modern only. The filter is mandatory and may be empty (rule S-4)."""

    notifications: SubscriptionFilter


class CancelledParams(_WireStruct, frozen=True):
    """notifications/cancelled. Read `request_id` with `decode_params`, which keeps bool and float out (rule C-4)."""

    request_id: BoundedId
    reason: str | None = None


class ProgressParams(_WireStruct, frozen=True):
    """notifications/progress. Read `progress_token` with `decode_params`, as `CancelledParams.request_id`."""

    progress_token: BoundedId
    progress: float
    total: float | None = None
    message: str | None = None


_decoders: dict[type[Any], msgspec.json.Decoder[Any]] = {}

# Where the decoder says what is wrong, but not what would be right.
_EXPECTED: Final = {
    "`params.level`": ", ".join(level.value for level in LogLevel),
    "`params.ref.type`": "ref/prompt, ref/resource",
}


def decode_params(params_type: type[_T], raw: msgspec.Raw) -> _T:
    """Read the params of a method.

    Args:
        params_type: one of the `...Params` here; its decoder is built at the first use and kept.
        raw: as the message carried them; unknown members are ignored (rule B-5).

    Raises:
        ProtocolError: -32602; its message names the path, such as `params.ref.name`.
    """
    decoder = _decoders.get(params_type)
    if decoder is None:
        decoder = _decoders[params_type] = msgspec.json.Decoder(params_type)
    try:
        params: _T = decoder.decode(raw)
    except (msgspec.DecodeError, RecursionError) as fault:
        raise invalid_params(_explain(str(fault))) from None
    return params


def decode_initialize(raw: msgspec.Raw) -> InitializeParams:
    """Read the params of `initialize`, as `decode_params` does. What they say of a client is kept, so there is a bound to it."""
    if len(raw) > MOST_OF_CLIENT:
        raise invalid_params(f"expected at most {MOST_OF_CLIENT} bytes, got {len(raw)} - at `params`")
    return decode_params(InitializeParams, raw)


def _explain(detail: str) -> str:
    detail, _, path = detail.replace("`$", "`params").partition(" - at ")
    path = path or "`params`"
    expected = _EXPECTED.get(path)
    return f"{detail} - at {path}" + (f"; expected one of {expected}" if expected else "")
