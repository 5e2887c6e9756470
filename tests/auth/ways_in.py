"""The ways in over HTTP, each with the shell that it goes through, so that one test can go through them all."""

import json
from contextlib import asynccontextmanager
from functools import partial

import attrs
import trio
from channels import request, sse, ws
from guarded import challenge_of, guarded
from websocket_wires import wire_ws


@attrs.frozen
class Told:
    """How a request was answered: its status, its header fields, its body and its messages."""

    status: int
    headers: dict[str, str]
    body: bytes
    messages: list = attrs.field(factory=list)

    @property
    def challenge(self):
        return challenge_of(self)

    @property
    def outcome(self):
        """What the client makes of it: the status, with the error of the challenge and why, where there is one."""
        if "www-authenticate" not in self.headers:
            return self.status
        said = self.challenge
        why = said.get("error_description", "").removeprefix("the token is no good: ")
        return (self.status, said["error"], why) if "error" in said else self.status


class Post:
    """A POST of the latest revision to the endpoint; in a session, one of 2025-11-25."""

    place = "/mcp"

    def __init__(self, it):
        self.it = it

    async def first(self, headers, query=""):
        """Send what comes first on this way, and return how it was answered."""
        body = json.dumps(request(1, "tools/list", modern=True)).encode()
        fields = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/list", **headers}
        return await self.sent("POST", body, fields, query)

    async def sent(self, verb, body, headers, query=""):
        fields = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        answer = self.it.probe.send(verb, body, {**fields, **headers}, target=f"{self.place}{query}")
        await answer.begun()
        return Told(answer.status, answer.headers, answer.body, answer.messages if answer.complete else [])

    async def lasts(self, token, seconds):
        """Listen; return whether the server lets one still do so after each of these times."""
        listening = {"notifications": {"toolsListChanged": True}}
        stream = self.it.probe.request("subscriptions/listen", listening, headers=token)
        return [not stream.over async for _ in _after(seconds)]

    @asynccontextmanager
    async def client(self, token):
        """Connect a client that brings a token; what it yields makes a request, with that token or another, and returns its result.

        What its token does not allow is told as the scopes that it takes, all else that is no result as the status.
        """
        it = self.it
        session = await it.probe.initialize(headers=token)

        async def ask(method, params, headers=token):
            fields = {"mcp-session-id": session.id, "mcp-protocol-version": "2025-11-25", **headers}
            answer = await it.probe.post(request(7, method, params), fields).ended()
            return _made_of(answer)

        yield ask


class Sse(Post):
    """A connection of HTTP+SSE, and POSTs beside it."""

    place = "/sse"

    async def first(self, headers, query=""):
        return await self.sent("GET", b"", {"accept": "text/event-stream", **headers}, query)

    async def lasts(self, token, seconds):
        async with sse(self.it.probe, "2025-06-18", **token) as client:
            return [not client.stream.over async for _ in _after(seconds)]

    @asynccontextmanager
    async def client(self, token):
        async with sse(self.it.probe, "2025-06-18", **token) as client:

            async def ask(method, params, headers=token):
                answer = await client.post(request(7, method, params), **headers).ended()
                return (await client.stream.message())["result"] if answer.status == 202 else _made_of(answer)

            yield ask


class WebSocket:
    """A WebSocket. What it brings, it brings in the request to upgrade, and there is no other token later."""

    place = "/mcp"

    def __init__(self, it, connect):
        self.it = it
        self.connect = connect

    async def first(self, headers, query=""):
        async with self.connect(self.it.app, path=f"/mcp{query}", **headers) as client:
            if client.accepted:
                return Told(200, {}, b"")
            if isinstance(client.body, bytes) and hasattr(client, "ended"):
                await client.ended()
            fields = {name.decode(): value.decode() for name, value in client.headers}
            return Told(client.status, fields, client.body)

    async def lasts(self, token, seconds):
        async with self.connect(self.it.app, "2025-11-25", **token) as client:
            return [client.close is None async for _ in _after(seconds)]

    @asynccontextmanager
    async def client(self, token):
        async with self.connect(self.it.app, "2025-11-25", **token) as client:

            async def ask(method, params):
                reply = await client.ask(request(7, method, params))
                needed = reply.get("error", {}).get("data", {}).get("requiredScopes")
                return reply["result"] if needed is None else " ".join(needed)

            yield ask


async def _after(seconds):
    begun = trio.current_time()
    for each in seconds:
        await trio.sleep_until(begun + each)
        yield each


def _made_of(answer):
    if "www-authenticate" in answer.headers:
        return challenge_of(answer).get("scope") if answer.status == 403 else answer.status
    return answer.messages[-1]["result"] if answer.status == 200 else answer.status


WAYS_IN = {
    "lane": ("http1", Post),
    "ASGI": ("asgi", Post),
    "HTTP/2": ("http2", Post),
    "HTTP+SSE on the lane": ("http1", Sse),
    "HTTP+SSE in ASGI": ("asgi", Sse),
    "WebSocket on the lane": ("http1", partial(WebSocket, connect=partial(wire_ws, turns=True))),
    "WebSocket in ASGI": ("asgi", partial(WebSocket, connect=ws)),
}


@asynccontextmanager
async def entered(name, **options):
    """Open a guarded server, and one way into it."""
    shell, way = WAYS_IN[name]
    async with guarded(shell=shell, **options) as it:
        yield way(it)
