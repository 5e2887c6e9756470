"""Keywords that are not known, or have values of the wrong kind: one sentence for each, that says what to write instead."""

import difflib
from collections.abc import Callable, Collection, Iterable
from typing import Any


def check_keywords(
    owner: str,
    given: Collection[str],
    known: Collection[str],
    remedy: Callable[[str], str | None] = lambda _name: None,
) -> None:
    """Refuse keywords that are not known.

    Args:
        owner: What was called, such as ``@server.tool``.
        given: The keywords.
        known: Those that there are.
        remedy: Says what to write instead of one that is not there, or None.

    Raises:
        TypeError: One is not known; the message names what to write, or the nearest that is, or all.
    """
    for name in given:
        if name not in known:
            hint = remedy(name)
            if hint is None:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(known))}"
            raise TypeError(f"{owner} has no option {name!r}; {hint}")


def check_lists(**options: Any) -> None:
    """Refuse a single thing for the options that are lists.

    Raises:
        TypeError: the message says what to write; not the value, which may be a secret.
    """
    for option, several in options.items():
        if isinstance(several, str | bytes) or not isinstance(several, Iterable):
            raise TypeError(f"{option} is a list: write {option}=[...]")
