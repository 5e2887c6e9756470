"""A client that waits for each answer: for what is done before and between measurements."""

import socket

from benchmarks.answers import Answer, WrongAnswer, result_of
from benchmarks.dialect import BENCH, Client, Dialect
from benchmarks.peers.peer import HOST

PATIENCE_SECONDS = 30.0
PIECE = 65536


def connect(port: int, *, tls: str | None = None) -> socket.socket:
    """Connect to a server; writes leave at once.

    Args:
        port: Where the server listens.
        tls: The protocol to negotiate ("h2" or "http/1.1"); None for cleartext.
    """
    sock = socket.create_connection((HOST, port), timeout=PATIENCE_SECONDS)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if tls is None:
        return sock
    from benchmarks.tls import encrypt  # noqa: PLC0415 - most loads do without, and without cryptography

    return encrypt(sock, tls)


def exchange(sock: socket.socket, request: bytes) -> Answer:
    """Make one request, and return its whole answer.

    Raises:
        WrongAnswer: There was none in time.
    """
    sock.sendall(request)
    answer = Answer()
    try:
        while not answer.feed(sock.recv(PIECE)):
            pass
    except TimeoutError as error:
        raise WrongAnswer(f"no answer within {PATIENCE_SECONDS:g} s") from error
    return answer


def open_session(sock: socket.socket, port: int, revision: str, client: Client = BENCH) -> Dialect:
    """Open a session, and return how to speak in it; without a session id, if the server gives none.

    Raises:
        WrongAnswer: It was refused.
    """
    answer = exchange(sock, Dialect(port, revision, client=client).initialize())
    agreed = result_of(answer)["protocolVersion"]
    if agreed != revision:
        raise WrongAnswer(f"revision {revision} was answered with {agreed}")
    dialect = Dialect(port, revision, answer.headers.get(b"mcp-session-id"), client)
    if (status := exchange(sock, dialect.initialized()).status) >= 300:
        raise WrongAnswer(f"notifications/initialized was answered with {status}")
    return dialect


def ready(sock: socket.socket, port: int, revision: str) -> Dialect:
    """Return how to speak on a connection in a revision: in a session of its own, where the revision has them."""
    dialect = Dialect(port, revision)
    return dialect if dialect.is_modern else open_session(sock, port, revision)
