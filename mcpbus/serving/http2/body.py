"""The body of one HTTP/2 request: what has come, and nobody has taken yet."""

import msgspec
import trio

from mcpbus.protocol.principals import Peer
from mcpbus.serving.asgi import DirectEndpoint
from mcpbus.serving.http2.connection_writer import ConnectionWriter
from mcpbus.serving.request_error import too_slow
from mcpbus.transports.request_body import last_look, read_unfinished


class Http2Body(msgspec.Struct):
    """The buffer between a connection, which adds to it, and whoever reads.

    The stream's window is opened by what is taken, so that no more than a window lies here.

    Args:
        writer: Has the client told. Not the request, which would then know itself through its body, and be collected late.
        stream_id: Its stream.

    Attributes:
        ended: Whether all of it has come.
        gone: Whether nothing more will: the stream or the connection has gone.
    """

    _writer: ConnectionWriter
    _stream_id: int
    _data: bytearray = msgspec.field(default_factory=bytearray)
    _come: trio.lowlevel.ParkingLot | None = None  # once somebody waits
    ended: bool = False
    gone: bool = False

    def __len__(self) -> int:
        return len(self._data)

    @property
    def over(self) -> bool:
        """Whether nothing more will come."""
        return self.ended or self.gone

    def add(self, data: bytes, *, ended: bool) -> None:
        """Add what has come."""
        self._data += data
        self.ended = ended
        if self._come is not None:
            self._come.unpark_all()

    def leave(self) -> None:
        """Note that nothing more will come."""
        self.gone = True
        if self._come is not None:
            self._come.unpark_all()

    def take(self) -> bytes:
        """Take what is there."""
        data = bytes(self._data)
        self._data.clear()
        if data and not self.over:
            self._writer.open_window(self._stream_id, len(data))
        return data

    async def more(self) -> None:
        """Wait until something is there, or nothing more will come."""
        while not self._data and not self.over:
            if self._come is None:
                self._come = trio.lowlevel.ParkingLot()
            await self._come.park()

    async def read(self, limit: int, endpoint: DirectEndpoint, peer: Peer) -> bytes | None:
        """Read all of it, and count it meanwhile; None if it is longer than the limit.

        Raises:
            trio.BrokenResourceError: The client has gone.
            RequestError: It did not come in time.
            Overloaded: Too much is kept in memory, and in this body the most.
        """
        rate = endpoint.limits.body_rate
        return await read_unfinished(
            self.take(),
            self._read_piece,
            limit=limit,
            rate=rate,
            until=rate.begin(trio.current_time()),
            budget=endpoint.budget,
            peer=peer,
            ended=self.ended,
        )

    async def _read_piece(self, until: float) -> tuple[bytes, bool]:
        with trio.CancelScope(deadline=until) as patience:
            await self.more()
        if patience.cancelled_caught:
            with last_look(until):
                await self.more()
        piece = self.take()
        if self.gone:
            raise trio.BrokenResourceError("the client went away while its request was read")
        if not piece and not self.ended:
            raise too_slow("body_timeout")
        return piece, self.ended

    async def discard(self, *, most: int, seconds: float) -> None:
        """Throw away the rest; returns when it has ended, is too long, or takes too long."""
        with trio.move_on_after(seconds):
            while most >= 0:
                most -= len(self.take())
                if self.over:
                    return
                await self.more()
