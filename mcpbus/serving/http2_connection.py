"""h2's connection, with the faults of one request kept to its stream, and abuse kept within bounds."""

from typing import Final

from h2.config import H2Configuration
from h2.connection import ConnectionState, H2Connection
from h2.errors import ErrorCodes
from h2.events import Event, StreamReset
from h2.exceptions import DenialOfServiceError, FlowControlError, ProtocolError, StreamClosedError
from h2.frame_buffer import FrameBuffer
from h2.settings import SettingCodes, Settings
from hpack.exceptions import HPACKError
from hyperframe.frame import (
    DataFrame,
    Frame,
    HeadersFrame,
    PriorityFrame,
    RstStreamFrame,
    SettingsFrame,
)

from mcpbus.serving.counters import Counters
from mcpbus.serving.http2_patience import Patience

# A list of header fields may have 64 KiB, and so four full frames.
_FRAGMENTS: Final = 16
_FRAGMENT_BYTES: Final = 64 * 1024

_KNOWN_SETTINGS: Final = frozenset(SettingCodes)
_TABLE_BYTES: Final = 4096
_UNLIMITED: Final = 2**31
_RESET_COST: Final = 3


class BoundedFrameBuffer(FrameBuffer):
    """h2's buffer of frames, which collects less of a header block that does not end.

    h2 takes 64 frames of 16 KiB each, and calls the 65th a protocol error.
    """

    def _update_header_buffer(self, f: Frame | None) -> Frame | None:
        frame = super()._update_header_buffer(f)
        fragments = self._headers_buffer
        if len(fragments) > _FRAGMENTS or sum(len(part.data) for part in fragments) > _FRAGMENT_BYTES:
            raise DenialOfServiceError("it sent a header block that does not end")
        return frame


class GuardedH2Connection(H2Connection):
    """The server's side of one HTTP/2 connection, without I/O.

    What differs from h2, which takes nearly every fault for one of the connection:

    - a malformed request resets its own stream (RFC 9113, section 8.1.1): header fields that may not be, a body that
      is not as long as was said, trailers that do not end the request. Faults of the framing, of the header compression
      and of flow control, and frames for streams that cannot be, still end the connection, as they must (sections
      4.2, 4.3, 5.1.1) or may (5.4.1);
    - a stream beyond the limit that was announced is refused, which makes it safe to repeat (sections 5.1.2, 8.7);
    - what asks for nothing spends the client's `Patience`, and ends the connection with ENHANCE_YOUR_CALM when it
      is used up;
    - priorities are ignored (section 5.3.2), unknown settings are not kept, and the compression's table does not
      grow to whatever size the client would like.

    Args:
        config: h2's configuration.
        settings: What we announce.
        patience: What the client may send that asks for nothing.
        counters: Where refused and malformed requests are counted.
    """

    MAX_CLOSED_STREAMS = 4096  # 65,536 in h2, for each connection

    def __init__(
        self, config: H2Configuration, settings: Settings, patience: Patience, counters: Counters
    ) -> None:
        super().__init__(config)
        self.local_settings = settings
        if settings.max_header_list_size is not None:
            self.decoder.max_header_list_size = settings.max_header_list_size
        self.incoming_buffer = BoundedFrameBuffer(server=True)
        self._limit = settings.max_concurrent_streams
        self._patience = patience
        self._counters = counters

    def initiate_connection(self) -> None:
        """Say our settings; the limit of streams among them is then ours to enforce, and not h2's."""
        super().initiate_connection()
        announced = {
            code: value for code, value in self.local_settings.items() if isinstance(code, SettingCodes)
        }
        announced[SettingCodes.MAX_CONCURRENT_STREAMS] = _UNLIMITED
        self.local_settings = Settings(client=False, initial_values=announced)

    def is_open(self, stream_id: int) -> bool:
        """Whether neither side has reset the stream, and not both have ended it, nor the connection."""
        stream = self.streams.get(stream_id)
        return stream is not None and stream.open and self.state_machine.state is not ConnectionState.CLOSED

    def reset(self, stream_id: int, code: ErrorCodes) -> None:
        """Reset a stream, unless it has ended."""
        if self.is_open(stream_id):
            self.reset_stream(stream_id, error_code=code)

    def refuse(self, stream_id: int) -> None:
        """Refuse a request that nothing was done for; its client may repeat it elsewhere or later.

        Raises:
            DenialOfServiceError: It was told so too often.
        """
        self._counters.refused += 1
        self._patience.spend(1)
        self.reset(stream_id, ErrorCodes.REFUSED_STREAM)

    def blame(self, stream_id: int) -> None:
        """Reset a malformed request.

        Raises:
            DenialOfServiceError: There were too many of them.
        """
        self._counters.malformed += 1
        self._patience.spend(_RESET_COST)
        self.reset_stream(stream_id, error_code=ErrorCodes.PROTOCOL_ERROR)

    def _receive_frame(self, frame: Frame) -> list[Event]:
        opens = False
        if isinstance(frame, HeadersFrame):
            frame.flags.discard("PRIORITY")
            opens = frame.stream_id > self.highest_inbound_stream_id
        elif not isinstance(frame, DataFrame):
            self._patience.spend(_RESET_COST if isinstance(frame, RstStreamFrame) else 1)
        elif not frame.data and "END_STREAM" not in frame.flags:
            self._patience.spend(1)
        if isinstance(frame, PriorityFrame):
            return []
        if isinstance(frame, SettingsFrame):
            return self._receive_settings(frame)
        try:
            events = super()._receive_frame(frame)
        except ProtocolError as error:
            if not self._is_of_its_stream_only(frame, error):
                raise
            return self._reset_malformed(frame)
        if events and isinstance(events[-1], StreamReset) and not events[-1].remote_reset:
            self._patience.spend(_RESET_COST)  # h2 has reset the stream by itself
        # h2 has just forgotten the streams that have ended.
        if opens and len(self.streams) > self._limit and self.open_inbound_streams > self._limit:
            self.refuse(frame.stream_id)
            return []
        return events

    def _receive_settings(self, frame: SettingsFrame) -> list[Event]:
        known = {code: value for code, value in frame.settings.items() if code in _KNOWN_SETTINGS}
        if SettingCodes.HEADER_TABLE_SIZE in known:
            known[SettingCodes.HEADER_TABLE_SIZE] = min(known[SettingCodes.HEADER_TABLE_SIZE], _TABLE_BYTES)
        frame.settings = known
        events = super()._receive_frame(frame)
        changes = self.encoder.table_size_changes  # to be told with the next response (RFC 7541, section 4.2)
        if len(changes) > 2:
            changes[:] = [min(changes), changes[-1]]
        return events

    def _is_of_its_stream_only(self, frame: Frame, error: ProtocolError) -> bool:
        return (
            isinstance(frame, HeadersFrame | DataFrame)
            and frame.stream_id in self.streams
            and self.state_machine.state is not ConnectionState.CLOSED
            and not isinstance(error, FlowControlError | StreamClosedError | DenialOfServiceError)
            # Both sides' compression tables may differ from here on.
            and not isinstance(error.__cause__, HPACKError)
        )

    def _reset_malformed(self, frame: Frame) -> list[Event]:
        if isinstance(frame, DataFrame) and frame.flow_controlled_length:
            self.increment_flow_control_window(frame.flow_controlled_length)
        self.blame(frame.stream_id)
        return [
            StreamReset(stream_id=frame.stream_id, error_code=ErrorCodes.PROTOCOL_ERROR, remote_reset=False)
        ]
