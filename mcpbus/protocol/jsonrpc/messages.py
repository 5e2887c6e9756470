"""JSON-RPC messages, as they are once they have been read."""

from typing import Annotated, Final, TypeAlias

import msgspec

from mcpbus.protocol.errors import ProtocolError, invalid_params, invalid_request

RequestId: TypeAlias = int | str
"""Compared by type and value: `1` is not `"1"` (rule J-5). Python agrees once bool and float are kept out, and `decode` does that."""

LONGEST_ID: Final = 1024
"""How many characters the id of a request may have, and a progress token likewise: each is said again with every message about it."""

BoundedId: TypeAlias = int | Annotated[str, msgspec.Meta(max_length=LONGEST_ID)]
"""A `RequestId` as it is read from a message."""

NO_PARAMS: Final = msgspec.Raw(b"{}")
"""The params of a message that came without any."""


class ErrorObject(msgspec.Struct, frozen=True, omit_defaults=True):
    """The error member of a response that the peer sent."""

    code: int
    message: str
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class JsonRpcRequest(msgspec.Struct, frozen=True, gc=False):
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
                params = envelopes.decode(self._text).params
            except RecursionError:
                raise invalid_params("the text is nested too deeply") from None
            msgspec.structs.force_setattr(self, "_params", params)
        assert self._params is not None  # noqa: S101 - they are there now
        return self._params

    @property
    def text(self) -> bytes | msgspec.Raw:
        """Its params, or as long as nobody asked for them the message that has them, which is a little longer."""
        return self._text if self._params is None else self._params


class JsonRpcNotification(msgspec.Struct, frozen=True, gc=False):
    """A message that never gets an answer, not even an error (rule J-10)."""

    method: str
    params: msgspec.Raw = NO_PARAMS


class JsonRpcResponse(msgspec.Struct, frozen=True, gc=False):
    """The peer's answer to a request of ours: exactly one of `result` and `error` (rule J-7).

    `id` is None only beside an error whose sender could not read the request's id (rule J-9). Of an answer whose id can be read, and
    not what it says, there is neither: `fault` tells why, for whoever waits for it.
    """

    id: RequestId | None
    result: msgspec.Raw | None = None
    error: ErrorObject | None = None
    fault: str | None = None

    @property
    def refusal(self) -> ProtocolError | None:
        """What whoever sent it is told of its fault, without its id, where answers have an answer, as over HTTP; None if it has none."""
        return None if self.fault is None else invalid_request(self.fault)


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


class Envelope(msgspec.Struct, gc=False):
    """Any of them, as it is read."""

    jsonrpc: str | None = None
    id: BoundedId | msgspec.UnsetType = msgspec.UNSET
    method: str | msgspec.UnsetType = msgspec.UNSET
    params: msgspec.Raw = NO_PARAMS
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: ErrorObject | msgspec.UnsetType = msgspec.UNSET


envelopes: Final = msgspec.json.Decoder(Envelope)
