"""Who has to know which resources clients want to hear of, since it hears of them elsewhere."""

from collections.abc import Awaitable, Callable, Collection
from typing import Protocol, TypeAlias

UntilHeard: TypeAlias = Callable[[], Awaitable[None]]
"""Waits until changes are heard of. It ends in time by itself, and raises nothing."""


class UriWatcher(Protocol):
    """See the module."""

    @property
    def watches(self) -> bool:
        """Whether it has to know: what only passes it on may have nobody who does."""

    def watched(self, uri: str, wanted: bool, /) -> None:
        """Hear that somebody has subscribed to a URI, or that nobody wants to hear of it any more."""

    def hearing(self, uris: Collection[str], /) -> list[UntilHeard]:
        """What to wait for until changes of these, as far as they are its own, are heard of."""
