"""Which handlers cannot wait: these end in their first step, and need no task that could stay with them."""

from typing import Final

from mcpbus.core.hub import Hub
from mcpbus.dispatch.methods import METHODS
from mcpbus.protocol.revisions import Era

_CALL: Final = "tools/call"
# Before Python 3.12 each look-up by a class's name is a search.
_MODERN: Final = Era.MODERN


def may_wait(bus: Hub, method: str, tool: object, era: Era) -> bool:
    """Tell whether the handler of a request may wait for anything.

    Args:
        bus: The bus.
        method: What is asked for.
        tool: Whatever was given for a name, which is that of a tool if one is called.
        era: The client's. Over the legacy protocol even a function that cannot wait may have its client asked, by an
            `InputRequired`.
    """
    row = METHODS.get(method)
    if row is None:
        return True
    if row.answer is not None:
        return False
    if method != _CALL or not isinstance(tool, str) or era is not _MODERN:
        return True
    found = bus.features.tools.get(tool)
    return found is None or found.task is not None or bus.runner.waits(found.function)
