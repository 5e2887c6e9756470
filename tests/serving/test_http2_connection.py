"""What the guarded HTTP/2 connection keeps: joined with a client in memory."""

import struct

import h2.config
import h2.connection
import pytest
from h2.events import RequestReceived
from h2.exceptions import DenialOfServiceError
from h2.settings import SettingCodes, Settings
from hyperframe.frame import ContinuationFrame, HeadersFrame
from peers import head_of

from mcpbus.serving import Counters
from mcpbus.serving.http2_connection import GuardedH2Connection
from mcpbus.serving.http2_patience import BURST, RATE, Patience


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Joined:
    """A client and our side of one connection."""

    def __init__(self):
        self.clock = Clock()
        settings = Settings(
            client=False,
            initial_values={
                SettingCodes.MAX_CONCURRENT_STREAMS: 10,
                SettingCodes.MAX_HEADER_LIST_SIZE: 64 * 1024,
            },
        )
        config = h2.config.H2Configuration(client_side=False, header_encoding=None)
        self.ours = GuardedH2Connection(config, settings, Patience(self.clock), Counters())
        self.client = h2.connection.H2Connection()
        self.ours.initiate_connection()
        self.client.initiate_connection()
        self.exchange()
        self.exchange()

    def exchange(self):
        events = self.ours.receive_data(self.client.data_to_send())
        self.client.receive_data(self.ours.data_to_send())
        return events

    def say(self, *frames):
        return self.ours.receive_data(b"".join(frame.serialize() for frame in frames))

    def request(self):
        stream_id = self.client.get_next_available_stream_id()
        self.client.send_headers(stream_id, head_of(), end_stream=True)
        assert any(isinstance(event, RequestReceived) for event in self.exchange())
        return stream_id

    def answer(self, stream_id, *fields):
        self.ours.send_headers(stream_id, [(b":status", b"200"), *fields], end_stream=True)
        self.client.receive_data(self.ours.data_to_send())


def test_unknown_settings_are_not_kept():
    joined = Joined()
    known = len(joined.ours.remote_settings)
    for start in range(100, 3000, 1000):
        payload = b"".join(struct.pack(">HL", code, 1) for code in range(start, start + 1000))
        joined.ours.receive_data(len(payload).to_bytes(3) + b"\4\0\0\0\0\0" + payload)
    assert len(joined.ours.remote_settings) == known


def test_the_table_of_our_header_fields_does_not_grow_as_the_client_likes():
    joined = Joined()
    joined.client.update_settings({SettingCodes.HEADER_TABLE_SIZE: 2**30})
    joined.exchange()
    for n in range(1000):
        joined.answer(joined.request(), (b"x-different", b"%d" % n * 20))
    assert joined.ours.encoder.header_table_size == 4096


def test_changes_of_the_table_do_not_pile_up_and_still_arrive():
    joined = Joined()
    for size in [0, 4096, 100, 4096] * 10:
        joined.client.update_settings({SettingCodes.HEADER_TABLE_SIZE: size})
        joined.exchange()
    assert len(joined.ours.encoder.table_size_changes) <= 2
    joined.answer(joined.request(), (b"x-field", b"value"))


def test_streams_that_have_ended_are_forgotten():
    joined = Joined()
    for _ in range(5000):
        joined.answer(joined.request())
    assert len(joined.ours.streams) <= 11
    assert len(joined.ours._closed_streams) <= GuardedH2Connection.MAX_CLOSED_STREAMS


@pytest.mark.parametrize(("size", "number"), [(0, 20), (16_000, 5)])
def test_a_header_block_without_end_is_not_kept(size, number):
    joined = Joined()
    with pytest.raises(DenialOfServiceError, match="does not end"):
        joined.say(
            HeadersFrame(1, data=bytes(size)),
            *[ContinuationFrame(1, data=bytes(size)) for _ in range(number)],
        )


def test_patience_comes_back_with_time_and_with_what_is_taken():
    clock = Clock()
    patience = Patience(clock)
    patience.spend(BURST)
    with pytest.raises(DenialOfServiceError):
        patience.spend(1)
    clock.now += 1
    patience.spend(RATE - 1)
    patience.earn(5)
    patience.spend(5)
    with pytest.raises(DenialOfServiceError):
        patience.spend(1)


def test_patience_has_an_end():
    patience = Patience(Clock())
    patience.earn(10 * BURST)
    with pytest.raises(DenialOfServiceError):
        patience.spend(BURST + 1)
