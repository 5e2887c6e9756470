"""An issuer in memory, that does what it is told to: good, strict, slow or evil."""

import base64
import hashlib
import itertools
from urllib.parse import parse_qs, unquote_plus, urlencode, urlsplit

import attrs
from internet import answer


@attrs.define
class Granted:
    """What one access token stands for."""

    client: str
    scope: str
    resource: str
    expires: float
    family: int


class Authority:
    """An issuer.

    Attributes:
        name: Its identifier.
        metadata: What it says of itself; what is None is left out.
        life: Seconds for which a token is good.
        rotates: Whether a refresh token is good once, and the second time takes all of its family back.
        grants: What of the scopes that are asked for it grants; all if it is None.
        instead: By path, what it answers instead.
        clients: Who has registered, with what.
        tokens: What it has issued and not taken back.
        asked: The pages that were opened, as what each asks for.
    """

    def __init__(self, name, clock, **metadata):
        self.name = name
        self.clock = clock
        self.host = urlsplit(name).hostname
        self.life = 3600.0
        self.rotates = True
        self.grants = None
        self.says_scope = True
        self.instead = {}
        self.clients = {"known": {"client_secret": "s3cret"}}
        self.tokens = {}
        self.refreshing = {}
        self.spent = {}
        self.codes = {}
        self.asked = []
        self._numbers = itertools.count(1)
        self.metadata = {
            "issuer": name,
            "authorization_endpoint": f"{name}/authorize",
            "token_endpoint": f"{name}/token",
            "registration_endpoint": f"{name}/register",
            "revocation_endpoint": f"{name}/revoke",
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none", "client_secret_basic"],
            "authorization_response_iss_parameter_supported": True,
            **metadata,
        }

    async def __call__(self, request):
        """Answer a request."""
        path = request.url.path
        if path in self.instead:
            instead = self.instead[path]
            return instead(request) if callable(instead) else instead
        prefix = urlsplit(self.name).path.rstrip("/")
        if path == f"/.well-known/oauth-authorization-server{prefix}":
            return answer(json={name: value for name, value in self.metadata.items() if value is not None})
        form = dict(parse_qs(request.content.decode(), keep_blank_values=True)) if request.content else {}
        does = {
            f"{prefix}/register": self._register,
            f"{prefix}/token": self._token,
            f"{prefix}/revoke": self._revoke,
        }
        if request.method == "POST" and path in does:
            return does[path](request, {name: value[0] for name, value in form.items()})
        return answer(404, json={"error": "not_found"})

    # -- what a browser does ---------------------------------------------------------------------

    def authorize(self, url, **instead):
        """Open a page, log in, and agree; return the address at which the browser ends."""
        asked = {name: value for name, [value] in parse_qs(urlsplit(url).query).items()}
        self.asked.append(asked)
        client = self.clients.get(asked["client_id"], {})
        assert asked["redirect_uri"] in client.get("redirect_uris", [asked["redirect_uri"]])
        code = f"c0de-{next(self._numbers)}"
        self.codes[code] = asked
        back = {"code": code, "state": asked["state"], "iss": self.name, **instead}
        back = {name: value for name, value in back.items() if value is not None}
        return f"{asked['redirect_uri']}?{urlencode(back)}"

    # -- what a client does ----------------------------------------------------------------------

    def _register(self, request, _):
        asked = httpx_json(request)
        name = f"{self.host}-client-{next(self._numbers)}"
        self.clients[name] = asked
        return answer(201, json={**asked, "client_id": name})

    def _client(self, request, form):
        scheme, _, encoded = request.headers.get("authorization", "").partition(" ")
        if scheme == "Basic":
            name, secret = map(unquote_plus, base64.b64decode(encoded).decode().split(":"))
        else:
            name, secret = form.get("client_id"), form.get("client_secret")
        known = self.clients.get(name)
        return name if known is not None and known.get("client_secret") == secret else None

    def _token(self, request, form):
        client = self._client(request, form)
        if client is None:
            return answer(401, json={"error": "invalid_client"})
        kind = form["grant_type"]
        if kind == "authorization_code":
            asked = self.codes.pop(form["code"], None)
            digest = hashlib.sha256(form["code_verifier"].encode()).digest()
            challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
            good = (
                asked is not None
                and challenge == asked["code_challenge"]
                and (client, form["redirect_uri"]) == (asked["client_id"], asked["redirect_uri"])
                and form["resource"] == asked["resource"]
            )
            if not good:
                return answer(400, json={"error": "invalid_grant"})
            return self._issue(client, asked.get("scope", ""), form["resource"], next(self._numbers))
        if kind == "refresh_token":
            return self._refresh(client, form)
        if kind == "client_credentials":
            return self._issue(client, form.get("scope", ""), form["resource"], next(self._numbers))
        return answer(400, json={"error": "unsupported_grant_type"})

    def _refresh(self, client, form):
        refresh = form["refresh_token"]
        if refresh in self.spent:
            self.take_back(self.spent[refresh])
        granted = self.refreshing.get(refresh)
        if granted is None or (client, form["resource"]) != (granted.client, granted.resource):
            return answer(400, json={"error": "invalid_grant"})
        if self.rotates:
            self.spent[refresh] = granted.family
            del self.refreshing[refresh]
        return self._issue(client, granted.scope, granted.resource, granted.family)

    def _issue(self, client, scope, resource, family):
        if self.grants is not None:
            scope = " ".join(each for each in scope.split() if each in self.grants)
        number = next(self._numbers)
        access, refresh = f"{self.host}-t0ken-{number}", f"r3fresh-{number}"
        granted = Granted(client, scope, resource, self.clock() + self.life, family)
        self.tokens[access] = self.refreshing[refresh] = granted
        said = {
            "access_token": access,
            "token_type": "Bearer",
            "expires_in": self.life,
            "refresh_token": refresh,
        }
        return answer(json={**said, "scope": scope} if self.says_scope else said)

    def take_back(self, family=None):
        """Take all tokens of a family back, or all there are."""
        for kept in (self.tokens, self.refreshing):
            for token in [token for token, granted in kept.items() if family in {None, granted.family}]:
                del kept[token]

    def _revoke(self, request, form):
        if self._client(request, form) is None:
            return answer(401, json={"error": "invalid_client"})
        granted = self.refreshing.get(form["token"]) or self.tokens.get(form["token"])
        if granted is not None:
            self.take_back(granted.family)
        return answer(200)

    def find(self, token):
        """What a token stands for, if it is good."""
        granted = self.tokens.get(token)
        return granted if granted is not None and granted.expires > self.clock() else None


def httpx_json(request):
    import json

    return json.loads(request.content)
