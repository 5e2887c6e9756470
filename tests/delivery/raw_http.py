"""A client of HTTP/1.1 that is its own: each exchange has a connection, may be read slowly, and may be cut."""

import json
import socket
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import attrs
import trio

_MOST_BYTES: Final = 16 * 1024 * 1024


@attrs.frozen
class Reading:
    """How a client reads one response.

    Attributes:
        pause: The seconds between two reads.
        most: The bytes after which it cuts the connection; None for never.
    """

    pause: float = 0.0
    most: int | None = None

    @property
    def slow(self) -> bool:
        """Whether the client is slower than a server writes."""
        return self.pause > 0


@attrs.define
class Answer:
    """The response of one exchange.

    Attributes:
        status: Its status; 0 if there is none.
        fields: Its header fields, in small letters.
        last_event: The id of its last event.
        whole: Whether it has come to its end.
        ended: Set when it is read no more.
        endpoint: Where to POST, if an event says so, as in HTTP+SSE.
        addressed: Set then, and when it is read no more.
    """

    status: int = 0
    fields: dict[str, str] = attrs.field(factory=dict)
    last_event: str | None = None
    whole: bool = False
    ended: trio.Event = attrs.field(factory=trio.Event)
    endpoint: str = ""
    addressed: trio.Event = attrs.field(factory=trio.Event)


class _Body:
    """Takes the body of a response apart, as it comes: its chunks, and the events or the JSON in them."""

    def __init__(self, answer: Answer, take: Callable[[dict[str, Any]], object]) -> None:
        self._answer = answer
        self._take = take
        self._raw, self._text = b"", b""
        length = answer.fields.get("content-length")
        self._left = None if length is None else int(length)
        kind = answer.fields.get("content-type", "")
        self._streams, self._json = kind.startswith("text/event-stream"), kind.startswith("application/json")

    def feed(self, data: bytes) -> None:
        """Take some bytes."""
        self._raw += data
        if self._left is None:
            self._feed_chunks()
        else:
            self._text, self._raw = self._text + self._raw, b""
            self._answer.whole = len(self._text) >= self._left
        if self._streams:
            self._feed_events()
        elif self._answer.whole and self._json:
            said = json.loads(self._text)
            for message in said if isinstance(said, list) else [said]:
                self._take(message)

    def _feed_chunks(self) -> None:
        while not self._answer.whole:
            size, found, rest = self._raw.partition(b"\r\n")
            if not found or len(rest) < int(size, 16) + 2:
                return
            end = int(size, 16)
            self._text, self._raw = self._text + rest[:end], rest[end + 2 :]
            self._answer.whole = end == 0

    def _feed_events(self) -> None:
        while b"\n\n" in self._text:
            event, _, self._text = self._text.partition(b"\n\n")
            data = b""
            for line in event.split(b"\n"):
                if line.startswith(b"id: "):
                    self._answer.last_event = line[4:].decode()
                elif line.startswith(b"data: {"):
                    data = line[6:]
                elif line.startswith(b"data: /"):
                    self._answer.endpoint = line[6:].decode()
                    self._answer.addressed.set()
            if data:
                self._take(json.loads(data))


async def exchange(
    url: str,
    verb: str,
    body: object = None,
    fields: Mapping[str, str] | None = None,
    *,
    take: Callable[[dict[str, Any]], object] = lambda _: None,
    reading: Reading | None = None,
    answer: Answer | None = None,
) -> Answer:
    """Send one request, and read its response to the end, or until it is cut; returns what is known of it.

    Args:
        url: The endpoint.
        verb: The method.
        body: A JSON-RPC message, or several.
        fields: More header fields.
        take: Called with each message of the response, as it arrives.
        reading: How it is read.
        answer: What is filled with what is known, if the caller wants to see that meanwhile.
    """
    reading, answer = reading or Reading(), answer or Answer()
    address = urlsplit(url)
    assert address.hostname is not None
    assert address.port is not None
    content = b"" if body is None else json.dumps(body).encode()
    head = {
        "host": address.netloc,
        "accept": "text/event-stream" if verb == "GET" else "application/json, text/event-stream",
        "content-type": "application/json",
        "content-length": str(len(content)),
        "connection": "close",
        **(fields or {}),
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
    connection = trio.socket.socket()
    if reading.slow:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    with connection:
        try:
            await connection.connect((address.hostname, address.port))
            stream = trio.SocketStream(connection)
            target = address.path + (f"?{address.query}" if address.query else "")
            await stream.send_all(f"{verb} {target} HTTP/1.1\r\n{lines}\r\n".encode() + content)
            await _read(stream, reading, answer, take)
        except (OSError, trio.BrokenResourceError):
            pass
        finally:
            answer.ended.set()
            answer.addressed.set()
    return answer


async def _read(
    stream: trio.SocketStream, reading: Reading, answer: Answer, take: Callable[[dict[str, Any]], object]
) -> None:
    head, parted, count = b"", b"", 0
    body: _Body | None = None
    while not answer.whole:
        data = await stream.receive_some(4096)
        count += len(data)
        if not data or count > _MOST_BYTES or (reading.most is not None and count > reading.most):
            return
        if body is None:
            head, parted, data = (head + data).partition(b"\r\n\r\n")
            if not parted:
                continue
            status, *fields = head.decode().split("\r\n")
            answer.status = int(status.split()[1])
            answer.fields = {
                name.lower(): value for name, _, value in (each.partition(": ") for each in fields)
            }
            body = _Body(answer, take)
            answer.whole = answer.status == 204 or answer.fields.get("content-length") == "0"
        if not answer.whole:
            body.feed(data)
        await trio.sleep(reading.pause)
