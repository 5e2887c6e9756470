"""The templates for the heads that come often.

To cut a head by its template is far cheaper than to find out of each line whether it is looked at. But to compile one takes as long as
to serve dozens of requests, and clients send what they like: so there is one for what has come often, and there are few.
"""

from typing import Final

from mcpbus.serving.http1.head_cut import HeadCut
from mcpbus.serving.http1.head_template import HeadTemplate

OFTEN: Final = 256
"""How many heads that are alike come before there is a template for them."""

MOST_COUNTED: Final = 256
"""Of how many kinds of heads it is known how often they came."""

MOST_LINES: Final = 40
"""How many lines a head may have for which there is a template."""

LONGEST_NAMES: Final = 1024
"""How many bytes the names of its fields may be."""

MOST_AS_LONG: Final = 8
"""How many templates there are for heads of as many lines."""


class HeadTemplates:
    """Cuts heads by templates, and learns which ones there are to be.

    Of too many for heads of as many lines, the one is forgotten that was not used for longest.
    """

    __slots__ = ("_came", "_known", "_last")

    def __init__(self) -> None:
        self._known: dict[int, list[HeadTemplate]] = {}
        self._last: HeadTemplate | None = None
        self._came: dict[int, int] = {}

    def cut(self, data: bytes) -> tuple[bytes, bytes | None] | None:
        """Cut a whole head in two.

        Returns:
            Its lines that are looked at, see `HeadCut.plain`, and what says how long the body is, if anything does; None if there is no
            template for it.
        """
        template = self._last
        match = None if template is None else template.match(data)
        if template is None or match is None:
            known = self._known.get(_count_lines(data), [])
            for template in known:
                match = template.match(data)
                if match is not None:
                    break
            else:
                return None
            self._prefer(template, known)
        return b"".join(match.group(*template.plain)), match[template.digits] if template.digits else None

    def learn(self, data: bytes, cut: HeadCut) -> None:
        """Learn of a head for which there is no template.

        Args:
            data: The head, which is in order and says the length of its body once at most.
            cut: The same, cut; something is apart.
        """
        lines = _count_lines(data)
        if lines > MOST_LINES:
            return
        came = self._came
        # Two kinds of one hash are hardly ever there, and do no harm: one has a template a little sooner.
        kind = hash(tuple(cut.names))
        count = came.pop(kind, 0) + 1
        if count < OFTEN:
            if len(came) >= MOST_COUNTED:
                came.clear()
            came[kind] = count
            return
        names = [line.partition(b":")[0] for line in data.split(b"\r\n")[1:-2]]
        if sum(map(len, names)) <= LONGEST_NAMES:
            self._prefer(HeadTemplate(names), self._known.setdefault(lines, []))

    def _prefer(self, template: HeadTemplate, known: list[HeadTemplate]) -> None:
        """Try a template first from now on."""
        self._last = template
        if template in known:
            known.remove(template)
        known.insert(0, template)
        del known[MOST_AS_LONG:]


def _count_lines(data: bytes) -> int:
    return data.count(b"\r")
