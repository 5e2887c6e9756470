"""An issuer that agrees to everything, as an ASGI application: for a demo, and for tests of what clients do by themselves.

Whoever asks is logged in as the same person, and gets what they ask for. It has what clients of MCP need of an issuer: its metadata,
registration, the authorization code flow with PKCE, refresh and client credentials. It is to be served on loopback alone.
"""

import base64
import hashlib
import secrets
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, urlencode

import attrs
import msgspec

from mcpbus.testing.issuer import InMemoryIssuer

Message: TypeAlias = MutableMapping[str, Any]

_JSON = (b"content-type", b"application/json")
_ALWAYS = [
    (b"access-control-allow-origin", b"*"),
    (b"access-control-allow-headers", b"*"),
    (b"cache-control", b"no-store"),
]


class RefusedError(Exception):
    """An issuer refuses a request, with an error code of RFC 6749 or RFC 7591."""


@attrs.frozen
class Grant:
    """What somebody was granted, for which a client gets tokens.

    Attributes:
        client: Whose it is.
        scope: What it allows.
        resource: For which server.
        redirect_uri: Where the client was told of it.
        challenge: What it has to know the verifier of (RFC 7636).
    """

    client: str
    scope: str
    resource: str
    redirect_uri: str = ""
    challenge: str = ""


class AgreeableIssuer:
    """See the module.

    Args:
        issuer: Signs the tokens.
        subject: Who everybody is.
        lifetime: Seconds for which tokens are good.

    Attributes:
        granted: What was granted so far, in order.
    """

    def __init__(self, issuer: InMemoryIssuer, *, subject: str = "somebody", lifetime: float = 3600) -> None:
        self.granted: list[Grant] = []
        self._issuer = issuer
        self._subject = subject
        self._lifetime = lifetime
        self._clients: dict[str, list[str]] = {}
        self._codes: dict[str, Grant] = {}
        self._refreshing: dict[str, Grant] = {}

    async def __call__(
        self,
        scope: Mapping[str, Any],
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        """Serve one request, as ASGI 3.0 has it."""
        if scope["type"] == "lifespan":
            for phase in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{phase}.complete"})
            return
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        try:
            status, fields, answer = await self._answer(scope, body)
        except RefusedError as error:
            status, fields, answer = 400, [_JSON], msgspec.json.encode({"error": str(error)})
        fields = [*fields, *_ALWAYS, (b"content-length", b"%d" % len(answer))]
        await send({"type": "http.response.start", "status": status, "headers": fields})
        await send({"type": "http.response.body", "body": answer})

    async def _answer(
        self, scope: Mapping[str, Any], body: bytes
    ) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        match scope["method"], scope["path"]:
            case "OPTIONS", _:
                return 204, [], b""
            case "GET", "/.well-known/oauth-authorization-server":
                return 200, [_JSON], msgspec.json.encode(self.metadata)
            case "GET", "/authorize":
                address = self._authorize(dict(parse_qsl(scope["query_string"].decode())))
                return 302, [(b"location", address.encode())], b""
            case "POST", "/register":
                return 201, [_JSON], msgspec.json.encode(self._register(msgspec.json.decode(body)))
            case "POST", "/token":
                return 200, [_JSON], msgspec.json.encode(self._token(dict(parse_qsl(body.decode()))))
        status, found = await self._issuer.request(scope["method"], f"{self._issuer.url}{scope['path']}")
        return status, [_JSON], found

    @property
    def metadata(self) -> dict[str, Any]:
        """What clients find out about it (RFC 8414)."""
        url = self._issuer.url
        return {
            "issuer": url,
            "authorization_endpoint": f"{url}/authorize",
            "token_endpoint": f"{url}/token",
            "registration_endpoint": f"{url}/register",
            "jwks_uri": self._issuer.jwks_uri,
            "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code", "refresh_token", "client_credentials"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none"],
            "authorization_response_iss_parameter_supported": True,
        }

    def _register(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Take a client up, under a name of its own (RFC 7591)."""
        client = f"client-{len(self._clients) + 1}"
        self._clients[client] = asked["redirect_uris"]
        return {**asked, "client_id": client, "token_endpoint_auth_method": "none"}

    def _authorize(self, asked: dict[str, str]) -> str:
        """Agree, and return where to send the browser."""
        address = asked.get("redirect_uri", "")
        if address not in self._clients.get(asked.get("client_id", ""), ()):
            raise RefusedError("invalid_request")
        code = secrets.token_urlsafe()
        grant = Grant(
            asked["client_id"],
            asked.get("scope", ""),
            self._resource(asked),
            address,
            asked["code_challenge"],
        )
        self._codes[code] = grant
        self.granted.append(grant)
        told = {"code": code, "state": asked.get("state", ""), "iss": self._issuer.url}
        return f"{address}{'&' if '?' in address else '?'}{urlencode(told)}"

    def _resource(self, asked: Mapping[str, str]) -> str:
        return asked.get("resource", self._issuer.resource)

    def _token(self, asked: dict[str, str]) -> dict[str, Any]:
        match asked.get("grant_type"):
            case "authorization_code":
                grant = self._codes.pop(asked.get("code", ""), None)
                if grant is None or _challenge(asked.get("code_verifier", "")) != grant.challenge:
                    raise RefusedError("invalid_grant")
            case "refresh_token":
                grant = self._refreshing.pop(asked.get("refresh_token", ""), None)
                if grant is None:
                    raise RefusedError("invalid_grant")
            case "client_credentials":
                grant = Grant(
                    asked.get("client_id", "a program"), asked.get("scope", ""), self._resource(asked)
                )
                return self._tokens(grant)
            case _:
                raise RefusedError("unsupported_grant_type")
        refresh = secrets.token_urlsafe()
        self._refreshing[refresh] = grant
        return {**self._tokens(grant), "refresh_token": refresh}

    def _tokens(self, grant: Grant) -> dict[str, Any]:
        token = self._issuer.token(
            self._subject,
            grant.scope.split(),
            client=grant.client,
            lifetime=self._lifetime,
            resource=grant.resource,
        )
        return {
            "access_token": token,
            "token_type": "Bearer",
            "expires_in": int(self._lifetime),
            "scope": grant.scope,
        }


def _challenge(verifier: str) -> str:
    digest = hashlib.sha256(verifier.encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
