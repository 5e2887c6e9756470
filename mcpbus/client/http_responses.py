"""What a client makes of an answer over HTTP: its body, and in a sentence what is wrong where it has nothing of the protocol's."""

import re
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

import trio

from mcpbus.client.errors import ClientError, DisconnectedError, MalformedAnswerError, StatusError, redact_url
from mcpbus.client.http_library import httpx2
from mcpbus.client.oauth.errors import sanitize
from mcpbus.client.oauth.refusal import read_refusal
from mcpbus.client.reading import Readings
from mcpbus.client.stream_position import StreamPosition
from mcpbus.client.wire import MOST_MESSAGE_BYTES
from mcpbus.client.yielding import LONG_WORK_BYTES, Yielder, long_work
from mcpbus.protocol.errors import METHOD_NOT_FOUND, RESOURCE_NOT_FOUND
from mcpbus.protocol.http.sse import EventDecoder
from mcpbus.protocol.jsonrpc import JsonRpcRequest, JsonRpcResponse, Undecodable, decode

_LEAVE_SECONDS: Final = 0.1
"""How long a server has to end a stream by itself once the answer has come, so that the connection can be used again."""

_SLICE_BYTES: Final = 8 * 1024
"""How much of a stream is read in a slice: it may be a line for each two bytes."""

_ERROR_SECONDS: Final = 5.0
"""How long the body of an error may take: it tells whether the session has ended."""
_TOLD_BYTES: Final = 4_096
"""How much of such a body is searched."""
_LOST: Final = re.compile(
    r"\bsession\b.{0,80}\b(?:not found|not exist|not valid|unknown|invalid|expired|terminated|closed|ended|gone|missing|required|no longer)\b"
    r"|\b(?:no valid|no such|no active|invalid|unknown|missing|expired|unrecogni[sz]ed|cannot find|could not find)\b.{0,40}\bsession\b"
    r"|\bnot (?:yet )?(?:been )?initiali[sz]ed\b|\bexpect\w* (?:an? )?initialize\b",
    re.IGNORECASE | re.DOTALL,
)
"""How servers write that they do not know a session: the official SDKs and their examples, mcp-go, rmcp and others."""

_NOT_FOUND: Final = {METHOD_NOT_FOUND: "", RESOURCE_NOT_FOUND: "resources/"}
"""The errors that a server may tell with the status 404, too, as 2026-07-28 has it for the first, and how methods begin that may have them."""


async def read_messages(
    answer: httpx2.Response, place: StreamPosition, take: Callable[[str], bool], readings: Readings
) -> None:
    """Read a stream of events until it ends, or `take` wants no more of its messages or fails.

    Other tasks run in between, however many messages come in one piece.

    Raises:
        ValueError: An event has more bytes than a message may have.
        DisconnectedError: Too much waits, and the bytes of an event were given up.
    """
    # Left by a cancellation: an iteration that is given up otherwise is closed by the garbage collector, at any time.
    scope = trio.CancelScope()
    reader = _EventReader(place, take, scope)
    with readings.reading(reader.give_up) as reading, scope:
        async for piece in answer.aiter_raw():
            await reader.read(piece)
            reading.hold(reader.held)
    failure = reader.failure or reading.failure
    if failure is not None:
        raise failure


class _EventReader:
    """Takes the messages of one stream, a slice at a time.

    Args:
        place: Where the client is in the stream.
        take: Takes a message, and returns whether it wants more.
        scope: The scope of the reading, which ends with it.

    Attributes:
        failure: The error that ended it; None if there is none.
    """

    def __init__(self, place: StreamPosition, take: Callable[[str], bool], scope: trio.CancelScope) -> None:
        self._place = place
        self._take = take
        self._scope = scope
        self._decoder = EventDecoder(MOST_MESSAGE_BYTES)
        self._turn = Yielder()
        self._ended = False
        self.failure: Exception | None = None

    @property
    def held(self) -> int:
        """The bytes of the event that has not ended."""
        return self._decoder.held

    def give_up(self) -> None:
        """Drop these bytes, and end the reading."""
        self._ended = True
        self._decoder.drop()
        self._scope.cancel()

    async def read(self, piece: bytes) -> None:
        """Read the next bytes. No cancel point."""
        if self._ended:
            return
        try:
            if len(piece) < LONG_WORK_BYTES:
                await self._read_slice(piece)
                return
            async with long_work():
                for begin in range(0, len(piece), _SLICE_BYTES):
                    await self._read_slice(piece[begin : begin + _SLICE_BYTES])
                    await self._turn.pause()
        except Exception as error:  # noqa: BLE001 - raised again where the stream is left
            self.failure = error
            self.give_up()

    async def _read_slice(self, piece: bytes) -> None:
        for event in self._decoder.feed(piece):
            message = self._place.read(event)
            if message is not None and not self._take(message):
                self._scope.deadline = min(self._scope.deadline, trio.current_time() + _LEAVE_SECONDS)
            await self._turn.pause()


async def read_body(answer: httpx2.Response, readings: Readings) -> bytes:
    """Read a body that is one message, or a batch of them.

    Raises:
        MalformedAnswerError: It has more bytes than a message may have.
        DisconnectedError: Too much waits, and what has come of it was given up.
    """
    body = bytearray()

    def give_up() -> None:
        body.clear()
        scope.cancel()

    with readings.reading(give_up) as reading, trio.CancelScope() as scope:
        async for piece in answer.aiter_raw():
            if reading.failure is None:
                body += piece
                reading.hold(len(body))
            if len(body) > MOST_MESSAGE_BYTES:
                scope.cancel()
    if reading.failure is not None:
        raise reading.failure
    if len(body) > MOST_MESSAGE_BYTES:
        raise MalformedAnswerError(f"the answer has more than {MOST_MESSAGE_BYTES:,} bytes")
    return bytes(body)


class Refusal(Enum):
    """The meaning of an error status in a session."""

    OF_REQUEST = "the request alone was refused"
    OF_SESSION = "the session has ended, and nothing has looked at the request"
    UNCLEAR = "the text is that of an ended session, in an answer to the request itself, which may have run"


async def read_error_body(answer: httpx2.Response, readings: Readings) -> bytes:
    """Read the body of an error; empty where it cannot be read, or does not come in time."""
    with (
        trio.move_on_after(_ERROR_SECONDS),
        suppress(httpx2.HTTPError, MalformedAnswerError, DisconnectedError),
    ):
        return await read_body(answer, readings)
    return b""


def validate_error(status: int, body: bytes, request: JsonRpcRequest | None) -> Refusal:
    """Find out whether an error that came in a session is the end of that session (rule W-34).

    A 404 is, unless it is the answer to its request: no such method, or no such resource. Its id alone does not tell, since servers send
    it with the end of a session, too. Servers that end a session with another status write so in the body.

    Args:
        status: The status of the answer.
        body: Its body.
        request: The request that it answers; None for notifications and answers.
    """
    said = None
    with suppress(Undecodable):
        said = decode(body)
    own = isinstance(said, JsonRpcResponse) and request is not None and said.id == request.id
    if status == HTTPStatus.NOT_FOUND:
        code = (
            said.error.code if own and isinstance(said, JsonRpcResponse) and said.error is not None else None
        )
        prefix = None if code is None else _NOT_FOUND.get(code)
        is_answer = request is not None and prefix is not None and request.method.startswith(prefix)
        return Refusal.OF_REQUEST if is_answer else Refusal.OF_SESSION
    if status == HTTPStatus.GONE:
        return Refusal.OF_SESSION
    if not _LOST.search(body[:_TOLD_BYTES].decode(errors="replace")):
        return Refusal.OF_REQUEST
    may_have_run = own or status >= HTTPStatus.INTERNAL_SERVER_ERROR
    return (
        Refusal.UNCLEAR
        if may_have_run and request is not None and request.method != "ping"
        else Refusal.OF_SESSION
    )


def media_type(answer: httpx2.Response) -> str:
    """Return the media type of an answer's body, without parameters; empty where there is none."""
    return str(answer.headers.get("content-type", "")).partition(";")[0].strip().lower()


def check_encoding(url: str, answer: httpx2.Response) -> None:
    """Refuse an answer that was compressed."""
    encoding = answer.headers.get("content-encoding", "identity")
    if encoding != "identity":
        raise MalformedAnswerError(f"{redact_url(url)} answers in {encoding}, which was not asked for")


def status_error(url: str, answer: httpx2.Response) -> ClientError:
    """What to tell of an answer that has nothing of the protocol's."""
    if answer.is_success:
        kind = media_type(answer) or "nothing"
        return MalformedAnswerError(f"what {redact_url(url)} answers is no MCP: its content type is {kind}")
    where = answer.headers.get("location")
    moved = f", and names {redact_url(where)} instead" if answer.is_redirect and where else ""
    said = f"{redact_url(url)} answered {answer.status_code} {answer.reason_phrase}".rstrip()
    return StatusError(answer.status_code, said + moved + _way_out(url, answer))


def _way_out(url: str, answer: httpx2.Response) -> str:
    """What whoever wrote the URL may do about a status."""
    status = answer.status_code
    if status in {401, 403}:
        refusal = read_refusal(status, answer.headers.get_list("www-authenticate"), None)
        if refusal is not None and refusal.scopes:
            needed = sanitize(" ".join(refusal.scopes))
            return f": log in, or give a token with the scopes {needed!r} in a header field, such as 'Authorization: Bearer TOKEN'"
        return ": give credentials in a header field, such as 'Authorization: Bearer TOKEN'"
    if status not in {404, 405, 501}:
        return ""
    if urlsplit(url).path.rstrip("/").endswith("/sse"):
        return ": HTTP+SSE of 2024-11-05 is not spoken; has the server an endpoint of Streamable HTTP, such as /mcp?"
    return ": is this the address of an MCP endpoint? Most end in /mcp"


def explain(url: str, error: httpx2.HTTPError) -> str:
    """What to tell of a request that failed."""
    detail = (not isinstance(error, httpx2.TimeoutException) and _reason(error)) or type(error).__name__
    if "WRONG_VERSION_NUMBER" in detail:  # which is how OpenSSL says it
        detail += ": does the server speak plain HTTP, at http://?"
    if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
        return f"cannot connect to {redact_url(url)}: {detail}"
    return f"the connection to {redact_url(url)} failed: {detail}"


def _reason(error: BaseException | None) -> str:
    """What happened first: of the errors that became one another, the text of the innermost that has one."""
    text = ""
    while error is not None:
        text = str(error) or text
        error = (
            error.exceptions[0]
            if isinstance(error, BaseExceptionGroup)
            else error.__cause__ or error.__context__
        )
    return text
