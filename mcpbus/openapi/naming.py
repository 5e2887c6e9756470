"""Names of tools and of their arguments: letters, digits, ``_`` and ``-``, which every client and every model takes.

A name depends on its operation alone, and where two would be the same, on both: neither the order of a document nor what is chosen of it
changes a name.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from mcpbus.openapi.operations import ApiOperation, ApiParameter

_LONGEST: Final = 48
"""Letters of a tool's name: clients put the name of the server before it, and models take 64."""
_DIGITS: Final = 8
_LONGEST_ARGUMENT: Final = 64
_ODD: Final = re.compile(r"[^A-Za-z0-9_-]+")


def tool_names(operations: Sequence[ApiOperation]) -> dict[str, str]:
    """Return a name for each operation, by its key.

    It is the ``operationId``, without the path and the method that FastAPI appends to the name of a function; or the method and the
    path. Operations of the same name are told apart by the whole identifier, or else by eight digits of a hash of method and path.
    """
    short = {each.key: _plain(_without_suffix(each)) for each in operations}
    whole = {each.key: _plain(each.id or _by_path(each)) for each in operations}
    taken = Counter(short.values())
    named = {key: name if taken[name] == 1 else whole[key] for key, name in short.items()}
    taken = Counter(map(_cut, named.values()))
    return {
        key: cut
        if taken[cut := _cut(name)] == 1 and cut == name
        else f"{cut[: _LONGEST - _DIGITS - 1].rstrip('_-')}_{_hash(key)}"
        for key, name in named.items()
    }


def _without_suffix(operation: ApiOperation) -> str:
    if operation.id is None:
        return _by_path(operation)
    path = re.sub(r"\W", "_", operation.path)
    return operation.id.removesuffix(f"{path}_{operation.method.lower()}") or operation.id


def _by_path(operation: ApiOperation) -> str:
    return f"{operation.method.lower()}{operation.path}"


def _plain(text: str) -> str:
    return _ODD.sub("_", text).strip("_-") or "call"


def _cut(name: str) -> str:
    """Return the first words of a name that is too long."""
    if len(name) <= _LONGEST:
        return name
    return (
        re.sub(r"[_-]+[^_-]*$", "", name[: _LONGEST - _DIGITS]).rstrip("_-") or name[: _LONGEST - _DIGITS - 1]
    )


def _hash(key: str) -> str:
    return hashlib.sha256(key.encode(errors="replace")).hexdigest()[:_DIGITS]


def argument_names(
    parameters: Iterable[ApiParameter], others: Iterable[str] = ()
) -> Mapping[tuple[str, str], str]:
    """Return a name for each parameter, by its place and its name.

    Args:
        parameters: The parameters.
        others: Names that other arguments have.
    """
    parameters = [*parameters]
    plain = {(each.place, each.name): _plain(each.name)[:_LONGEST_ARGUMENT] for each in parameters}
    taken = Counter([*plain.values(), *others])
    names: dict[tuple[str, str], str] = {}
    used = {*others, *(name for name in plain.values() if taken[name] == 1)}
    for (place, name), argument in plain.items():
        chosen, number = argument, 1
        if taken[argument] > 1:
            stem = f"{argument[: _LONGEST_ARGUMENT - 12]}_{place}"
            chosen = stem
            while chosen in used:
                number += 1
                chosen = f"{stem}_{number}"
            used.add(chosen)
        names[place, name] = chosen
    return names
