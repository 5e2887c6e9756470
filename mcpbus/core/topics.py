"""Who wants to hear of which change: an index from lists, resources and tasks to actors."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Final

from mcpbus_actors import Address

from mcpbus.core.subscriber import Subscriber
from mcpbus.protocol.uris import canonical_uri

_Address = Address[object]
_ENTRY_BYTES: Final = 512
"""Of an interest beside its URI: entries of a set and of two dictionaries."""


def covering(uri: str) -> Iterator[str]:
    """Yield the URIs whose subscribers hear of `uri`: itself, then all that it lies below, with and without "/".

    All are canonical.
    """
    uri = canonical_uri(uri)
    yield uri
    end = len(uri)
    while (end := uri.rfind("/", 1, end)) != -1:
        if uri[end - 1] in ":/":
            # What is left is a scheme, or the scheme and the slashes of its authority.
            return
        if end + 1 < len(uri):
            yield uri[: end + 1]
        yield uri[:end]


def covers(subscribed: Iterable[str], uri: str) -> bool:
    """Return whether a subscriber to these canonical URIs hears of `uri`."""
    return any(candidate in subscribed for candidate in covering(uri))


def weigh_uri(uri: str) -> int:
    """Return how many bytes it takes to keep somebody's interest in a resource, roughly."""
    canonical = canonical_uri(uri)
    return len(uri) + (len(canonical) if canonical != uri else 0) + _ENTRY_BYTES


class Topics:
    """Actors by the lists, the resources and the tasks that they want to hear of."""

    __slots__ = ("_keys", "_lists", "_owners", "_spellings", "_tasks", "_uris", "on_watched")

    def __init__(self) -> None:
        self.on_watched: Callable[[str, Hashable, bool], object] | None = None
        """Called with a resource and an owner when that owner's first actor subscribes to it, and when its last one does no more."""
        self._lists: dict[str, dict[_Address, None]] = {}
        self._uris: dict[str, dict[_Address, Hashable]] = {}
        # How the first subscriber spelled each.
        self._spellings: dict[str, str] = {}
        # How many actors of an owner subscribe to a resource.
        self._owners: Counter[tuple[str, Hashable]] = Counter()
        self._tasks: dict[str, dict[_Address, None]] = {}
        self._keys: dict[_Address, Hashable] = {}

    def add(
        self,
        address: _Address,
        *,
        lists: Iterable[str] = (),
        uris: Iterable[str] = (),
        tasks: Iterable[str] = (),
        key: Hashable = None,
        owner: Hashable = None,
    ) -> None:
        """Enter an actor's interest in some lists, resources and tasks.

        Args:
            address: The actor.
            lists: The lists.
            uris: The resources.
            tasks: The tasks.
            key: By which it can be found as one of its client's, if that is of use.
            owner: The client to which its subscriptions are counted.
        """
        if key is not None:
            self._keys[address] = key
        for kind in lists:
            self._lists.setdefault(kind, {})[address] = None
        for uri in uris:
            canonical = canonical_uri(uri)
            interested = self._uris.get(canonical)
            if interested is None:
                interested = self._uris[canonical] = {}
                self._spellings[canonical] = uri
            if address not in interested:
                interested[address] = owner
                self._owners[canonical, owner] += 1
                if self._owners[canonical, owner] == 1:
                    self._tell_watched(self._spellings[canonical], owner, True)
        for task_id in tasks:
            self._tasks.setdefault(task_id, {})[address] = None

    def remove(
        self,
        address: _Address,
        *,
        lists: Iterable[str] = (),
        uris: Iterable[str] = (),
        tasks: Iterable[str] = (),
    ) -> None:
        """Take back an actor's interest. Harmless where there is none."""
        self._keys.pop(address, None)
        for index, keys in ((self._lists, lists), (self._tasks, tasks)):
            for key in keys:
                interested = index.get(key)
                if interested is not None:
                    interested.pop(address, None)
                    if not interested:
                        del index[key]
        for uri in uris:
            self._remove_uri(address, canonical_uri(uri))

    def _remove_uri(self, address: _Address, canonical: str) -> None:
        subscribed = self._uris.get(canonical, {})
        if address not in subscribed:
            return
        owner = subscribed.pop(address)
        spelling = self._spellings[canonical]
        if not subscribed:
            del self._uris[canonical], self._spellings[canonical]
        self._owners[canonical, owner] -= 1
        if not self._owners[canonical, owner]:
            del self._owners[canonical, owner]
            self._tell_watched(spelling, owner, False)

    def _tell_watched(self, uri: str, owner: Hashable, wanted: bool) -> None:
        if self.on_watched is not None:
            self.on_watched(uri, owner, wanted)

    def key_of(self, address: _Address) -> Hashable:
        """Return the key with which an actor's interest was entered."""
        return self._keys.get(address)

    @property
    def uris(self) -> list[str]:
        """The resources that have subscribers, each as its first subscriber spelled it."""
        return list(self._spellings.values())

    @property
    def subscriptions(self) -> list[tuple[str, Hashable]]:
        """The resources that have subscribers, as the first subscriber spelled each, with every owner of a subscription to it."""
        return [(self._spellings[canonical], owner) for canonical, owner in self._owners]

    def in_list(self, kind: str) -> list[_Address]:
        """Return who wants to hear of changes of one list."""
        return list(self._lists.get(kind, ()))

    def in_uri(self, uri: str) -> list[_Address]:
        """Return who wants to hear of `uri`, each once."""
        found: dict[_Address, None] = {}
        for candidate in covering(uri):
            found.update(dict.fromkeys(self._uris.get(candidate, ())))
        return list(found)

    def in_uri_of(self, key: Hashable, uri: str) -> list[_Address]:
        """Return which of a client's actors want to hear of `uri`, by its `Subscriber.key`."""
        found: dict[_Address, None] = {}
        for candidate in covering(uri):
            for address, owner in self._uris.get(candidate, {}).items():
                if isinstance(owner, Subscriber) and key == owner.key:
                    found[address] = None
        return list(found)

    def in_task(self, task_id: str) -> list[_Address]:
        """Return who wants to hear of one task."""
        return list(self._tasks.get(task_id, ()))

    def __len__(self) -> int:
        return sum(
            len(interested)
            for index in (self._lists, self._uris, self._tasks)
            for interested in index.values()
        )
