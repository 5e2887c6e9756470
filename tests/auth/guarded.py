"""A server that lets nobody in without a token, an issuer, and a client for each way in over HTTP."""

import json
import re
from contextlib import asynccontextmanager

from channels import call, initialize, sse, ws

from mcpbus import Context, Limits, Server
from mcpbus.auth import ResourceServer
from mcpbus.testing import InMemoryIssuer, open_bus, open_probe, wait_until_idle

RESOURCE = "http://localhost/mcp"
METADATA = "http://localhost/.well-known/oauth-protected-resource/mcp"
WAYS = ["modern", "legacy", "get", "delete", "sse", "sse post", "websocket"]
"""How a request comes; those of a session need one that was opened before."""


def make_server(**options):
    server = Server("files", **options)

    @server.tool(scopes=["files:write"])
    async def write(text: str = "") -> str:
        return f"wrote {text}"

    @server.tool
    async def whoami(ctx: Context) -> dict[str, str]:
        found = ctx.principal
        return {"issuer": found.issuer, "subject": found.subject, "client": found.client}

    @server.tool(scopes=["files:write", "files:delete"])
    async def delete(path: str = "") -> str:
        return "deleted"

    @server.on_request("com.example/audit", scopes=["audit"])
    async def audit() -> None: ...

    @server.prompt(scopes=["prompts"])
    async def letter(to: str) -> str:
        return f"Write to {to}"

    @server.completion("letter", "to")
    async def names(typed: str) -> list[str]:
        return ["ada"]

    @server.resource("file://secret", scopes=["secrets"])
    async def secret() -> str:
        return "42"

    @server.resource("file://home/{name}", scopes=["home"])
    async def home(name: str) -> str:
        return name

    return server


class Guarded:
    """An open bus that is guarded, and its clients."""

    def __init__(self, bus, app, probe, issuer):
        self.bus, self.app, self.probe, self.issuer = bus, app, probe, issuer

    async def send(self, way, headers=None, *, session=None, tool="whoami"):
        """Send a request in some way, and return its recording, whose answer has begun."""
        headers = headers or {}
        params = {"name": tool, "arguments": {}}
        of_session = {"mcp-session-id": session or "none", "mcp-protocol-version": "2025-11-25", **headers}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        match way:
            case "modern":
                sent = self.probe.request("tools/call", params, headers=headers)
            case "legacy":
                sent = self.probe.post(message, of_session if session else headers)
            case "get":
                sent = self.probe.send("GET", headers={"accept": "text/event-stream", **of_session})
            case "delete":
                sent = self.probe.send("DELETE", headers=of_session)
            case "sse":
                fields = {"accept": "text/event-stream", **headers}
                sent = self.probe.send("GET", headers=fields, target="/sse")
            case "sse post":
                fields = {"content-type": "application/json", **headers}
                target = f"/sse?session_id={session or 'none'}"
                sent = self.probe.send("POST", json.dumps(message).encode(), fields, target=target)
            case "websocket":
                return await self._upgrade(headers)
        return await sent.begun()

    async def _upgrade(self, headers):
        async with ws(self.app, **headers) as client:
            start = client.sent[0]
            return Upgrade(client.status, start.get("headers", ()))

    async def quiet(self):
        await wait_until_idle(self.bus)

    @property
    def sse_session(self):
        """The id of the one session over HTTP+SSE."""
        stream = next(recording for recording in self.probe.recordings if recording.endpoint)
        return stream.endpoint.partition("=")[2]


class Upgrade:
    """What a request to upgrade was answered; 101 if it was let in."""

    body = b""

    def __init__(self, status, fields):
        self.status = status or 101
        self.headers = {name.decode(): value.decode() for name, value in fields}


def challenge_of(answer):
    """What a challenge says, by parameter; its scheme as `scheme`."""
    scheme, _, rest = answer.headers["www-authenticate"].partition(" ")
    found = dict(re.findall(r'([a-z_]+)="((?:[^"\\]|\\.)*)"', rest))
    assert rest == ", ".join(f'{name}="{value}"' for name, value in found.items())
    return {"scheme": scheme, **found}


def bearing(token):
    return {"authorization": f"Bearer {token}"}


@asynccontextmanager
async def guarded(*, verifier=None, limits=None, http=None, server=None, shell=None, **options):
    """Open a server that an issuer's tokens open; what every request needs is `files:read`, if nothing else is said."""
    issuer = InMemoryIssuer()
    options = {"scopes": ["files:read"], "implies": {"files:admin": ["files:read", "files:write"]}, **options}
    if verifier is None:
        auth = issuer.protect(RESOURCE, **options)
    else:
        auth = ResourceServer(RESOURCE, verifier(issuer), **options)
        auth.clock = issuer.now
    server = server or make_server()
    server.auth = auth
    async with open_bus(server, limits=Limits(**(limits or {}))) as bus:
        app = bus.asgi(**(http or {}))
        async with open_probe(app, shell=shell) as probe:
            yield Guarded(bus, app, probe, issuer)


__all__ = ["call", "initialize", "sse", "ws"]
