"""Names of a package that are imported when they are asked for (PEP 562): who does without them neither waits for them nor needs what they need."""

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from mcpbus.protocol.other_names import missing_in_module


def lazy_exports(
    package: str, places: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make the ``__getattr__`` and the ``__dir__`` of a package.

    They stand where type checkers do not look, who see imports of the same instead, and so know a name that is not there::

        if TYPE_CHECKING:
            from mcpbus.cluster.redis import Redis
        else:
            __getattr__, __dir__ = later(__name__, {"mcpbus.cluster.redis": ("RedisReplicas",)})

    Args:
        package: Its name.
        places: The modules, and which names each has. Those in the package are attributes of it as well, as they are for type checkers.
    """
    module_of = {name: place for place, names in places.items() for name in names}
    below = f"{package}."
    parts = {place.removeprefix(below).partition(".")[0] for place in places if place.startswith(below)}
    known = vars(sys.modules[package])

    def find(name: str) -> Any:
        if name in module_of:
            found = known[name] = getattr(import_module(module_of[name]), name)
            return found
        if name in parts:
            return import_module(below + name)
        raise missing_in_module(package, name)

    def listed() -> list[str]:
        return sorted({*known, *module_of})

    return find, listed
