"""The five revisions of the protocol, and what differs between them, as data.

One field is one difference; its comment says what it is and which rule of the specification checklist it follows. Code asks the row
that governs the request at hand and never compares revision names, so a new revision is a new row.
"""

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from mcpbus.protocol.enums import IdentityEnum
from mcpbus.protocol.errors import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    PARSE_ERROR,
    RESOURCE_NOT_FOUND,
    UNSUPPORTED_PROTOCOL_VERSION,
    URL_ELICITATION_REQUIRED,
    ProtocolError,
    unsupported_protocol_version,
)
from mcpbus.protocol.jsonrpc import RequestId, encode_error, encode_result


class Era(IdentityEnum):
    """How a client says who it is: once, by a handshake, or again in each request."""

    LEGACY = "legacy"
    MODERN = "modern"


class Structured(enum.Enum):
    """Which JSON values a tool's `structuredContent` may be; the root of an `outputSchema` follows it."""

    NEVER = "never"
    OBJECT = "object"
    ANY = "any"


class InvalidArguments(enum.Enum):
    """Where a tool call whose arguments fail the tool's schema is told so."""

    ERROR = "error"
    """As a JSON-RPC error, -32602."""
    RESULT = "result"
    """As a result with isError, which a model gets to see and can correct."""


# From these only the specification may take codes (rule J-17).
_RESERVED: Final = frozenset(range(-32099, -32019))
_DEFINED: Final = frozenset(
    {HEADER_MISMATCH, MISSING_REQUIRED_CLIENT_CAPABILITY, UNSUPPORTED_PROTOCOL_VERSION}
)

_IN_BAND: Final = MappingProxyType({PARSE_ERROR: 400, INVALID_REQUEST: 400})
_BY_CODE: Final = MappingProxyType(
    {
        PARSE_ERROR: 400,
        INVALID_REQUEST: 400,
        METHOD_NOT_FOUND: 404,
        INVALID_PARAMS: 400,
        HEADER_MISMATCH: 400,
        MISSING_REQUIRED_CLIENT_CAPABILITY: 400,
        UNSUPPORTED_PROTOCOL_VERSION: 400,
    }
)


class Revision(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What governs one request. There is one object a revision, so rows compare by identity."""

    name: str
    era: Era

    progress_message: bool
    """notifications/progress may have a `message` (P-3)."""
    completions_capability: bool
    """The server declares `completions` (L-17, Q-1)."""
    batches: bool
    """Messages may come several at once, in a JSON array (J-22 to J-28)."""
    audio: bool
    """Content blocks may be audio (F-16, O-3)."""
    annotations: bool
    """Tools have annotations such as readOnlyHint (F-17)."""
    resource_link: bool
    """Content blocks may be resource links (F-16, O-3)."""
    titles: bool
    """Tools, prompts, resources, templates, arguments and implementations have a `title` (B-8)."""
    last_modified: bool
    """Annotations of content and resources have `lastModified` (R-8)."""
    item_meta: bool
    """Descriptions, content blocks and resource contents have a `_meta` of their own (schema of 2025-06-18)."""
    output_schema: bool
    """Tools may declare an `outputSchema` (F-6, F-7)."""
    structured_content: Structured
    """What `structuredContent` may be (F-7, F-9)."""
    icons: bool
    """Descriptions and implementations have `icons` (B-9)."""
    implementation_details: bool
    """An implementation may say its `description` and `websiteUrl` (B-10)."""
    invalid_arguments: InvalidArguments
    """How bad tool arguments are answered (F-13)."""
    priming: bool
    """An SSE stream begins with an event id and empty data; older clients fail on it (W-12, W-13)."""
    elicitation_modes: frozenset[str]
    """How a user can be asked: "form", "url" (E-1, E-2)."""
    titled_choices: bool
    """A form shows titled choices as `oneOf`; before, as `enum` with `enumNames` (E-6)."""
    lists_in_forms: bool
    """A form may let people choose several things, which are answered as a list (E-6)."""
    defaults_in_forms: bool
    """Each field of a form may have a default; before, a boolean's alone (E-5)."""
    elicitation_ids: bool
    """An elicitation by URL has an id, and its completion is announced (E-10, E-12)."""
    sampling_features: bool
    """Sampling may use tools, and needs the client's word for them and for context (Y-2, Y-4)."""
    result_type: bool
    """Every result carries `resultType` (J-30)."""
    server_identity: bool
    """Every result's `_meta` names the server (M-7)."""
    caching: bool
    """Lists, reads and discovery carry `ttlMs` and `cacheScope` (K-1, K-6)."""
    resource_not_found: int
    """The error code for a resource that does not exist (R-3)."""
    replaced_codes: Mapping[int, int]
    """Error codes that must not leave under this revision, and what leaves in their place (J-14, J-17, J-19)."""
    error_statuses: Mapping[int, int]
    """The HTTP status of an error answer whose response has not begun; 200 for a code not listed (X-26, X-30)."""

    def __repr__(self) -> str:
        return f"<Revision {self.name}>"

    def admissible(self, error: ProtocolError) -> ProtocolError:
        """The error as it may be sent under this revision: itself, or the same under the code that replaces its own."""
        code = self.replaced_codes.get(error.code)
        return error if code is None else ProtocolError(code, error.message, error.data)

    def encode_reply(self, request_id: RequestId, outcome: bytes | ProtocolError) -> bytes:
        """Encode the reply to a request, on one line.

        Args:
            request_id: The id of the request.
            outcome: The encoded result object, or the error, which is made admissible.
        """
        if isinstance(outcome, ProtocolError):
            return encode_error(request_id, self.admissible(outcome))
        return encode_result(request_id, outcome)


_V2024_11_05: Final = Revision(
    name="2024-11-05",
    era=Era.LEGACY,
    progress_message=False,
    completions_capability=False,
    batches=False,
    audio=False,
    annotations=False,
    resource_link=False,
    titles=False,
    last_modified=False,
    item_meta=False,
    output_schema=False,
    structured_content=Structured.NEVER,
    icons=False,
    implementation_details=False,
    invalid_arguments=InvalidArguments.ERROR,
    priming=False,
    elicitation_modes=frozenset(),
    titled_choices=False,
    lists_in_forms=False,
    defaults_in_forms=False,
    elicitation_ids=False,
    sampling_features=False,
    result_type=False,
    server_identity=False,
    caching=False,
    resource_not_found=RESOURCE_NOT_FOUND,
    replaced_codes=MappingProxyType({URL_ELICITATION_REQUIRED: INTERNAL_ERROR}),
    error_statuses=_IN_BAND,
)
_V2025_03_26: Final = msgspec.structs.replace(
    _V2024_11_05,
    name="2025-03-26",
    progress_message=True,
    completions_capability=True,
    batches=True,
    audio=True,
    annotations=True,
)
_V2025_06_18: Final = msgspec.structs.replace(
    _V2025_03_26,
    name="2025-06-18",
    batches=False,
    resource_link=True,
    titles=True,
    last_modified=True,
    item_meta=True,
    output_schema=True,
    structured_content=Structured.OBJECT,
    elicitation_modes=frozenset({"form"}),
)
_V2025_11_25: Final = msgspec.structs.replace(
    _V2025_06_18,
    name="2025-11-25",
    icons=True,
    implementation_details=True,
    invalid_arguments=InvalidArguments.RESULT,
    priming=True,
    elicitation_modes=frozenset({"form", "url"}),
    titled_choices=True,
    lists_in_forms=True,
    defaults_in_forms=True,
    elicitation_ids=True,
    sampling_features=True,
    replaced_codes=MappingProxyType({}),
)
_V2026_07_28: Final = msgspec.structs.replace(
    _V2025_11_25,
    name="2026-07-28",
    era=Era.MODERN,
    structured_content=Structured.ANY,
    priming=False,
    elicitation_ids=False,
    result_type=True,
    server_identity=True,
    caching=True,
    resource_not_found=INVALID_PARAMS,
    replaced_codes=MappingProxyType(
        {RESOURCE_NOT_FOUND: INVALID_PARAMS, **dict.fromkeys(_RESERVED - _DEFINED, INTERNAL_ERROR)}
    ),
    error_statuses=_BY_CODE,
)

REVISIONS: Final[Mapping[str, Revision]] = MappingProxyType(
    {row.name: row for row in (_V2024_11_05, _V2025_03_26, _V2025_06_18, _V2025_11_25, _V2026_07_28)}
)
"""Every revision by its name, oldest first."""

LATEST: Final = _V2026_07_28
LATEST_LEGACY: Final = _V2025_11_25
"""What `initialize` offers a client whose own proposal cannot be served (L-2, L-3)."""
ASSUMED: Final = _V2025_03_26
"""What governs a legacy request that nothing else tells the revision of (W-39)."""

_MODERN: Final = {row.name: row for row in REVISIONS.values() if row.era is Era.MODERN}
MODERN_VERSIONS: Final = tuple(_MODERN)
"""What server/discover and -32022 list: the versions that a request may claim for itself (M-4, M-5)."""


def named(name: object) -> Revision:
    """The revision that a program names.

    Raises:
        ValueError: There is no such revision.
    """
    row = REVISIONS.get(name) if isinstance(name, str) else None
    if row is None:
        raise ValueError(f"revision is {name!r}: it must be one of {', '.join(REVISIONS)}")
    return row


def negotiate(requested: str) -> Revision:
    """The revision with which `initialize` is answered: the proposed one if a handshake can open it (rules L-2, L-3)."""
    row = REVISIONS.get(requested)
    return row if row is not None and row.era is Era.LEGACY else LATEST_LEGACY


def modern(version: str) -> Revision | None:
    """The revision that a request may claim by this name in its `_meta`, if there is one."""
    return _MODERN.get(version)


def claimed(version: str) -> Revision:
    """The revision that a request claims by this name in its `_meta`.

    Raises:
        ProtocolError: -32022: there is none.
    """
    row = _MODERN.get(version)
    if row is None:
        raise unsupported_protocol_version(version, MODERN_VERSIONS)
    return row
