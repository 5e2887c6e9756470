"""Failure 4: tools may be added at any time, and no announcement of them ever enters an answer."""

import pytest
import trio

from examples.failures import register
from examples.failures.stage import serving
from tests.at_home import OWN_PROCESSES

pytestmark = OWN_PROCESSES


@pytest.fixture
async def seen():
    with trio.fail_after(30):
        async with serving(register.server) as (bus, url):
            yield await register.script(bus, url, show=lambda _: None)


async def test_tools_added_while_registering_are_there_at_once(seen):
    assert [tool["name"] for tool in seen.listed.result["tools"]] == list(register.UPSTREAM_TOOLS)


async def test_each_answer_is_its_own_reply_and_nothing_else(seen):
    for answer in (seen.registered, seen.listed, seen.called):
        assert answer.status == 200
        assert len(answer.messages) == 1
        assert "result" in answer.messages[0]
    assert seen.called.text == "the answer to 'Oslo'"


async def test_a_thousand_changes_that_nobody_hears_take_the_room_of_one(seen):
    assert seen.held == 1


async def test_tools_added_while_registering_announce_nothing(seen):
    # Had they announced anything, it would be among what was superseded.
    assert seen.superseded == register.MORE - 1


async def test_the_get_stream_brings_one_announcement_for_all_that_was_missed(seen):
    assert [message["method"] for message in seen.announced] == ["notifications/tools/list_changed"] * 2
