"""What a session knows of its streams that have ended: what it answers by, and for no longer than it has room."""

from types import SimpleNamespace

import pytest

from mcpbus.core.event_log import ResumableStreams, is_get_stream, parse_event_id
from mcpbus.protocol.routes import StreamKind

FEW, MANY = 32, 1000


class Log(SimpleNamespace):
    """As much of an `EventLog` as is asked here."""

    over = False

    def end(self):
        self.over = True


def log(name, *, broken=False, last=3):
    return Log(name=name, last=last, used=False, offered=True, resumable=not broken)


def test_a_stream_is_found_until_it_has_ended():
    streams, entry, stream = ResumableStreams(), log("a"), object()
    streams.add(stream, entry)
    assert streams.find("a") is stream
    streams.ended(entry, complete=True)
    assert streams.find("a") is None


@pytest.mark.parametrize(
    ("broken", "most", "knows"),
    [
        (False, FEW, lambda streams, name: streams.ended_with(name, 3)),
        (True, MANY, lambda streams, name: streams.has_gap(name)),
    ],
)
def test_so_many_that_ended_are_known_and_the_oldest_is_forgotten_first(broken, most, knows):
    streams, names = ResumableStreams(), [f"{number}" for number in range(most + 1)]
    for name in names[:-1]:
        streams.ended(log(name, broken=broken), complete=not broken)
    assert all(knows(streams, name) for name in names[:-1])
    streams.ended(log(names[-1], broken=broken), complete=not broken)
    assert [name for name in names if not knows(streams, name)] == names[:1]


@pytest.mark.parametrize(("ended_used", "open_used"), [(False, False), (True, False), (False, True)])
def test_a_store_is_to_forget_a_session_of_which_it_has_something_and_gets_nothing_more(
    ended_used, open_used
):
    streams, ended, still_open = ResumableStreams(), log("ended"), log("open")
    for entry in (ended, still_open):
        streams.add(SimpleNamespace(log=entry), entry)
    ended.used, still_open.used = ended_used, open_used
    streams.ended(ended, complete=True)
    assert streams.close() is (ended_used or open_used)
    assert still_open.over


def test_what_has_ended_otherwise_is_not_known():
    streams = ResumableStreams()
    streams.ended(log("without its reply"), complete=False)
    streams.ended(log("complete", last=3), complete=True)
    assert not streams.ended_with("without its reply", 3)
    assert not streams.has_gap("without its reply")
    assert not streams.ended_with("complete", 2)


def test_names_of_a_session_follow_each_other_and_those_of_another_process_are_others():
    here, elsewhere = ResumableStreams(), ResumableStreams()
    names = [here.new_name(StreamKind.RESPONSE) for _ in range(5)]
    assert names == sorted(set(names))
    assert set(names).isdisjoint(elsewhere.new_name(StreamKind.RESPONSE) for _ in range(5))
    assert [is_get_stream(here.new_name(kind)) for kind in (StreamKind.STANDALONE, StreamKind.RESPONSE)] == [
        True,
        False,
    ]
    assert parse_event_id(f"{names[0]}.3") == (names[0], 3)
