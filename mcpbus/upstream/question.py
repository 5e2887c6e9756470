"""What the other server asks, as it is asked a client of ours."""

from collections.abc import Mapping
from typing import Any, ClassVar

import attrs

from mcpbus.features.asking.questions import Required
from mcpbus.protocol.revisions import Revision


@attrs.frozen
class RelayedQuestion:
    """A question that goes out as it came, and whose answer goes back as it came; see `mcpbus.features.asking.questions.Question`.

    The other server was told what the client declares, and asks nothing else: its client here refuses that.
    """

    method: str
    _params: dict[str, Any]

    label: ClassVar[str] = "relayed"

    def foreign(self, revision: Revision) -> str | None:
        """See `Question.foreign`."""
        mode = self._params.get("mode", "form")
        if self.method == "elicitation/create" and mode not in revision.elicitation_modes:
            return f"elicitation in the mode {mode!r}"
        return None

    def lacks(self, capabilities: Mapping[str, Any], revision: Revision) -> Required:  # noqa: ARG002 - see the class
        """See `Question.lacks`."""
        return {}

    def params(self, revision: Revision) -> dict[str, Any]:  # noqa: ARG002 - each has what it was told
        """See `Question.params`."""
        return {name: value for name, value in self._params.items() if name != "_meta"}

    def read(self, answer: Any) -> Any:
        """See `Question.read`."""
        return answer
