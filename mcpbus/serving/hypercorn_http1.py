"""hypercorn's HTTP/1.1, with what an application says in one go written in one go."""

import h11

from mcpbus.serving.http2.frames import PREFACE_AS_REQUEST
from mcpbus.serving.hypercorn import (
    Closed,
    EndBody,
    H2ProtocolAssumedError,
    H11Protocol,
    H11SendableEvent,
    Held,
    RawData,
    StreamEvent,
    WSStream,
)


class GuardedH11Protocol(H11Protocol):
    """HTTP/1.1 of one connection, which also ends when a WebSocket's handshake was refused. HTTP/2 begins with a connection, or not at all."""

    async def stream_send(self, event: StreamEvent) -> None:
        """Take a part of a response, or its end."""
        await super().stream_send(event)
        if isinstance(event, EndBody) and isinstance(self.stream, WSStream):
            await self.send(Closed())

    async def _check_protocol(self, event: h11.Request) -> None:
        if event.method == b"PRI" and event.target == b"*" and event.http_version == b"2.0":
            raise H2ProtocolAssumedError(PREFACE_AS_REQUEST + self.connection.trailing_data[0])

    async def _send_h11_event(self, event: H11SendableEvent) -> None:
        try:
            data = self.connection.send(event)
        except h11.LocalProtocolError:
            if self.connection.their_state != h11.ERROR:
                raise
        else:
            if isinstance(event, h11.InformationalResponse):
                await self.send(RawData(data=data))  # somebody waits for it
            elif data:
                await self.send(Held(data=data))
