"""How issuers are asked: over HTTP, for short documents, and with no patience.

What an issuer says of itself (RFC 8414, OpenID Connect Discovery).
"""

import ssl
from collections.abc import Mapping
from typing import Any, Final, Protocol

import httpx2
import msgspec
import trio

from mcpbus.auth.verifiers import VerifierUnavailableError
from mcpbus.protocol.http.resource_metadata import issuer_metadata, read_address

LONGEST_DOCUMENT: Final = 512 * 1024
"""Bytes of a document; of a longer one nothing is believed."""

SECONDS: Final = 10.0
"""How long an issuer has to answer, in all."""


class IssuerHttp(Protocol):
    """Who asks issuers. Tests put an issuer of their own in its place."""

    async def request(
        self, verb: str, url: str, form: Mapping[str, str] | None = None, login: tuple[str, str] | None = None
    ) -> tuple[int, bytes]:
        """Make a request, and return the status of the answer and its body.

        Args:
            verb: The HTTP method.
            url: Where to.
            form: What it carries.
            login: The user and password of Basic authentication.

        Raises:
            VerifierUnavailableError: There is no answer, or it is too long.
        """


class HttpxIssuerHttp:
    """The web as it is. Redirects are not followed: an issuer's documents are where it says, and nowhere else."""

    def __init__(self) -> None:
        self._trusted: ssl.SSLContext | None = None

    async def request(
        self, verb: str, url: str, form: Mapping[str, str] | None = None, login: tuple[str, str] | None = None
    ) -> tuple[int, bytes]:
        """See `IssuerHttp`."""
        auth = None if login is None else httpx2.BasicAuth(*login)
        if self._trusted is None:
            # To read all certificates takes tens of milliseconds, in which nobody else would be served.
            self._trusted = await trio.to_thread.run_sync(httpx2.create_ssl_context)
        # What is packed may be far longer than it looks.
        headers = {"accept": "application/json", "accept-encoding": "identity"}
        try:
            async with (
                httpx2.AsyncClient(verify=self._trusted, follow_redirects=False, timeout=SECONDS) as client,
                client.stream(verb, url, data=form, auth=auth, headers=headers) as response,
            ):
                body = bytearray()
                async for chunk in response.aiter_raw():
                    # To its end, or that of our patience: what is left in the middle is left to the garbage collector.
                    if len(body) <= LONGEST_DOCUMENT:
                        body += chunk
                if len(body) > LONGEST_DOCUMENT:
                    raise VerifierUnavailableError(
                        f"the answer of {url} is longer than {LONGEST_DOCUMENT} bytes"
                    )
                return response.status_code, bytes(body)
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            raise VerifierUnavailableError(f"{url} cannot be asked: {error!r}") from error


async def ask(
    web: IssuerHttp,
    verb: str,
    url: str,
    form: Mapping[str, str] | None = None,
    login: tuple[str, str] | None = None,
) -> dict[str, Any]:
    """Make a request, and return the JSON object with which it is answered; see `IssuerHttp`.

    Raises:
        VerifierUnavailableError: There is no answer in time, or it is no such object.
    """
    with trio.move_on_after(SECONDS):
        status, body = await web.request(verb, url, form, login)
        if status != 200:
            raise VerifierUnavailableError(f"{url} answered {status}")
        try:
            found = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise VerifierUnavailableError(f"what {url} answered is not JSON") from None
        if not isinstance(found, dict):
            raise VerifierUnavailableError(f"what {url} answered is no JSON object")
        return found
    raise VerifierUnavailableError(f"{url} did not answer within {SECONDS:g} s")


async def find_endpoint(web: IssuerHttp, issuer: str, name: str) -> str:
    """Find out where an issuer has something.

    Args:
        web: Who asks it.
        issuer: Who it is.
        name: What is looked for, such as ``jwks_uri``.

    Raises:
        VerifierUnavailableError: It does not say, or what it says is no address to be asked.
    """
    address = (await _find_metadata(web, issuer)).get(name)
    if not isinstance(address, str):
        raise VerifierUnavailableError(f"the metadata of {issuer} has no {name}")
    try:
        read_address(address, name)
    except ValueError as error:
        raise VerifierUnavailableError(f"in the metadata of {issuer}, {error}") from None
    return address


async def _find_metadata(web: IssuerHttp, issuer: str) -> dict[str, Any]:
    """Ask an issuer for its metadata, at one place after the other.

    Raises:
        VerifierUnavailableError: There is none, or it is somebody else's.
    """
    failure = VerifierUnavailableError(f"{issuer} has no metadata")
    for place in issuer_metadata(issuer):
        try:
            document = await ask(web, "GET", place)
        except VerifierUnavailableError as error:
            failure = error
            continue
        if document.get("issuer") == issuer:
            return document
        failure = VerifierUnavailableError(f"{place} is the metadata of another issuer")
    raise failure
