"""Documents from files and from the web, within limits, and no other documents than those that may be read.

A document may refer to files in its own folder and below, or to documents at its own origin. Others have to be allowed by name, because
a document of another author could read files and reach hosts in the network of this program otherwise.
"""

import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from mcpbus.client.http_library import httpx2
from mcpbus.openapi.document import ApiReferences, OpenApiError, read_text
from mcpbus.protocol.printable import printable, quoted

_SECONDS: Final = 30.0
_LONGEST: Final = 200
_MOST_BYTES: Final = 64 * 1024 * 1024
"""Bytes of all documents together."""

AnyDocument = Mapping[str, Any] | str | os.PathLike[str]


class DocumentLoader:
    """Loads a document, and those that it refers to.

    Args:
        allowed: Folders, and beginnings of addresses, whose documents may be referred to.
    """

    def __init__(self, allowed: Iterable[str | os.PathLike[str]] = ()) -> None:
        self._left = _MOST_BYTES
        self._allowed = [
            each if isinstance(each, str) and is_address(each) else f"{Path(each).resolve().as_uri()}/"
            for each in allowed
        ]

    def load(self, document: AnyDocument) -> ApiReferences:
        """Return a document.

        Args:
            document: The document itself, its address, or the path of its file.

        Raises:
            OpenApiError: It cannot be read.
            TypeError: It is nothing of this.
        """
        if isinstance(document, Mapping):
            return ApiReferences(dict(document), "", self._referred)
        if isinstance(document, str) and is_address(document):
            parts = urlsplit(document)
            self._allowed.append(f"{parts.scheme}://{parts.netloc}/")
            return ApiReferences(self._fetched(document), document.partition("#")[0], self._referred)
        if not isinstance(document, str | os.PathLike):
            raise TypeError(
                f"an OpenAPI document is a dict, a path or an address, not of type {type(document).__name__}"
            )
        path = Path(document).resolve()
        self._allowed.append(f"{path.parent.as_uri().rstrip('/')}/")
        return ApiReferences(self._read(path), path.as_uri(), self._referred)

    def _referred(self, address: str) -> Any:
        if address.startswith("file:"):
            address = Path(unquote(urlsplit(address).path)).resolve().as_uri()
        if not any(address.startswith(each) for each in self._allowed):
            raise OpenApiError(
                f"the document refers to {_shown(address)}, which it may not: add its folder or address to references=[...]"
            )
        if is_address(address):
            return self._fetched(address)
        return self._read(Path(unquote(urlsplit(address).path)))

    def _read(self, path: Path) -> Any:
        try:
            with path.open("rb") as file:
                text = file.read(self._left + 1)
        except OSError as error:
            raise OpenApiError(f"{quoted(path, _LONGEST)} cannot be read: {error.strerror}") from None
        return self._parsed(text, quoted(path.name, _LONGEST))

    def _fetched(self, address: str) -> Any:
        shown, deadline = _shown(address), time.monotonic() + _SECONDS
        timeout = httpx2.Timeout(_SECONDS).as_dict()
        try:
            # A transport, not a client: that writes addresses to the log, with what is secret in them.
            with httpx2.HTTPTransport() as transport:
                request = httpx2.Request(
                    "GET",
                    address,
                    headers={"Accept": "application/json, application/yaml, */*"},
                    extensions={"timeout": timeout},
                )
                response = transport.handle_request(with_login(request))
                if response.status_code != 200:
                    target = response.headers.get("location", "")
                    moved = f", it leads to {_shown(target)}" if target else ""
                    raise OpenApiError(f"{shown} answered {response.status_code}{moved}")
                text = b""
                for chunk in response.iter_bytes():
                    text += chunk
                    if len(text) > self._left:
                        break
                    if time.monotonic() > deadline:
                        raise OpenApiError(f"{shown} was not read within {_SECONDS:g} s")
                response.close()
        except (httpx2.HTTPError, httpx2.InvalidURL, UnicodeError) as error:
            reason = printable(str(error) or type(error).__name__, lines=False, longest=_LONGEST)
            raise OpenApiError(f"{shown} cannot be read: {reason}") from None
        return self._parsed(text, shown)

    def _parsed(self, text: bytes, name: str) -> Any:
        self._left -= len(text)
        if self._left < 0:
            raise OpenApiError(f"{name}: documents have more than {_MOST_BYTES // 1024 // 1024} MiB together")
        return read_text(text, name)


def is_address(text: str) -> bool:
    """Whether a text is an address on the web, not a path."""
    return text.lower().startswith(("http://", "https://"))


def with_login(request: httpx2.Request) -> httpx2.Request:
    """Return a request with the user and password that its address contains."""
    if (request.url.username or request.url.password) and "Authorization" not in request.headers:
        login = httpx2.BasicAuth(request.url.username, request.url.password)
        return next(login.auth_flow(request))
    return request


def _shown(address: str) -> str:
    """Return an address without a login and a query, safe to show."""
    try:
        parts = urlsplit(address)
        host = parts.hostname or ""
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "an address"
    return quoted(f"{parts.scheme}://{host}{port}{parts.path}", _LONGEST)
