"""The URL of a server, as whoever connects to it gives it."""

from typing import Final

from mcpbus.client.errors import ClientError, redact_url
from mcpbus.client.http_library import httpx2

_PORTS: Final = 2**16


def read_url(url: str) -> tuple[str, tuple[str, str] | None]:
    """Take a URL apart: what errors and logs may quote of it, and the name and the password that were in it.

    Raises:
        ClientError: It cannot be connected to; the message says why.
    """
    # In what is no URL, nobody can tell where a password would end.
    shown = redact_url(f"...{url[url.rindex('@') :]}" if "@" in url else url)
    if any(map(str.isspace, url)):
        raise ClientError(f"{shown!r} is no URL: there is white space in it")
    try:
        parsed = httpx2.URL(url)
    except (httpx2.InvalidURL, UnicodeError) as fault:
        why = "something in it cannot be read" if "@" in url else fault
        raise ClientError(f"{shown!r} is no URL: {why}") from None
    if parsed.scheme not in {"http", "https"}:
        raise ClientError(f"{shown!r} is no URL of HTTP: write http://HOST:PORT/mcp or https://HOST/mcp")
    if not _is_host(parsed.host):
        raise ClientError(f"{shown!r} names no host")
    if parsed.port is not None and not 0 < parsed.port < _PORTS:
        raise ClientError(f"{shown!r} names no port: they go from 1 to {_PORTS - 1}")
    if not parsed.userinfo:
        return url, None
    return str(parsed.copy_with(userinfo=b"")), (parsed.username, parsed.password)


def _is_host(text: str) -> bool:
    """Whether an address can be looked up by a name, each of whose labels has 1 to 63 characters."""
    try:
        return bool(text.encode("idna"))
    except UnicodeError:
        return False
