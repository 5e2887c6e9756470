"""Failure 2: behind a load balancer, any replica answers any request."""

import signal

import pytest
import trio

from examples.failures import replicas
from tests.at_home import OWN_PROCESSES

pytestmark = OWN_PROCESSES


async def test_every_request_is_answered_by_whichever_replica_it_reaches():
    with trio.fail_after(60):
        steps = await replicas.demonstrate(lambda _: None)
    assert [step.answer.status for step in steps] == [200] * len(steps)
    calls = [step.answer.text for step in steps if step.what.startswith("tools/call")]
    assert set(calls) == {"a book: ordered at replica A", "a book: ordered at replica B"}
    for first, second in zip(calls[::2], calls[1::2], strict=True):
        assert first != second, "consecutive calls of one client reach different replicas"


async def test_progress_comes_with_the_answer_of_whichever_replica():
    with trio.fail_after(60):
        steps = await replicas.demonstrate(lambda _: None)
    for step in steps:
        if step.what.startswith("tools/call"):
            methods = [message.get("method") for message in step.answer.messages]
            assert methods == ["notifications/progress", None], step.what


async def test_no_session_is_promised():
    with trio.fail_after(60):
        steps = await replicas.demonstrate(lambda _: None)
    assert "mcp-session-id" not in steps[0].answer.headers
    capabilities = steps[0].answer.result["capabilities"]
    assert "logging" not in capabilities
    assert "listChanged" not in capabilities["tools"]


async def test_with_sessions_the_script_does_meet_the_failure():
    with trio.fail_after(60):
        steps = await replicas.demonstrate(lambda _: None, sessions="sessionful")
    assert 404 in [step.answer.status for step in steps]


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="workers need Unix sockets")
async def test_a_session_outlives_the_process_that_has_it():
    shown = []
    with trio.fail_after(60):
        steps = await replicas.outlive(shown.append)
    assert [step.answer.status for step in steps] == [200, 200]
    assert [step.answer.text for step in steps] == [
        f"a {what}: ordered at replicas" for what in ("book", "pen")
    ]
    assert "is killed" in shown[2]
