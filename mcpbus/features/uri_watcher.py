"""Who has to know which resources clients want to hear of, since it hears of them elsewhere."""

from collections.abc import Collection
from typing import Protocol


class UriWatcher(Protocol):
    """See the module."""

    @property
    def watches(self) -> bool:
        """Whether it has to know: what only passes it on may have nobody who does."""

    def watched(self, uri: str, wanted: bool, /) -> None:
        """Hear that somebody has subscribed to a URI, or that nobody wants to hear of it any more."""

    async def until_heard(self, uris: Collection[str], /) -> None:
        """Wait until changes of these, as far as they are its own, are heard of. It ends in time by itself, and raises nothing."""
