"""The requests of one HTTP/1.1 connection: bytes in, whole heads and pieces of bodies out. No input or output here.

However the bytes were cut on their way, the same requests come out, or the same fault.
"""

from mcpbus.serving.http1.body import Chunked, Http1Body, Sized
from mcpbus.serving.http1.head import Http1RequestHead, find_fault
from mcpbus.serving.http1.head_cache import Http1HeadCache
from mcpbus.serving.request_error import RequestError

_END = b"\r\n\r\n"
_END_BYTES = len(_END)
_CR = 13


class Http1Parser:
    """What a client has sent on one connection and nobody has taken yet.

    Args:
        heads: Reads the heads of requests.

    Attributes:
        body: What is still to be taken of the current body; None once that is all of it.
    """

    __slots__ = ("_data", "_gathered", "_heads", "_known", "_looked_at", "_start", "body")

    def __init__(self, heads: Http1HeadCache) -> None:
        self._heads = heads
        self._known = heads.known
        self._data = b""  # nothing once all of it was taken
        self._start = 0
        self._looked_at = 0
        self._gathered = b""
        self.body: Http1Body | None = None

    @property
    def waiting(self) -> int:
        """How many bytes have come and were not taken."""
        return len(self._data) - self._start

    @property
    def missing(self) -> int | None:
        """How many bytes of the current body have not come; None where only reading it can tell."""
        if self.body is None:
            return 0
        return max(self.body.left - self.waiting, 0) if isinstance(self.body, Sized) else None

    def gather(self) -> int:
        """Free what has come of a body from its framing, to be taken later, and return how many bytes it has so far.

        Those that are known to be still to come are among them.

        Raises:
            RequestError: What has come is no body.
        """
        self._gathered = self.take_body()
        return len(self._gathered) + (0 if self.body is None else self.body.left)

    def receive(self, data: bytes) -> None:
        """Add what has come."""
        self._data = self._data[self._start :] + data
        self._start = 0

    def take_whole(self, data: bytes) -> tuple[Http1RequestHead, bytes] | None:
        """Read a request that came in one piece, as nearly all do, with nothing before and nothing after it.

        Returns:
            Its head and its body; None if it is otherwise, and then nothing was taken.

        Raises:
            RequestError: It is no request, or none that is served.
        """
        end = data.find(_END, 1) + _END_BYTES
        if end < _END_BYTES or data[0] == _CR or self._data or self.body is not None:
            return None
        raw = data[:end]
        head = self._known.get(raw) or self._heads.read_anew(raw)
        if head.length == len(data) - end:
            return head, data[end:]
        body = _take_chunks(data, end) if head.length is None else None
        return None if body is None else (head, body)

    def next_head(self) -> Http1RequestHead | None:
        """Take the head of the next request, once the last one's body was taken; None if it has not come whole.

        Raises:
            RequestError: What has come is no request, or none that is served.
        """
        data = self._data
        start = self._start
        while data.startswith(b"\r\n", start):  # as some clients end a body (RFC 9112, section 2.2)
            start += 2
        end = data.find(_END, start + max(self._looked_at - 3, 0))
        if end < 0:
            fault = find_fault(data[start:], self._heads.longest, self._looked_at)
            if fault is not None:
                raise fault
            self._take_to(start)
            self._looked_at = len(data) - start
            return None
        self._looked_at = 0
        head = self._heads.read(data[start : end + _END_BYTES])
        self._take_to(end + _END_BYTES)
        if head.length != 0:
            self.body = Chunked() if head.length is None else Sized(head.length)
        return head

    def take_body(self) -> bytes:
        """Take what has come of the current body, and was not taken yet; `body` is None after its end.

        Raises:
            RequestError: What has come is no body.
        """
        gathered, self._gathered = self._gathered, b""
        if self.body is None:
            return gathered
        piece, end = self.body.take(self._data, self._start)
        self._take_to(end)
        if self.body.ended:
            self.body = None
        return gathered + piece if gathered else piece

    def _take_to(self, end: int) -> None:
        self._start = end
        if end == len(self._data):
            self._data, self._start = b"", 0

    def take_rest(self) -> bytes:
        """Take all that has come, as it is, for somebody else to read."""
        rest = self._data[self._start :]
        self._data, self._start = b"", 0
        return rest


def _take_chunks(data: bytes, start: int) -> bytes | None:
    """Read a body in chunks that makes up the rest of some data; None if it does not, or is none."""
    body = Chunked()
    try:
        piece, end = body.take(data, start)
    except RequestError:
        return None  # it is not said before it is known who serves the request
    return piece if body.ended and end == len(data) else None
