"""The second acts of the examples: each failure on the server's own transport, and its cure."""

import subprocess
import sys
from pathlib import Path

import pytest
import trio

ROOT = Path(__file__).parents[2]
SEPARATOR = "hosted by mcpbus:"


@pytest.fixture(scope="module")
def acts():
    """What each program shows before and after; all of them run at once."""
    shown = {}

    async def run(name):
        command = [sys.executable, "-W", "ignore", "-m", f"examples.hosted.{name}"]
        done = await trio.run_process(command, cwd=ROOT, capture_stdout=True, stderr=subprocess.DEVNULL)
        lines = [line.partition(" s  ")[2].strip() for line in done.stdout.decode().splitlines()]
        middle = lines.index(SEPARATOR)
        shown[name] = lines[1:middle], lines[middle + 1 :]

    async def run_all():
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                for name in ("transports", "register", "live"):
                    nursery.start_soon(run, name)

    trio.run(run_all)
    return shown


def test_log_lines_without_a_related_request_id(acts):
    before, after = acts["transports"]
    assert before == ["a.do: done"]
    assert after == [f"a.do: . regress y x{line}" for line in (1, 2, 3)] + before


def test_announcements_before_the_get_stream(acts):
    assert acts["register"] == (
        ["0 announcements"],
        ["notifications/tools/list_changed", "1 announcements"],
    )


def test_log_lines_of_a_slow_script(acts):
    before, after = (
        [float(line.split(" after ")[1].removesuffix(" s")) for line in lines] for lines in acts["live"]
    )
    assert len(before) == len(after) == 5
    assert before[0] > 0.8, "the head comes at the end of the script"
    assert after[1] < after[-1] - 0.7, "the first line comes long before the result"
