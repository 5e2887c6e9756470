"""An application that is called through ASGI, for one HTTP/2 request."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final
from urllib.parse import unquote

import trio

from mcpbus.serving.asgi import AsgiApp, Message, Scope
from mcpbus.serving.http2.request import Http2Request

Address = tuple[str, int | None] | None

_OF_THE_CONNECTION: Final = frozenset(
    {b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade"}
)


class AsgiCall:
    """Calls an application for a request.

    Args:
        app: The application.
        request: The request.
        scope: What is the same for all requests of its connection.
        flush_soon: Has what was said written in the next turn of the scheduler.
    """

    def __init__(
        self, app: AsgiApp, request: Http2Request, scope: Scope, flush_soon: Callable[[], None]
    ) -> None:
        self._app = app
        self._request = request
        self._scope = scope
        self._flush_soon = flush_soon
        self._read = False

    async def run(self) -> None:
        """Call it."""
        await self._app(self._describe(), self._receive, self._send)

    def _describe(self) -> Scope:
        read = self._request.read
        head = read.judged
        path, _, query = read.target.partition(b"?")
        return {
            **self._scope,
            "state": dict(self._scope["state"]),
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "2",
            "method": head.verb,
            "path": unquote(path.decode()),
            "raw_path": path,
            "query_string": query,
            "root_path": "",
            "headers": list(read.fields),
            "extensions": {},
        }

    async def _receive(self) -> Message:
        request, body = self._request, self._request.body
        await trio.lowlevel.checkpoint()
        if not self._read:
            await body.more()
            data = body.take()
            if data or body.ended:
                self._read = body.ended
                return {"type": "http.request", "body": data, "more_body": not body.ended}
        await request.disconnected()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        request = self._request
        await trio.lowlevel.checkpoint_if_cancelled()
        if request.gone:
            await trio.lowlevel.checkpoint()  # nobody hears of it, and a loop would never end
        elif message["type"] == "http.response.start":
            self._begin(message)
        elif message["type"] == "http.response.body":
            await self._say(message.get("body", b""), more=message.get("more_body", False))

    def _begin(self, message: Message) -> None:
        fields = [(bytes(name).lower(), bytes(value)) for name, value in message.get("headers", ())]
        kept = [field for field in fields if field[0] not in _OF_THE_CONNECTION]
        self._request.say_head(message["status"], kept, last=False)
        self._flush_soon()

    async def _say(self, data: bytes, *, more: bool) -> None:
        request = self._request
        if not request.started:
            raise RuntimeError("a response begins with http.response.start")
        try:
            early = not more and not request.body.over
            if data or more or early:
                await request.wait_sent(partial(request.say, data, last=not more and not early))
            if early or (not more and not data):
                await request.say_end()
        except trio.BrokenResourceError:
            await trio.lowlevel.checkpoint()  # who listens to `receive` hears of it


def connection_scope(client: Any, server: Any, state: dict[str, object], *, secure: bool) -> Scope:
    """What a scope says of the connection."""
    return {
        "scheme": "https" if secure else "http",
        "client": client,
        "server": server,
        "state": state,
    }
