"""What the params of any method say besides the method's own: `_meta`, and the name that HTTP mirrors into a header.

Decoded once a request, before its handler's type is known. Nothing here refuses a bad `name`: that is for the method's own params.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NoReturn, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET

from mcpbus.protocol.bounded_cache import BoundedCache
from mcpbus.protocol.enums import LogLevel
from mcpbus.protocol.errors import ProtocolError, invalid_params
from mcpbus.protocol.jsonrpc import LONGEST_ID, NO_PARAMS, BoundedId, JsonRpcRequest
from mcpbus.protocol.large import decode_without_gc
from mcpbus.protocol.messages import MOST_OF_CLIENT, Implementation
from mcpbus.protocol.nesting import check_nesting

_T = TypeVar("_T")

PROTOCOL_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
CLIENT_CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
CLIENT_INFO: Final = "io.modelcontextprotocol/clientInfo"
LOG_LEVEL: Final = "io.modelcontextprotocol/logLevel"
SERVER_INFO: Final = "io.modelcontextprotocol/serverInfo"
SUBSCRIPTION_ID: Final = "io.modelcontextprotocol/subscriptionId"

# Not the whole prefix: 2025-11-25 has a legacy io.modelcontextprotocol/related-task (rule D-3).
_CLAIM_KEYS: Final = frozenset({PROTOCOL_VERSION, CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL})
_REQUIRED_KEYS: Final = (PROTOCOL_VERSION, CLIENT_CAPABILITIES)


class Meta:
    """The `_meta` object of a message. Keys that nobody here knows are kept (rule B-5).

    Args:
        values: What it holds, decoded. Messages that say the same share it, so nobody may change it.

    Attributes:
        values: The same.
        claims_modern: Whether the message says what only a 2026-07-28 message says of itself (rules D-1, D-3).
        progress_token: The token to report progress under; None if there is none, or none of a valid type (rules P-1, P-2).

    Raises:
        ProtocolError: -32602: the token is too long.
    """

    __slots__ = ("_claim", "claims_modern", "progress_token", "values")

    def __init__(self, values: Mapping[str, Any]) -> None:
        token = values.get("progressToken")
        if isinstance(token, str) and len(token) > LONGEST_ID:
            raise invalid_params(
                f"expected at most {LONGEST_ID} characters - at `params._meta.progressToken`"
            )
        self.values = values
        self.claims_modern = not _CLAIM_KEYS.isdisjoint(values)
        self.progress_token: int | str | None = (
            token if isinstance(token, (int, str)) and not isinstance(token, bool) else None
        )
        self._claim: ModernClaim | None = None

    def claim(self) -> "ModernClaim":
        """Return what a modern request says of its client. Whether its version is served is judged elsewhere.

        Raises:
            ProtocolError: -32602 if a required key is missing (rule M-2), or one is malformed (rule G-9 for the log level).
        """
        if self._claim is None:
            self._claim = _read_claim(self.values)
        return self._claim


NO_META: Final = Meta({})


class Retry(msgspec.Struct, frozen=True, gc=False):
    """What a request brings that goes on with an earlier round (rule V-5), as it came; UNSET where it does not."""

    raw_responses: msgspec.Raw | msgspec.UnsetType
    raw_state: msgspec.Raw | msgspec.UnsetType

    @property
    def input_responses(self) -> Any:
        """The answers, decoded; UNSET if the request brings none."""
        return _read_member(self.raw_responses, "inputResponses")

    @property
    def request_state(self) -> Any:
        """The state, decoded; UNSET if the request brings none."""
        return _read_member(self.raw_state, "requestState")


class Routing(msgspec.Struct, frozen=True, gc=False):
    """What routes a message: its `_meta`, and `params.name`, `params.uri` or `params.taskId` where they are strings.

    A call brings arguments, which are kept as they came, `{}` where they did not. A `CallReader` decodes them to a dict.
    """

    meta: Meta
    name: str | None = None
    uri: str | None = None
    task_id: str | None = None
    arguments: msgspec.Raw | dict[str, Any] = NO_PARAMS
    retry: Retry | None = None
    """What it brings of an earlier round, if it goes on with one."""


class _Common(msgspec.Struct, gc=False):
    meta: msgspec.Raw | msgspec.UnsetType = msgspec.field(default=UNSET, name="_meta")
    name: str | None = None
    uri: str | None = None
    # What may be large is left as it is: not every method looks at it.
    arguments: msgspec.Raw = NO_PARAMS
    input_responses: msgspec.Raw | msgspec.UnsetType = msgspec.field(default=UNSET, name="inputResponses")
    request_state: msgspec.Raw | msgspec.UnsetType = msgspec.field(default=UNSET, name="requestState")
    task_id: str | None = msgspec.field(default=None, name="taskId")


class _Loose(_Common, gc=False):
    """The same of params that are wrong in what is for their method to refuse."""

    name: Any = None
    uri: Any = None
    task_id: Any = msgspec.field(default=None, name="taskId")


class _RequestEnvelope(msgspec.Struct, gc=False):
    """A request as nearly all are: with params, and in order."""

    jsonrpc: Literal["2.0"]
    id: BoundedId
    method: str
    params: _Common
    # What has one of these is something else, or is wrong.
    result: msgspec.UnsetType = UNSET
    error: msgspec.UnsetType = UNSET


CallReader: TypeAlias = Callable[[bytes], Any]
"""Reads a message and the arguments of the tool that it calls in one go; made of `call_type`."""

_NAMED: Final = re.compile(rb'"name"\s*:\s*"([\w.-]+)"\s*,\s*"arguments"\s*:')
_MOST_BEFORE: Final = 1024
"""In how many bytes of a message the name of the tool that it calls is looked for: most clients say it early."""

_messages = msgspec.json.Decoder(_RequestEnvelope)
_common = msgspec.json.Decoder(_Common)
_loose = msgspec.json.Decoder(_Loose)
_values = msgspec.json.Decoder()
_remembered = BoundedCache[bytes, Meta]()


def call_type(arguments: Any) -> type[msgspec.Struct]:
    """Return what a message is that calls something with arguments of this type, and says nothing that nobody knows."""
    params = msgspec.defstruct(
        "_Call",
        [("arguments", arguments)],
        bases=(_Common,),
        kw_only=True,
        gc=False,
        forbid_unknown_fields=True,
    )
    return msgspec.defstruct(
        "_CallMessage",
        [("params", params)],
        bases=(_RequestEnvelope,),
        kw_only=True,
        gc=False,
        forbid_unknown_fields=True,
    )


def guess_tool(data: bytes) -> str | None:
    """Return the tool that a message seems to call, from its beginning alone: what it says is known once it is read."""
    found = _NAMED.search(data, 0, _MOST_BEFORE)
    return None if found is None else found[1].decode()


def read_request(data: bytes, read: CallReader | None = None) -> tuple[JsonRpcRequest, Routing] | None:
    """Read a request and what routes it in one go.

    Args:
        data: As for `decode`.
        read: What reads the arguments as well, where it is known which tool is called.

    Returns:
        What `decode` and `read_routing` return; None if the message is something else, or if something is wrong with it.
    """
    try:
        if read is None:
            if not data.isascii():
                data.decode()  # as `decode` does
            message = _messages.decode(data)
        else:
            # All of it is decoded, and so found to be UTF-8: the arguments there, and `_meta` below.
            message = read(data)
            if message.params.input_responses is not UNSET or message.params.request_state is not UNSET:
                return None
        return JsonRpcRequest(message.id, message.method, None, data), _route(message.params)
    except (UnicodeError, msgspec.DecodeError, RecursionError, ProtocolError):
        return None


def read_routing(params: msgspec.Raw) -> Routing:
    """Read what routes a message from its params.

    Raises:
        ProtocolError: -32602 if `_meta` is not an object or too long, or values are nested too deeply.
    """
    check_nesting(params)
    try:
        try:
            common = _common.decode(params)
        except msgspec.ValidationError:
            common = decode_without_gc(_loose.decode, params)
            common.name, common.uri, common.task_id = (
                text if isinstance(text, str) else None for text in (common.name, common.uri, common.task_id)
            )
        return _route(common)
    except (msgspec.DecodeError, RecursionError) as fault:
        raise invalid_params(f"{fault} - at `params`") from None


def _route(common: _Common) -> Routing:
    retry = None
    if common.input_responses is not UNSET or common.request_state is not UNSET:
        retry = Retry(common.input_responses, common.request_state)
    meta = NO_META if common.meta is UNSET else _read_meta(bytes(common.meta))
    return Routing(meta, common.name, common.uri, common.task_id, common.arguments, retry)


def _read_member(raw: msgspec.Raw | msgspec.UnsetType, name: str) -> Any:
    if isinstance(raw, msgspec.UnsetType):
        return raw
    try:
        return decode_without_gc(msgspec.json.decode, raw)
    except (msgspec.DecodeError, RecursionError) as fault:
        raise invalid_params(f"{fault} - at `params.{name}`") from None


def _read_meta(data: bytes) -> Meta:
    """Read a `_meta`. One in which a client says who it is, and nothing else, is remembered: it says so each time."""
    meta = _remembered.get(data)
    if meta is not None:
        return meta
    if len(data) > MOST_OF_CLIENT:
        raise invalid_params(f"expected at most {MOST_OF_CLIENT} bytes, got {len(data)} - at `params._meta`")
    check_nesting(data)
    values = _values.decode(data)
    if values is None:
        return NO_META
    if not isinstance(values, dict):
        raise invalid_params("expected an object - at `params._meta`")
    meta = Meta(values)
    if _CLAIM_KEYS.issuperset(values):
        _remembered.keep(data, meta, len(data))
    return meta


class ModernClaim(msgspec.Struct, frozen=True, gc=False):
    """What a 2026-07-28 request says of its client, for itself alone (rules M-1, M-8).

    `client_info` is as it came, once it was checked. `log_level` is None if the request wants no log messages at
    all (rule G-7).
    """

    protocol_version: str
    client_capabilities: Mapping[str, Any]
    client_info: dict[str, Any] | None = None
    log_level: LogLevel | None = None


class _Claim(msgspec.Struct, gc=False):
    protocol_version: str = msgspec.field(name=PROTOCOL_VERSION)
    client_capabilities: dict[str, Any] = msgspec.field(name=CLIENT_CAPABILITIES)
    client_info: Implementation | None = msgspec.field(name=CLIENT_INFO, default=None)
    log_level: LogLevel | None = msgspec.field(name=LOG_LEVEL, default=None)


def _read_claim(values: Mapping[str, Any]) -> ModernClaim:
    try:
        claim = msgspec.convert(values, _Claim)
    except msgspec.ValidationError:
        _refuse_claim(values)
    return ModernClaim(
        claim.protocol_version, claim.client_capabilities, values.get(CLIENT_INFO), claim.log_level
    )


def _refuse_claim(values: Mapping[str, Any]) -> NoReturn:
    """Say what is wrong with a claim, key by key."""
    missing = [key for key in _REQUIRED_KEYS if key not in values]
    if missing:
        keys = " and ".join(f"'{key}'" for key in missing)
        raise invalid_params(f"a request of this revision needs {keys} - at `params._meta`")
    _convert(values, PROTOCOL_VERSION, str)
    _convert(values, CLIENT_CAPABILITIES, dict[str, Any])
    if values.get(CLIENT_INFO) is not None:
        _convert(values, CLIENT_INFO, Implementation)
    _log_level(values[LOG_LEVEL])
    raise AssertionError("every key of the claim is in order")


def _convert(values: Mapping[str, Any], key: str, wanted: type[_T]) -> _T:
    try:
        return msgspec.convert(values[key], wanted)
    except msgspec.ValidationError as fault:
        raise invalid_params(f"{fault} - in `params._meta['{key}']`") from None


def _log_level(value: object) -> LogLevel:
    try:
        return LogLevel(value)
    except ValueError as fault:
        raise invalid_params(f"{fault} - at `params._meta['{LOG_LEVEL}']`") from None
