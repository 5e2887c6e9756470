"""Asking the client: questions, answers, and the state that travels between the rounds."""

from mcpbus.asking.answers import Accepted, Cancelled, Declined, Root, Sampled, ToolUse, ToolUseResult
from mcpbus.asking.errors import (
    AnswerTimeoutError,
    AskError,
    CannotAskError,
    ClientRefusedError,
    InvalidAnswerError,
)
from mcpbus.asking.forms import Titles
from mcpbus.asking.questions import Elicit, ElicitUrl, ListRoots, Question, Sample
from mcpbus.asking.required import InputRequired

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
