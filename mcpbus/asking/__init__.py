"""Asking the client: questions, answers, and the state that travels between the rounds."""

from mcpbus.features.input_requests.errors import (
    InputRefusedError,
    InputRequestError,
    InputTimeoutError,
    InputUnavailableError,
    InvalidInputError,
)
from mcpbus.features.input_requests.forms import ChoiceTitles
from mcpbus.features.input_requests.input_required import InputRequired
from mcpbus.features.input_requests.requests import Elicit, ElicitUrl, InputRequest, ListRoots, Sample
from mcpbus.features.input_requests.results import (
    AcceptedElicitation,
    CancelledElicitation,
    DeclinedElicitation,
    Root,
    SamplingResult,
    ToolUse,
    ToolUseResult,
)

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
