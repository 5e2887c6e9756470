"""A client over Streamable HTTP: each message is a POST, whose answer is JSON or a stream of events.

Of older revisions the session is kept, one that the server has ended is followed by a new one, and a stream that the server left is come
back to. Not there is HTTP+SSE of 2024-11-05.

The URL of a server, as whoever connects to it gives it.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import trio

from mcpbus.client.client import Client
from mcpbus.client.errors import ClientError, redact_url
from mcpbus.client.http_connection import HttpConnection
from mcpbus.client.http_library import certificates, httpx2
from mcpbus.client.http_requests import HttpRequests
from mcpbus.client.negotiation import negotiate
from mcpbus.client.oauth.flow import AuthFlow, check_grant
from mcpbus.client.oauth.token_manager import TokenManager
from mcpbus.client.options import check_client, check_fields
from mcpbus.client.pending import OnInputRequest
from mcpbus.protocol.keywords import explained
from mcpbus.protocol.revisions import LATEST, named
from mcpbus.protocol.validators import check_text

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


_CONNECT_SECONDS: Final = 10
_LIMITS: Final = httpx2.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=2)
"""Each call and each listen has a connection for as long as it takes: where they could not have more, all else would wait for them.

Servers close a connection that is idle for 5 seconds (uvicorn, Node). A request that is sent in the same moment is lost, so it must not be
sent over a connection of about that age.
"""
_CLOSE_SECONDS: Final = 2


@asynccontextmanager
@explained
async def connect_http(
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    revision: str | None = None,
    capabilities: dict[str, Any] | None = None,
    on_input_request: OnInputRequest | None = None,
    client_info: Mapping[str, Any] | None = None,
    auth: AuthFlow | None = None,
) -> AsyncIterator[Client]:
    """Connect a client to an endpoint.

    A session of an older revision that the server has ended is followed by a new one, in which requests that were refused for
    it are repeated: they were not run. Requests in flight in the old one fail after five seconds, notifications that it refused are lost, and
    what was said to it is forgotten: its log level and its subscriptions. Listens end with it.

    What a server of an older revision says outside of requests comes on a stream of its own. It is opened, behind all else, once
    there is somebody to hear it: at once with `on_input_request`, and else with the first listen, `next_notification`,
    ``resources/subscribe`` or ``logging/setLevel``.

    Args:
        url: The endpoint. A name and a password in it are sent as ``Authorization`` has them, and quoted nowhere; nor is its query.
        headers: Header fields of each request, such as ``Authorization``.
        revision: The only revision that will do; None for the newest that both know.
        capabilities: What the client declares.
        on_input_request: Answers what the server asks, as for `Bus.connect`.
        client_info: The name and version that the server is shown, such as ``{"name": "my-agent", "version": "2.1"}``.
        auth: How to log in where the server asks for it, an `OAuth` or `ClientCredentials`; not for a URL or header fields that say
            who this is themselves.

    Raises:
        TypeError: Something is not of its type.
        ValueError: There is no such revision, or a header field cannot be sent.
        ProtocolError: The server refused.
        LoginError: It asks for a login, and there is none to be had.
        ClientError: There is no answer.
    """
    fixed = None if revision is None else named(revision)
    raised: Exception | None = None
    check_text("connect_http()", url=url)
    url, account = read_url(url)
    check_client(capabilities, on_input_request, client_info)
    fields = {"Accept-Encoding": "identity", **check_fields(headers)}
    says_itself = account is not None or any(name.lower() == "authorization" for name in fields)
    if auth is not None:
        check_grant("connect_http()", auth=auth)
    grant = None if says_itself else auth
    timeout = httpx2.Timeout(None, connect=_CONNECT_SECONDS)
    trusted = await certificates()
    async with (
        httpx2.AsyncClient(
            headers=fields, auth=account, timeout=timeout, limits=_LIMITS, verify=trusted
        ) as http,
        trio.open_nursery() as nursery,
    ):
        keeper = None if grant is None else TokenManager(url, grant, nursery)
        connection = HttpConnection(HttpRequests(http, url, keeper), url, nursery)
        client = connection.client = Client(
            fixed or LATEST,
            connection.send,
            nursery,
            capabilities=dict(capabilities or {}),
            on_input_request=on_input_request,
            hearing=connection.stream,
            scoped=True,
            waiting=connection.waiting,
            info=client_info,
        )
        if on_input_request is not None:
            connection.stream.want()
        nursery.start_soon(connection.run)
        try:
            await negotiate(client, fixed)
            yield client
        except Exception as error:  # noqa: BLE001 - raised again below: a nursery would put it into a group
            raised = error
        finally:
            client.disconnected("the client was closed")
            connection.stream.leave()
            with trio.move_on_after(_CLOSE_SECONDS, shield=True):
                await connection.close()
            nursery.cancel_scope.cancel()
    if raised is not None:
        raise raised
