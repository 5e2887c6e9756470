"""What a client makes of an answer over HTTP: its body, and in a sentence what is wrong where it has nothing of the protocol's."""

from collections.abc import Callable
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

import trio

from mcpbus.client.errors import ClientError, MalformedAnswerError, StatusError, told
from mcpbus.client.http_library import httpx2
from mcpbus.client.oauth.errors import shown
from mcpbus.client.oauth.refusal import read_refusal
from mcpbus.client.stream_place import StreamPlace
from mcpbus.client.wire import MOST_MESSAGE_BYTES
from mcpbus.protocol.errors import METHOD_NOT_FOUND, RESOURCE_NOT_FOUND
from mcpbus.protocol.http.sse import EventDecoder
from mcpbus.protocol.jsonrpc import Request, Response, Undecodable, decode

_LEAVE_SECONDS: Final = 0.1
"""How long a server has to end a stream by itself once the answer has come, so that the connection can be used again."""

_NOT_FOUND_SECONDS: Final = 5.0
"""How long the body of a 404 may take: without it nobody knows whether the session has ended."""

_NOT_FOUND: Final = {METHOD_NOT_FOUND: "", RESOURCE_NOT_FOUND: "resources/"}
"""The errors that a server may tell with the status 404, too, as 2026-07-28 has it for the first, and how methods begin that may have them."""


async def read_pieces(answer: httpx2.Response, take: Callable[[bytes], bool]) -> None:
    """Read a body piece by piece, until it ends, or `take` wants no more of it or fails.

    It is left by a cancellation then: an iteration that is merely given up is closed nobody knows when.
    """
    failure: Exception | None = None
    with trio.CancelScope() as scope:
        async for piece in answer.aiter_raw():
            try:
                if failure is None and not take(piece):
                    scope.deadline = min(scope.deadline, trio.current_time() + _LEAVE_SECONDS)
            except Exception as error:  # noqa: BLE001 - raised again below
                failure = error
                scope.cancel()
    if failure is not None:
        raise failure


async def read_messages(answer: httpx2.Response, place: StreamPlace, take: Callable[[str], bool]) -> None:
    """Read a stream of events until it ends, or `take` wants no more of its messages or fails.

    Raises:
        ValueError: An event has more bytes than a message may have.
    """
    decoder = EventDecoder(MOST_MESSAGE_BYTES)

    def take_piece(piece: bytes) -> bool:
        wanted = True
        for event in decoder.feed(piece):
            message = place.read(event)
            if message is not None:
                wanted = take(message)
        return wanted

    await read_pieces(answer, take_piece)


async def read_body(answer: httpx2.Response) -> bytes:
    """Read a body that is one message, or a batch of them.

    Raises:
        MalformedAnswerError: It has more bytes than a message may have.
    """
    body = bytearray()

    def take(piece: bytes) -> bool:
        body.extend(piece)
        if len(body) > MOST_MESSAGE_BYTES:
            raise MalformedAnswerError(f"the answer has more than {MOST_MESSAGE_BYTES:,} bytes")
        return True

    await read_pieces(answer, take)
    return bytes(body)


async def read_not_found(answer: httpx2.Response, request: Request) -> bytes | None:
    """Read what came with 404 in a session, and return it if it is the answer to its request: no such method, or no such resource.

    Any other is the end of the session (rule W-34). The id alone does not tell: servers, this one among them, say with it that the
    session has ended. A body that cannot be read, or does not come, changes nothing.
    """
    with (
        trio.move_on_after(_NOT_FOUND_SECONDS),
        suppress(httpx2.HTTPError, MalformedAnswerError, Undecodable, ValueError, RecursionError),
    ):
        body = await read_body(answer)
        said = decode(body)
        if (
            isinstance(said, Response)
            and said.id == request.id
            and said.error is not None
            and (prefix := _NOT_FOUND.get(said.error.code)) is not None
            and request.method.startswith(prefix)
        ):
            return body
    return None


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
