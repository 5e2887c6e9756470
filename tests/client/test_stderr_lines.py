"""The standard error of programs, line by line."""

import logging
import sys

import pytest
import trio
from trio.testing import memory_stream_one_way_pair

from mcpbus.client import ClientError, connect_process
from mcpbus.client.stderr_lines import BURST_LINES, LINES_A_SECOND, LONGEST_LINE, StderrLines


async def lines_of(*pieces, seconds=0.0):
    """Return what is passed on of pieces that come some seconds apart."""
    lines = []
    sender, receiver = memory_stream_one_way_pair()
    reader = StderrLines("files", lines.append)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reader.read, receiver)
        for piece in pieces:
            await sender.send_all(piece)
            await trio.sleep(seconds)
        await sender.aclose()
    assert reader.ended.is_set()
    return lines


@pytest.mark.parametrize(
    ("pieces", "lines"),
    [
        ([b"one\ntwo\n"], ["one", "two"]),
        ([b"on", b"e\r\ntw", b"o"], ["one", "two"]),
        ([b"\n\n  \nx\n"], ["x"]),
        ([b"\x1b[2J\x07red\x9b\n"], ["\\x1b[2J\\x07red\N{REPLACEMENT CHARACTER}"]),
        (["\u202eabc\u2028d\x85e\n".encode()], ["\\u202eabc\\u2028d\\x85e"]),
        (["caf\xe9 \u5b57\n".encode()], ["caf\xe9 \u5b57"]),
        ([b"\xff\xfe\n"], ["\N{REPLACEMENT CHARACTER}" * 2]),
        ([b"a\rb\n"], ["a\\rb"]),
        ([b"a" * (LONGEST_LINE + 1), b"b" * 100_000, b"\nc\n"], ["a" * LONGEST_LINE + " ...", "c"]),
    ],
)
async def test_lines_are_safe_to_show_and_not_too_long(pieces, lines, autojump_clock):
    assert await lines_of(*pieces) == lines


async def test_of_a_flood_a_few_lines_a_second_are_passed_on_and_the_others_are_counted(autojump_clock):
    lines = await lines_of(*[b"x\n" * 10_000] * 10, seconds=1.0)
    passed_on = [line for line in lines if line == "x"]
    assert BURST_LINES <= len(passed_on) <= BURST_LINES + 11 * LINES_A_SECOND
    left_out = [int(line.split()[0][1:].replace(",", "")) for line in lines if line != "x"]
    assert sum(left_out) + len(passed_on) == 100_000
    assert len(left_out) <= 11


async def test_a_flood_slows_its_program_down(autojump_clock):
    began = trio.current_time()
    await lines_of(*[b"x\n" * 30_000] * 100)
    assert trio.current_time() - began >= 0.9


FLOOD = """
import sys
sys.stderr.write("starting\\x1b]0;title\\x07\\n")
sys.stderr.flush()
raise SystemExit("no such module")
"""


async def test_lines_of_a_program_are_logged_with_its_name_and_its_last_one_is_in_the_error(caplog):
    caplog.set_level(logging.INFO, "mcpbus.stderr")
    with pytest.raises(ClientError, match="ended with status 1 before it answered: no such module"):
        async with connect_process([sys.executable, "-c", FLOOD]):
            pass
    logged = [each.getMessage() for each in caplog.records if each.name == "mcpbus.stderr"]
    assert logged == [f"{sys.executable}: starting\\x1b]0;title\\x07", f"{sys.executable}: no such module"]


async def test_a_function_may_take_the_lines_instead(caplog):
    lines = []
    caplog.set_level(logging.INFO)
    with pytest.raises(ClientError):
        async with connect_process([sys.executable, "-c", FLOOD], on_stderr=lines.append):
            pass
    assert lines == ["starting\\x1b]0;title\\x07", "no such module"]
    assert "mcpbus.stderr" not in {each.name for each in caplog.records}
