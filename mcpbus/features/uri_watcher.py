"""Who has to know which resources clients want to hear of, since it hears of them elsewhere."""

from collections.abc import Awaitable, Callable, Collection, Hashable
from typing import Protocol, TypeAlias

UntilHeard: TypeAlias = Callable[[], Awaitable[None]]
"""Waits until changes are heard of. It ends in time by itself, and raises nothing."""


class SubscriptionListener(Protocol):
    """See the module."""

    @property
    def watches(self) -> bool:
        """Whether it has to know: what only passes it on may have nobody who does."""

    def watched(self, uri: str, owner: Hashable, wanted: bool, /) -> None:
        """Note that an owner has subscribed to a URI, or does no more."""

    def hearing(self, uris: Collection[str], key: Hashable, /) -> list[UntilHeard]:
        """What to wait for until changes of these, as far as they are its own, are heard of."""
