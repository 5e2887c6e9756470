"""Who has more connections than the others that listen on the same socket lets them, for a moment."""

import mmap

import pytest
import trio

from mcpbus.serving.listeners import _MOST_WAITS, _WAIT_SECONDS, ABSENT, ConnectionCounts


def boards(*counts):
    memory = mmap.mmap(-1, 4 * len(counts))
    made = [ConnectionCounts(memory, number) for number in range(len(counts))]
    for board, count in zip(made, counts, strict=True):
        board.note(count)
    return made


async def waited(board):
    begun = trio.current_time()
    await board.give_way()
    return trio.current_time() - begun


@pytest.mark.parametrize(
    ("counts", "waits"),
    [((0, 0), 0), ((2, 0), 0), ((3, 0), _MOST_WAITS), ((0, 9), 0), ((9, 7, 9), 0), ((9, ABSENT), 0)],
)
async def test_who_has_more_gives_way(counts, waits, autojump_clock):
    assert await waited(boards(*counts)[0]) == pytest.approx(waits * _WAIT_SECONDS)


async def test_who_gives_way_goes_on_when_another_one_has_taken_more(autojump_clock):
    one, other = boards(3, 0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep, 0)
        trio.lowlevel.current_trio_token().run_sync_soon(other.note, 1)
        assert await waited(one) <= _WAIT_SECONDS


def test_who_begins_has_none():
    memory = mmap.mmap(-1, 8)
    memory[:] = ABSENT.to_bytes(4, "little") * 2
    ConnectionCounts(memory, 0)
    assert memory[:] == b"\0" * 4 + b"\xff" * 4
