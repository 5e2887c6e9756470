"""What takes too long is ended, and nothing is that has come while nobody could look."""

import math

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from mcpbus import Limits
from mcpbus.serving.deadlines import Deadlines
from mcpbus.serving.http2.body import Http2Body
from mcpbus.serving.request_error import RequestError

LIMITS = Limits(body_timeout=30)


class Waiting:
    """Something that has a deadline, and notes when it was ended."""

    def __init__(self, expires):
        self.expires = expires
        self.ended_at = None

    def expire(self):
        self.expires, self.ended_at = math.inf, trio.current_time()


@pytest.fixture
async def deadlines(nursery):
    made = Deadlines(shortest=1)
    nursery.start_soon(made.run)
    await wait_all_tasks_blocked()
    return made


async def pass_some_time_of_the_scheduler():
    """As it takes until who reads a connection has seen that something is there, of which the kernel has told late."""
    for _ in range(5):
        await trio.lowlevel.checkpoint()


async def test_what_takes_too_long_is_ended(deadlines, autojump_clock):
    waiting = Waiting(trio.current_time() + 10)
    deadlines.enter(waiting)
    deadlines.look_at(waiting.expires)
    await trio.sleep(9)
    assert waiting.ended_at is None
    await trio.sleep(2)
    assert waiting.ended_at == pytest.approx(10, abs=0.5)


class Failing(Waiting):
    """Something whose end goes wrong."""

    lost = False

    def expire(self):
        super().expire()
        raise RuntimeError("no end")

    def lose(self):
        self.lost = True


async def test_an_end_that_fails_keeps_no_other_deadline_from_being_kept(deadlines, autojump_clock, caplog):
    failing, others = Failing(10), [Waiting(10), Waiting(20)]
    for waiting in (others[0], failing, others[1]):
        deadlines.enter(waiting)
        deadlines.look_at(10)
    await trio.sleep(30)
    assert failing.lost
    assert [other.ended_at for other in others] == [pytest.approx(10, abs=0.5), pytest.approx(20, abs=0.5)]
    assert "a connection could not be ended in order" in caplog.text
    assert "RuntimeError: no end" in caplog.text


@pytest.mark.parametrize("comes", [True, False])
async def test_what_has_come_while_the_process_was_stopped_is_seen_before_its_deadline(
    comes, deadlines, autojump_clock
):
    waiting = Waiting(trio.current_time() + 10)
    deadlines.enter(waiting)
    deadlines.look_at(waiting.expires)
    await wait_all_tasks_blocked()
    autojump_clock.jump(100)
    await pass_some_time_of_the_scheduler()
    if comes:
        waiting.expires = math.inf
    await trio.sleep(1)
    assert waiting.ended_at == (None if comes else pytest.approx(100, abs=0.5))


class Writer:
    """Of a connection whose client is told nothing."""

    def open_window(self, stream_id, size):
        pass


@pytest.mark.parametrize("comes", [True, False])
async def test_a_body_over_http2_that_has_come_while_the_process_was_stopped_is_not_too_late(
    comes, nursery, autojump_clock
):
    body, came = Http2Body(Writer(), 1), []

    async def read():
        try:
            came.append(await body._read_piece(LIMITS.body_rate.begin(trio.current_time())))
        except RequestError as fault:
            came.append(fault.status)

    nursery.start_soon(read)
    await wait_all_tasks_blocked()
    autojump_clock.jump(100)
    await pass_some_time_of_the_scheduler()
    if comes:
        body.add(b"rest", ended=True)
    await trio.sleep(1)
    assert came == [(b"rest", True) if comes else 408]
