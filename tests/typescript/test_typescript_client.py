"""The official TypeScript client and the bus, in every revision that it speaks, over each transport.

The scenarios are programs of the client; each has its own connection. What they find wrong they say in words.
"""

import functools
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trio

from mcpbus.stores import MemoryEventStore
from tests.interop.running_workers import workers
from tests.npm import NODE, ROOT, install
from tests.typescript.asking_server import make_server

HERE = Path(__file__).parent
LEGACY = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN = ("2026-07-28",)
RESUMABLE = ("2025-11-25",)
ALL = LEGACY + MODERN
ELICITING = ("2025-06-18", "2025-11-25", *MODERN)
EVERYWHERE = ("http", "sse", "stdio")
DEADLINE = 600

# What is run where: in these revisions, over these transports. HTTP+SSE is a transport of legacy revisions alone; workers are
# several processes that serve Streamable HTTP.
SCENARIOS = {
    "handshake": (ALL, EVERYWHERE),
    "negotiation": (MODERN, EVERYWHERE),
    "unknown_revision": (RESUMABLE, EVERYWHERE),
    "pages_of_tools": (ALL, EVERYWHERE),
    "structured_output": (ALL, EVERYWHERE),
    "media": (ALL, EVERYWHERE),
    "failing_tools": (ALL, EVERYWHERE),
    "wrong_calls": (ALL, EVERYWHERE),
    "unknown_method": (ALL, EVERYWHERE),
    "mirrored_argument": (ALL, EVERYWHERE),
    "mirrored_argument_unlisted": (MODERN, EVERYWHERE),
    "resources": (ALL, EVERYWHERE),
    "prompts": (ALL, EVERYWHERE),
    "completion": (ALL[1:], EVERYWHERE),
    "ping": (ALL, EVERYWHERE),
    "live_progress_and_logs": (ALL, EVERYWHERE),
    "no_logs_unasked": (MODERN, EVERYWHERE),
    "cancellation": (ALL, EVERYWHERE),
    "request_timeout": (ALL, EVERYWHERE),
    "list_changes": (ALL, EVERYWHERE),
    "resource_updates": (ALL, EVERYWHERE),
    "roots_list_changed": (LEGACY, EVERYWHERE),
    "server_closes_stream": (RESUMABLE, ("http",)),
    "streams_break": (RESUMABLE, ("http",)),
    "get_stream_breaks": (RESUMABLE, ("http",)),
    "resumed_by_another_client": (RESUMABLE, ("http",)),
    "cancelled_call_ends_its_stream": (RESUMABLE, ("http",)),
    "unknown_event": (RESUMABLE, ("http",)),
    "ended_session": (LEGACY, ("http",)),
    "elicitation": (ALL, EVERYWHERE),
    "elicitation_with_defaults": (ELICITING, EVERYWHERE),
    "elicitation_by_url": (ALL, EVERYWHERE),
    "sampling": (ALL, EVERYWHERE),
    "sampling_with_tools": (ALL, EVERYWHERE),
    "roots": (ALL, EVERYWHERE),
    "questions_at_once": (ELICITING, EVERYWHERE),
    "asking_prompts_and_resources": (ELICITING, EVERYWHERE),
    "undeclared": (ALL, EVERYWHERE),
    "wrong_answer": (ELICITING, EVERYWHERE),
    "refused_answer": (ALL, EVERYWHERE),
    "cancelled_question": (ELICITING, EVERYWHERE),
    "owner_dies": (RESUMABLE, ("workers",)),
}


def chosen(transport: str, revision: str) -> list[str]:
    """Return the scenarios for a transport and revision."""
    if transport == "sse" and revision in MODERN:
        return []
    return [
        name
        for name, (revisions, transports) in SCENARIOS.items()
        if revision in revisions and transport in transports
    ]


CASES = [
    (transport, revision, scenario)
    for transport in (*EVERYWHERE, "workers")
    for revision in ALL
    for scenario in chosen(transport, revision)
]


@functools.cache
def faults(transport: str, revision: str) -> dict[str, str | None]:
    """Run all scenarios for a transport and revision against a new server; return what each found wrong."""
    said = trio.run(_drive, transport, revision)
    return {report["scenario"]: report["fault"] for report in map(json.loads, said.splitlines())}


async def _drive(transport: str, revision: str) -> str:
    names = ",".join(chosen(transport, revision))
    if transport == "stdio":
        return await _node(transport, revision, names, sys.executable, "-m", "tests.typescript.asking_server")
    if transport == "workers":
        async with workers(3) as url:
            return await _node("http", revision, names, url)
    async with trio.open_nursery() as nursery:
        [url] = await nursery.start(_serve)
        said = await _node(transport, revision, names, url)
        nursery.cancel_scope.cancel()
    return said


async def _serve(task_status: trio.TaskStatus[Sequence[str]]) -> None:
    await make_server().serve(bind="127.0.0.1:0", event_store=MemoryEventStore(), task_status=task_status)


async def _node(*arguments: Any) -> str:
    driver = install(HERE) / "drive.mjs"
    with trio.fail_after(DEADLINE):
        ended = await trio.run_process(
            [NODE, driver, *arguments],
            capture_stdout=True,
            env={**os.environ, "PYTHONPATH": str(ROOT), "NO_PROXY": "127.0.0.1"},
            cwd=ROOT,
        )
    return ended.stdout.decode()


@pytest.mark.parametrize(
    ("transport", "revision", "scenario"),
    # Where tests run side by side, those of one server are run by one process.
    [pytest.param(*case, marks=pytest.mark.xdist_group("-".join(case[:2]))) for case in CASES],
)
def test_the_client_finds_nothing_wrong(transport: str, revision: str, scenario: str) -> None:
    found = faults(transport, revision)
    assert scenario in found, f"the client ended before this scenario, after {list(found)}"
    assert found[scenario] is None, found[scenario]


def test_every_scenario_is_run_somewhere() -> None:
    driver = install(HERE) / "drive.mjs"
    listed = subprocess.run([NODE, driver, "scenarios"], capture_output=True, check=True)
    assert set(json.loads(listed.stdout)) == set(SCENARIOS) == {scenario for *_, scenario in CASES}
