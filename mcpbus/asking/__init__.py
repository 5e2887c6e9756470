"""Asking the client: questions, answers, and the state that travels between the rounds."""

from mcpbus.features.asking.answers import (
    AcceptedElicitation,
    CancelledElicitation,
    DeclinedElicitation,
    Root,
    SamplingResult,
    ToolUse,
    ToolUseResult,
)
from mcpbus.features.asking.errors import (
    InputRefusedError,
    InputRequestError,
    InputTimeoutError,
    InputUnavailableError,
    InvalidInputError,
)
from mcpbus.features.asking.forms import ChoiceTitles
from mcpbus.features.asking.input_required import InputRequired
from mcpbus.features.asking.questions import Elicit, ElicitUrl, InputRequest, ListRoots, Sample

__all__ = [
    "AcceptedElicitation",
    "CancelledElicitation",
    "ChoiceTitles",
    "DeclinedElicitation",
    "Elicit",
    "ElicitUrl",
    "InputRefusedError",
    "InputRequest",
    "InputRequestError",
    "InputRequired",
    "InputTimeoutError",
    "InputUnavailableError",
    "InvalidInputError",
    "ListRoots",
    "Root",
    "Sample",
    "SamplingResult",
    "ToolUse",
    "ToolUseResult",
]
