"""What the actors of a bus tell one another about requests, calls and streams."""

import enum
from collections.abc import Callable, Mapping
from typing import Any, Self

import msgspec
from mcpbus_actors import Address

from mcpbus.core.outbox import OutboundMessage, Withdrawal
from mcpbus.protocol.errors import ProtocolError
from mcpbus.protocol.jsonrpc import JsonRpcResponse, RequestId
from mcpbus.protocol.messages import ProgressParams
from mcpbus.protocol.routes import Reason

# -- to a request --------------------------------------------------------------------------------


class Cancel(msgspec.Struct, frozen=True):
    """The client cancelled the request: it is not answered."""


class FailRequest(msgspec.Struct, frozen=True):
    """The server ends the request, and answers it with an internal error.

    Attributes:
        why: For the client, in the error's message.
    """

    why: str


class DropRequest(msgspec.Struct, frozen=True):
    """The client ended its session: the request is not answered."""


class InputEnded(msgspec.Struct, frozen=True):
    """The client says nothing more, though it still reads: it cannot be asked any more. Told to its session too.

    Attributes:
        why: Why it cannot.
    """

    why: str = "it has ended its input"


class InputResponseReceived(msgspec.Struct, frozen=True):
    """The client answered a question. Told to its session where no request asked it."""

    response: JsonRpcResponse


class InputProgressReceived(msgspec.Struct, frozen=True):
    """The client says how far it is with a question, whose token is the question's id."""

    params: ProgressParams


# -- to a call, and by it ------------------------------------------------------------------------


class CancelCall(msgspec.Struct, frozen=True):
    """Cancel the handler; nobody waits for its result any more."""


class Resume(msgspec.Struct, frozen=True):
    """A retry carries the call on.

    Attributes:
        answers: What it brings, decoded JSON by key.
    """

    answers: Mapping[str, Any]


class BecomeTask(msgspec.Struct, frozen=True):
    """The call is a task now.

    Attributes:
        task: The task's actor, which carries the call from now on.
        result: The encoded result object with which the request is answered.
    """

    task: Address[object]
    result: bytes


class Finished(msgspec.Struct, frozen=True):
    """Told to the request, or the task: what to answer.

    Attributes:
        result: The encoded result object, or an error.
        parked: Whether the call goes on, for a retry or as a task; otherwise it has ended.
        cancelled: Whether its handler was cancelled.
    """

    result: bytes | ProtocolError
    parked: bool = False
    cancelled: bool = False


class Park(msgspec.Struct, frozen=True):
    """Ask for all that was asked in this turn."""


# -- to a stream ---------------------------------------------------------------------------------


class Ending(enum.Enum):
    """Why a stream ended without the reply that its client waits for, where it did."""

    CANCELLED = "the client cancelled the request"
    SESSION_ENDED = "the session has ended"
    CLOSED = "the server closed the stream"


class Finish(msgspec.Struct, frozen=True):
    """End the stream once what waits has been written."""


class Abort(msgspec.Struct, frozen=True):
    """End the stream, or a request's part in it; what waits is discarded for `reason`.

    Where the client cancelled, what withdraws a question is sent before the end.

    Attributes:
        ending: Why.
        reason: The same, for what waits.
        request_id: The request that ends, if the stream may owe replies to others too; None for the whole stream.
    """

    ending: Ending
    reason: Reason
    request_id: RequestId | None = None


class EvictStream(msgspec.Struct, frozen=True):
    """End the stream and its connection at once: too much waits for clients that do not read, and for this one the most."""


class Supersede(msgspec.Struct, frozen=True):
    """A newer stream takes this one's place: return what waits now, and end, in a moment if something is being written."""


class ReturnUnsent(msgspec.Struct, frozen=True):
    """Return to the session what waits for the client; the stream goes on."""


class ReturnUnsentAndEnd(msgspec.Struct, frozen=True):
    """Another process goes on with this stream: return what waits now, and end once what is being written is."""


class Purge(msgspec.Struct, frozen=True):
    """Discard what waits and is `unwanted` now."""

    unwanted: Callable[[OutboundMessage], bool]
    reason: Reason

    @classmethod
    def request(cls, request_id: RequestId) -> Self:
        """Discard what waits for one request, which its client cancelled.

        What withdraws a question that the client has seen goes out all the same: the client would wait otherwise.
        """

        def unwanted(message: OutboundMessage) -> bool:
            return message.request_id == request_id and not (isinstance(message, Withdrawal) and message.due)

        return cls(unwanted, Reason.CANCELLED)


class ExpireIn(msgspec.Struct, frozen=True):
    """End with the token of the client, to a session that is a connection; this takes the place of what was said of it before.

    Attributes:
        seconds: How long it is good.
    """

    seconds: float


class CloseConnection(msgspec.Struct, frozen=True):
    """Close the connection, not the stream: its client comes back for the rest.

    Attributes:
        retry: After how many seconds it may.
    """

    retry: float
