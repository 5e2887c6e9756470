"""What the actor of a session is told, besides what others are told too."""

from collections.abc import Callable, Collection

import msgspec

from mcpbus.core.message_stream import MessageStream
from mcpbus.core.outbox import OutboundMessage
from mcpbus.core.sessions.held_queue import SayElsewhere
from mcpbus.protocol.jsonrpc import RequestId


class OpenGet(msgspec.Struct, frozen=True):
    """The client opened a GET stream; it takes the place of an earlier one."""

    stream: MessageStream


class EndGet(msgspec.Struct, frozen=True):
    """End the GET stream once what waits has been written; the session goes on."""


class Registered(msgspec.Struct, frozen=True):
    """initialize is answered."""


class Initialized(msgspec.Struct, frozen=True):
    """The client sent initialized."""


class Unsubscribed(msgspec.Struct, frozen=True):
    """The client unsubscribed from a resource: what waits for it is unwanted now."""


class CancelRequest(msgspec.Struct, frozen=True):
    """The client cancelled one of its requests."""

    request_id: RequestId


class CloseSession(msgspec.Struct, frozen=True):
    """End the session.

    Attributes:
        why: What requests in flight are answered with; None if the client ended it, which is silent.
    """

    why: str | None


class Stored(msgspec.Struct, frozen=True):
    """Messages that are held for the client are in the store now, by these names."""

    names: Collection[str]


class HeldMessagesReleased(msgspec.Struct, frozen=True):
    """No message that is held for the client is in the store any more, so that all may be sent."""


class RestoreHeldMessage(msgspec.Struct, frozen=True):
    """Hold a message that another process has held.

    Attributes:
        message: The message.
        name: Its name in the store.
        seconds: For how many seconds; 0 or less if that is over.
    """

    message: OutboundMessage
    name: str
    seconds: float


class Reconnect(msgspec.Struct, frozen=True):
    """Have the client open another GET stream, at once: the process to which it is connected ends."""


class YieldSession(msgspec.Struct, frozen=True):
    """Say nothing more to the client, to which another process is about to speak.

    Attributes:
        done: Called once nothing of it is on its way, or the session has ended.
    """

    done: Callable[[], object]


class StopWaitingForWrites(msgspec.Struct, frozen=True):
    """Do not wait any longer until the client has taken what is being written."""


class SessionYielded(msgspec.Struct, frozen=True):
    """Another process may go on with the session: end here, with what is held.

    Attributes:
        pass_on: As for `SessionTakenOver`: what was said too late to be in the store is said there. None where that is not known to come to pass.
    """

    pass_on: SayElsewhere | None = None


class SessionTakenOver(msgspec.Struct, frozen=True):
    """Another process has the session: be found here no more, pass on what is to be said, and end once no request is in flight here.

    Attributes:
        pass_on: Has a message said there.
    """

    pass_on: SayElsewhere
