"""Which tools of an upstream server a proxy offers."""

import re
from collections.abc import Iterable
from typing import Any, Final

import attrs

_ANY: Final = re.compile(r"\*+")


@attrs.frozen
class ToolFilter:
    """Two lists of patterns, in which ``*`` stands for any letters. A tool has to match the first one, and must not match the other.

    Attributes:
        only: The tools to offer; None for all.
        without: The tools that are not offered.
    """

    only: tuple[str, ...] | None = None
    without: tuple[str, ...] = ()
    _only: re.Pattern[str] | None = attrs.field(init=False, eq=False, repr=False)
    _without: re.Pattern[str] = attrs.field(init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        """Compile the patterns."""
        object.__setattr__(self, "_only", None if self.only is None else _compiled(self.only))
        object.__setattr__(self, "_without", _compiled(self.without))

    def allows(self, tool: str) -> bool:
        """Whether a tool is offered, by its name at the upstream server."""
        return (self._only is None or self._only.fullmatch(tool) is not None) and not self._without.fullmatch(
            tool
        )

    def idle(self, tools: Iterable[str]) -> list[str]:
        """Return the patterns that match none of these tools.

        Neither ``*`` alone is one of them, nor a pattern with a prefix whose rest is a pattern, too: ``files_read`` beside ``read``.
        """
        names = tuple(tools)
        given = dict.fromkeys((*(self.only or ()), *self.without))
        patterns = [each for each in given if not any(each.endswith(f"_{other}") for other in given)]
        return [
            each
            for each in patterns
            if _ANY.sub("", each) and not any(map(_compiled([each]).fullmatch, names))
        ]


def read_patterns(option: str, patterns: Any) -> tuple[str, ...]:
    """Return patterns of tools that an author gives.

    Raises:
        TypeError: They are no list of texts.
    """
    if isinstance(patterns, str) or not isinstance(patterns, Iterable):
        raise TypeError(f'Proxy: {option} is a list of names of tools: write {option}=["read_*"]')
    found = tuple(patterns)
    for each in found:
        if not isinstance(each, str):
            raise TypeError(f"Proxy: {option} has names of tools, not {each!r}")
    return found


def _compiled(patterns: Iterable[str]) -> re.Pattern[str]:
    """Compile patterns to one that matches what one of them does; nothing if there are none."""
    return re.compile(
        "|".join(".*".join(map(re.escape, _ANY.split(each))) for each in patterns) or r"(?!)", re.DOTALL
    )
