"""An answer that its client may not take at once: it is in the books once, and counted for as long as it waits."""

from types import SimpleNamespace

import pytest

from mcpbus.core.limit_monitor import LimitMonitor
from mcpbus.core.memory_budget import MemoryBudget
from mcpbus.core.receipt import DELIVERED, LOST
from mcpbus.protocol.http.messages import HttpResponse
from mcpbus.protocol.principals import LOCAL
from mcpbus.serving.unsent_response import UnsentResponse

ANSWER = HttpResponse(200, [], b"long")


def make_endpoint(books, limit=10**6, *, enters=True):
    """Whoever serves; the books tell what was entered, and what has become of it."""
    entry = SimpleNamespace(settle=lambda fate: books.append(("settled", fate)))

    def record_response(answer):
        books.append(("entered", answer))
        return entry if enters else None

    return SimpleNamespace(
        record_response=record_response,
        record=lambda answer, fate: books.append(("recorded", answer, fate)),
        budget=MemoryBudget(limit, LimitMonitor()),
    )


@pytest.mark.parametrize(("whole", "fate"), [(True, DELIVERED), (False, LOST)])
def test_one_that_had_not_to_wait_is_entered_with_what_has_become_of_it(whole, fate):
    books = []
    held = UnsentResponse(ANSWER, make_endpoint(books))
    held.sent(whole)
    held.sent(not whole)
    assert books == [("recorded", ANSWER, fate)]


@pytest.mark.parametrize("enters", [True, False])
@pytest.mark.parametrize(("whole", "fate"), [(True, DELIVERED), (False, LOST)])
def test_one_that_waits_is_counted_until_it_is_known_what_has_become_of_it(whole, fate, enters):
    books = []
    endpoint = make_endpoint(books, enters=enters)
    held = UnsentResponse(ANSWER, endpoint)
    held.hold(1000, lambda: None, LOCAL)
    assert ([account.owner for account in endpoint.budget.accounts()], endpoint.budget.held) == (
        [LOCAL],
        1000,
    )
    held.sent(whole)
    held.sent(not whole)
    assert books == [("entered", ANSWER), *([("settled", fate)] if enters else [])]
    assert endpoint.budget.held == 0


async def test_one_for_which_there_is_no_room_may_be_lost_while_it_is_counted():
    books = []
    endpoint = make_endpoint(books, limit=999)
    held = UnsentResponse(ANSWER, endpoint)
    held.hold(1000, lambda: held.sent(False), LOCAL)
    assert books == [("entered", ANSWER), ("settled", LOST)]
    assert (endpoint.budget.held, endpoint.budget.full) == (0, False)
