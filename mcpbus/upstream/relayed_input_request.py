"""What the other server asks, as it is asked a client of ours."""

import secrets
from collections.abc import Mapping
from typing import Any, ClassVar, Final

import attrs

from mcpbus.client.input_requests import check_declared
from mcpbus.features.input_requests.requests import Required
from mcpbus.protocol.errors import ProtocolError
from mcpbus.protocol.revisions import Revision

_CAPABILITIES: Final = {
    "elicitation/create": "elicitation",
    "roots/list": "roots",
    "sampling/createMessage": "sampling",
}


@attrs.frozen
class RelayedInputRequest:
    """A question that goes out as it came, and whose answer goes back as it came; see `mcpbus.features.input_requests.requests.InputRequest`.

    The other server was told what the client declares, and has to ask nothing else. What it asks nevertheless is not passed on.
    """

    method: str
    _params: dict[str, Any]
    _page: str = attrs.field(factory=lambda: secrets.token_urlsafe(16))

    label: ClassVar[str] = "relayed"

    def foreign(self, revision: Revision) -> str | None:
        """See `InputRequest.foreign`."""
        if self.method not in _CAPABILITIES:
            return f"question {self.method!r}"
        mode = self._params.get("mode", "form")
        known = isinstance(mode, str) and mode in revision.elicitation_modes
        if self.method == "elicitation/create" and not known:
            return f"elicitation in the mode {mode!r}"
        return None

    def lacks(self, capabilities: Mapping[str, Any], revision: Revision) -> Required:  # noqa: ARG002 - one rule for all
        """See `InputRequest.lacks`."""
        try:
            check_declared(self.method, self._params, capabilities)
        except ProtocolError:
            return {_CAPABILITIES[self.method]: {}}
        return {}

    def params(self, revision: Revision) -> dict[str, Any]:
        """See `InputRequest.params`. A page has an id where the client's revision wants one, be it that nothing names it later."""
        left_out = {"_meta"} if revision.elicitation_ids else {"_meta", "elicitationId"}
        params = {name: value for name, value in self._params.items() if name not in left_out}
        if revision.elicitation_ids and params.get("mode") == "url":
            params.setdefault("elicitationId", self._page)
        return params

    def read(self, answer: Any) -> Any:
        """See `InputRequest.read`."""
        return answer
