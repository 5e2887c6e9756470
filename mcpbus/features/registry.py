"""What a server offers, by name: unique, in the order of registration, with what was encoded kept until a change.

A registry may be laid over another one. Its own items then stand before those of the same name underneath, which
stay what they are for everybody else: so a session has tools of its own.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from itertools import count
from operator import attrgetter
from typing import Generic, TypeVar

import msgspec

from mcpbus.features.errors import RegistrationError
from mcpbus.protocol.uris import canonical_uri

# Encoded pages kept per registry: revisions x pages x sets of visible items. Beyond it the oldest half goes, so that
# neither a server with a view for each principal nor a client that walks through cursors can fill the memory.
_KEPT_PAGES = 256

# The first position of what only one client has: behind all that is ever registered, and the same from page to page.
_LATE = 1 << 40

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class RegistryEntry(msgspec.Struct, Generic[T_co], frozen=True):
    """One registered item."""

    position: int
    """Grows from registration to registration and is never used again: what a page of a list ends at."""
    key: str
    item: T_co


class ItemRegistry(Generic[T]):
    """Items of one kind by key.

    Args:
        noun: what messages call one item, such as ``tool``.
        changed: called after each addition and removal.
        base: the registry underneath, or None.
    """

    __slots__ = (
        "_aside",
        "_base",
        "_changed",
        "_entries",
        "_hidden",
        "_kept",
        "_kept_of",
        "_noun",
        "_positions",
        "_used",
        "_version",
    )

    def __init__(self, noun: str, changed: Callable[[], None], base: "ItemRegistry[T] | None" = None) -> None:
        self._noun = noun
        self._changed = changed
        self._base = base
        self._entries: dict[str, RegistryEntry[T]] = {}
        self._aside: dict[str, RegistryEntry[T]] = {}
        self._hidden: frozenset[str] = frozenset()
        self._positions: count[int] = count(1) if base is None else base._positions  # noqa: SLF001  # its own kind
        self._used = False
        self._version = 0
        self._kept: dict[Hashable, bytes] = {}
        self._kept_of = 0

    @property
    def used(self) -> bool:
        """Whether anything was ever registered: what was once offered stays offered, if only as an empty list."""
        return self._used or (self._base is not None and self._base.used)

    @property
    def version(self) -> int:
        """Grows with each change, here and underneath."""
        return self._version + (0 if self._base is None else self._base.version)

    def place(self, key: str) -> str:
        """Return the form that all spellings of a key share."""
        return key

    def add(self, key: str, item: T) -> None:
        """Register `item`.

        Raises:
            RegistrationError: the key is taken.
        """
        self.check_free(key)
        self.replace((), {key: item})

    def check_free(self, key: str) -> None:
        """Refuse a key that is taken.

        Raises:
            RegistrationError: it is.
        """
        place = self.place(key)
        taken = self._entries.get(place) or self._aside.get(place)
        if taken is not None:
            spelled = "" if taken.key == key else f" as {taken.key!r}"
            raise RegistrationError(
                f"{self._noun} {key!r} is registered already{spelled}; give this one another name, or remove the other first"
            )

    def replace(self, gone: Iterable[str], new: Mapping[str, T]) -> None:
        """Take some items out, as far as they are there, and register others, whose keys are free; all in one change."""
        places = map(self.place, gone)
        removed = [self._entries.pop(place, None) or self._aside.pop(place, None) for place in places]
        for key, item in new.items():
            self._entries[self.place(key)] = RegistryEntry(next(self._positions), key, item)
            self._used = True
        if new or any(removed):
            self._note_change()

    def remove(self, key: str) -> T:
        """Take out what is registered under `key`, and return it.

        Raises:
            RegistrationError: nothing is, or only underneath.
        """
        place = self.place(key)
        if place in self._aside:
            return self._aside.pop(place).item  # nobody saw it
        self.check(key)
        entry = self._entries.pop(place)
        self._note_change()
        return entry.item

    def check(self, key: str) -> None:
        """Refuse a key under which nothing is registered, or only underneath.

        Raises:
            RegistrationError: the message says what there is.
        """
        place = self.place(key)
        if place not in self._entries and place not in self._aside:
            there = (*self._entries.values(), *self._aside.values())
            raise self.unknown(key, [entry.key for entry in there])

    def unknown(self, key: str, known: Iterable[str]) -> RegistrationError:
        """Return what to raise about a key that is not among those that are known."""
        there = ", ".join(known) or "none"
        return RegistrationError(f"{self._noun} {key!r} is not registered here; there is {there}")

    def registered(self) -> dict[str, T]:
        """All items that were registered, here or underneath, those that are put aside included; by key."""
        found = {} if self._base is None else self._base.registered()
        found.update((entry.key, entry.item) for entry in (*self._entries.values(), *self._aside.values()))
        return found

    def put_aside(self, keys: Iterable[str]) -> None:
        """Keep items where nobody sees them who looks here; to everybody else it is as if they were not there."""
        places = tuple(map(self.place, keys))
        self._move(places, self._entries, self._aside, self._hidden.union(places))

    def aside(self, keys: Iterable[str]) -> list[str]:
        """Tell which of these are put aside."""
        return [key for key in keys if self.place(key) in self._aside]

    def bring_back(self, keys: Iterable[str]) -> None:
        """Put items that were put aside here back into their places."""
        places = tuple(map(self.place, keys))
        self._move(places, self._aside, self._entries, self._hidden.difference(places))

    def _move(
        self,
        places: Iterable[str],
        here: dict[str, RegistryEntry[T]],
        there: dict[str, RegistryEntry[T]],
        hidden: frozenset[str],
    ) -> None:
        moved = [here.pop(place) for place in places if place in here]
        there.update((self.place(entry.key), entry) for entry in moved)
        changed = bool(moved)
        if self._base is not None:
            changed = changed or hidden != self._hidden
            self._hidden = hidden
        if changed:
            self._entries = dict(sorted(self._entries.items(), key=lambda pair: pair[1].position))
            self._note_change()

    def get(self, key: str) -> T | None:
        """The item of this key, or None."""
        entry = self._entries.get(key)
        if entry is not None:
            return entry.item
        return None if self._base is None or key in self._hidden else self._base.get(key)

    def entries(self) -> list[RegistryEntry[T]]:
        """What there is, in the order of registration."""
        own = self._entries
        if self._base is None:
            return list(own.values())
        underneath = [
            entry
            for entry in self._base.entries()
            if (place := self.place(entry.key)) not in own and place not in self._hidden
        ]
        return sorted([*underneath, *own.values()], key=attrgetter("position"))

    def knows(self, key: str) -> bool:
        """Whether something has this key, be it that nobody sees it here."""
        place = self.place(key)
        known = place in self._entries or place in self._aside or place in self._hidden
        return known or (self._base is not None and self._base.knows(key))

    def differing(self, new: Mapping[str, T], gone: Collection[str]) -> "ItemRegistry[T]":
        """Return what a client sees that has some items alone, or others, and lacks some; the items of its session stay as they are.

        Args:
            new: Items by key. Those of a key that is hidden here are left out.
            gone: Keys of items that it does not have.
        """
        own = self._entries if self._base is not None else {}
        seen: ItemRegistry[T] = ItemRegistry(self._noun, lambda: None)
        for entry in self.entries():
            if self.place(entry.key) in own:
                seen._entries[entry.key] = entry
            elif entry.key not in gone:
                item = new.get(entry.key, entry.item)
                seen._entries[entry.key] = RegistryEntry(entry.position, entry.key, item)
        late = [key for key in new if not self.knows(key)]
        for position, key in enumerate(late, _LATE):
            seen._entries[key] = RegistryEntry(position, key, new[key])
        return seen

    def kept(self, key: Hashable, build: Callable[[], bytes]) -> bytes:
        """What `build` returned for `key` since the last change, building it if there was none."""
        if self._base is not None and not self._entries and not self._hidden:
            # Ten thousand sessions without tools of their own share what their server encoded.
            return self._base.kept(key, build)
        if self._kept_of != self.version:
            self._kept.clear()
            self._kept_of = self.version
        data = self._kept.get(key)
        if data is None:
            if len(self._kept) >= _KEPT_PAGES:
                for old in list(self._kept)[: _KEPT_PAGES // 2]:
                    del self._kept[old]
            data = self._kept[key] = build()
        return data

    def _note_change(self) -> None:
        self._version += 1
        self._changed()

    def __len__(self) -> int:
        return len(self.entries())

    def __contains__(self, key: str) -> bool:
        return self.get(key) is not None

    def __repr__(self) -> str:
        return (
            f"<ItemRegistry of {self._noun}s: {', '.join(entry.key for entry in self.entries()) or 'empty'}>"
        )


class UriRegistry(ItemRegistry[T]):
    """Items by URI or template, each in whatever spelling a client sends."""

    __slots__ = ()

    def place(self, key: str) -> str:
        """Return the canonical form of a URI."""
        return canonical_uri(key)

    def get(self, key: str) -> T | None:
        """Return the item of this URI, in whatever spelling, or None."""
        return super().get(canonical_uri(key))
