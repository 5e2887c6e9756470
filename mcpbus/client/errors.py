"""What can go wrong between a client and its server, beside the errors that the server answers with."""

import re


class ClientError(Exception):
    """There is no answer; the message says why, for people. What the server answers itself is a `ProtocolError`."""


class DisconnectedError(ClientError):
    """The connection ended before the answer came."""


class MalformedAnswerError(ClientError):
    """What came for an answer is none of the protocol's."""


class SessionLostError(ClientError):
    """The server ended each session soon after it opened it, or does not know its own: the request has not run."""


class StatusError(ClientError):
    """The answer was an HTTP status, and nothing of the protocol's.

    Args:
        status: The status.
        message: What to tell.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def redact_url(url: str) -> str:
    """Return what errors and logs may quote of a URL: not its query, in which there may be a token, nor a name and a password."""
    place, query, _ = url.partition("?")
    place = re.sub(r"(?<=://)[^/]*@", "", place)
    return f"{place}?..." if query else place
