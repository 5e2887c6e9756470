"""An issuer of tokens in memory, for tests of what tokens allow: no network, and trio's time."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
import trio
from joserfc import jws
from joserfc.jwk import ECKey, Key

from mcpbus.auth.introspection import IntrospectionVerifier
from mcpbus.auth.jwt import JwtVerifier
from mcpbus.auth.resource_server import ResourceServer
from mcpbus.auth.verifiers import AnyTokenVerifier, TokenVerifier, VerifierUnavailableError
from mcpbus.features.definition import ServerDefinition
from mcpbus.protocol.http.resource_metadata import issuer_metadata
from mcpbus.protocol.keywords import explained

_EPOCH: Final = 1_800_000_000.0


def trio_time() -> float:
    """Return a time in seconds since the epoch that goes on as trio's does."""
    return _EPOCH + trio.current_time()


@explained
class InMemoryIssuer:
    """Issues tokens, good ones and others, and answers whoever asks for its keys or about its tokens.

    A server of a test's own is protected by `protect`; one that names an issuer already is tested with `standing_in`::

        issuer = InMemoryIssuer("https://id.example.com")
        with issuer.standing_in(server):
            async with open_bus(server) as bus, open_probe(bus.asgi(), headers=issuer.bearer("ada")) as probe:
                ...

    Args:
        url: Who it is.
        clock: Tells the time, in seconds since the epoch; it goes on as trio's does if not given.

    Attributes:
        url: The same.
        resource: For which server it issues tokens, unless another one is named.
        keys: With which it signs; the last one is used, and all of them are published.
        answers: What it answers at some addresses, as status and body, instead of what it has there.
        asked: The addresses at which it was asked, in order.
        down: Whether it cannot be reached.
        delay: Seconds that it takes to answer.
        now: The time by which its tokens are made.
    """

    def __init__(self, url: str = "https://issuer.test", *, clock: Callable[[], float] = trio_time) -> None:
        self.url = url
        self.now = clock
        self.resource = "http://localhost/mcp"
        self.keys: list[Key] = []
        self.answers: dict[str, tuple[int, bytes]] = {}
        self.asked: list[str] = []
        self.down = False
        self.delay = 0.0
        self._issued: dict[str, dict[str, Any]] = {}
        self.add_key()

    @property
    def jwks_uri(self) -> str:
        """Where its keys are."""
        return f"{self.url}/keys"

    @property
    def introspection_endpoint(self) -> str:
        """Where it is asked about tokens."""
        return f"{self.url}/introspect"

    # -- keys and tokens -------------------------------------------------------------------------

    def add_key(self) -> Key:
        """Sign with a new key from now on, and return it; the others are still good."""
        key = ECKey.generate_key("P-256", {"kid": f"key {len(self.keys) + 1}", "use": "sig"})
        self.keys.append(key)
        return key

    def token(
        self,
        subject: str = "alice",
        scopes: Iterable[str] = (),
        *,
        client: str = "test client",
        lifetime: float = 3600.0,
        resource: str | None = None,
        header: Mapping[str, Any] | None = None,
        **claims: Any,
    ) -> str:
        """Issue a token.

        Args:
            subject: Whose it is.
            scopes: What it allows.
            client: The program that may use it.
            lifetime: Seconds for which it is good.
            resource: For which server; that of the attribute if left out.
            header: What its header says besides or instead.
            **claims: What it claims besides or instead; what is None is left out.
        """
        said = {
            "iss": self.url,
            "sub": subject,
            "client_id": client,
            "aud": self.resource if resource is None else resource,
            "iat": int(self.now()),
            "exp": int(self.now() + lifetime),
            "scope": " ".join(scopes),
            **claims,
        }
        said = {name: value for name, value in said.items() if value is not None}
        made = self.sign(msgspec.json.encode(said), header)
        self._issued[made] = said
        return made

    def sign(self, payload: bytes, header: Mapping[str, Any] | None = None, key: Key | None = None) -> str:
        """Sign anything, with the newest key if no other one is given."""
        key = key or self.keys[-1]
        complete = {"alg": "ES256", "typ": "at+jwt", "kid": key.kid, **(header or {})}
        complete = {name: value for name, value in complete.items() if value is not None}
        registry = jws.JWSRegistry(algorithms=[complete["alg"]], strict_check_header=False)
        return jws.serialize_compact(complete, payload, key, registry=registry)

    def revoke(self, token: str) -> None:
        """Take a token back; who verifies its signature alone does not notice."""
        self._issued.pop(token, None)

    def bearer(self, subject: str = "alice", scopes: Iterable[str] = (), **options: Any) -> dict[str, str]:
        """Return the header field that brings a new token; see `token`."""
        return {"authorization": f"Bearer {self.token(subject, scopes, **options)}"}

    # -- servers ---------------------------------------------------------------------------------

    def protect(self, resource: str = "http://localhost/mcp", **options: Any) -> ResourceServer:
        """Return a resource server for which this one issues tokens: ``Server("files", auth=issuer.protect())``.

        Args:
            resource: Its canonical URI.
            **options: Those of `ResourceServer`.
        """
        found = ResourceServer(resource, JwtVerifier(self.url, web=self), **options)
        found.clock = self.now
        self.resource = found.resource
        return found

    @contextmanager
    def standing_in(self, server: ServerDefinition) -> Iterator[None]:
        """Be asked in place of the issuer that a server names, by the same address.

        Raises:
            ValueError: It names no such issuer.
        """
        auth = server.auth
        found = [*_verifiers(auth.verifier, self.url)] if isinstance(auth, ResourceServer) else []
        if not found or not isinstance(auth, ResourceServer):
            raise ValueError(f"server {server.name!r} takes no tokens of {self.url}")
        webs, clock, resource = [verifier.web for verifier in found], auth.clock, self.resource
        for verifier in found:
            verifier.web = self
        auth.clock, self.resource = self.now, auth.resource
        try:
            yield
        finally:
            for verifier, web in zip(found, webs, strict=True):
                verifier.web = web
            auth.clock, self.resource = clock, resource

    # -- as a web --------------------------------------------------------------------------------

    async def request(
        self,
        verb: str,
        url: str,
        form: Mapping[str, str] | None = None,
        login: tuple[str, str] | None = None,
    ) -> tuple[int, bytes]:
        """Answer whoever verifies a token; see `mcpbus.auth.issuer_http.IssuerHttp`."""
        self.asked.append(url)
        await trio.sleep(self.delay)
        if self.down:
            raise VerifierUnavailableError(f"{url} cannot be asked")
        if url in self.answers:
            return self.answers[url]
        if verb == "POST" and url == self.introspection_endpoint and form is not None:
            return (200, self._introspect(form["token"])) if login is not None else (401, b"")
        documents = {
            self.jwks_uri: {"keys": [key.as_dict(private=False) for key in self.keys]},
            issuer_metadata(self.url)[0]: {
                "issuer": self.url,
                "jwks_uri": self.jwks_uri,
                "introspection_endpoint": self.introspection_endpoint,
            },
        }
        if verb == "GET" and url in documents:
            return 200, msgspec.json.encode(documents[url])
        return 404, b""

    def _introspect(self, token: str) -> bytes:
        claims = self._issued.get(token)
        active = claims is not None and claims["exp"] > self.now()
        return msgspec.json.encode({**(claims or {}), "active": True} if active else {"active": False})

    def __repr__(self) -> str:
        return f"<InMemoryIssuer {urlsplit(self.url).netloc}>"


def _verifiers(verifier: TokenVerifier, issuer: str) -> Iterator[JwtVerifier | IntrospectionVerifier]:
    """Return those verifiers that ask an issuer."""
    if isinstance(verifier, AnyTokenVerifier):
        for one in verifier.verifiers:
            yield from _verifiers(one, issuer)
    elif isinstance(verifier, JwtVerifier | IntrospectionVerifier) and verifier.issuer == issuer:
        yield verifier
