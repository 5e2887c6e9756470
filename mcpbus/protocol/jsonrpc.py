"""JSON-RPC 2.0 messages: one pass in, one line out.

A message is decoded once: method, id and kind are typed, `params` and `result` stay raw until their type is known.
What is encoded is always one line of UTF-8 (rule J-31). Raw JSON that an author or a client wrote may hold line breaks, but
JSON admits a raw line break only *between* tokens, never inside a string; so each one is replaced by a space where it is spliced in,
which changes no value.
"""

from collections.abc import Callable
from typing import Annotated, Final, Literal, NoReturn, TypeAlias

import msgspec

from mcpbus.protocol.errors import ProtocolError, invalid_params, invalid_request, parse_error
from mcpbus.protocol.half_characters import mend, unchanged
from mcpbus.protocol.json_faults import plain, with_place
from mcpbus.protocol.nesting import TOO_DEEP, too_deep, without_inside

RequestId: TypeAlias = int | str
"""Compared by type and value: `1` is not `"1"` (rule J-5). Python agrees once bool and float are kept out, and `decode` does that."""

LONGEST_ID: Final = 1024
"""How many characters the id of a request may have, and a progress token likewise: each is said again with every message about it."""

BoundedId: TypeAlias = int | Annotated[str, msgspec.Meta(max_length=LONGEST_ID)]
"""A `RequestId` as it is read from a message."""

MAX_BATCH: Final = 1_000
"""How many messages one array may hold. Each is answered, so that the answer may be many times as long as the array."""

_EXAMPLE: Final = '{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}'

NO_PARAMS: Final = msgspec.Raw(b"{}")
"""The params of a message that came without any."""


class ErrorObject(msgspec.Struct, frozen=True, omit_defaults=True):
    """The error member of a response that the peer sent."""

    code: int
    message: str
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class Request(msgspec.Struct, frozen=True, gc=False):
    """A message that is owed an answer.

    What reads a whole one in one go leaves its params where they are, in the text of it, for those who ask.
    """

    id: RequestId
    method: str
    _params: msgspec.Raw | None = NO_PARAMS
    _text: bytes = b""

    @property
    def params(self) -> msgspec.Raw:
        """A JSON object, `{}` if there was none.

        Raises:
            ProtocolError: -32602: they are nested so deeply that they can be read there, but not here.
        """
        if self._params is None:
            try:
                params = _envelopes.decode(self._text).params
            except RecursionError:
                raise invalid_params("the text is nested too deeply") from None
            msgspec.structs.force_setattr(self, "_params", params)
        assert self._params is not None  # noqa: S101 - they are there now
        return self._params

    @property
    def text(self) -> bytes | msgspec.Raw:
        """Its params, or as long as nobody asked for them the message that has them, which is a little longer."""
        return self._text if self._params is None else self._params


class Notification(msgspec.Struct, frozen=True, gc=False):
    """A message that never gets an answer, not even an error (rule J-10)."""

    method: str
    params: msgspec.Raw = NO_PARAMS


class Response(msgspec.Struct, frozen=True, gc=False):
    """The peer's answer to a request of ours: exactly one of `result` and `error` (rule J-7).

    `id` is None only beside an error whose sender could not read the request's id (rule J-9). Of an answer whose id can be read, and
    not what it says, there is neither: `fault` tells why, for whoever waits for it.
    """

    id: RequestId | None
    result: msgspec.Raw | None = None
    error: ErrorObject | None = None
    fault: str | None = None


class Undecodable(Exception):  # noqa: N818 - the word says what happened
    """What arrived is not a JSON-RPC message.

    Attributes:
        error: what to answer.
        id: whom to answer, if that could be read.
        array: whether it is an array, which some revision may take for `decode_batch`.
    """

    def __init__(self, error: ProtocolError, id: RequestId | None = None, *, array: bool = False) -> None:  # noqa: A002 - the protocol's word
        super().__init__(str(error))
        self.error = error
        self.id = id
        self.array = array


class _Envelope(msgspec.Struct, gc=False):
    jsonrpc: str | None = None
    id: BoundedId | msgspec.UnsetType = msgspec.UNSET
    method: str | msgspec.UnsetType = msgspec.UNSET
    params: msgspec.Raw = NO_PARAMS
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: ErrorObject | msgspec.UnsetType = msgspec.UNSET


class _Identified(msgspec.Struct, gc=False):
    id: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _Outside(msgspec.Struct, gc=False):
    """What is left of a message that is nested too deeply to be read: an error is empty then."""

    jsonrpc: Literal["2.0"]
    id: BoundedId
    method: str | msgspec.UnsetType = msgspec.UNSET
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _Unattributed(msgspec.Struct, gc=False):
    """An error whose sender says by null, as JSON-RPC 2.0 has it, what MCP says by no id at all (rule J-9)."""

    jsonrpc: Literal["2.0"]
    id: None
    error: ErrorObject
    method: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_UNSET: Final = msgspec.UNSET
_BRACE: Final = ord("{")
_envelopes = msgspec.json.Decoder(_Envelope)
_arrays = msgspec.json.Decoder(list[msgspec.Raw])
_well_formed = msgspec.json.Decoder(msgspec.Raw)
_identified = msgspec.json.Decoder(_Identified)
_outsides = msgspec.json.Decoder(_Outside)
_unattributed = msgspec.json.Decoder(_Unattributed)
_ids: msgspec.json.Decoder[RequestId] = msgspec.json.Decoder(BoundedId)
encode_value = msgspec.json.Encoder(enc_hook=plain).encode
"""Any value that is JSON, as JSON. What is `msgspec.Raw` in it may hold line breaks; see `single_line`."""
encode_id: Final[Callable[[RequestId], bytes]] = encode_value
"""An id, as JSON."""


def decode(data: bytes | str) -> Request | Notification | Response:
    """Read one message.

    Args:
        data: one JSON object. An array is refused as one; where the revision has batches, `decode_batch` reads it.

    Raises:
        Undecodable: for anything that is not a message; never another exception.
    """
    try:
        # The raw members are skipped by the decoder without a look at their encoding, and text arrives with the same doubt.
        if not data.isascii():
            if isinstance(data, str):
                data = data.encode()
            else:
                data.decode()
        envelope = _envelopes.decode(data)
    except msgspec.ValidationError as fault:
        return _without_id(data) or _refuse(data, str(fault))
    except RecursionError as fault:
        return _without_depth(data) or _cannot_parse(fault, data)
    except (UnicodeError, msgspec.DecodeError) as fault:
        return _with_half(fault, data) or _cannot_parse(fault, data)
    if envelope.jsonrpc != "2.0":
        _refuse(data, 'expected "2.0" - at `$.jsonrpc`')
    method, params, identity = envelope.method, envelope.params, envelope.id
    if method is _UNSET:
        return _response(data, envelope)
    if envelope.result is not _UNSET or envelope.error is not _UNSET:
        _refuse(data, "a message with a method has neither result nor error - at `$`")
    if params is not NO_PARAMS and memoryview(params)[0] != _BRACE:
        _refuse(data, "expected an object - at `$.params`")  # rule J-29
    return Notification(method, params) if identity is _UNSET else Request(identity, method, params)


def decode_batch(data: bytes | str) -> "list[Request | Notification | Response | Undecodable]":
    """Read an array of messages; what in it is none is given in its place as what `decode` would raise (rules J-23, J-26).

    Args:
        data: what `decode` has refused as an array.

    Raises:
        Undecodable: if the array is empty, longer than `MAX_BATCH`, or nested too deeply to be read.
    """
    elements = _split(data)
    if not elements:
        raise Undecodable(invalid_request("expected at least one message - at `$`"))
    if len(elements) > MAX_BATCH:
        raise Undecodable(invalid_request(f"a batch has at most {MAX_BATCH} messages, got {len(elements)}"))
    return [_decode_member(element) for element in elements]


def _split(data: bytes | str) -> list[bytes]:
    try:
        return [bytes(element) for element in _arrays.decode(data)]
    except RecursionError as fault:
        _cannot_parse(fault, data)
    except msgspec.DecodeError:  # there is half of a surrogate pair in one of them, or some
        text, mended = mend(data)
    elements, end = [], 0
    for element in map(bytes, _arrays.decode(mended)):
        start = mended.index(element, end)  # between them is nothing that one could begin with
        end = start + len(element)
        elements.append(text[start:end])
    return elements


def _decode_member(data: bytes) -> "Request | Notification | Response | Undecodable":
    try:
        return decode(data)
    except Undecodable as fault:
        return fault


def is_batch(data: bytes) -> bool:
    """Tell whether a text is an array of messages, if it is JSON."""
    return data.lstrip()[:1] == b"["


def _response(data: bytes | str, envelope: _Envelope) -> Response:
    identity = None if envelope.id is _UNSET else envelope.id
    result = None if envelope.result is _UNSET else envelope.result
    error = None if envelope.error is _UNSET else envelope.error
    if (result is None) == (error is None):
        _refuse(data, "expected a method, or exactly one of result and error - at `$`")
    if identity is None and error is None:
        _refuse(data, "a result needs the id of its request - at `$`")
    return Response(identity, result, error)


def _without_id(data: bytes | str) -> Response | None:
    """Read an error whose id is null, if that is all that is unusual about it: what it says is for whoever made the request."""
    try:
        said = _unattributed.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return None
    return Response(None, error=said.error) if said.method is said.result is _UNSET else None


def _refuse(data: bytes | str, detail: str) -> NoReturn:
    """Raise for a bad envelope: look at the whole text again, now for what can still be told.

    The typed decoder stops at the first fault, so the rest may not even be JSON.
    """
    try:
        start = bytes(memoryview(_well_formed.decode(data))[:1])
        identity = _readable_id(data) if start == b"{" else None
    except (msgspec.DecodeError, RecursionError) as fault:
        _with_half(fault, data)  # which is no answer: what is wrong with it comes first
        _cannot_parse(fault, data)
    if start == b"[":
        detail = "expected one message, got an array: send each message by itself"
    raise Undecodable(invalid_request(detail), identity, array=start == b"[")


def _cannot_parse(fault: Exception, data: bytes | str) -> NoReturn:
    text = str(fault)
    if not data.strip():
        text = f"the body or message is empty: what belongs there is JSON-RPC, such as {_EXAMPLE}"
    elif isinstance(fault, UnicodeError):
        text = "the text is not valid UTF-8"
    elif isinstance(fault, RecursionError):
        text = "the text is nested too deeply"
    raise Undecodable(parse_error(text)) from None


def _without_depth(data: bytes | str) -> Response | None:
    """Judge a message that is nested too deeply to be read, by what is outside of all that is nested in it.

    Returns:
        An answer, without what it says; None if it is none, and no request either.

    Raises:
        Undecodable: It is a request.
    """
    shallow = without_inside(data.encode() if isinstance(data, str) else data)
    if shallow is None:
        return None
    try:
        said = _outsides.decode(shallow)
    except msgspec.DecodeError:
        return None
    if said.method is _UNSET:
        return (
            None if (said.result is _UNSET) == (said.error is _UNSET) else Response(said.id, fault=TOO_DEEP)
        )
    if said.result is said.error is _UNSET:
        raise Undecodable(too_deep(), said.id) from None
    return None


def _with_half(fault: Exception, data: bytes | str) -> Response | None:
    """Judge a message with half of a surrogate pair.

    Whoever waits for it, or asked, learns it by its id: on a channel that others share they would wait for ever.

    Returns:
        An answer that has one, without what it says; None if there is no such half.

    Raises:
        Undecodable: There is one in anything else.
    """
    if not isinstance(fault, msgspec.DecodeError):
        return None
    text, mended = mend(data)
    if mended is text:
        return None
    error = parse_error("a text has half of a surrogate pair, such as \\ud83d alone, which is no Unicode")
    identity = None
    try:
        message = decode(mended)
    except Undecodable as other:
        if other.array:
            raise
        error, identity = other.error, other.id
    else:
        if isinstance(message, Request):
            identity = message.id
        elif isinstance(message, Response) and unchanged(message.id) is not None:
            return Response(message.id, fault=error.message)
    raise Undecodable(error, unchanged(identity)) from None


def _readable_id(data: bytes | str) -> RequestId | None:
    raw = _identified.decode(data).id
    if isinstance(raw, msgspec.UnsetType):
        return None
    try:
        return _ids.decode(raw)
    except msgspec.ValidationError:
        return None


def single_line(text: bytes) -> bytes:
    """The same JSON without line breaks, which JSON admits between tokens only."""
    return text.replace(b"\n", b" ").replace(b"\r", b" ")


def encode_result(id: RequestId, result: bytes) -> bytes:  # noqa: A002 - the protocol's word
    """A successful answer around an already encoded result object."""
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (encode_id(id), single_line(result))


def encode_error(id: RequestId | None, error: ProtocolError) -> bytes:  # noqa: A002 - the protocol's word
    """An error answer, without an id member if the request's id could not be read (rule J-9)."""
    identity = b"" if id is None else b'"id":%b,' % encode_id(id)
    data = b"" if error.encoded_data is None else b',"data":%b' % single_line(bytes(error.encoded_data))
    message = encode_value(error.message)
    return b'{"jsonrpc":"2.0",%b"error":{"code":%d,"message":%b%b}}' % (identity, error.code, message, data)


def encode_notification(method: str, params: object | None = None) -> bytes:
    """A notification.

    Args:
        method: its name.
        params: what msgspec writes as a JSON object (`msgspec.Raw` included); None leaves the member out.

    Raises:
        TypeError: if `params` holds what JSON cannot.
        ValueError: if its text is not Unicode.
    """
    return b'{"jsonrpc":"2.0","method":%b%b}' % (encode_value(method), _encode_params(params))


def encode_request(id: RequestId, method: str, params: object | None = None) -> bytes:  # noqa: A002 - the protocol's word
    """A request of ours to the peer; as `encode_notification`, with an id from the sender's own space (rule J-6)."""
    return b'{"jsonrpc":"2.0","id":%b,"method":%b%b}' % (
        encode_id(id),
        encode_value(method),
        _encode_params(params),
    )


def _encode_params(params: object | None) -> bytes:
    if params is None:
        return b""
    try:
        return b',"params":%b' % single_line(encode_value(params))
    except TypeError as error:
        raise with_place(error, params, encode_value, "params") from None
