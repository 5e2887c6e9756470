"""Exchanges with an ASGI application, called as a server calls it."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import trio

from mcpbus.testing.recording import Recording, SentRequest

AsgiApp = Callable[..., Awaitable[None]]
Message = MutableMapping[str, Any]


class OverAsgi:
    """Calls an application for each request.

    Args:
        app: The application.
        nursery: Where the calls run; what the application raises, is raised there.
    """

    def __init__(self, app: AsgiApp, nursery: trio.Nursery) -> None:
        self._app = app
        self._nursery = nursery

    def send(self, sent: SentRequest, recording: Recording) -> None:
        """Begin an exchange."""
        self._nursery.start_soon(_AsgiExchange(sent, recording).run, self._app)


class _AsgiExchange:
    def __init__(self, sent: SentRequest, recording: Recording) -> None:
        self._recording = recording
        self._requests: list[Message] = [{"type": "http.request", "body": sent.body, "more_body": False}]
        self._scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "method": sent.verb,
            "scheme": "http",
            "path": sent.path,
            "raw_path": sent.path.encode(),
            "query_string": sent.query.encode(),
            "root_path": "",
            "headers": sent.fields,
            "client": ("127.0.0.1", 0),
            "server": ("localhost", 80),
        }

    async def run(self, app: AsgiApp) -> None:
        await app(self._scope, self._receive, self._send)
        self._recording.abort()

    async def _receive(self) -> Message:
        await trio.lowlevel.checkpoint()
        if self._requests:
            return self._requests.pop()
        await self._recording.wait_for(lambda: self._recording.disconnected or self._recording.complete)
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        """Take what the application says. After a disconnect it waits for ever, or returns at once: that is the worst servers do."""
        recording = self._recording
        await trio.lowlevel.checkpoint()
        if recording.disconnected:
            return
        await recording.wait_for(lambda: not recording.stalled)
        if recording.disconnected:
            await trio.sleep_forever()
        if recording.complete or (recording.status is None) is not (message["type"] == "http.response.start"):
            raise AssertionError(f"{message['type']} out of turn: {recording!r}")
        if recording.status is None:
            recording.begin(message["status"], message["headers"])
        else:
            recording.take(message.get("body", b""), complete=not message.get("more_body", False))
