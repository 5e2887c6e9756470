"""A load generator that costs little: ``python -m benchmarks.load PORT SECONDS CONNECTIONS``.

Each connection is kept alive and has one request in flight. Answers must all be 200, with the body that is expected; they
are told apart by their length, which is that of the first one. Prints requests per second and latencies as JSON.
"""

import selectors
import socket
import sys
import time

import attrs
import msgspec

from benchmarks.exchange import REQUEST, RESULT


@attrs.define(eq=False)
class _Connection:
    sock: socket.socket
    length: int
    received: int = 0
    sent_at: float = 0.0

    def ask(self, now: float) -> None:
        self.received = 0
        self.sent_at = now
        self.sock.sendall(REQUEST)


def _open(port: int) -> _Connection:
    """Connect, and make one request in full, to learn how long an answer is.

    Raises:
        RuntimeError: It was not answered as it should be.
    """
    sock = socket.create_connection(("127.0.0.1", port), timeout=10)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.sendall(REQUEST)
    answer = b""
    while not answer.endswith(RESULT):
        chunk = sock.recv(65536)
        answer += chunk
        if not chunk or len(answer) > 10 * len(RESULT):
            raise RuntimeError(f"not the answer that is measured: {answer!r}")
    if not answer.startswith(b"HTTP/1.1 200 "):
        raise RuntimeError(f"not a success: {answer!r}")
    return _Connection(sock, len(answer))


def load(port: int, seconds: float, connections: int) -> dict[str, float]:
    """Load a server for some seconds.

    Returns:
        Requests, requests per second, and the median and the 99th percentile of the latency in milliseconds.

    Raises:
        RuntimeError: An answer is not as the first one was.
    """
    selector = selectors.DefaultSelector()
    for _ in range(connections):
        connection = _open(port)
        selector.register(connection.sock, selectors.EVENT_READ, connection)
    start = now = time.perf_counter()
    for key in selector.get_map().values():
        key.data.ask(now)
    latencies: list[float] = []
    while now < start + seconds:
        for key, _ in selector.select():
            connection = key.data
            chunk = connection.sock.recv(65536)
            connection.received += len(chunk)
            if connection.received < connection.length and chunk:
                continue
            if connection.received > connection.length or not chunk or not chunk.endswith(RESULT[-16:]):
                raise RuntimeError(f"an answer is unlike the first one: {chunk!r}")
            now = time.perf_counter()
            latencies.append(now - connection.sent_at)
            connection.ask(now)
    for key in list(selector.get_map().values()):
        key.data.sock.close()
    latencies.sort()
    return {
        "requests": len(latencies),
        "requests_per_second": len(latencies) / (now - start),
        "p50_ms": latencies[len(latencies) // 2] * 1e3,
        "p99_ms": latencies[len(latencies) * 99 // 100] * 1e3,
    }


if __name__ == "__main__":
    figures = load(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))
    sys.stdout.write(msgspec.json.encode(figures).decode())
