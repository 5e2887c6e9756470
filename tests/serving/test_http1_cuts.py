"""The answers are the same, whatever a client sends and however it is cut on its way."""

import random
import re

import pytest
import trio
from lanes import get, open_lane, post
from trio.testing import wait_all_tasks_blocked

from mcpbus.serving.http1.encoder import CONTINUE

CHUNKED = b"transfer-encoding: chunked"
SAID = [
    post(b"one"),
    post(b"", b"connection: keep-alive", version="1.0"),
    post(b"x" * 1500),
    post(b"told to go on", b"expect: 100-continue"),
    b"POST /echo HTTP/1.1\r\nhost: x\r\n%b\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nt: t\r\n\r\n" % CHUNKED,
    b"\r\n" + post(b"after a line break"),
    get("/", b"origin: http://x"),
    get("/").replace(b"GET", b"HEAD"),
    get("/empty"),
    get("/stream"),
    get("/wait"),
]
ENDS = [
    b"",
    post(b"broken off")[:-3],
    post(b"x", b"connection: close") + post(b"unserved"),
    post(b"x", version="1.0"),
    get("/fail") + post(b"unserved"),
    b"GET / HTTP/1.1\nhost: x\n\n",
    post(b"x", b"content-length: 1"),
    get("/" + "a" * 9000),
]


@pytest.mark.parametrize("seed", range(60))
async def test_whatever_is_said_and_however_it_is_cut_the_same_is_answered(seed, autojump_clock):
    answers = []
    for cut in (False, True):
        chance = random.Random(seed)
        data = b"".join(chance.choices(SAID, k=chance.randrange(8))) + chance.choice(ENDS)
        async with open_lane() as house, trio.open_nursery() as nursery:
            house.endpoint.go_on.set()
            client = await house.connect()
            nursery.start_soon(say_in_pieces if cut else say, client, data, chance)
            said = re.sub(rb"date: .*?\r\n", b"", await client.all())
            # Whether a client that asks is told to go on depends on whether its body was there by then.
            answers.append((said.replace(CONTINUE, b""), house.endpoint.bodies))
            nursery.cancel_scope.cancel()
    assert answers[0] == answers[1]


async def say(client, data, _chance):
    await client.say(data)


async def say_in_pieces(client, data, chance):
    while data:
        size = chance.choice([1, 10, 100, len(data)])
        piece, data = data[:size], data[size:]
        await client.say(piece)
        if chance.random() < 0.7:
            await wait_all_tasks_blocked()
    await trio.sleep(100)
