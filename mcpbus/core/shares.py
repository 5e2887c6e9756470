"""Shares: whether there is room for one more thing of an owner's, and if there is none, whose thing makes room.

Nothing is set apart for anybody, so that one who is alone may have all, or nearly. At a bound a newcomer takes the place of what
has been idle for longest among the things of whoever has most, if that is more than the newcomer would have. So nobody loses
anything to an owner that has more; two who want all that there is end with half of it each.

What is at work cannot be displaced. Therefore the last tenth of a bound is kept for owners that have little: next to nothing
of what is left. However much of it is taken, somebody who has nothing finds room there until nothing is left at all. No room
is kept where something goes at the worst, although it is of use: for owners that have little beside whoever has most.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from itertools import chain
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T", bound=Hashable)

_LITTLE: Final = 10
"""Whoever has less than this part of what somebody else has, has little beside them."""

_MOST_LOOKS: Final = 32
"""How many things are looked at, at most, to find one that is idle: so much a newcomer may cost."""


class NoRoomError(Exception):
    """There is no room for one more thing of an owner.

    Args:
        past_share: Whether there would be for somebody else.
    """

    def __init__(self, *, past_share: bool) -> None:
        super().__init__()
        self.past_share = past_share


def kept(limit: int) -> int:
    """Return how much of a bound is kept for owners that have little."""
    return limit // 10


def has_room(limit: int, total: int, own: int) -> bool:
    """Tell whether there is room for one more of somebody's things, as long as nothing can be displaced; see `check_room`."""
    left = limit - total
    return left > kept(limit) or (left > 0 and own < max(1, left // 10))


def check_room(limit: int, total: int, own: int, owners: int) -> None:
    """Refuse somebody for whom there is no room, as long as nothing can be displaced.

    Args:
        limit: How many things there may be.
        total: How many there are.
        own: How many of them are theirs.
        owners: How many owners there are, they among them if they have something.

    Raises:
        NoRoomError: There is none.
    """
    if not has_room(limit, total, own):
        raise NoRoomError(past_share=total < limit or own * owners > total)


class Shares(Generic[T]):
    """The things of one kind, by owner.

    Every operation takes the same time, however many things and owners there are.

    Args:
        limit: How many there may be.
        idle_since: Tells since when one of them has been idle, by a clock that does not matter; None while it is at work, and
            cannot be displaced. Where there is no such function all are idle since they came.
        at_worst: As `idle_since`, for owners that have little, where nothing is idle: since when it has been of little use.
    """

    __slots__ = ("_at_worst", "_holdings", "_idle_since", "_limit", "_most", "_places", "_ranks")

    def __init__(
        self,
        limit: int,
        idle_since: Callable[[T], float | None] | None = None,
        at_worst: Callable[[T], float | None] | None = None,
    ) -> None:
        self._limit = limit
        self._idle_since = idle_since
        self._at_worst = at_worst
        self._places: dict[T, _Holding[T]] = {}
        self._holdings: dict[Hashable, _Holding[T]] = {}
        # Who has how many. One thing comes or goes at a time, so that the most is never far from where it was.
        self._ranks: dict[int, OrderedDict[_Holding[T], None]] = {}
        self._most = 0

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, thing: T) -> bool:
        return thing in self._places

    def __iter__(self) -> Iterator[T]:
        return iter(tuple(self._places))

    @property
    def owners(self) -> int:
        """How many owners there are."""
        return len(self._holdings)

    def held_by(self, owner: Hashable) -> int:
        """Return how many things an owner has."""
        holding = self._holdings.get(owner)
        return 0 if holding is None else len(holding)

    def make_room(self, owner: Hashable, *, of_its_own: bool = True) -> T | None:
        """See to it that there is room for one more thing of an owner's, which is to be entered next.

        Args:
            owner: The owner.
            of_its_own: Whether an older thing of this owner's may make room, too.

        Returns:
            The thing that is displaced, and is no longer here: it is to be ended. None if there was room.

        Raises:
            NoRoomError: There is none, and nothing that could be displaced.
        """
        total, own = len(self._places), self.held_by(owner)
        if total < self._limit and (self._idle_since is None or self._at_worst is not None):
            return None  # for somebody else it will be made
        try:
            check_room(self._limit, total, own, len(self._holdings))
        except NoRoomError:
            thing = self._find(owner, own, of_its_own=of_its_own)
            if thing is None:
                raise
            self.leave(thing)
            return thing
        return None

    def displace(self) -> T | None:
        """Displace something for others' sake, though there may be room: the oldest that is idle of whoever has most.

        Returns:
            As `make_room`; None also where nobody has more than one thing.
        """
        thing = next(iter(self._ranks[self._most])).find_idle(self._idle_since) if self._most > 1 else None
        if thing is not None:
            self.leave(thing)
        return thing

    def find_idle(self, owner: Hashable) -> T | None:
        """Return what would make room first among the things of an owner that has some; None if all are at work."""
        return self._holdings[owner].find_idle(self._idle_since)

    def _find(self, owner: Hashable, own: int, *, of_its_own: bool) -> T | None:
        """Return what makes room: something idle of whoever has most, or of the owner's; at the worst something of the former's."""
        most = next(iter(self._ranks[self._most])) if self._most > own + 1 else None
        thing = None if most is None else most.find_idle(self._idle_since)
        if thing is None and own and of_its_own:
            thing = self._holdings[owner].find_idle(self._idle_since)
        if thing is None and most is not None and self._at_worst is not None and own * _LITTLE < self._most:
            thing = most.find_idle(self._at_worst)
        return thing

    def enter(self, owner: Hashable, thing: T) -> None:
        """Enter a thing, for which room was made. Until it is `established` it is displaced before all that are."""
        holding = self._holdings.get(owner)
        if holding is None:
            holding = self._holdings[owner] = _Holding(owner)
        self._unrank(holding)
        holding.fresh[thing] = None
        self._places[thing] = holding
        self._rank(holding)

    def establish(self, thing: T) -> None:
        """Note that a thing has shown that it is used. Harmless if it is not here."""
        holding = self._places.get(thing)
        if holding is not None and thing in holding.fresh:
            del holding.fresh[thing]
            holding.established[thing] = None

    def leave(self, thing: T) -> None:
        """Take a thing out, which has ended. Harmless if it is not here."""
        holding = self._places.pop(thing, None)
        if holding is None:
            return
        self._unrank(holding)
        holding.remove(thing)
        if holding:
            self._rank(holding)
        else:
            del self._holdings[holding.owner]
        if self._most not in self._ranks:
            self._most -= 1

    def _rank(self, holding: "_Holding[T]") -> None:
        count = len(holding)
        if count not in self._ranks:
            self._ranks[count] = OrderedDict()
        self._ranks[count][holding] = None
        self._most = max(self._most, count)

    def _unrank(self, holding: "_Holding[T]") -> None:
        count = len(holding)
        if count:
            rank = self._ranks[count]
            del rank[holding]
            if not rank:
                del self._ranks[count]


class _Holding(Generic[T]):
    """What one owner has, what came first in front.

    Attributes:
        owner: The owner.
        fresh: What has not been established.
        established: The rest.
    """

    __slots__ = ("established", "fresh", "owner")

    def __init__(self, owner: Hashable) -> None:
        self.owner = owner
        self.fresh: OrderedDict[T, None] = OrderedDict()
        self.established: OrderedDict[T, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self.fresh) + len(self.established)

    def remove(self, thing: T) -> None:
        """Take a thing out."""
        (self.fresh if thing in self.fresh else self.established).pop(thing)

    def find_idle(self, idle_since: Callable[[T], float | None] | None) -> T | None:
        """Return what has been idle for longest, among those looked at; who looks next looks at others first."""
        if idle_since is None:
            return next(chain(self.fresh, self.established))
        for things in (self.fresh, self.established):
            found: Any = None
            longest = float("inf")
            for _ in range(min(len(things), _MOST_LOOKS)):
                thing = next(iter(things))
                things.move_to_end(thing)
                since = idle_since(thing)
                if since is not None and since < longest:
                    found, longest = thing, since
            if found is not None:
                return found  # type: ignore[no-any-return]  # one of the things
        return None
