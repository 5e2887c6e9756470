"""What is remembered from its second time on: what comes once takes no room, and of too many the first is forgotten."""

from mcpbus.protocol.recurring_cache import RecurringCache


def test_what_comes_once_is_not_remembered_and_what_comes_again_is():
    cache = RecurringCache(2)
    cache.keep("a", 1)
    assert "a" not in cache
    cache.keep("a", 1)
    assert cache == {"a": 1}


def test_what_comes_once_puts_nothing_out():
    cache = RecurringCache(2)
    for _ in range(2):
        cache.keep("a", 1)
    for number in range(100):
        cache.keep(number, number)
    assert cache == {"a": 1}


def test_the_first_is_forgotten_when_there_are_too_many():
    cache = RecurringCache(2)
    for key in "abc":
        for _ in range(2):
            cache.keep(key, key.upper())
    assert cache == {"b": "B", "c": "C"}


def test_that_something_was_seen_is_forgotten_after_as_many_others():
    cache = RecurringCache(2)
    for key in ("a", "b", "c", "a", "b"):
        cache.keep(key, 1)
    assert not cache
    cache.keep("b", 1)
    assert cache == {"b": 1}
