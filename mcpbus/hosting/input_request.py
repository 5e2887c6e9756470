"""An input request of a hosted server, as its client gets it."""

from collections.abc import Mapping
from typing import Any, Final

import attrs

from mcpbus.features.input_requests.errors import invalid_answer
from mcpbus.features.input_requests.requests import Required
from mcpbus.protocol.revisions import Era, Revision

_LABELS: Final = {
    "elicitation/create": "elicit",
    "sampling/createMessage": "sample",
    "roots/list": "roots",
}
_LEGACY_ONLY: Final = frozenset({"_meta", "elicitationId"})


@attrs.frozen
class HostedInputRequest:
    """An input request that goes out as its SDK wrote it, and whose response goes back unread; an `InputRequest`.

    A legacy client gets it in any case, and refuses what it did not declare: the SDK's own transports do the same.
    Revision 2026-07-28 forbids that, so the server gets an error instead.
    """

    method: str
    _params: Mapping[str, Any]

    @property
    def label(self) -> str:
        return _LABELS.get(self.method, "hosted")

    def foreign(self, revision: Revision) -> str | None:
        if revision.era is Era.LEGACY or self.method in _LABELS:
            return None
        return f"input request {self.method!r}"

    def lacks(self, capabilities: Mapping[str, Any], revision: Revision) -> Required:
        if revision.era is Era.LEGACY:
            return {}
        match self.method:
            case "roots/list":
                return {} if isinstance(capabilities.get("roots"), Mapping) else {"roots": {}}
            case "sampling/createMessage":
                declared = capabilities.get("sampling")
                uses_tools = (
                    self._params.get("tools") is not None or self._params.get("toolChoice") is not None
                )
                needed: dict[str, Any] = {"tools": {}} if uses_tools else {}
                able = isinstance(declared, Mapping) and needed.keys() <= declared.keys()
                return {} if able else {"sampling": needed}
            case _:
                mode = self._params.get("mode", "form")
                declared = capabilities.get("elicitation")
                # An elicitation capability without modes means forms.
                able = isinstance(declared, Mapping) and (
                    mode in declared or (mode == "form" and "url" not in declared)
                )
                return {} if able else {"elicitation": {str(mode): {}}}

    def params(self, revision: Revision) -> dict[str, Any]:
        if revision.era is Era.LEGACY:
            return dict(self._params)
        return {name: value for name, value in self._params.items() if name not in _LEGACY_ONLY}

    def read(self, answer: Any) -> Any:
        if not isinstance(answer, dict):
            raise invalid_answer("it is no JSON object")
        return answer
