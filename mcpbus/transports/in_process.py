"""A client in the same process: no sockets, no subprocess, the same rules as on every other shared channel.

For programs that embed a bus and call it themselves, and for tests. What the client sends is a decoded message already,
and the answer to a call that neither waits nor speaks goes straight to whoever called. All else that the server says
comes over the channel.
"""

import contextvars
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import trio
from mcpbus_actors import EagerTask, Leader, WorkQueue

from mcpbus.client.client import Client
from mcpbus.client.options import check_client
from mcpbus.client.pending import OnInputRequest, PendingRequest
from mcpbus.core.concurrency import background
from mcpbus.core.hub import Hub
from mcpbus.core.message_stream import MessageStream
from mcpbus.core.receipt import DELIVERED
from mcpbus.core.request_actor import RequestActor as Admitted
from mcpbus.dispatch import dispatcher
from mcpbus.protocol.errors import ProtocolError
from mcpbus.protocol.jsonrpc import JsonRpcNotification, JsonRpcRequest, JsonRpcResponse
from mcpbus.protocol.revisions import Era, named
from mcpbus.transports.duplex import DuplexChannel

_Sent: TypeAlias = tuple[
    JsonRpcRequest | JsonRpcNotification | JsonRpcResponse, PendingRequest | None, contextvars.Context
]


@asynccontextmanager
async def connect(
    bus: Hub,
    revision: str,
    principal: object = None,
    capabilities: Mapping[str, Any] | None = None,
    on_input_request: OnInputRequest | None = None,
) -> AsyncIterator["Client"]:
    """Connect a client to a bus in process; see `Bus.connect`.

    Raises:
        TypeError: `capabilities` is no dict, or `on_input_request` no function.
        ValueError: There is no such revision.
        ProtocolError: The server takes no more connections, or refused the handshake.
    """
    row = named(revision)
    check_client(capabilities, on_input_request)
    with DuplexChannel(bus, principal, spared=True) as channel:
        connection = _Connection(bus, channel)
        async with background() as nursery:
            client = connection.client = Client(
                row,
                connection.put,
                nursery,
                capabilities=dict(capabilities or {}),
                on_input_request=on_input_request,
                pause=bus.time_slice.yield_if_due,
            )
            nursery.start_soon(connection.serve)
            if client.revision.era is Era.LEGACY:
                await client.initialize()
            yield client
            connection.end()
            nursery.cancel_scope.deadline = trio.current_time() + bus.limits.write_deadline


class _Connection:
    """The server's end."""

    client: Client

    def __init__(self, bus: Hub, channel: DuplexChannel) -> None:
        self._bus = bus
        self._channel = channel
        # What is sent is taken by tasks of the bus, not by whoever asks: with that it would be cancelled before the bus hears of
        # it, and it could not go on when the answer is there, as a parked call does.
        self._sent = WorkQueue(self._take)
        Leader(self._sent.wait, self._sent.take, self._sent.things).run_in(bus.system)

    async def serve(self) -> None:
        """Deliver what the channel says, until it ends."""
        try:
            await self._channel.deliver(self.client.receive_for)
        finally:
            self._sent.close()
            self.client.disconnected()

    def end(self) -> None:
        """End it at the client's wish: what was said is still delivered."""
        self._sent.close()
        self._channel.end()

    def put(
        self, message: JsonRpcRequest | JsonRpcNotification | JsonRpcResponse, pending: PendingRequest | None
    ) -> None:
        """Send a message to the server. Handlers see the context variables of whoever does."""
        if (
            pending is None
            or self._sent.things
            or not isinstance(message, JsonRpcRequest)
            or self._bus.backend.may_wait(message.method, pending.tool, self.client.revision.era)
        ):
            self._sent.put((message, pending, contextvars.copy_context()))
        else:
            eager = self._begin(message, pending, None)
            assert eager is None or eager.outcome is not None  # noqa: S101 - it could not wait

    def _take(self, sent: _Sent, scope: trio.CancelScope | None) -> EagerTask | None:
        message, pending, context = sent
        if not isinstance(message, JsonRpcRequest):
            self._channel.requests.note(message)
        elif pending is not None and pending.result is None:
            return context.run(self._begin, message, pending, scope)
        return None

    def _begin(
        self, request: JsonRpcRequest, pending: PendingRequest, scope: trio.CancelScope | None
    ) -> EagerTask | None:
        pending.begun = True
        try:
            return self._serve(request, scope)
        except Exception as error:  # noqa: BLE001 - an author's own code, and whoever asked is told
            pending.settle(error)
            return None

    def _serve(self, request: JsonRpcRequest, scope: trio.CancelScope | None) -> EagerTask | None:
        channel = self._channel
        context, (revision, result) = None, channel.requests.judge(request, dispatcher.admit)
        if isinstance(result, Admitted):
            context, outcome = result.context, result.run(scope)
            if outcome is None or isinstance(outcome, EagerTask):
                return outcome
            result = outcome
        if isinstance(result, MessageStream):
            return None
        if channel.waiting:
            channel.reply(request, revision, result, context)
            return None
        self._bus.ledger.emit_settled(DELIVERED, context)
        self.client.answered(
            request.id, revision.admissible(result) if isinstance(result, ProtocolError) else result
        )
        return None
