"""The subscription actor: one ``subscriptions/listen``, from its acknowledgement to its end.

The acknowledgement is in the stream's outbox before the bus knows of the subscription, so no change can come
before it. Where changes are heard of elsewhere, as those of a server that this one stands for, that has to begin first: what is told
before it has is told behind the acknowledgement. Every message of the subscription is stamped with the id of the listen request.
"""

import math
from collections.abc import Callable, Hashable
from contextvars import copy_context
from functools import partial
from typing import Any, ClassVar, Final

import msgspec
from mcpbus_actors import ActorContext, Address, Failed, Stopped, StopReason, TaskEnded

from mcpbus.core.admission import RequestSlot
from mcpbus.core.hub import Hub
from mcpbus.core.message_stream import MessageStream
from mcpbus.core.outbound import OutboundNotification
from mcpbus.core.outbox import OutboundMessage
from mcpbus.core.receipt import Receipt
from mcpbus.core.request_context import RequestContext
from mcpbus.core.signals import Cancel, DropRequest, FailRequest, InputEnded, Purge
from mcpbus.core.subscriber import Subscriber
from mcpbus.core.tasks.messages import Follow
from mcpbus.core.topics import weigh_canonical, weigh_names
from mcpbus.protocol.errors import internal_error
from mcpbus.protocol.jsonrpc import (
    JsonRpcRequest,
    RequestId,
    encode_error,
    encode_id,
    encode_notification,
    encode_result,
)
from mcpbus.protocol.messages import SubscriptionFilter
from mcpbus.protocol.meta import SUBSCRIPTION_ID
from mcpbus.protocol.routes import MessageKind, Reason, StreamKind
from mcpbus.protocol.uris import UriSet

ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
_TOO_MUCH = "The server keeps too much in memory, and for this listen the most"
_EXPIRED = "The token with which it was begun has expired"
_LONG_ENOUGH = "It has lasted for max_listen_seconds"
_MOST_AT_ONCE: Final = 100
_MOST_BYTES_AT_ONCE: Final = 64 * 1024
"""Resources, and bytes of their URIs, of a listen that begins without waiting.

A thousand take a millisecond, and a megabyte takes ten. So listens to more take turns. Their acknowledgements, which are as long, are
counted one by one then.
"""
_STAMP = b'"_meta":{"%b":' % SUBSCRIPTION_ID.encode()


class SubscriptionActor:
    """See the module."""

    __slots__ = (
        "_account",
        "_bus",
        "_cell",
        "_context",
        "_early",
        "_early_bytes",
        "_granted",
        "_slot",
        "_stream",
        "_uris",
    )

    def __init__(  # noqa: PLR0917 - made in one place
        self,
        cell: ActorContext[object],
        context: RequestContext,
        slot: RequestSlot,
        stream: MessageStream,
        granted: SubscriptionFilter,
        bus: Hub,
    ) -> None:
        self._cell = cell
        # Without the text of the request, which is as long as the interests and would stay as long as the listen.
        request = JsonRpcRequest(context.request.id, context.request.method)
        self._context = context = msgspec.structs.replace(context, request=request)
        self._slot = slot
        self._stream = stream
        self._granted = granted
        self._bus = bus
        slot.request = self
        if bus.recorder is not None:
            bus.recorder.opened(cell.address, context)
        cell.on_stop(self._ended)
        cell.watch(stream.address)
        self._account = bus.budget.account(
            "a listen", partial(cell.address.tell, FailRequest(_TOO_MUCH)), owner=stream.owner
        )
        named = granted.resource_subscriptions
        size = weigh_names(named)
        self._account.hold(size + weigh_names(granted.task_ids))
        self._uris = UriSet()
        # The notifications before the acknowledgement, the newest of each kind. None once it has been sent.
        self._early: dict[Hashable, OutboundNotification] | None = None
        self._early_bytes = 0
        many = len(named) > _MOST_AT_ONCE or size > _MOST_BYTES_AT_ONCE
        elsewhere = named and bus.backend.has_upstream_subscriptions
        if many or elsewhere:
            self._early = {}
        else:
            self._acknowledge()
        if not many:
            self._enter()
        if many or elsewhere:
            cell.start_task(partial(self._begin, in_turn=many), context=copy_context())
        left = bus.seconds_left(context.principal)
        if left < math.inf:
            cell.after(left, FailRequest(_EXPIRED))
        if (most := bus.limits.max_listen_seconds) is not None:
            cell.after(most, FailRequest(_LONG_ENOUGH))
        for task_id in granted.task_ids:
            bus.tasks.follow(task_id, Follow(cell.address))

    @property
    def context(self) -> RequestContext:
        """The listen, without the text of its request."""
        return self._context

    @property
    def granted(self) -> SubscriptionFilter:
        """What it is notified of."""
        return self._granted

    @property
    def stream(self) -> MessageStream:
        """Its stream."""
        return self._stream

    @property
    def address(self) -> Address[object]:
        """Where it can be reached."""
        return self._cell.address

    def handle(self, message: object) -> None:
        """Handle one message; see `mcpbus_actors.Actor`."""
        self._HANDLERS[type(message)](self, message)

    async def _begin(self, *, in_turn: bool) -> None:
        """Wait until changes are heard of, after entering the interests if that takes a turn."""
        bus = self._bus
        if in_turn:
            await bus.budget.take_turn()
            if self._cell.address.stopped:
                return
            self._enter()
        if bus.backend.has_upstream_subscriptions:
            await bus.backend.wait_subscribed(self._granted.resource_subscriptions, self._context.state_key)

    def _enter(self) -> None:
        """Enter the interests, from which on changes come."""
        bus, granted, stream, context = self._bus, self._granted, self._stream, self._context
        self._uris = UriSet(granted.resource_subscriptions)
        self._account.hold(weigh_canonical(self._uris))
        key = context.state_key if bus.backend.has_upstream_subscriptions else None
        bus.topics.add(
            self._cell.address,
            lists=lists_of(granted),
            uris=self._uris,
            tasks=granted.task_ids,
            key=key,
            owner=stream.owner if key is None else Subscriber(key, stream.owner, context),
        )

    def _acknowledge(self) -> None:
        self._put(
            MessageKind.ACKNOWLEDGED, ACKNOWLEDGED, {"notifications": self._granted, "_meta": self._meta()}
        )

    def _heard(self, message: TaskEnded) -> None:
        """Acknowledge the listen, and send the notifications that came before."""
        if isinstance(message.outcome, Failed):
            raise message.outcome.exception
        self._acknowledge()
        early, self._early = self._early or {}, None
        for said in early.values():
            self._change(said)

    def _change(self, said: OutboundNotification) -> None:
        if self._early is not None:
            self._keep(self._early, said)
            return
        listen, era = self._context.request.id, self._context.revision.era
        data = stamped(said.data, listen)
        self._stream.send(OutboundMessage(said.kind, era, data, said.receipt, said.key, listen))

    def _keep(self, early: dict[Hashable, OutboundNotification], said: OutboundNotification) -> None:
        """Keep what is told before the acknowledgement: the newest of each kind, and no more than may wait for the stream."""
        older = early.pop(said.key, None)
        if older is not None:
            older.receipt.discard(Reason.SUPERSEDED)
            self._early_bytes -= len(older.data)
        limits = self._bus.limits
        if len(early) >= limits.outbox_items or self._early_bytes + len(said.data) > limits.outbox_bytes:
            said.receipt.discard(Reason.OVERFLOW)
            return
        early[said.key] = said
        self._early_bytes += len(said.data)

    def _meta(self) -> dict[str, Any]:
        return {SUBSCRIPTION_ID: self._context.request.id}

    def _end(self, _message: FailRequest | InputEnded) -> None:
        """End the subscription in good order, with its result."""
        if self._early is not None and not self._account.leaving:
            self._acknowledge()
        tail = self._bus.result_suffixes[self._context.revision].with_meta(self._meta())
        self._answer(encode_result(self._context.request.id, b"{" + tail.removeprefix(b",")))
        self._cell.stop()

    def _cancel(self, _message: Cancel | DropRequest) -> None:
        self._stream.address.tell(Purge.request(self._context.request.id))
        self._cell.stop()

    def _stream_stopped(self, _message: Stopped) -> None:
        self._cell.stop()

    def _put(self, kind: MessageKind, method: str, params: dict[str, Any]) -> None:
        self._send(kind, encode_notification(method, params), self._bus.ledger.emit(method))

    def _send(self, kind: MessageKind, data: bytes, receipt: Receipt, *, final: bool = False) -> None:
        era, listen = self._context.revision.era, self._context.request.id
        self._stream.send(OutboundMessage(kind, era, data, receipt, None, listen, final))

    def _ended(self, reason: StopReason) -> None:
        self._slot.release()
        if self._bus.recorder is not None:
            self._bus.recorder.closed(self._cell.address)
        self._account.close()
        for said in (self._early or {}).values():
            said.receipt.discard(Reason.CANCELLED)
        granted = self._granted
        self._bus.topics.remove(
            self._cell.address,
            lists=lists_of(granted),
            uris=self._uris,
            tasks=granted.task_ids,
        )
        if reason is StopReason.FAILED:
            self._answer(encode_error(self._context.request.id, internal_error()))

    def _answer(self, data: bytes) -> None:
        receipt = self._bus.ledger.emit(self._context.request.method)
        self._send(MessageKind.LISTEN_RESULT, data, receipt, final=self._stream.kind is not StreamKind.DUPLEX)

    _HANDLERS: ClassVar[dict[type, Callable[[Any, Any], None]]] = {
        OutboundNotification: _change,
        FailRequest: _end,
        InputEnded: _end,
        Cancel: _cancel,
        DropRequest: _cancel,
        Stopped: _stream_stopped,
        TaskEnded: _heard,
    }


def stamped(data: bytes, listen: RequestId) -> bytes:
    """Return an encoded notification with the id of a listen in the ``_meta`` of its params, which have none."""
    if data.endswith(b"}}"):
        return b"%b,%b%b}}}" % (data[:-2], _STAMP, encode_id(listen))
    return b'%b,"params":{%b%b}}}' % (data[:-1], _STAMP, encode_id(listen))


def lists_of(granted: SubscriptionFilter) -> list[str]:
    """Return the kinds of list that a filter names."""
    named = {
        "tools": granted.tools_list_changed,
        "prompts": granted.prompts_list_changed,
        "resources": granted.resources_list_changed,
    }
    return [kind for kind, wanted in named.items() if wanted]
