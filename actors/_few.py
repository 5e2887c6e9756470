"""Sets that mostly have one member, or none: a set of one takes 216 bytes, a tuple 48.

An actor has up to four of them, and a program has thousands of actors. Each function returns what to keep from now on.
"""

from typing import TypeAlias, TypeVar

T = TypeVar("T")

Few: TypeAlias = tuple[T, ...] | set[T]


def added(few: Few[T], member: T) -> Few[T]:
    """Return a set with one member more; harmless if it is in there already."""
    if not few:
        return (member,)
    if isinstance(few, tuple):
        few = set(few)
    few.add(member)
    return few


def removed(few: Few[T], member: T) -> Few[T]:
    """Return a set without a member; harmless if it is not in there."""
    if isinstance(few, set):
        few.discard(member)
        return few
    return () if member in few else few
