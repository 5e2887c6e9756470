"""Whose affair an exception is: that of the code that raised it, or of the trio task in which it ran.

Whatever code of somebody else's raises is the end of what it did, and of nothing else: also a `SystemExit` out of a parser of
command lines, or a class of its author's own. Two things are not its own. A `KeyboardInterrupt` is the user's, who wants the
program to end; and by `trio.Cancelled` trio ends what runs in a scope that is cancelled.

A `Cancelled` that somebody has kept, and raises again where nobody is cancelled, is a failure like any other. It must not get
further: the first nursery that meets it takes it for its own, cancels all that it holds, and ends without a word.
"""

import math

import trio


def split_failure(
    error: BaseException, *, waited: bool = True
) -> tuple[BaseException | None, BaseException | None]:
    """Divide an exception between the code that raised it and the trio task in which it ran.

    Args:
        error: What was raised; a group of several is divided into groups.
        waited: Whether the code may have waited for something; otherwise no cancellation can have reached it.

    Returns:
        The failure, which is to be told or logged, and what is to be raised on in the task. Each is None if there is no such part.
    """
    if isinstance(error, Exception):  # and so is everything in it, if it is a group
        return error, None
    cancelled = waited and trio.current_effective_deadline() == -math.inf
    passing = (KeyboardInterrupt, trio.Cancelled) if cancelled else (KeyboardInterrupt,)
    if isinstance(error, BaseExceptionGroup):
        rest, failure = error.split(passing)
        return (error, None) if rest is None else (failure, rest)
    return (None, error) if isinstance(error, passing) else (error, None)
