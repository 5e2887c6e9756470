"""That the books of several processes are reckoned in sum, and with those that were killed."""

import attrs
import pytest
from chaos_books import Books, faults

MADE = Books(emitted=5, delivered=5)
WHOLE = {1: attrs.evolve(MADE, emitted=7, moved=2), 2: Books(adopted=2, delivered=2)}
KILLED = {1: Books(emitted=7, delivered=4, pending=3), 2: MADE}
TOLD = {1: attrs.evolve(MADE, told=2), 2: Books(adopted=2, delivered=2)}


@pytest.mark.parametrize(
    ("books", "killed"),
    [
        (WHOLE, ()),
        (WHOLE | {3: Books()}, ()),
        (TOLD, ()),
        (TOLD | {2: MADE}, ()),  # what was told did not arrive
        (KILLED, {1}),
        (KILLED | {2: Books(adopted=3, delivered=3)}, {1, 4}),
    ],
    ids=["handed over", "one that did nothing", "told", "told and lost", "lost with it", "kept after it"],
)
def test_books_that_balance(books, killed):
    assert faults(books, killed) == []


@pytest.mark.parametrize(
    ("books", "killed", "fault"),
    [
        (WHOLE | {2: Books(adopted=2, delivered=3)}, (), "do not balance"),
        (KILLED | {1: Books(emitted=7, delivered=5, pending=3)}, {1}, "do not balance"),
        (KILLED, (), "have no fate"),
        (WHOLE | {2: MADE}, (), "0 messages were adopted, where 2 were handed over"),
        (WHOLE | {2: Books(adopted=3, delivered=3)}, (), "3 messages were adopted, where 2 were handed over"),
        (TOLD | {2: Books(adopted=3, delivered=3)}, (), "3 messages were adopted"),
        (KILLED | {2: Books(adopted=4, delivered=4)}, {1}, "3 had those that were killed"),
    ],
    ids=[
        "one is missing",
        "one is missing where nobody lives",
        "one is nowhere",
        "one is handed over to nobody",
        "one is handed over twice",
        "one is told twice",
        "one is kept twice",
    ],
)
def test_books_that_do_not(books, killed, fault):
    (found,) = faults(books, killed)
    assert fault in found
