"""What cannot be read as a message: whom it concerns, and what is wrong with it.

A message with an id and no method that says a result or an error is an answer, whatever is wrong with it: it is for whoever waits for
it, since nobody else can end their waiting. All else is refused, by its id where that can be read.
"""

from typing import Final, Literal

import msgspec

from mcpbus.protocol.errors import ProtocolError, invalid_request, parse_error
from mcpbus.protocol.half_characters import replace_lone_surrogates, unchanged
from mcpbus.protocol.jsonrpc.messages import (
    NO_PARAMS,
    BoundedId,
    ErrorObject,
    JsonRpcResponse,
    RequestId,
    Undecodable,
    envelopes,
)
from mcpbus.protocol.nesting import TOO_DEEP, strip_nested, too_deep

_EXAMPLE: Final = '{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}'
_NESTED: Final = "the text is nested too deeply"
_HALF: Final = "a text has half of a surrogate pair, such as \\ud83d alone, which is no Unicode"
_UNSET: Final = msgspec.UNSET
_Any = msgspec.Raw | msgspec.UnsetType


class _Members(msgspec.Struct, gc=False):
    """An object of which nothing is known but what its members are called."""

    id: _Any = msgspec.UNSET
    method: _Any = msgspec.UNSET
    result: _Any = msgspec.UNSET
    error: _Any = msgspec.UNSET


class _Unattributed(msgspec.Struct, gc=False):
    """An error whose sender says by null, as JSON-RPC 2.0 has it, what MCP says by no id at all (rule J-9)."""

    jsonrpc: Literal["2.0"]
    id: None
    error: ErrorObject
    method: _Any = msgspec.UNSET
    result: _Any = msgspec.UNSET


_well_formed = msgspec.json.Decoder(msgspec.Raw)
_members = msgspec.json.Decoder(_Members)
_unattributed = msgspec.json.Decoder(_Unattributed)
_ids: msgspec.json.Decoder[RequestId] = msgspec.json.Decoder(BoundedId)


def is_batch(data: bytes) -> bool:
    """Tell whether a text is an array of messages, if it is JSON."""
    return data.lstrip()[:1] == b"["


def validate_undecodable(data: bytes | str) -> JsonRpcResponse:
    """Judge what cannot be read as a message.

    Returns:
        An answer: without what it says, and with what is wrong, for whoever waits for it; or an error without an id, if it is unusual
        about it only that it says so by null.

    Raises:
        Undecodable: It is anything else.
    """
    try:
        text = data.encode() if isinstance(data, str) else data
        text.decode()
        text, damage = _separable(text)
        said, fault = _members.decode(text), _find_fault(text)
    except msgspec.ValidationError as error:
        array = is_batch(text)
        why = "expected one message, got an array: send each message by itself" if array else str(error)
        raise Undecodable(invalid_request(why), array=array) from None
    except (UnicodeError, msgspec.DecodeError, RecursionError) as error:
        raise not_json(error, data) from None
    identity = _read_id(said.id)
    if damage is _HALF:
        identity = unchanged(identity)
    elif damage is TOO_DEEP and fault is not None:
        fault = TOO_DEEP  # of what is outside of all that is nested, some may be missing
    if said.method is _UNSET and not said.result is said.error is _UNSET:
        if identity is not None:
            return JsonRpcResponse(identity, fault=fault or damage or _NESTED)
        unattributed = None if damage else _without_id(text)
        if unattributed is not None:
            return unattributed
    raise Undecodable(_refusal(fault, damage, identity), identity)


def _separable(text: bytes) -> tuple[bytes, str | None]:
    """Return a text of which the members can be told apart, at the same depth and of the same names; and why the given one is none.

    Raises:
        msgspec.DecodeError: It is no JSON.
        RecursionError: It is nested too deeply, and no object that has an end.
    """
    try:
        _well_formed.decode(text)
    except RecursionError:
        shallow = strip_nested(text)
        if shallow is None or is_batch(shallow):
            raise
        return shallow, TOO_DEEP
    except msgspec.DecodeError:
        _, mended = replace_lone_surrogates(text)
        _well_formed.decode(mended)
        return mended, _HALF
    return text, None


def _find_fault(text: bytes) -> str | None:
    """Tell what in an object keeps it from being a message; None if nothing does."""
    try:
        envelope = envelopes.decode(text)
    except msgspec.ValidationError as error:
        return str(error)
    fault = None
    said = (envelope.result is not _UNSET) + (envelope.error is not _UNSET)
    if envelope.jsonrpc != "2.0":
        fault = 'expected "2.0" - at `$.jsonrpc`'
    elif envelope.method is not _UNSET and said:
        fault = "a message with a method has neither result nor error - at `$`"
    elif envelope.method is not _UNSET:
        if envelope.params is not NO_PARAMS and not bytes(envelope.params).startswith(b"{"):
            fault = "expected an object - at `$.params`"  # rule J-29
    elif said != 1:
        fault = f"expected {'' if said else 'a method, or '}exactly one of result and error - at `$`"
    elif envelope.id is _UNSET and envelope.error is _UNSET:
        fault = "a result needs the id of its request - at `$`"
    return fault


def _refusal(fault: str | None, damage: str | None, identity: RequestId | None) -> ProtocolError:
    """Return what to answer to what is no answer."""
    if damage is TOO_DEEP:
        return parse_error(_NESTED) if fault or identity is None else too_deep()
    return parse_error(damage or _NESTED) if fault is None else invalid_request(fault)


def not_json(fault: Exception, data: bytes | str) -> Undecodable:
    """Return what to raise for a text that is no JSON, of which something else has raised."""
    why = str(fault)
    if not data.strip():
        why = f"the body or message is empty: what belongs there is JSON-RPC, such as {_EXAMPLE}"
    elif isinstance(fault, UnicodeError):
        why = "the text is not valid UTF-8"
    elif isinstance(fault, RecursionError):
        why = _NESTED
    return Undecodable(parse_error(why))


def _without_id(text: bytes) -> JsonRpcResponse | None:
    """Read an error whose id is null, if that is all that is unusual about it: what it says is for whoever made the request."""
    try:
        said = _unattributed.decode(text)
    except msgspec.ValidationError:
        return None
    return JsonRpcResponse(None, error=said.error) if said.method is said.result is _UNSET else None


def _read_id(raw: msgspec.Raw | msgspec.UnsetType) -> RequestId | None:
    try:
        return None if isinstance(raw, msgspec.UnsetType) else _ids.decode(raw)
    except msgspec.ValidationError:
        return None
