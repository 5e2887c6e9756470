"""The client that calls an API: one pool of connections for all calls of a server.

A call has one time for all of it, and a response has a limit in bytes. A cancelled call closes its connection, so that the API learns of
it. Requests go through a transport of httpx2 rather than its client: that follows cookies from one user's call to another's, and writes
addresses to the log. A client of the author's own is used as it is.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import Any, Final, TypeAlias

import attrs
import trio

from mcpbus.client.http_library import certificates, httpx2
from mcpbus.features.content import File, ToolResult
from mcpbus.features.errors import ToolError
from mcpbus.features.schemas.json_schema import JsonSchema
from mcpbus.openapi.loading import with_login
from mcpbus.openapi.requests import ApiRequest, RequestPlan
from mcpbus.openapi.responses import ApiResponse, read_contents, read_result
from mcpbus.openapi.security import ApiSecurity, CredentialError, SecretPlace, check_environment, secret_of
from mcpbus.openapi.styles import StyleError
from mcpbus.protocol.errors import INTERNAL_ERROR, ProtocolError
from mcpbus.protocol.printable import printable

_LIMITS: Final = httpx2.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=5)
_CLOSE_SECONDS: Final = 5.0
_LONGEST: Final = 200


@attrs.frozen
class CallLimits:
    """The limits of each call.

    Attributes:
        seconds: The time for a call, from its beginning to the last byte of the response.
        response_bytes: The bytes that a response may have.
    """

    seconds: float
    response_bytes: int


@attrs.frozen
class PlannedCall:
    """One operation, ready to be called.

    Attributes:
        plan: How arguments become a request.
        address: The address of the API.
        schemes: The security schemes to use.
        output: The schema of the structured output; None if there is none.
    """

    plan: RequestPlan
    address: str
    schemes: tuple[str, ...]
    output: JsonSchema | None


class ApiClient:
    """Calls the operations of an API.

    Args:
        transport: Sends requests, if there is no client.
        client: A client of the author's own.
        security: The credentials.
        limits: The limits of each call.
    """

    def __init__(
        self,
        transport: httpx2.AsyncBaseTransport | None,
        client: httpx2.AsyncClient | None,
        security: ApiSecurity,
        limits: CallLimits,
    ) -> None:
        self._transport = transport
        self._client = client
        self._security = security
        self._limits = limits

    async def call(self, planned: PlannedCall, arguments: dict[str, Any]) -> ToolResult:
        """Call an operation.

        A cancellation closes the connection of the request.

        Raises:
            ToolError: The API cannot be reached, answers with an error, or takes too long; or the response is too long.
        """
        response = await self._respond(planned, arguments)
        return read_result(planned.plan.operation.key, response, planned.output)

    async def read(self, planned: PlannedCall, arguments: dict[str, Any]) -> File:
        """Return the response of an operation as the contents of a resource.

        Raises:
            ResourceNotFoundError: The API has no such thing.
            ProtocolError: The API cannot be reached, answers with another error, or takes too long; or the response is too long.
        """
        try:
            response = await self._respond(planned, arguments)
            return read_contents(response)
        except ToolError as error:
            raise ProtocolError(INTERNAL_ERROR, str(error)) from error

    async def _respond(self, planned: PlannedCall, arguments: dict[str, Any]) -> ApiResponse:
        key = planned.plan.operation.key
        try:
            with trio.fail_after(self._limits.seconds):
                request = await self._build(planned, planned.plan.request(arguments))
                return await self._exchange(key, request)
        except (StyleError, CredentialError) as error:
            raise ToolError(str(error)) from error
        except (trio.TooSlowError, httpx2.TimeoutException):
            raise ToolError(f"{key} was not answered within {self._limits.seconds:g} s") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, UnicodeError) as error:
            reason = printable(str(error) or type(error).__name__, lines=False, longest=_LONGEST)
            raise ToolError(f"{key} failed: {reason}") from error

    async def _exchange(self, key: str, request: httpx2.Request) -> ApiResponse:
        response = await self._send(request)
        try:
            content = await self._read(key, response)
        finally:
            with trio.move_on_after(_CLOSE_SECONDS, shield=True):
                await response.aclose()
        if 300 <= response.status_code < 400:
            host = printable(
                httpx2.URL(response.headers.get("location", "")).host, lines=False, longest=_LONGEST
            )
            raise ToolError(
                f"{key}: {response.status_code}, a redirect to {host or 'nowhere'}, which is not followed"
            )
        media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        return ApiResponse(response.status_code, media_type, response.charset_encoding, content)

    async def _send(self, request: httpx2.Request) -> httpx2.Response:
        if self._client is not None:
            return await self._client.send(request, stream=True)
        assert self._transport is not None  # noqa: S101 - there is one or the other
        return await self._transport.handle_async_request(request)

    async def _read(self, key: str, response: httpx2.Response) -> bytes:
        chunks, length = [], 0
        async with aclosing(response.aiter_bytes()) as arriving:
            async for chunk in arriving:
                chunks.append(chunk)
                length += len(chunk)
                if length > self._limits.response_bytes:
                    if response.status_code >= 300:
                        break  # its beginning is enough
                    raise ToolError(
                        f"the response to {key} has more than {self._limits.response_bytes} bytes"
                    )
        return b"".join(chunks)

    async def _build(self, planned: PlannedCall, made: ApiRequest) -> httpx2.Request:
        headers, query = [*made.headers, ("Accept-Encoding", "identity")], made.query
        for name in planned.schemes:
            place = self._security.places[name]
            try:
                value = place.written(await secret_of(name, self._security.credentials[name]))
            except CredentialError as error:
                raise CredentialError(f"{planned.plan.operation.key} was not sent: {error}") from error
            headers, query = _with_secret(place, value, headers, query)
        url = f"{planned.address}{made.path}{'?' if query else ''}{query}"
        if self._client is not None:
            return self._client.build_request(made.method, url, headers=headers, content=made.content)
        return with_login(httpx2.Request(made.method, url, headers=headers, content=made.content))


def _with_secret(
    place: SecretPlace, value: str, headers: list[tuple[str, str]], query: str
) -> tuple[list[tuple[str, str]], str]:
    """Return the headers and the query with a secret in its place."""
    match place.place:
        case "query":
            pair = f"{httpx2.QueryParams({place.name: ''})}{value}"
            return headers, f"{query}&{pair}" if query else pair
        case "cookie":
            others = [text for name, text in headers if name == "Cookie"]
            kept = [each for each in headers if each[0] != "Cookie"]
            return [*kept, ("Cookie", "; ".join([*others, f"{place.name}={value}"]))], query
        case _:
            kept = [each for each in headers if each[0].lower() != place.name.lower()]
            return [*kept, (place.name, value)], query


OpenTransport: TypeAlias = Callable[[], AbstractAsyncContextManager[httpx2.AsyncBaseTransport]]


@asynccontextmanager
async def open_pool() -> AsyncIterator[httpx2.AsyncBaseTransport]:
    """Open a pool of connections for as long as the block lasts."""
    async with httpx2.AsyncHTTPTransport(verify=await certificates(), limits=_LIMITS) as transport:
        yield transport


@asynccontextmanager
async def open_api_client(
    transport: OpenTransport, client: httpx2.AsyncClient | None, security: ApiSecurity, limits: CallLimits
) -> AsyncIterator[ApiClient]:
    """Open the client of an API for as long as the block lasts. A client of the author's own remains open.

    Raises:
        CredentialError: An environment variable is not set.
    """
    check_environment(security.credentials)
    if client is not None:
        yield ApiClient(None, client, security, limits)
        return
    async with transport() as opened:
        yield ApiClient(opened, None, security, limits)
