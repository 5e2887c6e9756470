"""What the server itself answers to a client whose bytes are no request."""

from typing import Final

from mcpbus.protocol.http.messages import NO_STORE, HttpResponse

_FIELDS: Final = ((b"content-type", b"text/plain; charset=utf-8"), NO_STORE)


class RequestError(Exception):
    """The client's bytes are no request that is served. Over HTTP/1.1 its connection ends too, and over HTTP/2 only its stream.

    Args:
        status: The HTTP status to answer.
        text: What is wrong, for the client to read.
        limit: The name of the option that sets the limit which was reached, if there is one.
    """

    def __init__(self, status: int, text: str, limit: str | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.limit = limit

    def answer(self) -> HttpResponse:
        """What its client is told."""
        return HttpResponse(self.status, _FIELDS, f"{self.text}\n".encode())


def failed() -> RequestError:
    """Return what to answer when who serves a request has failed. One of its own for each: it keeps the stack of who raises it."""
    return RequestError(500, "the server failed")


def no_websocket() -> RequestError:
    """Return what to answer to a client that asks another application than an endpoint for a WebSocket."""
    return RequestError(
        501,
        "this server opens a WebSocket at the address of the MCP endpoint only; `--server hypercorn` opens others",
    )


def too_slow(limit: str) -> RequestError:
    """Return what to answer when a head or a body does not come in the time that this option sets."""
    return RequestError(408, "the request did not come in time", limit)
