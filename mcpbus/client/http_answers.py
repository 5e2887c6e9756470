"""What a client makes of an answer over HTTP: its body, and in a sentence what is wrong where it has nothing of the protocol's."""

import re
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

import trio

from mcpbus.client.errors import ClientError, MalformedAnswerError, StatusError, told
from mcpbus.client.http_library import httpx2
from mcpbus.client.oauth.errors import shown
from mcpbus.client.oauth.refusal import read_refusal
from mcpbus.client.stream_place import StreamPlace
from mcpbus.client.wire import MOST_MESSAGE_BYTES
from mcpbus.client.yielding import Yielder
from mcpbus.protocol.errors import METHOD_NOT_FOUND, RESOURCE_NOT_FOUND
from mcpbus.protocol.http.sse import EventDecoder
from mcpbus.protocol.jsonrpc import Request, Response, Undecodable, decode

_LEAVE_SECONDS: Final = 0.1
"""How long a server has to end a stream by itself once the answer has come, so that the connection can be used again."""

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


async def read_messages(answer: httpx2.Response, place: StreamPlace, take: Callable[[str], bool]) -> None:
    """Read a stream of events until it ends, or `take` wants no more of its messages or fails.

    Other tasks run in between, however many messages come in one piece.

    Raises:
        ValueError: An event has more bytes than a message may have.
    """
    decoder, turn = EventDecoder(MOST_MESSAGE_BYTES), Yielder()
    failure: Exception | None = None
    # Left by a cancellation: an iteration that is given up otherwise is closed by the garbage collector, at any time.
    with trio.CancelScope() as scope:
        async for piece in answer.aiter_raw():
            try:
                for event in decoder.feed(piece) if failure is None else ():
                    message = place.read(event)
                    if message is not None and not take(message):
                        scope.deadline = min(scope.deadline, trio.current_time() + _LEAVE_SECONDS)
                    await turn.pause()
            except Exception as error:  # noqa: BLE001 - raised again below
                failure = error
                scope.cancel()
    if failure is not None:
        raise failure


async def read_body(answer: httpx2.Response) -> bytes:
    """Read a body that is one message, or a batch of them.

    Raises:
        MalformedAnswerError: It has more bytes than a message may have.
    """
    body = bytearray()
    with trio.CancelScope() as scope:
        async for piece in answer.aiter_raw():
            body += piece
            if len(body) > MOST_MESSAGE_BYTES:
                scope.cancel()
    if len(body) > MOST_MESSAGE_BYTES:
        raise MalformedAnswerError(f"the answer has more than {MOST_MESSAGE_BYTES:,} bytes")
    return bytes(body)


class Refusal(Enum):
    """The meaning of an error status in a session."""

    OF_REQUEST = "the request alone was refused"
    OF_SESSION = "the session has ended, and nothing has looked at the request"
    UNCLEAR = "the text is that of an ended session, in an answer to the request itself, which may have run"


async def read_error_body(answer: httpx2.Response) -> bytes:
    """Read the body of an error; empty where it cannot be read, or does not come in time."""
    with (
        trio.move_on_after(_ERROR_SECONDS),
        suppress(httpx2.HTTPError, MalformedAnswerError),
    ):
        return await read_body(answer)
    return b""


def judge_error(status: int, body: bytes, request: Request | None) -> Refusal:
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
    own = isinstance(said, Response) and request is not None and said.id == request.id
    if status == HTTPStatus.NOT_FOUND:
        code = said.error.code if own and isinstance(said, Response) and said.error is not None else None
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
        raise MalformedAnswerError(f"{told(url)} answers in {encoding}, which was not asked for")


def status_error(url: str, answer: httpx2.Response) -> ClientError:
    """What to tell of an answer that has nothing of the protocol's."""
    if answer.is_success:
        kind = media_type(answer) or "nothing"
        return MalformedAnswerError(f"what {told(url)} answers is no MCP: its content type is {kind}")
    where = answer.headers.get("location")
    moved = f", and names {told(where)} instead" if answer.is_redirect and where else ""
    said = f"{told(url)} answered {answer.status_code} {answer.reason_phrase}".rstrip()
    return StatusError(answer.status_code, said + moved + _way_out(url, answer))


def _way_out(url: str, answer: httpx2.Response) -> str:
    """What whoever wrote the URL may do about a status."""
    status = answer.status_code
    if status in {401, 403}:
        refusal = read_refusal(status, answer.headers.get_list("www-authenticate"), None)
        if refusal is not None and refusal.scopes:
            needed = shown(" ".join(refusal.scopes))
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
        return f"cannot connect to {told(url)}: {detail}"
    return f"the connection to {told(url)} failed: {detail}"


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
