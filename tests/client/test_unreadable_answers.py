"""Answers of programs that cannot be read: their calls fail, and the log names the program."""

import sys
import tracemalloc
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from mcpbus.client import ClientError, MalformedAnswerError, connect_process
from mcpbus.client.wire import read_error
from mcpbus.protocol.errors import ProtocolError
from mcpbus.protocol.jsonrpc import ErrorObject

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
    """A client of a program that answers all requests but a ping with these bytes, or with those that an expression makes."""
    source = (
        f"ANSWER, REVISION = {answer if isinstance(answer, str) else repr(answer)}, {revision!r}\n{SERVER}"
    )
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
    monkeypatch.setattr("mcpbus.client.stdio._END_SECONDS", 0.1)
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
    monkeypatch.setattr("mcpbus.client.stdio._END_SECONDS", 0.1)
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
            await wait_all_tasks_blocked(0.05)  # until what opens the session is written
            for _ in range(10):
                nursery.start_soon(call, client)
            await wait_all_tasks_blocked(0.05)
            assert refusals == []
            for _ in range(10):
                nursery.start_soon(call, client)
            await wait_all_tasks_blocked(0.05)
            assert len(refusals) == 10
            assert all("reads nothing" in each for each in refusals)
            nursery.cancel_scope.cancel()


LONG = b'{"jsonrpc":"2.0","id":ID,"result":{"x":"%s"}}' % (b"y" * 60_000)


@pytest.mark.parametrize("answer", [LONG, LONG.replace(b'"id":ID,', b"").replace(b"}}", b'},"id":ID}')])
async def test_an_answer_that_is_too_long_fails_its_call_alone(answer, monkeypatch, caplog):
    monkeypatch.setattr("mcpbus.client.stdio.MOST_MESSAGE_BYTES", 50_000)
    async with answering(answer) as client:
        with pytest.raises(MalformedAnswerError, match="more than 50,000 bytes"):
            await client.request("tools/list")
        assert await client.request("ping") == {}
    assert "answered a call with a line that cannot be read: it has more than 50,000 bytes" in caplog.text


async def test_a_result_of_too_many_values_is_refused_before_it_takes_memory(monkeypatch):
    monkeypatch.setattr("mcpbus.client.pending.MOST_RESULT_WEIGHT", 3_000_000)
    monkeypatch.setattr("mcpbus.client.pending.LONG_BYTES", 10_000)
    lists = """b'{"jsonrpc":"2.0","id":ID,"result":{"x":[%s[]]}}' % (b"[]," * 60_000)"""
    async with answering(lists) as client:
        tracemalloc.start()
        try:
            with pytest.raises(MalformedAnswerError, match="takes more than 3,000,000 bytes of memory"):
                await client.request("tools/list")
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 2_000_000  # sixty thousand empty lists alone take three and a half


@pytest.mark.parametrize(("most", "value"), [("MOST_ITEMS", 20), ("MOST_LIST_BYTES", 1_000)])
async def test_a_list_of_too_many_items_or_bytes_is_refused(most, value, monkeypatch):
    monkeypatch.setattr(f"mcpbus.client.client.{most}", value)
    tools = b",".join([b'{"name":"t","inputSchema":{"type":"object"}}'] * 30)
    async with answering(b'{"jsonrpc":"2.0","id":ID,"result":{"tools":[%s]}}' % tools) as client:
        with pytest.raises(ClientError, match="tools/list has more than"):
            await client.list_tools()


async def test_other_tasks_run_while_a_long_list_is_read(monkeypatch):
    monkeypatch.setattr("mcpbus.client.yielding.SLICE_SECONDS", 0.0)
    tools = b",".join([b'{"name":"t","inputSchema":{"type":"object"}}'] * 200)
    turns = 0

    async def count():
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with answering(b'{"jsonrpc":"2.0","id":ID,"result":{"tools":[%s]}}' % tools) as client:
        pages = [await client.request_in_rounds("tools/list", {}, None, **ALONE, shallow=True)]
        client.request_in_rounds = lambda *_, **__: taken(pages[0])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(count)
            assert len(await client.list_tools()) == 200
            nursery.cancel_scope.cancel()
    assert turns >= 200


ALONE = {"on_notification": None, "on_input_request": None, "log_level": None}


async def taken(page):
    await trio.lowlevel.checkpoint()
    return page


def test_a_long_message_of_an_error_is_cut():
    """Servers wrote 8 MB, which was there several times in each call that was passed on."""
    read = read_error(ErrorObject(-32000, "x" * 8_000_000))
    assert isinstance(read, ProtocolError)
    assert read.message.endswith("x... (8,000,000 letters)")
    assert len(read.message) < 20_000
    assert read_error(ErrorObject(-32000, "x" * 16_384)).message == "x" * 16_384
