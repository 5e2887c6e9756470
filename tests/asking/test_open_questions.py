"""The questions of one asker that wait: how many they may be, for how long, and what becomes of those that are given up."""

from types import SimpleNamespace

import pytest
import trio

from mcpbus import Elicit, InputTimeoutError, InputUnavailableError, ListRoots
from mcpbus.core.input_requests import MOST_ANSWERS, InputRequestQuota, answered_within
from mcpbus.protocol.revisions import REVISIONS, Era

LEGACY, MODERN = REVISIONS["2025-11-25"], REVISIONS["2026-07-28"]
ROOTS = {"roots": {}}


def some(number):
    return {str(n): ListRoots() for n in range(number)}


def make_services(reached):
    note = lambda *told: reached.append(told)  # noqa: E731
    return SimpleNamespace(
        limits=SimpleNamespace(input_timeout=20.0), limit_monitor=SimpleNamespace(note=note)
    )


@pytest.mark.parametrize(
    ("already", "more", "fits"),
    [
        (0, MOST_ANSWERS, True),
        (0, MOST_ANSWERS + 1, False),
        (MOST_ANSWERS - 1, 1, True),
        (MOST_ANSWERS, 1, False),
    ],
)
def test_there_is_a_bound_to_all_that_wait_at_once(already, more, fits):
    questions = InputRequestQuota()
    with questions.waiting(questions.prepare(some(already), ROOTS, LEGACY), lambda _: None):
        if fits:
            assert len(questions.prepare(some(more), ROOTS, LEGACY).unanswered) == more
        else:
            with pytest.raises(InputUnavailableError, match="at most 1000 questions"):
                questions.prepare(some(more), ROOTS, LEGACY)
    assert questions.prepare(some(MOST_ANSWERS), ROOTS, LEGACY)


@pytest.mark.parametrize("answered", [0, 1, 2])
async def test_what_is_given_up_is_withdrawn_if_it_is_still_open_and_leaves_its_place(answered):
    questions, told = InputRequestQuota(), []
    ask = questions.prepare(some(2), ROOTS, LEGACY)
    with trio.CancelScope() as scope, questions.waiting(ask, told.append):
        assert questions.count == 2
        for key in range(answered):
            ask.answer(str(key), {"roots": []})
        scope.cancel()
        await trio.lowlevel.checkpoint()
    assert questions.count == 0
    assert [withdrawn.ask for withdrawn in told] == ([ask] if answered < 2 else [])


def test_all_that_a_client_would_have_to_declare_is_told_at_once():
    both = {"form": Elicit("?", str), "roots": ListRoots()}
    with pytest.raises(InputUnavailableError) as caught:
        InputRequestQuota().prepare(both, {}, MODERN)
    assert caught.value.data == {"requiredCapabilities": {"elicitation": {"form": {}}, "roots": {}}}


@pytest.mark.parametrize(("given", "seconds", "noted"), [(None, 20, 1), (30, 20, 1), (5, 5, 0)])
async def test_a_legacy_client_has_as_long_as_is_asked_for_and_the_bus_allows(
    given, seconds, noted, autojump_clock
):
    reached, begun = [], trio.current_time()
    bound = answered_within(make_services(reached), "owner", given, Era.LEGACY)
    with pytest.raises(InputTimeoutError, match=f"within {seconds} s"), bound:
        await trio.sleep_forever()
    assert trio.current_time() - begun == seconds
    assert len(reached) == noted


async def test_a_modern_client_has_as_long_as_its_call_is_parked(autojump_clock):
    with answered_within(make_services([]), "owner", 5, Era.MODERN):
        await trio.sleep(1000)


@pytest.mark.parametrize("era", Era)
def test_a_time_that_is_no_number_is_refused_before_anything_is_asked(era):
    with pytest.raises(TypeError, match="timeout is a number, not '5'"):
        answered_within(make_services([]), "owner", "5", era)
