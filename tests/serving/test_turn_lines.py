"""A round of the scheduler is short, however many connections have something to do in it."""

import socket
from collections import Counter as Counts
from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest
import trio
from hyperframe.frame import HeadersFrame
from peers import Http2, head_of, respond, serving, until

from mcpbus.serving import ServeOptions, ServerCounters
from mcpbus.serving.acceptor import _MOST_AT_ONCE, Acceptor
from mcpbus.serving.http2.request_table import Http2RequestTable
from mcpbus.serving.listeners import _AHEAD
from mcpbus.serving.served_app import ServedApp
from mcpbus.serving.turn_lines import FIRST_TURNS, MORE_TURNS, TurnLine


class Rounds(trio.abc.Instrument):
    """Counts the rounds of the scheduler.

    Attributes:
        number: How many there were.
        watched: Counters to be looked at after each.
        first_accepted: How many connections had been accepted after the first round with some.
    """

    number = 0
    watched = None
    first_accepted = 0

    def before_io_wait(self, timeout):
        self.number += 1
        if self.watched is not None and not self.first_accepted:
            self.first_accepted = self.watched.accepted


@pytest.fixture
async def rounds():
    counting = Rounds()
    trio.lowlevel.add_instrument(counting)
    yield counting
    trio.lowlevel.remove_instrument(counting)


async def test_so_many_have_a_turn_in_each_round(rounds):
    line, turns = TurnLine(3), []

    async def want(number):
        await line.wait()
        turns.append((rounds.number, number))

    async with trio.open_nursery() as nursery:
        for number in range(10):
            nursery.start_soon(want, number)
    in_a_round = Counts(round_number for round_number, _ in turns)
    assert list(in_a_round.values()) == [3, 3, 3, 1]
    assert sorted(number for _, number in turns) == list(range(10))


async def test_a_cancelled_connection_takes_no_turn_from_others(rounds):
    line, turns = TurnLine(1), []

    async def want(number):
        await line.wait()
        turns.append(number)

    async with trio.open_nursery() as nursery:
        scopes = [trio.CancelScope() for _ in range(6)]

        async def maybe(number):
            with scopes[number]:
                await want(number)

        for number in range(6):
            nursery.start_soon(maybe, number)
        await trio.lowlevel.checkpoint()
        for number in (0, 1, 2, 4):
            scopes[number].cancel()
    assert len(turns) >= 2
    assert {3, 5} <= set(turns)
    await want(6)  # a turn is free again
    assert turns[-1] == 6


class Noting:
    """An application that notes in which round each call began, and answers when its client has left."""

    def __init__(self, rounds):
        self.rounds = rounds
        self.began = []

    async def __call__(self, scope, receive, send):
        assert scope["type"] == "http"
        self.began.append(self.rounds.number)
        if scope["path"] == "/":
            await respond(send)
            return
        while (await receive())["type"] != "http.disconnect":
            pass


def heads(peer, number, *fields, path="/wait"):
    for n in range(1, 2 * number, 2):
        block = peer.connection.encoder.encode(head_of("GET", path, *fields))
        yield HeadersFrame(n, data=block, flags=["END_HEADERS", "END_STREAM"])


async def test_one_connection_starts_few_handlers_in_a_round(rounds):
    app = Noting(rounds)
    async with serving(app) as served:
        peer = await Http2(await served.connect()).start()
        await peer.send_frames(*heads(peer, 60))
        await until(lambda: len(app.began) == 60)
    assert max(Counts(app.began).values()) == 8


async def test_few_connections_begin_in_a_round(rounds):
    """Each of them sends all at once, so that it asks for something in its first turn."""
    app = Noting(rounds)
    async with serving(app) as served:
        address = urlsplit(served.url)
        with ExitStack() as stack:
            for _ in range(40):  # without a turn for the server
                sock = stack.enter_context(socket.create_connection((address.hostname, address.port)))
                peer = Http2(sock)
                peer.connection.initiate_connection()
                peer.connection.send_headers(1, head_of("GET", "/wait"), end_stream=True)
                sock.sendall(peer.connection.data_to_send())
            await until(lambda: len(app.began) == 40)
    assert max(Counts(app.began).values()) == FIRST_TURNS


async def test_few_connections_that_have_more_to_do_go_on_in_a_round(rounds):
    app = Noting(rounds)
    async with serving(app) as served:
        address = urlsplit(served.url)
        with ExitStack() as stack:
            for _ in range(60):
                sock = stack.enter_context(socket.create_connection((address.hostname, address.port)))
                peer = Http2(sock)
                peer.connection.initiate_connection()
                sock.sendall(peer.connection.data_to_send())
                sock.sendall(b"".join(frame.serialize() for frame in heads(peer, 80)))
            await until(lambda: len(app.began) == 60 * 80)
    assert max(Counts(app.began).values()) <= 8 * (FIRST_TURNS + MORE_TURNS)


async def respond_at_once(_scope, _receive, send):
    await respond(send)


async def test_one_connection_has_few_heads_of_many_fields_read_in_a_round(rounds, monkeypatch):
    read, take = [], Http2RequestTable.begin
    monkeypatch.setattr(Http2RequestTable, "begin", lambda *given: read.append(rounds.number) or take(*given))
    monkeypatch.setattr("mcpbus.serving.http2.connection._MOST_STARTED", 1000)
    async with serving(respond_at_once) as served:
        peer = await Http2(await served.connect()).start()
        await peer.send_frames(*heads(peer, 30, *[("a", "")] * 110))
        await until(lambda: len(read) == 30)
    assert max(Counts(read).values()) <= 4


class Behind:
    """A board on which this process is ahead of others from the third connection on."""

    is_ahead = False

    def note(self, connections):
        self.is_ahead = connections > _AHEAD

    async def give_way(self):
        await trio.sleep_forever() if self.is_ahead else await trio.lowlevel.checkpoint()


async def accepted_at_once(waiting, rounds, nursery, board=None):
    """How many connections are accepted in the first round in which some are."""
    counters = ServerCounters()
    options = ServeOptions(bind="127.0.0.1:0")
    acceptor = Acceptor(ServedApp(respond, {}), options, nursery, tls=None, counters=counters, board=board)
    with ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=200))
        for _ in range(waiting):
            stack.enter_context(socket.create_connection(listening.getsockname()))
        nursery.start_soon(acceptor.accept, listening)
        rounds.watched = counters
        while not rounds.first_accepted:
            await trio.lowlevel.checkpoint()
        if board is None:
            while counters.accepted < waiting:
                await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
        acceptor.abort()
    return rounds.first_accepted


@pytest.mark.parametrize(("waiting", "accepted"), [(1, 1), (40, 40), (_MOST_AT_ONCE + 20, _MOST_AT_ONCE)])
async def test_all_connections_that_wait_are_accepted_in_one_round(waiting, accepted, rounds, nursery):
    assert await accepted_at_once(waiting, rounds, nursery) == accepted


async def test_a_process_that_is_ahead_leaves_connections_to_others(rounds, nursery):
    assert await accepted_at_once(40, rounds, nursery, Behind()) == _AHEAD + 1
