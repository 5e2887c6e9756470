"""HTTP/1.1 answers: read with llhttp, in whatever pieces they come, and judged."""

import re
from typing import Any

import httptools
import msgspec

FIRST_NUMBER = 1_000_000_000
"""The first of the numbers that tell calls apart: all have ten digits, so that requests have one length."""

CLOCK = re.compile(rb"clock=(\d+)")


def words(number: int) -> str:
    """Return what the echo tool is given, and must return."""
    return f"hello, world {number}"


class WrongAnswer(Exception):  # noqa: N818  it is what it says
    """An answer is not the one that is measured; the measurement fails."""


class Answer:
    """One answer, complete or not."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self.headers: dict[bytes, bytes]
        self.body: bytearray
        self.headers_complete: bool
        self.complete: bool
        self.begin()

    @property
    def status(self) -> int:
        """The status; 0 until there is one."""
        return self._parser.get_status_code()  # type: ignore[no-any-return]

    @property
    def is_stream(self) -> bool:
        """Whether it is a stream of events."""
        return self.headers.get(b"content-type", b"").startswith(b"text/event-stream")

    def begin(self) -> None:
        """Await the next answer of the same connection."""
        self.headers = {}
        self.body = bytearray()
        self.headers_complete = False
        self.complete = False

    def feed(self, data: bytes) -> bool:
        """Take a piece, and return whether the answer is complete.

        Raises:
            WrongAnswer: The connection ended, or this is not HTTP.
        """
        if not data:
            raise WrongAnswer(f"the connection ended within an answer: {bytes(self.body[-200:])!r}")
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            raise WrongAnswer(f"this is not HTTP: {error}") from error
        return self.complete

    def messages(self) -> list[Any]:
        """Return the JSON-RPC messages in the body; of a stream, those of events that are complete.

        Raises:
            WrongAnswer: Something is not JSON.
        """
        documents = events(bytes(self.body)) if self.is_stream else [bytes(self.body)]
        try:
            return [msgspec.json.decode(document) for document in documents if document]
        except msgspec.DecodeError as error:
            raise WrongAnswer(f"this is not JSON: {error}: {bytes(self.body[:200])!r}") from error

    # The parser calls these.
    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header."""
        self.headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        """Note the end of the head."""
        self.headers_complete = True

    def on_body(self, data: bytes) -> None:
        """Keep a piece of the body."""
        self.body += data

    def on_message_complete(self) -> None:
        """Note the end."""
        self.complete = True


def events(body: bytes) -> list[bytes]:
    """Return the data of the events of a stream that are complete."""
    blocks = body.replace(b"\r\n", b"\n").split(b"\n\n")[:-1]
    return [
        b"\n".join(line[5:].removeprefix(b" ") for line in block.split(b"\n") if line.startswith(b"data:"))
        for block in blocks
    ]


def result_of(answer: Answer, request_id: int | str | None = None) -> dict[str, Any]:
    """Return the result in a complete answer, which may have notifications before it.

    Raises:
        WrongAnswer: There is none, or it is not that of the request with an id.
    """
    if answer.status != 200:
        raise WrongAnswer(f"status {answer.status}: {bytes(answer.body[:200])!r}")
    messages = answer.messages()
    if request_id is not None and (not messages or messages[-1].get("id") != request_id):
        raise WrongAnswer(f"no answer to {request_id}: {bytes(answer.body[-300:])!r}")
    result = messages[-1].get("result") if messages else None
    if not isinstance(result, dict) or result.get("isError"):
        raise WrongAnswer(f"no result: {bytes(answer.body[-300:])!r}")
    return result


def text_of(result: dict[str, Any]) -> str:
    """Return the text of a tool's result.

    Raises:
        WrongAnswer: It has another form.
    """
    try:
        [block] = result["content"]
        return str(block["text"])
    except (KeyError, TypeError, ValueError) as error:
        raise WrongAnswer(f"a result without one text: {result!r}") from error


def check_echo(answer: Answer, number: int) -> None:
    """Judge the answer of the echo tool to the call with a number.

    Raises:
        WrongAnswer: It is not the text that was sent.
    """
    if (text := text_of(result_of(answer, number))) != words(number):
        raise WrongAnswer(f"not what was said: {text!r}")


def check_fixed(answer: Answer, number: int) -> None:  # noqa: ARG001  it has another, or none
    """Judge the answer of a server that answers every call alike.

    Raises:
        WrongAnswer: It is not the text that would have been sent first.
    """
    if (text := text_of(result_of(answer))) != words(FIRST_NUMBER):
        raise WrongAnswer(f"not the fixed answer: {text!r}")
