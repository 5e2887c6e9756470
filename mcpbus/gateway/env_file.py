"""Files of environment variables, as ``envFile`` of an entry names them: one ``NAME=value`` a line."""

import re
from pathlib import Path
from typing import Final

_ASSIGNMENT: Final = re.compile(
    r"""\s*(?:export\s+)?(?P<name>[A-Za-z_][A-Za-z0-9_.-]*)[ \t]*=[ \t]*
    (?:'(?P<single>[^']*)'|"(?P<double>(?:[^"\\]|\\.)*)"|`(?P<back>[^`]*)`|(?P<plain>[^\r\n'"`][^\r\n]*)?)
    [ \t]*(?:\#[^\r\n]*)?(?=\r?\n|\Z)""",
    re.VERBOSE | re.DOTALL,
)
_BLANK: Final = re.compile(r"(?:\s*\#[^\r\n]*(?=\r?\n|\Z)|\s+)")
_COMMENT: Final = re.compile(r"\s+#.*")
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t"}


def read_env_file(file: Path) -> dict[str, str]:
    r"""Read variables. Quotation marks enclose values of several lines and with ``#``; ``\n`` is a new line between double ones.

    Args:
        file: The file, in UTF-8.

    Raises:
        OSError: It cannot be read.
        ValueError: A line is no assignment. The message has its number and nothing of it, as it may be a secret.
    """
    text = file.read_text("utf-8-sig")
    found: dict[str, str] = {}
    place = 0
    while place < len(text):
        if (blank := _BLANK.match(text, place)) is not None:
            place = blank.end()
            continue
        line = text.count("\n", 0, place) + 1
        assignment = _ASSIGNMENT.match(text, place)
        if assignment is None:
            raise ValueError(f"line {line} is no NAME=value")
        found[assignment["name"]] = _value(assignment, line)
        place = assignment.end()
    return found


def _value(assignment: re.Match[str], line: int) -> str:
    for kind in ("single", "back"):
        if assignment[kind] is not None:
            return assignment[kind]
    if assignment["double"] is not None:
        return _ESCAPED.sub(lambda found: _ESCAPES.get(found[1], found[1]), assignment["double"])
    plain = _COMMENT.sub("", assignment["plain"] or "").rstrip()
    if plain.startswith("#"):
        return ""
    if "#" in plain:  # clients differ on where it ends
        raise ValueError(f"line {line} has a '#' in its value: write quotation marks around it")
    return plain
