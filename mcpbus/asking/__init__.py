"""Asking the client: questions, answers, and the state that travels between the rounds."""

from mcpbus.features.asking.answers import (
    Accepted,
    Cancelled,
    Declined,
    Root,
    Sampled,
    ToolUse,
    ToolUseResult,
)
from mcpbus.features.asking.errors import (
    AnswerTimeoutError,
    AskError,
    CannotAskError,
    ClientRefusedError,
    InvalidAnswerError,
)
from mcpbus.features.asking.forms import Titles
from mcpbus.features.asking.input_required import InputRequired
from mcpbus.features.asking.questions import Elicit, ElicitUrl, ListRoots, Question, Sample

__all__ = [
    "Accepted",
    "AnswerTimeoutError",
    "AskError",
    "Cancelled",
    "CannotAskError",
    "ClientRefusedError",
    "Declined",
    "Elicit",
    "ElicitUrl",
    "InputRequired",
    "InvalidAnswerError",
    "ListRoots",
    "Question",
    "Root",
    "Sample",
    "Sampled",
    "Titles",
    "ToolUse",
    "ToolUseResult",
]
