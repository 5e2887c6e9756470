"""Where a client is in a stream of events: what it comes back with, after how long, and how often."""

import pytest

from mcpbus.client.stream_place import StreamPlace
from mcpbus.protocol.http.sse import Event


@pytest.mark.parametrize(
    ("event", "message", "place"),
    [
        (Event("{}"), "{}", StreamPlace("s", "before", 1.0)),
        (Event("{}", id="e2"), "{}", StreamPlace("s", "e2", 1.0)),
        (Event("", id="e2", retry=2500), None, StreamPlace("s", "e2", 2.5, returns=1)),
        (Event("", retry=10**9), None, StreamPlace("s", "before", 30.0, returns=1)),
        (Event("{}", id="", type="ping"), None, StreamPlace("s", "", 1.0, returns=1)),
    ],
)
def test_an_event_says_where_to_go_on_and_when_and_a_message_counts_as_news(event, message, place):
    here = StreamPlace("s", "before", returns=1)
    assert here.read(event) == message
    assert here == place


@pytest.mark.parametrize("last", [None, ""])
def test_without_an_event_id_there_is_no_way_back(last):
    assert StreamPlace(None, last).turn_back() is None


def test_a_stream_that_says_nothing_new_is_come_back_to_five_times():
    place = StreamPlace(None, "e1")
    assert [(place.turn_back(), place.is_last_return) for _ in range(6)] == [
        *[("e1", False)] * 4,
        ("e1", True),
        (None, False),
    ]
    place.read(Event("{}", id="e2"))
    assert place.turn_back() == "e2"
