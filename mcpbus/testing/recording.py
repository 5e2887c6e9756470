"""One HTTP exchange in memory, as its client sees it."""

import json
from collections.abc import Callable, Iterable
from typing import Any

import attrs
import trio


class StreamEndedError(Exception):
    """No further message comes: the answer is complete, or its client has gone."""


@attrs.frozen
class SentRequest:
    """A request as its client sends it; the names of its fields are in lower case."""

    verb: str
    path: str
    query: str
    fields: list[tuple[bytes, bytes]]
    body: bytes


class Recording:
    """One HTTP exchange as its client sees it, while it goes on. Made by an `AsgiProbe`.

    Attributes:
        status: The status of the answer; None until it has begun.
        headers: Its header fields, with names in lower case.
        body: The bytes that the client has got so far.
        messages: The JSON-RPC messages that it has got so far, of a JSON answer, which may be an array,
            or of an SSE stream.
        endpoint: Where a stream of the HTTP+SSE transport of 2024-11-05 wants what its client says; None on other ones.
        event_ids: The ids of the events of an SSE stream that it has got so far.
        comments: How many SSE comments it has got.
        complete: Whether the answer has come to its end.
        disconnected: Whether the client has gone.
        aborted: Whether the application left in the middle of the answer, which ends the connection.
        on_disconnect: Called when the client goes, for whoever carries the exchange.
    """

    def __init__(self) -> None:
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self.body = b""
        self.messages: list[dict[str, Any]] = []
        self.event_ids: list[str] = []
        self.endpoint: str | None = None
        self.comments = 0
        self.complete = False
        self.disconnected = False
        self.aborted = False
        self.on_disconnect: Callable[[], object] | None = None
        self._parsed = 0
        self._read = 0
        self._stalled = False
        self._changed = trio.Event()

    @property
    def is_stream(self) -> bool:
        """Whether the answer is an SSE stream."""
        return self.headers.get("content-type", "").startswith("text/event-stream")

    @property
    def stalled(self) -> bool:
        """Whether the client accepts no bytes at the moment."""
        return self._stalled

    @property
    def over(self) -> bool:
        """Whether nothing more comes: the answer is complete or aborted, or the client has gone."""
        return self.complete or self.aborted or self.disconnected

    # -- what a test waits for -------------------------------------------------------------------

    async def begun(self, timeout: float = 60.0) -> "Recording":  # noqa: ASYNC109
        """Wait for the head of the answer, or the end without one, and return the recording itself.

        Raises:
            trio.TooSlowError: It did not come within `timeout` seconds.
        """
        await self.wait_for(lambda: self.status is not None or self.over, timeout)
        return self

    async def ended(self, timeout: float = 60.0) -> "Recording":  # noqa: ASYNC109
        """Wait for the end of the answer, and return the recording itself.

        Raises:
            trio.TooSlowError: It did not come within `timeout` seconds.
        """
        await self.wait_for(lambda: self.over, timeout)
        return self

    async def message(self, timeout: float = 60.0) -> dict[str, Any]:  # noqa: ASYNC109
        """Wait for the next of `messages`, and return it.

        Raises:
            StreamEndedError: The answer ended without another one.
            trio.TooSlowError: None came within `timeout` seconds.
        """
        await self.wait_for(lambda: self._read < len(self.messages) or self.over, timeout)
        if self._read == len(self.messages):
            raise StreamEndedError(f"no further message; so far: {self.messages!r}")
        self._read += 1
        return self.messages[self._read - 1]

    async def reply(self, timeout: float = 60.0) -> dict[str, Any]:  # noqa: ASYNC109
        """Wait for the end of the answer, and return its one JSON-RPC response.

        Raises:
            StreamEndedError: The answer ended without one.
            trio.TooSlowError: It did not end within `timeout` seconds.
        """
        await self.ended(timeout)
        for message in self.messages:
            if "result" in message or "error" in message:
                return message
        raise StreamEndedError(f"status {self.status} without a response: {self.body!r}")

    # -- what a client does ----------------------------------------------------------------------

    def stall(self) -> None:
        """Accept no more bytes: the application waits in its next `send`."""
        self._stalled = True

    def resume(self) -> None:
        """Accept bytes again."""
        self._stalled = False
        self.notify()

    def disconnect(self) -> None:
        """Go away. A `send` that waits then waits for ever; later ones return, and reach nobody.

        That is the worst that servers do to an application. It must watch for ``http.disconnect``.
        """
        if not self.complete:
            self.disconnected = True
            self.notify()
            if self.on_disconnect is not None:
                self.on_disconnect()

    # -- the server's side, for whoever carries the exchange -------------------------------------

    def begin(self, status: int, fields: Iterable[tuple[bytes, bytes]]) -> None:
        """Note the head of the answer."""
        self.status = status
        self.headers = {name.decode(): value.decode("latin-1") for name, value in fields}
        self.notify()

    def take(self, body: bytes, *, complete: bool) -> None:
        """Note a part of the body, and whether it is the last one."""
        self.body += body
        self.complete = complete
        self._parse()
        self.notify()

    def abort(self) -> None:
        """Note that the connection has ended, or nobody goes on with the answer."""
        if not self.over:
            self.aborted = True
            self.notify()

    async def wait_for(self, condition: Callable[[], bool], seconds: float = float("inf")) -> None:
        """Wait until something about the exchange is true.

        Raises:
            trio.TooSlowError: It did not become true in time.
        """
        with trio.fail_after(seconds):
            while not condition():
                await self._changed.wait()

    def notify(self) -> None:
        """Have everybody who waits look again."""
        self._changed.set()
        self._changed = trio.Event()

    def _parse(self) -> None:
        if not self.is_stream:
            if self.complete and self.body and self.headers.get("content-type") == "application/json":
                answer = json.loads(self.body)
                self.messages += answer if isinstance(answer, list) else [answer]
            return
        while (end := self.body.find(b"\n\n", self._parsed)) >= 0:
            event, self._parsed = self.body[self._parsed : end], end + 2
            lines = event.split(b"\n")
            self.comments += sum(line.startswith(b":") for line in lines)
            fields = [line.partition(b": ")[::2] for line in lines]
            self.event_ids += [value.decode() for name, value in fields if name == b"id"]
            # What only tells an id has data too, which is empty.
            data = b"\n".join(value for name, value in fields if name == b"data")
            if (b"event", b"endpoint") in fields:
                self.endpoint = data.decode()
            elif data:
                self.messages.append(json.loads(data))

    def __repr__(self) -> str:
        ends = ("complete", "aborted", "disconnected")
        state = next((end for end in ends if getattr(self, end)), "open")
        return f"<Recording {self.status}, {len(self.messages)} messages, {state}>"
