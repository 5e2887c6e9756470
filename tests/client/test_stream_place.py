"""Where a client is in a stream of events: what it comes back with, after how long, and how often."""

import pytest

from mcpbus.client.stream_position import StreamPosition
from mcpbus.protocol.http.sse import SseEvent


@pytest.mark.parametrize(
    ("event", "message", "place"),
    [
        (SseEvent("{}"), "{}", StreamPosition("s", "before", 1.0)),
        (SseEvent("{}", id="e2"), "{}", StreamPosition("s", "e2", 1.0)),
        (SseEvent("", id="e2", retry=2500), None, StreamPosition("s", "e2", 2.5, returns=1)),
        (SseEvent("", retry=10**9), None, StreamPosition("s", "before", 30.0, returns=1)),
        (SseEvent("{}", id="", type="ping"), None, StreamPosition("s", "", 1.0, returns=1)),
    ],
)
def test_an_event_says_where_to_go_on_and_when_and_a_message_counts_as_news(event, message, place):
    here = StreamPosition("s", "before", returns=1)
    assert here.read(event) == message
    assert here == place


def test_a_stream_that_says_nothing_new_is_come_back_to_five_times():
    place = StreamPosition(None, "e1")
    assert [(place.reconnect(), place.is_last_return) for _ in range(6)] == [
        *[(True, False)] * 4,
        (True, True),
        (False, False),
    ]
    place.read(SseEvent("{}", id="e2"))
    assert place.reconnect()


@pytest.mark.parametrize(
    ("retry", "pauses"),
    [(None, [1, 2, 4, 8, 16]), (700, [0.7, 1.4, 2.8, 5.6, 11.2]), (20_000, [20, 30, 30, 30, 30])],
)
def test_each_return_waits_longer_and_never_less_than_the_server_says(retry, pauses):  # W-14
    place = StreamPosition(None)
    place.read(SseEvent("", retry=retry))
    waited = []
    while place.reconnect():
        waited.append(place.pause)
    assert waited == pytest.approx(pauses)


def test_an_event_that_is_repeated_after_a_return_is_neither_told_again_nor_news():  # W-22
    place = StreamPosition(None)
    assert [
        place.read(SseEvent(text, id=number)) for text, number in (("a", "1"), ("b", "2"), ("c", "2"))
    ] == [
        "a",
        "b",
        "c",
    ]
    place.reconnect()
    assert [place.read(SseEvent(text, id=number)) for text, number in (("a", "1"), ("c", "2"))] == [
        None,
        None,
    ]
    assert (place.id, place.returns) == ("2", 1)
    assert place.read(SseEvent("d", id="3")) == "d"
    place.reconnect()
    assert place.read(SseEvent("e")) == "e", "without an id nobody can tell"


def test_of_a_long_stream_the_last_thousand_events_are_known_again():
    place = StreamPosition(None)
    for number in range(2000):
        place.read(SseEvent("{}", id=str(number)))
    place.reconnect()
    assert place.read(SseEvent("{}", id="1999")) is None
    assert place.read(SseEvent("{}", id="0")) == "{}"
