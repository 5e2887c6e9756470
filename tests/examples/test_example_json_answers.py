"""Failure 3: a notification either has a way to the client, or its sender and the books know that it has none."""

import pytest
import trio

from examples.failures import json_answers
from mcpbus import Reason


@pytest.mark.parametrize("response", ["auto", "sse"])
async def test_an_answer_becomes_a_stream_at_the_first_notification(response):
    with trio.fail_after(60):
        outcome = await json_answers.demonstrate(lambda _: None, response=response)
    assert outcome.answer.streamed
    reports = [message["params"]["message"] for message in outcome.answer.messages[:-1]]
    assert reports == ["a.txt", "b.txt", "c.txt"]
    assert outcome.answer.text == "indexed 3"
    assert outcome.discarded == {}


async def test_where_json_is_forced_each_report_is_discarded_and_the_tool_knows():
    with trio.fail_after(60):
        outcome = await json_answers.demonstrate(lambda _: None, response="json")
    assert not outcome.answer.streamed
    assert len(outcome.answer.messages) == 1
    assert outcome.answer.text == f"indexed 3; 3 reports not sent: {Reason.NO_STREAM.value}"
    assert outcome.discarded == {Reason.NO_STREAM: 3}
