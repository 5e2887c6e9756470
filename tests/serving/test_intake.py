import pytest
import trio

from mcpbus.serving.intake import Intake

DISCONNECT = {"type": "http.disconnect"}
ROOM = 64 * 1024


def request(body=b"", *, more=True):
    return {"type": "http.request", "body": body, "more_body": more}


async def test_what_has_arrived_comes_as_one_message():
    intake = Intake()
    for message in (request(b"one "), request(b"body"), request(more=False)):
        await intake.put(message)
    assert await intake.receive() == request(b"one body", more=False)


async def test_an_empty_body_is_a_message_too():
    intake = Intake()
    await intake.put(request(more=False))
    assert await intake.receive() == request(more=False)


async def test_a_client_that_leaves_does_not_take_its_request_with_it():
    intake = Intake()
    for message in (request(b"body"), request(more=False), DISCONNECT):
        await intake.put(message)
    assert await intake.receive() == request(b"body", more=False)
    assert await intake.receive() == DISCONNECT
    assert await intake.receive() == DISCONNECT


async def test_a_cut_body_ends_in_a_disconnect():
    intake = Intake()
    await intake.put(request(b"half"))
    await intake.put(DISCONNECT)
    assert await intake.receive() == request(b"half")
    assert await intake.receive() == DISCONNECT


async def test_the_reader_waits_for_room(autojump_clock):
    intake = Intake()
    await intake.put(request(bytes(ROOM)))
    with trio.move_on_after(1) as waiting:
        await intake.put(request(b"more"))
    assert waiting.cancelled_caught
    async with trio.open_nursery() as nursery:
        nursery.start_soon(intake.put, request(b"more"))
        await trio.testing.wait_all_tasks_blocked()
        assert len((await intake.receive())["body"]) == ROOM
    assert await intake.receive() == request(b"more")


async def test_discarding_takes_what_comes_up_to_the_cap(autojump_clock):
    intake = Intake()
    await intake.put(request(bytes(10)))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: intake.discard_rest(max_bytes=25, seconds=3600))
        await trio.testing.wait_all_tasks_blocked()
        await intake.put(request(bytes(15)))
        await trio.testing.wait_all_tasks_blocked()
        assert nursery.child_tasks
        await intake.put(request(bytes(1)))
    assert trio.current_time() < 3600


@pytest.mark.parametrize("end", [request(more=False), DISCONNECT])
async def test_discarding_ends_with_the_body(end, autojump_clock):
    intake = Intake()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: intake.discard_rest(max_bytes=10**6, seconds=3600))
        await trio.testing.wait_all_tasks_blocked()
        await intake.put(end)
    assert trio.current_time() < 3600


async def test_discarding_frees_a_reader_that_waits_for_room(autojump_clock):
    intake = Intake()
    await intake.put(request(bytes(ROOM)))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(intake.put, request(b"more"))
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(lambda: intake.discard_rest(max_bytes=10**6, seconds=10))
    assert trio.current_time() >= 10
