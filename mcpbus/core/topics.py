"""Who wants to hear of which change: an index from lists, resources and tasks to actors."""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from typing import Final

from mcpbus_actors import Address

from mcpbus.core.subscriber import Subscriber
from mcpbus.protocol.uris import UriSet, canonical_uri

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
    return weigh_names([uri]) + weigh_canonical(UriSet([uri]))


def weigh_names(names: Collection[str]) -> int:
    """Return roughly how many bytes an interest in these URIs or tasks takes, without the canonical forms of URIs."""
    return sum(map(len, names)) + _ENTRY_BYTES * len(names)


def weigh_canonical(uris: UriSet) -> int:
    """Return how many bytes those canonical forms take that are no spelling."""
    return sum(len(canonical) for canonical, uri in uris.spellings.items() if canonical != uri)


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
        # The number of an owner's actors that subscribe to each resource.
        self._owners: dict[Hashable, dict[str, int]] = {}
        self._tasks: dict[str, dict[_Address, None]] = {}
        self._keys: dict[_Address, Hashable] = {}

    def add(
        self,
        address: _Address,
        *,
        lists: Iterable[str] = (),
        uris: Collection[str] = (),
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
        if uris:
            self._add_uris(address, _uri_set(uris), owner)
        for task_id in tasks:
            self._tasks.setdefault(task_id, {})[address] = None

    def _add_uris(self, address: _Address, uris: UriSet, owner: Hashable) -> None:
        # A listen may name a thousand resources, so a step of this loop hashes no owner.
        counts, new = self._owners.setdefault(owner, {}), []
        for canonical, uri in uris.spellings.items():
            interested = self._uris.get(canonical)
            if interested is None:
                interested = self._uris[canonical] = {}
                self._spellings[canonical] = uri
            elif address in interested:
                continue
            interested[address] = owner
            count = counts[canonical] = counts.get(canonical, 0) + 1
            if count == 1:
                new.append(self._spellings[canonical])
        if not counts:
            del self._owners[owner]
        for uri in new if self.on_watched is not None else ():
            self._tell_watched(uri, owner, True)

    def remove(
        self,
        address: _Address,
        *,
        lists: Iterable[str] = (),
        uris: Collection[str] = (),
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
        if uris:
            self._remove_uris(address, _uri_set(uris))

    def _remove_uris(self, address: _Address, uris: UriSet) -> None:
        last: Hashable = None
        counts: dict[str, int] = {}
        old = []
        for canonical in uris.canonical:
            interested = self._uris.get(canonical)
            if interested is None or address not in interested:
                continue
            owner = interested.pop(address)
            if owner is not last or not counts:
                last, counts = owner, self._owners[owner]
            count = counts[canonical] = counts[canonical] - 1
            if not count:
                del counts[canonical]
                old.append((self._spellings[canonical], owner))
                if not counts:
                    del self._owners[owner]
            if not interested:
                del self._uris[canonical], self._spellings[canonical]
        for uri, owner in old if self.on_watched is not None else ():
            self._tell_watched(uri, owner, False)

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
        return [
            (self._spellings[canonical], owner)
            for owner, counts in self._owners.items()
            for canonical in counts
        ]

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


def _uri_set(uris: Collection[str]) -> UriSet:
    return uris if isinstance(uris, UriSet) else UriSet(uris)
