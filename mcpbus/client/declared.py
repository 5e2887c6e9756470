"""What a client of an older revision refuses to be asked, since it has not declared that it can be.

A server must not ask it, and some do. Source: specification 2025-11-25, client/elicitation, client/sampling and client/roots.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from mcpbus.protocol.errors import invalid_params, method_not_found


def check_declared(method: str, params: Mapping[str, Any], capabilities: Mapping[str, Any]) -> None:
    """Refuse a question that nobody declared to answer (rules E-3, Y-2 and Z-1). One that is not known is for its client to judge.

    Raises:
        ProtocolError: -32601: it was not declared at all; -32602: not in this form.
    """
    capability = _CAPABILITIES.get(method)
    if capability is None:
        return
    declared = capabilities.get(capability)
    if not isinstance(declared, Mapping):
        raise method_not_found(method)
    fault = _FAULTS[method](params, declared)
    if fault is not None:
        raise invalid_params(fault)


def _elicitation(params: Mapping[str, Any], declared: Mapping[str, Any]) -> str | None:
    mode = params.get("mode", "form")
    able = isinstance(mode, str) and (mode in declared or (mode == "form" and "url" not in declared))
    return None if able else f"elicitation in the mode {mode!r} was not declared"


def _sampling(params: Mapping[str, Any], declared: Mapping[str, Any]) -> str | None:
    asked = params.get("tools") is not None or params.get("toolChoice") is not None
    return "sampling.tools was not declared" if asked and "tools" not in declared else None


_CAPABILITIES: Final = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}
_FAULTS: Final[Mapping[str, Callable[[Mapping[str, Any], Mapping[str, Any]], str | None]]] = {
    "elicitation/create": _elicitation,
    "sampling/createMessage": _sampling,
    "roots/list": lambda *_: None,
}
