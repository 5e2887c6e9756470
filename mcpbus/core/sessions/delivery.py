"""How what is said to a session gets to its client: on the stream on which it may leave now, or held until there is one."""

from collections.abc import Collection

import msgspec
import trio
from mcpbus_actors import ActorContext

from mcpbus.core.message_stream import MessageStream, UnsentReturned
from mcpbus.core.outbox import OutboundMessage, Outbox, Withdrawal, overflowed
from mcpbus.core.receipt import LOST, MOVED, Receipt
from mcpbus.core.sessions.held_queue import MOVABLE, HeldQueue, SayElsewhere, SessionHeldStore
from mcpbus.core.sessions.messages import RestoreHeldMessage
from mcpbus.core.sessions.session import Session, SessionCallbacks, SessionStage
from mcpbus.core.signals import Abort, Ending, Finish, Purge, ReturnUnsent, Supersede
from mcpbus.core.topics import covers
from mcpbus.protocol.revisions import Era
from mcpbus.protocol.routes import (
    ABSENT,
    CHANGES,
    HoldPolicy,
    MessageKind,
    Reason,
    StreamKind,
    StreamState,
    route,
    when_unavailable,
)


class ExpireHeld(msgspec.Struct, frozen=True):
    """Look what was held for too long."""


class SessionDelivery:
    """Sends what is said to one session, in the order in which it was said. A part of its actor, and nobody else's.

    A message leaves on the channel that carries everything, or on the client's GET stream; where that is not there it is held. As
    long as another stream has not returned yet what it had not written, or what is held is still in the store, what is said waits for
    that. So it does where another process may be speaking to the client.

    Args:
        cell: The cell of the session's actor.
        session: The session.
        directory: Where it is entered.
        shared: The channel that carries everything; None over Streamable HTTP.

    Attributes:
        shared: The same.
        get: The GET stream.
        returning_stream: The stream that has not returned yet what it had, when a newer one took its place, or when that was recalled.
        loading_held: Whether what is held is being taken out of the store.
        expects_reconnect: Whether the client opens another GET stream where there is none, elsewhere perhaps.
        paused_for_other_node: Whether another process speaks to the client.
    """

    __slots__ = (
        "_cell",
        "_directory",
        "_dropped",
        "_expiring",
        "_lapsed",
        "_newer",
        "_pass_on",
        "_session",
        "_stash",
        "_store",
        "expects_reconnect",
        "get",
        "loading_held",
        "paused_for_other_node",
        "returning_stream",
        "shared",
    )

    def __init__(
        self,
        cell: ActorContext[object],
        session: Session,
        directory: SessionCallbacks,
        shared: MessageStream | None,
    ) -> None:
        self._cell = cell
        self._session = session
        self._directory = directory
        self.shared = shared
        self.get: MessageStream | None = None
        self.returning_stream: MessageStream | None = None
        self._newer: Outbox | None = None  # what was said meanwhile
        self._dropped = False
        self._stash: HeldQueue | None = None
        self._store: SessionHeldStore | None = None
        self._expiring = False
        self.loading_held = False
        self._lapsed = False
        self.expects_reconnect = False
        self.paused_for_other_node = False
        self._pass_on: SayElsewhere | None = None

    # -- streams ---------------------------------------------------------------------------------

    def open_get(self, stream: MessageStream) -> None:
        """Have a GET stream take the place of the one that there is, if any; see `flush`."""
        old, self.get = self.get, stream
        if old is not None:
            old.address.tell(Supersede())
            self._await(old)

    def let_go(self, stream: MessageStream) -> None:
        """Send nothing more on a stream that is told to return what it has, if that is the GET stream."""
        if self.get is stream:
            self.get = None
            self._await(stream)

    def _await(self, stream: MessageStream) -> None:
        """Have what is said from now on wait for what a stream returns; if an older one is to return something, nothing was sent to it."""
        if self.returning_stream is None:
            self.returning_stream = stream
            self._collect()

    def _collect(self) -> None:
        """Have what is said from now on wait for what was said before."""
        if self._newer is None:
            limits = self._session.bus.limits
            self._newer = Outbox(limits.outbox_items, limits.outbox_bytes)

    def _release(self) -> list[OutboundMessage]:
        """Return what was said meanwhile, to be sent after what was waited for."""
        newer = [] if self._newer is None else self._newer.remove()
        self._newer = None
        if self.loading_held or self.returning_stream is not None:
            self._collect()
        return newer

    def take_back(self, returned: UnsentReturned) -> None:
        """Send what a stream has not written on the one that there is now."""
        if self.get is returned.stream and not returned.goes_on:
            self.get = None
            self.note_dropped()
        newer: list[OutboundMessage] = []
        if self.returning_stream is returned.stream:
            self.returning_stream = None
            newer = self._release()
        # What was lost is older than what waited, and that than what was said since.
        for lost in returned.lost:
            if lost.kind in CHANGES:
                receipt = self._session.bus.ledger.emit(lost.receipt.method)
                self.send(OutboundMessage(lost.kind, Era.LEGACY, lost.data, receipt, key=lost.key))
        self._send_on([*returned.waiting, *newer])

    def note_dropped(self) -> None:
        """Note that the client has no GET stream any more."""
        self._session.listening = False
        self._session.last_active = trio.current_time()
        self._dropped = True

    # -- sending ---------------------------------------------------------------------------------

    def send(self, message: OutboundMessage) -> None:
        """Send a message, or hold it."""
        if self._pass_on is not None:
            self._say_elsewhere(self._pass_on, message)
            return
        way: StreamKind | HoldPolicy | Reason = route(message.kind, Era.LEGACY, self._session.transport)
        withheld = way is StreamKind.STANDALONE and self._withholds()
        if self._newer is not None and way is StreamKind.STANDALONE:
            full = self._newer.put(message)
            if full is not None:
                self._note(full, overflowed(way, message))
            return
        stream = self.get if way is StreamKind.STANDALONE else self.shared
        if stream is None or self._session.stage is not SessionStage.READY:
            way = self._way_without(message, way, stream)
        if withheld and stream is not None and not isinstance(way, Reason):
            way = HoldPolicy.HOLD
        if isinstance(way, Reason):
            message.discard(way)
        elif way is HoldPolicy.HOLD or stream is None:
            self._hold(message)
        else:
            stream.send(message)

    def _way_without(
        self, message: OutboundMessage, way: StreamKind | HoldPolicy | Reason, stream: MessageStream | None
    ) -> StreamKind | HoldPolicy | Reason:
        """Return what becomes of a message whose stream is not there, or whose client has not sent initialized."""
        if (
            self._session.stage is not SessionStage.READY
            and (message.kind, Era.LEGACY, StreamState.UNINITIALIZED) in ABSENT
        ):
            return when_unavailable(message.kind, Era.LEGACY, StreamState.UNINITIALIZED)
        if stream is not None:
            # A log line may be sent before initialized, but not before older messages of the same stream.
            return HoldPolicy.HOLD if self._stash else way
        if self.expects_reconnect and way is StreamKind.STANDALONE:
            return HoldPolicy.HOLD
        return when_unavailable(
            message.kind, Era.LEGACY, StreamState.DROPPED if self._dropped else StreamState.NEVER
        )

    def _send_on(self, waited: Collection[OutboundMessage]) -> None:
        """Send what has waited, but for what the client has unsubscribed from meanwhile, and for what nobody asks any more."""
        withdrawn = {message.question for message in waited if isinstance(message, Withdrawal)}
        withdrawn &= {message.receipt for message in waited}
        for message in waited:
            asked = message.question if isinstance(message, Withdrawal) else message.receipt
            if asked in withdrawn:
                message.discard(Reason.FINISHED)  # its client has not seen it, and sees neither
            elif self._not_subscribed(message):
                message.discard(Reason.NOT_SUBSCRIBED)
            else:
                self.send(message)

    def drop_unsubscribed(self) -> None:
        """Discard what waits for the client, and what it has unsubscribed from."""
        if self._stash is not None:
            self._stash.discard(Reason.NOT_SUBSCRIBED, self._not_subscribed)
        stream = self.shared or self.get
        if stream is not None:
            stream.address.tell(Purge(self._not_subscribed, Reason.NOT_SUBSCRIBED))

    def _not_subscribed(self, message: OutboundMessage) -> bool:
        # A shared channel has the modern client's updates too, whose listens are no concern of the session.
        if message.kind is not MessageKind.RESOURCE_UPDATED or message.era is not Era.LEGACY:
            return False
        subscribed = self._session.subscriptions.canonical
        return isinstance(message.key, tuple) and not covers(subscribed, message.key[1])

    def _withholds(self) -> bool:
        """Whether what is for the client waits, to which another process may be speaking."""
        if self.paused_for_other_node:
            return True
        lease = self._session.bus.lease
        if lease is not None and self.shared is None and not self._lapsed and not lease.is_valid:
            self._lapsed = True
            lease.tell_extended(self._cell.address)
            if self.get is not None and self.returning_stream is None:
                # What its client has not taken yet waits as well.
                self._await(self.get)
                self.get.address.tell(ReturnUnsent())
        return self._lapsed

    def lease_extended(self) -> None:
        """Hear that no other process may be speaking to the client."""
        self._lapsed = False
        self.flush()

    # -- holding ---------------------------------------------------------------------------------

    def _hold(self, message: OutboundMessage) -> None:
        full = self._open_stash().put(message, trio.current_time())
        if full is not None:
            self._note(full, "what was held for a stream that is not open was discarded")
        self._await_expiry()

    def _open_stash(self) -> HeldQueue:
        if self._stash is None:
            limits, account = self._session.bus.limits, self._session.account
            self._store = self._directory.stash_store(self._session)
            self._stash = HeldQueue(
                limits.held_items, limits.outbox_bytes, limits.held_timeout, account, self._store
            )
        return self._stash

    def flush(self) -> None:
        """Send what is held, where its stream is there now; what is in the store leaves that before."""
        if not self._stash or self.loading_held or (self.get or self.shared) is None or self._withholds():
            return
        if self._store is not None and self._stash.stored:
            self.loading_held = True
            self._collect()
            self._store.take(self._stash.stored)
        else:
            for message in self._stash.take():
                self.send(message)

    def taken(self) -> None:
        """Hear that nothing that is held is in the store any more, and send it."""
        self.loading_held = False
        held = [] if self._stash is None else self._stash.take()
        self._send_on([*held, *self._release()])

    def stored(self, names: Collection[str]) -> None:
        """Hear what is in the store now."""
        if self._stash is not None:
            self._stash.note_stored(names)

    def restore(self, held: RestoreHeldMessage) -> None:
        """Hold a message that another process has held."""
        self._open_stash().restore(held.message, held.name, trio.current_time() + held.seconds)
        self._await_expiry()

    def withdraw_held(self, question: Receipt) -> None:
        """Discard a question that is still held, so that its client never sees it."""
        assert self._stash is not None  # noqa: S101 - there it is held
        self._stash.discard(Reason.FINISHED, lambda held: held.receipt is question)

    def _await_expiry(self) -> None:
        if not self._expiring and self._stash is not None and self._stash.deadline is not None:
            self._expiring = True
            self._cell.after(max(0.0, self._stash.deadline - trio.current_time()), ExpireHeld())

    def expire(self) -> None:
        """Discard what was held for too long."""
        self._expiring = False
        self._discard_expired()
        self._await_expiry()

    def _discard_expired(self) -> None:
        if self._stash is not None and self._stash.expire(trio.current_time()):
            self._note(
                "held_timeout", "what was held for a stream that did not open was discarded", usual=True
            )

    # -- the end ---------------------------------------------------------------------------------

    def hand_over(self, pass_on: SayElsewhere | None) -> None:
        """Leave what is held to another process, which finds it in the store; the rest it says as well, if it can be told; see `SessionYielded`."""
        if pass_on is not None:
            self.pass_on(pass_on)
            return
        self._discard_expired()  # the timer may be late, and nobody finds it in the store any more
        if self._stash is not None:
            # While it is being taken out of the store, nobody knows whether it is still there for another process.
            self._stash.hand_over(LOST if self.loading_held else MOVED)
            self._stash.discard(Reason.UNREACHABLE, lambda held: held.kind in MOVABLE)
        for message in [] if self._newer is None else self._newer.remove():
            message.discard(Reason.UNREACHABLE if message.kind in MOVABLE else Reason.SESSION_ENDED)

    def pass_on(self, pass_on: SayElsewhere) -> None:
        """Have what is still to be said, and what will be, said by another process; see `SessionTakenOver`."""
        for message in [] if self._newer is None else self._newer.remove():
            self._hold(message)
        self._newer = None
        self._pass_on = pass_on
        self._discard_expired()  # as in `hand_over`
        if self._stash is not None:
            self._stash.pass_on(pass_on, kept=not self.loading_held)

    def _say_elsewhere(self, pass_on: SayElsewhere, message: OutboundMessage) -> None:
        """Have something said by who has the session; a question is of use only where somebody waits for its answer."""
        if message.kind in MOVABLE or message.kind in CHANGES:
            pass_on(message, None)
        else:
            message.discard(Reason.SESSION_ENDED)

    def end_streams(self, *, silent: bool) -> None:
        """End the client's streams, as the session does: at once if it is the client who ended that."""
        if self.get is not None:
            self.get.address.tell(Abort(Ending.SESSION_ENDED, Reason.SESSION_ENDED) if silent else Finish())
        if self.shared is not None:
            self.shared.address.tell(Finish())

    def end(self) -> None:
        """Discard what is left."""
        if self._stash is not None:
            self._stash.discard(Reason.SESSION_ENDED)
        if self._newer is not None:
            for message in self._newer.remove():
                message.discard(Reason.SESSION_ENDED)

    def _note(self, limit: str, consequence: str, *, usual: bool = False) -> None:
        self._session.bus.limit_monitor.note(limit, self._session.owner, consequence, usual=usual)
