"""The TLS of one server connection as bytes: records come in, text goes out, and the reverse. No input or output here.

OpenSSL works between two buffers in memory. Each step takes the bytes that have arrived, so no caller has to wait for a record.
"""

import ssl
from contextlib import suppress
from typing import Final

RECORD_BYTES: Final = 16 * 1024
"""The most text in one record (RFC 8446, section 5.1)."""

MAX_HANDSHAKE_BYTES: Final = 64 * 1024
"""The most that a client may send before its handshake is complete. A long chain of client certificates has 10 KiB."""

MAX_CONTROL_BYTES: Final = 64 * 1024
"""The most that a client may cause OpenSSL to answer by itself, such as key updates, between two steps."""


MAX_SILENT_BYTES: Final = 2 * RECORD_BYTES
"""The most that a client may send without any text in it. A record has less, and a flood of empty ones or of new keys has more."""


class TlsError(Exception):
    """A client that broke TLS: a record that is no record, a wrong certificate, a handshake that asks for too much."""


class TlsSession:
    """The state of TLS on one connection.

    A step that fails ends the session. Its alert is in `take_output` then.

    Args:
        context: The certificate, the versions and the protocols on offer.

    Attributes:
        established: Whether the handshake is complete.
        ended: Whether the client has announced its end (close_notify). A stream that ends without it was cut.
        fault: The failure of a step; None if all went well.
        has_news: Whether the last step met something beside text: the end, a fault, or a message that TLS answers by itself.
    """

    __slots__ = (
        "_incoming",
        "_object",
        "_outgoing",
        "_read",
        "_received",
        "_silent",
        "_write",
        "ended",
        "established",
        "fault",
        "has_news",
    )

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._read = self._object.read
        self._write = self._object.write
        self._received = 0
        self._silent = 0
        self.established = False
        self.ended = False
        self.has_news = False
        self.fault: TlsError | None = None

    @property
    def protocol(self) -> str | None:
        """The protocol that the handshake agreed on (ALPN), such as "h2"; None if the client offered none."""
        return self._object.selected_alpn_protocol()

    def shake_hands(self, data: bytes) -> bool:
        """Take handshake bytes, and return whether the handshake is complete.

        Text may follow the handshake in the same bytes: `decrypt(b"")` returns it.

        Raises:
            TlsError: The handshake failed.
        """
        self._received += len(data)
        self._incoming.write(data)
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            if self._received > MAX_HANDSHAKE_BYTES:
                raise self._fail(f"a handshake of more than {MAX_HANDSHAKE_BYTES} bytes") from None
            return False
        except (ssl.SSLError, ssl.CertificateError) as error:
            raise self._fail(_reason(error)) from error
        self.established = True
        return True

    def decrypt(self, data: bytes) -> bytes:
        """Take records, and return their text: all of it, so that only a record which is not whole yet stays here.

        Raises:
            TlsError: A record is wrong, now or in an earlier step that had text to return before it.
        """
        size = len(data)
        if size <= RECORD_BYTES:
            text = self._step(data, size)
        else:
            # The buffer keeps the size that it once had, so it gets no more than about a record at a time.
            pieces = [data[start : start + RECORD_BYTES] for start in range(0, size, RECORD_BYTES)]
            text = b"".join([self._step(piece, len(piece)) for piece in pieces])
        if text or self.fault is None:
            return text
        raise self.fault

    def _step(self, data: bytes, size: int) -> bytes:
        """Take at most `RECORD_BYTES`, and return the text of all records that are whole."""
        incoming, read = self._incoming, self._read
        pieces: list[bytes] = []
        try:
            if self.ended or self.fault is not None:
                return b""  # what follows an announced end is no part of the stream (RFC 8446, section 6.1)
            incoming.write(data)
            text = read(size or RECORD_BYTES)
            if 0 < len(text) < size and not (incoming.pending or self._outgoing.pending):
                self._silent = 0
                return text  # as nearly always: one record, whole
            while text:
                pieces.append(text)
                text = read(RECORD_BYTES)
            self.ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.ended = True
        except ssl.SSLError as error:
            self._fail(_reason(error))
        self._silent = 0 if pieces else self._silent + size
        if self._silent > MAX_SILENT_BYTES and not self.ended:
            self._fail("too many records without text")
        if self._outgoing.pending > MAX_CONTROL_BYTES:
            self._fail("too many messages that TLS answers by itself")
        self.has_news = self.ended or self.fault is not None or self._outgoing.pending > 0
        return b"".join(pieces)

    def encrypt(self, data: bytes | bytearray | memoryview) -> bytes:
        """Return the record of a text of at most `RECORD_BYTES`, after other output that waits.

        Raises:
            TlsError: The session has failed.
        """
        try:
            self._write(data)
        except ssl.SSLError as error:
            raise self._fail(_reason(error)) from error
        return self._outgoing.read()

    def take_output(self) -> bytes:
        """Return the bytes for the client that OpenSSL has made by itself: handshakes, alerts, tickets. Mostly none."""
        self.has_news = self.ended or self.fault is not None
        return self._outgoing.read() if self._outgoing.pending else b""

    def end(self) -> bytes:
        """Return the announcement that no more text follows (close_notify); nothing if the session failed or did not begin."""
        if self.established and self.fault is None:
            with suppress(
                ssl.SSLError
            ):  # the client's own announcement has not come, and OpenSSL would wait for it
                self._object.unwrap()
        return self.take_output()

    def _fail(self, reason: str) -> TlsError:
        self.fault = TlsError(reason)
        return self.fault


def _reason(error: Exception) -> str:
    """Return the cause in OpenSSL's words, without the position in its code."""
    reason = getattr(error, "reason", None) or str(error)
    detail = getattr(error, "verify_message", None)
    words = str(reason).lower().replace("_", " ")
    return f"{words}: {detail}" if detail else words
