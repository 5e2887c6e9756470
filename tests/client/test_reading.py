"""Messages of servers that are being read: they are counted and given up where there are too many, and long ones are read in turn."""

import gc
import sys

import attrs
import msgspec
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from mcpbus.client import stdio
from mcpbus.client.errors import DisconnectedError
from mcpbus.client.http_responses import read_body, read_messages
from mcpbus.client.pending import PendingRequest
from mcpbus.client.reading import LONG_BYTES, Reading, Readings
from mcpbus.client.stdio import connect_process
from mcpbus.client.stream_position import StreamPosition
from mcpbus.client.yielding import LONG_WORK_BYTES, long_work
from mcpbus.core.limit_monitor import LimitMonitor
from mcpbus.core.memory_budget import MemoryBudget

PIECE = b"x" * 64 * 1024


@attrs.define
class Answer:
    """An answer over HTTP that comes in pieces; a server that sends without a pause needs no turn in between."""

    pieces: list
    read: int = 0

    async def aiter_raw(self):
        for piece in self.pieces:
            self.read += 1
            await trio.lowlevel.checkpoint()
            yield piece


@pytest.fixture
def budget():
    return MemoryBudget(4 * LONG_BYTES, LimitMonitor())


@pytest.fixture
def readings(budget):
    return Readings(lambda give_up: budget.account("a message", give_up))


async def body(answer, readings):
    return await read_body(answer, readings)


async def event(answer, readings):
    await read_messages(answer, StreamPosition(None), lambda _: True, readings)


@pytest.mark.parametrize("read", [body, event])
async def test_a_message_that_takes_too_much_memory_is_given_up(read, budget, readings):
    endless = Answer([PIECE] * 200)
    with pytest.raises(DisconnectedError, match="too much waits"):
        await read(endless, readings)
    assert endless.read < 20
    assert (budget.held, budget.full) == (0, False)


@pytest.mark.parametrize("read", [body, event])
async def test_a_message_counts_until_it_has_come(read, budget, readings):
    sizes = []
    answer = Answer([PIECE] * 10)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(read, answer, readings)
        while answer.read < 10:
            await trio.lowlevel.checkpoint()
            sizes.append(budget.held)
    assert LONG_BYTES <= max(sizes) <= 10 * len(PIECE)
    assert budget.held == 0


async def test_the_largest_of_several_messages_is_given_up(budget, readings):
    """So a client whose answers are short loses none to a server that sends without end."""
    outcomes = {}

    async def read(name, pieces):
        try:
            outcomes[name] = len(await read_body(Answer(pieces), readings))
        except DisconnectedError:
            outcomes[name] = None

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read, "short", [PIECE] * 5)
        nursery.start_soon(read, "endless", [PIECE] * 200)
    assert outcomes == {"short": 5 * len(PIECE), "endless": None}


async def test_a_result_counts_until_it_is_decoded(budget, readings):
    result = msgspec.Raw(b'{"a":"' + b"x" * LONG_BYTES + b'"}')
    pending = PendingRequest(readings=readings)
    pending.settle(result)
    assert budget.held == 2 * len(result)
    assert (await pending.wait()).keys() == {"a"}
    assert budget.held == 0


async def test_a_result_that_waits_is_given_up(budget, readings):
    pending = PendingRequest(readings=readings)
    pending.settle(msgspec.Raw(b'{"a":"' + b"x" * 5 * LONG_BYTES + b'"}'))
    assert budget.held == 0
    with pytest.raises(DisconnectedError, match="too much waits"):
        await pending.wait()


def test_a_long_line_and_a_long_result_do_not_wait_for_the_garbage_collector(readings):
    """Each has a count that refers back to it: a few dozen of them would take hundreds of megabytes."""
    line = stdio._LineBuffer(readings)
    line.add(b"x" * LONG_BYTES)
    line.end()
    pending = PendingRequest(readings=readings)
    pending.settle(msgspec.Raw(b'{"a":"' + b"x" * LONG_BYTES + b'"}'))
    pending.release()
    for counted in (line, pending):
        assert not any(isinstance(each, Reading) for each in gc.get_referents(counted))


@pytest.mark.parametrize("values", [1, 5_000_000])
async def test_a_result_that_no_task_waits_for_any_more_raises_nothing(budget, readings, values):
    """Its call was cancelled while the result waited for its turn, or was weighed."""
    budget.limit = 2**30
    pending = PendingRequest(readings=readings)
    pending.settle(msgspec.Raw(b'{"a":[' + b"[]," * values + b'"' + b"x" * LONG_BYTES + b'"]}'))
    async with trio.open_nursery() as nursery, long_work():
        nursery.start_soon(pending.wait)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    with trio.CancelScope() as scope:
        scope.cancel()
        await pending.wait()
    assert scope.cancelled_caught
    assert budget.held == 0


async def test_long_pieces_are_read_by_one_reader_at_a_time(monkeypatch):
    """A hundred servers that send without a pause leave a short message its turn after each slice, and not after a hundred."""
    monkeypatch.setattr("mcpbus.client.yielding.SLICE_SECONDS", -1.0)  # each slice is used up
    slices = 0

    def read(self, event):
        nonlocal slices
        slices += 1

    monkeypatch.setattr(StreamPosition, "read", read)
    piece = b"data: x\n\n" * (LONG_WORK_BYTES // 9 + 1)
    async with trio.open_nursery() as nursery:
        for _ in range(100):
            nursery.start_soon(event, Answer([piece] * 100), Readings())
        for _ in range(10):
            await trio.lowlevel.checkpoint()
        before = slices
        rounds = 20
        for _ in range(rounds):
            await trio.lowlevel.checkpoint()
        assert 0 < slices - before <= 2 * rounds
        nursery.cancel_scope.cancel()


async def test_work_in_line_is_not_cancelled_in_between():
    """A stream that is left while its piece waits must be left where it is read, or the garbage collector closes it."""
    entered = []

    async def work():
        async with long_work():
            entered.append(True)

    async with trio.open_nursery() as nursery, long_work():
        nursery.start_soon(work)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert entered == [True]


async def test_a_line_of_a_program_that_takes_too_much_memory_fails_its_call():
    script = (
        "import json, sys\n"
        "for line in sys.stdin:\n"
        "    request = json.loads(line)\n"
        "    size = 3_000_000 if request['method'] == 'long' else 3\n"
        "    result = {'resultType': 'complete', 'supportedVersions': ['2026-07-28'], 'capabilities': {}, 'text': 'x' * size}\n"
        "    result['_meta'] = {'io.modelcontextprotocol/serverInfo': {'name': 's', 'version': '1'}}\n"
        "    print(json.dumps({'jsonrpc': '2.0', 'id': request['id'], 'result': result}), flush=True)\n"
    )
    budget = MemoryBudget(4 * LONG_BYTES, LimitMonitor())
    with trio.fail_after(60):
        async with connect_process([sys.executable, "-c", script], revision="2026-07-28") as client:
            client.count_reading(lambda give_up: budget.account("a message", give_up))
            with pytest.raises(Exception, match="too much waits"):
                await client.request("long")
            assert (await client.request("short"))["text"] == "xxx"
            assert budget.held == 0
