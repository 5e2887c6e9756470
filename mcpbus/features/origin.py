"""From which server a function comes that another one offers, which has mounted that."""

from collections.abc import Callable
from typing import Any

import msgspec


class MountOrigin(msgspec.Struct, frozen=True, eq=False):
    """What is different for a function because the server that it was registered with is mounted in another one."""

    server: object
    """The mounted server; what its lifespan yielded is found by it."""
    middleware: tuple[Callable[..., Any], ...]
    """The server's own, the first outermost."""
    item: Any
    """The tool or the like, as it was registered there."""
    name_below: Callable[[str], str]
    """How the server itself calls what is called."""
