"""The requests of one client to its server: each with the token that the server wants, if it wants one."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from mcpbus.client.errors import redact_url
from mcpbus.client.http_library import httpx2
from mcpbus.client.oauth.errors import LoginError, sanitize
from mcpbus.client.oauth.http import reach_of
from mcpbus.client.oauth.refusal import read_refusal
from mcpbus.client.oauth.token_manager import TokenManager, TokenOrigin

_MOST_TOKENS: Final = 5
"""With how many tokens a request is sent: the server may want more of each, and say so only then."""


class HttpRequests:
    """Sends them.

    Args:
        http: By what.
        url: Where the server is.
        keeper: Has the token; None for a server that is sent none.
    """

    def __init__(self, http: httpx2.AsyncClient, url: str, keeper: TokenManager | None) -> None:
        self._http = http
        self._url = url
        self._keeper = keeper

    @asynccontextmanager
    async def send(
        self,
        verb: str,
        headers: Mapping[str, str],
        content: bytes | None = None,
        *,
        silent_seconds: float | None = None,
        may_ask: bool = False,
    ) -> AsyncIterator[httpx2.Response]:
        """Send a request, and again with another token where it was refused for that: nobody has looked at it then.

        Args:
            verb: Its verb.
            headers: Its header fields.
            content: Its body.
            silent_seconds: For how long the answer may pause; None for as long as the client lets it.
            may_ask: Whether a person may be asked to log in for it.

        Raises:
            LoginError: The server wants a token, and there is none to be had.
        """
        timeout = self._http.timeout
        if silent_seconds is not None:
            timeout = httpx2.Timeout(**{**timeout.as_dict(), "read": silent_seconds})
        options: dict[str, Any] = {"content": content, "timeout": timeout}
        keeper = self._keeper
        if keeper is None:
            async with self._http.stream(verb, self._url, headers=headers, **options) as answer:
                yield answer
            return
        way, why, has_logged_in = None, "", False
        for _ in range(_MOST_TOKENS):
            token = await keeper.token()
            named = headers if token is None else {**headers, "Authorization": f"Bearer {token}"}
            async with self._http.stream(verb, self._url, headers=named, **options) as answer:
                refusal = read_refusal(answer.status_code, answer.headers.get_list("www-authenticate"), token)
                if refusal is None:
                    yield answer
                    return
                reach = reach_of(self._url, _peer(answer))
                why = f": {sanitize(refusal.why)}" if refusal.why else ""
            if way is TokenOrigin.LOGGED_IN and not refusal.too_little:
                break
            try:
                way = await keeper.renew(refusal, reach, may_ask=may_ask, logs_in=way is TokenOrigin.RENEWED)
            except LoginError as error:
                error.person_asked |= has_logged_in
                raise
            has_logged_in |= way is TokenOrigin.LOGGED_IN
        issuer = keeper.issuer
        failure = LoginError(
            f"{redact_url(self._url)} refuses the token that {issuer} has just issued for it{why}"
        )
        failure.person_asked = has_logged_in
        raise failure


def _peer(answer: httpx2.Response) -> Any:
    """Return the IP address from which an answer came; None if that is not known."""
    stream = answer.extensions.get("network_stream")
    address = None if stream is None else stream.get_extra_info("server_addr")
    return address[0] if isinstance(address, tuple) and address else None
