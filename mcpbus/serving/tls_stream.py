"""A socket that carries TLS, read and written in turns like a socket in cleartext.

The connection above sees text alone, and the kernel sees records alone. What the kernel does not take at once waits here, as
records: at most a batch of them, because the connection above keeps the rest of its text.
"""

import os
import socket
import ssl
from collections import deque
from contextlib import suppress
from typing import Final

import trio

from mcpbus.serving.deadlines import GONE, READ_BYTES, DeadlineStream, translate
from mcpbus.serving.tls_session import RECORD_BYTES, TlsError, TlsSession
from mcpbus.serving.turn_lines import TurnLine

_BATCH_RECORDS: Final = 4
"""Records that are encrypted before the kernel is asked whether it takes them."""

_CLIENT_LEFT: Final = "the client left during the TLS handshake"


class TlsStream(DeadlineStream):
    """A `DeadlineStream` that sends and receives text, encrypted on its way.

    After a `send_now` that took less than all, the next text that is sent begins with the rest: records of it may exist
    already, and a stream of records has no way back.

    Args:
        stream: The socket.
        seconds: As for `DeadlineStream`.
        context: The certificate, the versions and the protocols on offer.

    Attributes:
        protocol: The protocol that the handshake agreed on (ALPN); None before, and if the client offered none.
    """

    secure = True
    _session: TlsSession
    """It begins with the first byte, so that a connection that sends none costs little."""

    def __init__(self, stream: trio.SocketStream, seconds: float, context: ssl.SSLContext) -> None:
        super().__init__(stream, seconds)
        self._context = context
        self._begun = False
        # Each with the size of its text; they wait for the kernel.
        self._records: deque[tuple[bytes, int]] = deque()
        self._credit = 0  # text that the kernel has taken, of which no caller has heard yet
        self._cut = False
        self.protocol: str | None = None

    # -- the handshake ---------------------------------------------------------------------------

    async def shake_hands(self, line: TurnLine) -> bytes:
        """Complete the handshake, and return the text that came with its end. A cancelled handshake ends the connection.

        Args:
            line: The line for its first step, which signs and takes about a millisecond.

        Raises:
            trio.BrokenResourceError: The client has left, or the handshake failed. The client was sent the alert.
            trio.ClosedResourceError: The stream was closed on this side.
        """
        done = False
        while not done:
            await self._wait_readable()
            data = super().receive_now(RECORD_BYTES)
            if data is None:
                continue
            if not data:
                raise trio.BrokenResourceError(_CLIENT_LEFT)
            if not self._begun:
                await line.wait()
                self._session, self._begun = TlsSession(self._context), True
            try:
                done = self._session.shake_hands(data)
            except TlsError as error:
                self._send_output()
                raise trio.BrokenResourceError(f"the TLS handshake failed: {error}") from error
            while not self._send_output():
                await self.wait_send_all_might_not_block()
        self.protocol = self._session.protocol
        return self._decrypt(b"") or b""

    # -- sending ---------------------------------------------------------------------------------

    def send_now(self, data: bytes | bytearray | memoryview) -> int:
        """Encrypt the text, give the kernel what it takes, and return how much text that was. No schedule point.

        Text counts once its whole record is in the kernel.
        """
        size = len(data)
        if size <= RECORD_BYTES and not (self._records or self._credit):
            # As nearly always: one record, which the kernel takes.
            record = self._encrypt(data)
            try:
                sent = os.write(self._open, record)
            except BlockingIOError:
                sent = 0
            except OSError as error:
                raise translate(error) from error
            if sent == len(record):
                return size
            self._records.append((record[sent:], size))
            return 0
        with memoryview(data) as view:
            while self._flush() and self._credit < size:
                for start in range(self._credit, size, RECORD_BYTES)[:_BATCH_RECORDS]:
                    text = view[start : start + RECORD_BYTES]
                    self._records.append((self._encrypt(text), len(text)))
        taken = min(self._credit, size)
        self._credit -= taken
        return taken

    def _encrypt(self, text: bytes | bytearray | memoryview) -> bytes:
        try:
            return self._session.encrypt(text) if text else b""
        except TlsError as error:
            raise trio.BrokenResourceError(f"the connection was lost: {error}") from error

    def _flush(self) -> bool:
        """Give the kernel records that wait, and return whether it has taken all."""
        records = self._records
        while records:
            batch = [record for record, _ in records]
            try:
                sent = os.writev(self._open, batch)
            except BlockingIOError:
                return False
            except OSError as error:
                raise translate(error) from error
            while records and sent >= len(records[0][0]):
                record, size = records.popleft()
                sent -= len(record)
                self._credit += size
            if sent:
                record, size = records[0]
                records[0] = record[sent:], size
        return True

    def _send_output(self) -> bool:
        """Send what TLS has to say by itself, and return whether the kernel has taken all.

        Behind records that wait it stays in the session, which has a limit for it.
        """
        if not self._flush():
            return False
        output = self._session.take_output()
        if output:
            self._records.append((output, 0))
        return self._flush()

    # -- receiving -------------------------------------------------------------------------------

    def receive_now(self, max_bytes: int = READ_BYTES) -> bytes | None:
        """Decrypt what has arrived: `b""` at the peer's end, None if no record is whole. No schedule point.

        The text of `max_bytes` of the socket is returned, and of a record that began before.
        """
        # On the path of every call, so that it is written out.
        try:
            data = os.read(self._open, max_bytes)
        except BlockingIOError:
            return None
        except OSError as error:
            raise translate(error) from error
        return self._decrypt(data) if data else b""

    def _decrypt(self, data: bytes) -> bytes | None:
        session = self._session
        try:
            text = session.decrypt(data)
        except TlsError as error:
            with suppress(*GONE):
                self._send_output()  # the alert
            raise trio.BrokenResourceError(f"the connection was lost: {error}") from error
        if not session.has_news:
            return text or None
        self._send_output()
        if session.ended or session.fault is not None:
            # The kernel reports the end of the stream from now on, so that it is found as in cleartext.
            with suppress(OSError):
                self.socket.shutdown(socket.SHUT_RD)
        return text or (b"" if session.ended else None)

    # -- the end ---------------------------------------------------------------------------------

    def cut(self) -> None:
        """Announce no end when the stream closes: the last answer is not whole, and a client can notice that."""
        self._cut = True

    def end_sending(self) -> None:
        """Announce that no more text follows, if the peer is there. No schedule point."""
        self._announce_end()
        super().end_sending()

    def close(self) -> None:
        """Announce the end, and close the socket. No schedule point."""
        if not (self.aborted or self.stalled):
            self._announce_end()
        super().close()

    async def aclose(self) -> None:
        """Announce the end, and close the socket."""
        self._announce_end()
        await super().aclose()

    def _announce_end(self) -> None:
        """Send close_notify, once at most, unless records wait before it."""
        if self._cut or not self._begun or self._records:
            return
        self._cut = True
        output = self._session.end()
        if output:
            with suppress(OSError):
                os.write(self._open, output)
