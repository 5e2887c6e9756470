"""What the end of a session costs does not depend on what others stored. Counted, not timed."""

import sys

import pytest
import trio

from mcpbus.core.stores import memory as memory_module
from mcpbus.stores import MemoryEventStore, SqliteEventStore


class Counted:
    """Counts what runs in a store's own code, in lines and steps of the interpreter, or in steps of SQLite."""

    def __init__(self):
        self.steps = 0

    def trace(self, frame, event, _):
        if frame.f_code.co_filename != memory_module.__file__:
            return None
        frame.f_trace_opcodes = True
        self.steps += event in {"line", "opcode"}  # in 3.12 without the opcodes of a frame that is seen first
        return self.trace

    def step(self):
        self.steps += 1
        return 0


async def cost_of_forgetting(store, session):
    counted = Counted()
    if isinstance(store, MemoryEventStore):
        before = sys.gettrace()
        sys.settrace(counted.trace)
        try:
            await store.forget(session)
        finally:
            sys.settrace(before)
    else:
        store._connection.set_progress_handler(counted.step, 1)
        await store.forget(session)
        store._connection.set_progress_handler(None, 0)
    assert counted.steps
    return counted.steps


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    if request.param == "memory":
        yield MemoryEventStore()
        return
    made = SqliteEventStore(tmp_path / "events.db")
    yield made
    made.close()


@pytest.mark.parametrize("own", [0, 3])
async def test_a_session_is_forgotten_at_the_cost_of_its_own_events(own, store):
    costs = []
    for others in (10, 4_000):
        if own:
            await store.append("mine", "a", 1, [b"x"] * own, final=False)
        await store.append(f"theirs {others}", "b", 1, [b"x"] * others, final=False)
        costs.append(await cost_of_forgetting(store, "mine"))
    few, many = costs
    assert many < few * 1.5 + 100  # a deeper tree costs a little more


async def test_a_session_with_very_many_events_lets_others_have_their_turn(store):
    for kept in [
        store.append("much", f"a{number}", 1, [b"x"] * 10, final=False) for number in range(1, 2_001)
    ]:
        await kept
    order = []

    async def forget():
        await store.forget("much")
        order.append("forgotten")

    async def append():
        await store.append("other", "b", 1, [b"y"], final=False)
        order.append("stored")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(forget)
        await trio.lowlevel.checkpoint()
        nursery.start_soon(append)
    assert order == ["stored", "forgotten"]
    assert (await store.replay("other", "b", 0)).events == [b"y"]
    assert await store.replay("much", "a1", 0) is None


async def test_what_has_to_go_while_its_session_is_forgotten_goes_once():
    store = MemoryEventStore(max_items=4_000)
    for number in range(1, 4_001):
        await store.append("much", "a", number, [b"x"], final=False)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.forget, "much")
        for _ in range(2):  # it has begun then, and has not ended
            await trio.lowlevel.checkpoint()
        assert 0 < len(store) < 4_000
        await store.append("other", "b", 1, [b"y"] * 3_500, final=False)
        assert len(store) == 4_000
    assert len(store) == 3_500
    assert len((await store.replay("other", "b", 0)).events) == 3_500


async def test_an_append_evicts_so_many_at_most(tmp_path):
    path = tmp_path / "events.db"
    store = SqliteEventStore(path)
    for begun in range(1, 5_001, 50):
        store._append([("s", "a", number, [b"x"], False) for number in range(begun, begun + 50)])
    store.close()
    store = SqliteEventStore(path, max_items=10)
    left = []
    for number in range(7):
        await store.append("s", "b", number + 1, [b"y"], final=False)
        left.append(store._connection.execute("SELECT count(*) FROM batches").fetchone()[0])
    assert left == [4_001, 3_002, 2_003, 1_004, 10, 10, 10]
    store.close()


async def test_a_file_that_another_process_empties_stops_nobody(tmp_path):
    store, other = (SqliteEventStore(tmp_path / "events.db", max_items=2) for _ in range(2))
    await store.append("s", "a", 1, [b"x"] * 2, final=False)
    await other.forget("s")
    with trio.fail_after(60):
        await store.append("s", "b", 1, [b"y"], final=False)
        await store.append("s", "b", 2, [b"z"], final=False)
        await store.append("s", "b", 3, [b"z"] * 2, final=False)
    store.close()
    other.close()


async def test_an_append_to_sqlite_is_one_statement_while_nothing_has_to_go(tmp_path):
    store, statements = SqliteEventStore(tmp_path / "events.db", max_items=7), []
    await store.append("s", "a", 1, [b"x"], final=False)  # it has looked at what is there
    store._connection.set_trace_callback(statements.append)
    for number in (2, 3):
        await store.append("s", "a", number, [b"x"], final=False)
    store._append([("s", name, 1, [b"x"], False) for name in "bcd"])
    assert [statement.partition(" ")[0] for statement in statements] == ["INSERT"] * 3
    await store.append("s", "a", 4, [b"x"] * 3, final=False)
    assert "DELETE" in {statement.partition(" ")[0] for statement in statements}
    store.close()
