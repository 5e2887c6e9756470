"""What can go wrong when a client is asked, by whose fault it is.

All of them are protocol errors: a handler that does not catch one has its request answered with it.
"""

from collections.abc import Mapping
from typing import Any

from mcpbus.protocol.errors import INTERNAL_ERROR, ProtocolError, missing_client_capability
from mcpbus.protocol.revisions import Era, Revision


class InputRequestError(ProtocolError):
    """The client gave no answer that can be used."""


class InputUnavailableError(InputRequestError):
    """The client was not asked: it did not declare that it can be, its revision has no such question, no stream can carry it, or too many wait."""


class InputTimeoutError(InputRequestError):
    """No answer came in time; the question was withdrawn."""


class InvalidInputError(InputRequestError):
    """The client's answer is not of the form that its question asks for."""


class InputRefusedError(InputRequestError):
    """The client answered with an error of its own; `code`, `message` and `data` are the client's."""


def undeclared(required: Mapping[str, Any], revision: Revision) -> InputUnavailableError:
    """Return the error for a question that the client did not declare to take.

    Args:
        required: The client capabilities that it needs, as -32021 reports them.
        revision: What governs the request; -32021 exists in the modern era only.
    """
    missing = missing_client_capability(required)
    code = missing.code if revision.era is Era.MODERN else INTERNAL_ERROR
    return InputUnavailableError(code, missing.message, missing.data)


def cannot_ask(why: str) -> InputUnavailableError:
    """Return the error for a question that cannot be put, whatever the client declares."""
    return InputUnavailableError(INTERNAL_ERROR, f"The client cannot be asked: {why}")


def timed_out(seconds: float) -> InputTimeoutError:
    """Return the error for a question without an answer."""
    return InputTimeoutError(INTERNAL_ERROR, f"The client did not answer within {seconds:g} s")


def invalid_answer(fault: str) -> InvalidInputError:
    """Return the error for an answer of the wrong form."""
    return InvalidInputError(INTERNAL_ERROR, f"The client's answer cannot be used: {fault}")
