"""A limit that is reached is counted each time, and said once a minute."""

import pytest
import trio

from mcpbus import Limits, Server
from mcpbus.core.admission import ServerOverloaded
from mcpbus.core.limit_monitor import QUIET_SECONDS, LimitMonitor
from mcpbus.protocol.principals import LOCAL
from mcpbus.protocol.routes import TransportKind
from mcpbus.testing import open_bus


async def test_each_time_is_counted_and_one_line_a_minute_says_so(autojump_clock, caplog):
    reached = LimitMonitor()
    for _ in range(3):
        reached.note("max_sessions", "192.0.2.1", "a new session was refused")
    assert reached.counts == {"max_sessions": 3}
    assert [record.getMessage() for record in caplog.records] == [
        "max_sessions was reached by 192.0.2.1: a new session was refused"
    ]
    await trio.sleep(QUIET_SECONDS)
    reached.note("max_sessions", None, "a new session was refused")
    assert caplog.records[-1].getMessage() == (
        "max_sessions was reached: a new session was refused (and 2 times more since the last line about it)"
    )


async def test_one_limit_does_not_silence_another(autojump_clock, caplog):
    reached = LimitMonitor()
    reached.note("max_sessions", None, "a new session was refused")
    reached.note("max_requests", None, "a request was refused")
    assert reached.counts == {"max_sessions": 1, "max_requests": 1}
    assert len(caplog.records) == 2


async def test_what_was_said_a_minute_ago_is_not_counted_into_the_next_line_again(autojump_clock, caplog):
    reached = LimitMonitor()
    for _ in range(2):
        reached.note("max_sessions", None, "a new session was refused")
    for _ in range(2):
        await trio.sleep(QUIET_SECONDS)
        reached.note("max_sessions", None, "a new session was refused")
    assert "1 times more" in caplog.records[-2].getMessage()
    assert "more" not in caplog.records[-1].getMessage()


async def test_a_bus_says_which_of_its_limits_were_reached(autojump_clock):
    async with open_bus(Server("s"), limits=Limits(max_sessions=1)) as bus:
        assert bus.statistics().limits_reached == {}
        bus.session_directory.open(TransportKind.HTTP, None, LOCAL)
        with pytest.raises(ServerOverloaded):
            bus.session_directory.open(TransportKind.HTTP, None, LOCAL)
        assert bus.statistics().limits_reached == {"max_sessions": 1}


class Unspeakable:
    def __str__(self):
        raise RuntimeError("not today")


@pytest.mark.parametrize(
    ("whom", "name"),
    [
        ("alice", "alice"),
        ("two\nlines", r"'two\nlines'"),
        ("x" * 100, "x" * 100),
        ("x" * 1000, repr("x" * 100)),
        (Unspeakable(), "somebody whose Unspeakable has no text"),
    ],
)
async def test_whoever_it_was_has_one_short_name_in_the_log(whom, name, autojump_clock, caplog):
    LimitMonitor().note("max_sessions", whom, "a new session was refused")
    assert caplog.messages == [f"max_sessions was reached by {name}: a new session was refused"]
