"""The stream on which a server of an older revision tells what belongs to no request: notifications, and questions (rules W-17 to W-24).

It is opened by a GET once there is somebody who wants to hear it, one in each session, and stays open until the client is left. It is
come back to where it ends or breaks. A server may have none, and says so by 405: it is not asked for it again in that session.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Final

import trio

from mcpbus.client.client import Client
from mcpbus.client.errors import ClientError, DisconnectedError, StatusError, redact_url
from mcpbus.client.http_library import httpx2
from mcpbus.client.http_requests import HttpRequests
from mcpbus.client.http_responses import check_encoding, explain, media_type, read_messages, status_error
from mcpbus.client.oauth.errors import LoginError
from mcpbus.client.stream_position import StreamPosition
from mcpbus.protocol.errors import ProtocolError
from mcpbus.protocol.jsonrpc import Undecodable

_log = logging.getLogger(__name__)

_ANSWER_SECONDS: Final = 10.0
"""How long somebody waits for it to be open: a server may hold back the head of its answer until there is something to tell."""
_SOON_SECONDS: Final = 0.5
"""How long the first request of a session waits for it: some servers discard a question for which no stream is open."""
_SILENT_SECONDS: Final = 300.0
"""After how long without a byte, be it of a comment, it is taken to be broken: nobody says so of a connection that a firewall has forgotten."""
_LASTING_SECONDS: Final = 30.0
"""A stream that was open for so long was none that ends at once, which is not come back to for ever."""
_PING_SECONDS: Final = 30.0

_TELLING: Final = {"resources/subscribe", "logging/setLevel"}
"""What has a server tell something outside of requests."""
_NOT_NOW: Final = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, HTTPStatus.TOO_MANY_REQUESTS}
"""Statuses that may be others the next time; the second where a server has not noticed that the last stream has broken."""
_UNKNOWN_SESSION: Final = {HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, HTTPStatus.GONE}
"""With what servers refuse a session that they do not know, among others."""
_UNKNOWN_EVENT: Final = {HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND}
"""With what servers refuse an event id that they do not know any more (rule W-26)."""


class GetStream:
    """That of one client, in one session after the other.

    Args:
        requests: Sends them.
        url: The endpoint.
        nursery: For the stream.
        headers: Names the header fields of a request in a session.
    """

    def __init__(
        self,
        requests: HttpRequests,
        url: str,
        nursery: trio.Nursery,
        headers: Callable[[str | None], dict[str, str]],
    ) -> None:
        self._requests = requests
        self._url = url
        self._nursery = nursery
        self._headers = headers
        self._wanted = False
        self._entered: tuple[Client, str | None] | None = None
        self._scope: trio.CancelScope | None = None
        # Of the present session: whether the server has said that it has none, and why there is none.
        self._refused = False
        self._why: str | None = None
        self._answered = trio.Event()

    def want(self) -> None:
        """Have it open from now on, in each session."""
        self._wanted = True
        self._open()

    async def opened(self) -> None:
        """Have it open, and wait until it is; 10 s at most.

        Raises:
            ClientError: There is none.
        """
        self.want()
        with trio.move_on_after(_ANSWER_SECONDS):
            await self._answered.wait()
        if self._why is not None:
            raise ClientError(f"the server tells nothing outside of requests: {self._why}")

    async def soon(self) -> None:
        """Wait until the stream is open, or was refused, if one is being opened; half a second at most."""
        if self._scope is not None:
            with trio.move_on_after(_SOON_SECONDS):
                await self._answered.wait()

    def asked(self, method: str) -> None:
        """Note what is asked of the server: that may be what it tells there, and another attempt is made where it was given up."""
        self._wanted |= method in _TELLING
        self._open()

    def enter(self, client: Client, session: str | None) -> None:
        """Note that a session is open: it is told there."""
        self.leave()
        self._entered = client, session
        self._refused = False
        self._open()

    def leave(self) -> None:
        """Close it: nothing more is to be told in this session."""
        self._entered = None
        if self._scope is not None:
            self._scope.cancel()
            self._scope = None
        self._expect()

    def _expect(self) -> None:
        self._why = None
        if self._answered.is_set():
            self._answered = trio.Event()

    def _open(self) -> None:
        if self._wanted and not self._refused and self._entered is not None and self._scope is None:
            self._expect()
            self._scope = trio.CancelScope()
            self._nursery.start_soon(self._run, *self._entered, self._scope)

    async def _run(self, client: Client, session: str | None, scope: trio.CancelScope) -> None:
        """Hear what is told, until the session is left, or the stream is given up."""
        with scope:
            why, refused = await self._hear(client, StreamPosition(session))
        if self._scope is not scope:
            return
        self._scope = None
        never = refused and not self._answered.is_set()
        self._refused, self._why = refused, why
        self._answered.set()
        if not never:  # else nothing was lost: there is none
            client.unheard(why)

    async def _hear(self, client: Client, place: StreamPosition) -> tuple[str, bool]:
        """Come back to the stream for as long as there is a point in it; return why there is none, and whether the server has said so."""
        while True:
            refusal: ClientError | None = None
            try:
                await self._follow(client, place)
                why = f"{redact_url(self._url)} ended the stream"
            except (httpx2.HTTPError, ValueError, DisconnectedError) as error:
                why = explain(self._url, error) if isinstance(error, httpx2.HTTPError) else str(error)
            except ClientError as error:
                refusal, why = error, str(error)
                if not await self._may_come_back(error, client, place):
                    # Who has no token yet may have one with the next request.
                    return why, not isinstance(error, LoginError)
            if not place.reconnect():
                return why, refusal is not None
            await trio.sleep(place.pause)

    async def _may_come_back(self, refusal: ClientError, client: Client, place: StreamPosition) -> bool:
        """Tell whether another attempt may have another answer."""
        if not isinstance(refusal, StatusError):
            return False
        if refusal.status in _UNKNOWN_SESSION and place.session is not None:
            # The end of the session as a rule, but for servers that know a POST alone at this address. A request tells which, and if it is
            # the end, has a new one opened, where there is another stream.
            with trio.move_on_after(_PING_SECONDS), suppress(ClientError, ProtocolError):
                await client.request("ping")
        if place.id and refusal.status in _UNKNOWN_EVENT:
            place.id = None
            return True
        return refusal.status in _NOT_NOW or refusal.status >= HTTPStatus.INTERNAL_SERVER_ERROR

    async def _follow(self, client: Client, place: StreamPosition) -> None:
        """Take what is told until the stream ends.

        Raises:
            ClientError: The server has no such stream.
            ValueError: A message is too long.
        """

        def take(message: str) -> bool:
            try:
                client.receive(message)
            except (Undecodable, ValueError, RecursionError) as fault:
                _log.warning("what %s tells outside of requests is no MCP: %s", redact_url(self._url), fault)
            return True

        headers = {"Accept": "text/event-stream", **self._headers(place.session)}
        if place.id:
            headers["Last-Event-ID"] = place.id
        async with self._requests.send("GET", headers, silent_seconds=_SILENT_SECONDS) as answer:
            if media_type(answer) != "text/event-stream" or not answer.is_success:
                raise status_error(self._url, answer)
            check_encoding(self._url, answer)
            self._answered.set()
            begun = trio.current_time()
            try:
                await read_messages(answer, place, take, client.readings)
            finally:
                if trio.current_time() - begun >= _LASTING_SECONDS:
                    place.returns = 0
