"""Answers of programs that cannot be read: their calls fail, and the log names the program."""

import sys
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from mcpbus.client import ClientError, MalformedAnswerError, connect_process

OLD = "2025-11-25"
BATCHES = "2025-03-26"

SERVER = r"""
import json, sys
out = sys.stdout.buffer
for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") == "initialize":
        said = {"protocolVersion": REVISION, "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}
        out.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": said}).encode() + b"\n")
    elif message.get("method") == "ping":
        out.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {}}).encode() + b"\n")
    elif "id" in message:
        out.write(ANSWER.replace(b"ID", str(message["id"]).encode()) + b"\n")
    out.flush()
"""


@asynccontextmanager
async def answering(answer, revision=OLD):
    source = f"ANSWER, REVISION = {answer!r}, {revision!r}\n{SERVER}"
    with trio.fail_after(60):
        async with connect_process([sys.executable, "-c", source], revision=revision) as client:
            yield client


@pytest.mark.parametrize(
    "answer",
    [
        b'{"jsonrpc":"2.0","id":ID,"result":{"x":"\xff\xfe"}}',
        b'{"jsonrpc":"2.0","id":ID,"error":{"code":1,"message":"\xe9"}}',
        b'{"id":ID,"jsonrpc":"2.0","result":{"x":"\xed\xa0\x80"}}',
        b' { "jsonrpc" : "2.0" , "id" : ID , "result" : { "x" : "\xc0\x80" } } ',
        b'{"result":{"x":"\xff"},"jsonrpc":"2.0","id":ID}',
        b'{"jsonrpc":"2.0","result":{"id":7,"x":"\xff"},"id":ID}',
        b'{"result":{"x":"\xff"},"id":ID,"jsonrpc":"2.0"}',
        b'{"jsonrpc":"2.0","id":ID,"result":{"x":NaN}}',
        b'{"jsonrpc":"2.0","id":ID,"result":{"x":-Infinity}}',
        b'{"jsonrpc":"2.0","id":ID,"result":{"x":"a\tb"}}',
        b'{"jsonrpc":"2.0","id":ID,"result":{"x":"cut o',
        b'{"jsonrpc":"2.0","id":ID,"result":%s}' % (b"[" * 100_000),
        b"{'jsonrpc':'2.0'}\n" * 3 + b'{"jsonrpc":"2.0","id":ID,"result":{"x":1e}}',
    ],
)
async def test_an_answer_that_cannot_be_read_fails_its_call_and_the_next_one_works(answer, caplog):
    async with answering(answer) as client:
        with pytest.raises(MalformedAnswerError, match="the server's answer cannot be read"):
            await client.request("tools/list")
        assert await client.request("ping") == {}
    assert f"{sys.executable} answered a call with a line that cannot be read" in caplog.text


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":ID,"method":"ping","params":{"x":"\xff"}}',
        b'{"jsonrpc":"2.0","id":999,"result":{"x":"\xff"}}',
        b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":{"id":ID,"result":"\xff"}}}',
        b"starting \xff",
    ],
)
async def test_a_line_that_answers_no_call_fails_none(line):
    good = b'{"jsonrpc":"2.0","id":ID,"result":{"tools":[]}}'
    async with answering(line + b"\n" + good) as client:
        assert await client.list_tools() == []


async def test_an_answer_in_a_batch_that_cannot_be_read_fails_its_call():
    batch = b'[{"jsonrpc":"2.0","method":"x"},{"jsonrpc":"2.0","id":ID,"result":[],"error":5}]'
    async with answering(batch, BATCHES) as client:
        with pytest.raises(MalformedAnswerError):
            await client.request("tools/list")


DEAF = r"""
import json, sys, time
message = json.loads(sys.stdin.readline())
said = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}
print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": said}), flush=True)
time.sleep(600)
"""


async def test_calls_that_are_given_up_leave_nothing_for_a_program_that_does_not_read(monkeypatch):
    """But for the message that is being written: a part of it is in the program's pipe already."""
    waiting = []
    monkeypatch.setattr("mcpbus.client.process._END_SECONDS", 0.1)
    with trio.fail_after(60):
        async with connect_process([sys.executable, "-c", DEAF], revision=OLD) as client:
            client.count_waiting(waiting.append)
            await wait_all_tasks_blocked(0.05)
            for _ in range(20):
                with trio.CancelScope() as scope:
                    async with trio.open_nursery() as nursery:
                        for _ in range(5):
                            nursery.start_soon(client.call_tool, "t", {"x": "y" * 100_000})
                        await wait_all_tasks_blocked()
                        scope.cancel()
    assert 500_000 < max(waiting) < 700_000
    assert waiting[-1] < 101_000


async def test_more_than_may_wait_is_refused(monkeypatch):
    monkeypatch.setattr("mcpbus.client.process._END_SECONDS", 0.1)
    monkeypatch.setattr("mcpbus.client.outgoing.MOST_WAITING_BYTES", 1_000_000)
    refusals = []

    async def call(client):
        try:
            await client.call_tool("t", {"x": "y" * 300_000})
        except ClientError as error:
            refusals.append(str(error))

    with trio.fail_after(60):
        async with (
            connect_process([sys.executable, "-c", DEAF], revision=OLD) as client,
            trio.open_nursery() as nursery,
        ):
            for _ in range(10):
                nursery.start_soon(call, client)
            await wait_all_tasks_blocked(0.05)
            assert len(refusals) >= 6
            assert all("reads nothing" in each for each in refusals)
            nursery.cancel_scope.cancel()
