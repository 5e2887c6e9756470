"""The body of one request: what has arrived and its application has not taken yet."""

import trio
from trio.lowlevel import ParkingLot, checkpoint

from mcpbus.serving.asgi import Message

_ROOM = 64 * 1024


class Intake:
    """The buffer between a connection's reader, which calls `put`, and one application call, which calls `receive`.

    An application that does not read its request's body must harm nobody else: `put` waits while 64 KiB lie unread. Once the
    application has answered, `discard_rest` throws away what still arrives.

    `receive` gives all that has arrived as one message, and after the disconnect says so for ever.
    """

    __slots__ = (
        "_allowance",
        "_arrival",
        "_body",
        "_complete",
        "_delivered",
        "_enough",
        "_room",
        "gone",
    )

    def __init__(self) -> None:
        self._body = bytearray()
        self._complete = False  # the whole body has arrived
        self._delivered = False  # ... and the application knows
        self.gone = False  # the client has
        self._arrival = ParkingLot()
        self._room = ParkingLot()
        self._allowance: int | None = None  # bytes that may still be discarded, once discarding
        self._enough = trio.Event()  # nothing more is worth waiting for when discarding

    @property
    def ended(self) -> bool:
        """Whether the whole body has arrived, or the client has gone."""
        return self._complete or self.gone

    async def put(self, message: Message) -> None:
        """Accept an ASGI message from the connection; waits for room."""
        if message["type"] == "http.disconnect":
            self.gone = True
        elif not message["more_body"]:
            self._complete = True
        else:
            while len(self._body) >= _ROOM and self._allowance is None:
                await self._room.park()
            if self._allowance is None:
                self._body += message["body"]
            else:
                self._discard(len(message["body"]))
        if self.ended:
            self._enough.set()
        self._arrival.unpark_all()

    async def receive(self) -> Message:
        """Give the application what has arrived (ASGI `receive`); nothing is lost if it is cancelled."""
        await checkpoint()
        while not (self._body or self.gone or (self._complete and not self._delivered)):
            await self._arrival.park()
        if not self._body and (self._delivered or not self._complete):
            return {"type": "http.disconnect"}
        body, more = bytes(self._body), not self._complete
        self._body.clear()
        self._delivered = self._complete
        self._room.unpark_all()
        return {"type": "http.request", "body": body, "more_body": more}

    async def discard_rest(self, *, max_bytes: int, seconds: float) -> None:
        """Throw away the rest of the body; returns when it has ended, is too long, or takes too long."""
        unread = len(self._body)
        self._body.clear()
        self._allowance = max_bytes
        self._room.unpark_all()
        self._discard(unread)
        with trio.move_on_after(seconds):
            await self._enough.wait()

    def _discard(self, size: int) -> None:
        assert self._allowance is not None  # noqa: S101 -- only called while discarding
        self._allowance -= size
        if self._allowance < 0:
            self._enough.set()
        else:
            self._room.unpark_all()
