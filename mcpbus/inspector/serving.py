"""The inspector at an address of its own, while a bus is served and until its drain is over."""

import logging
import os
import secrets
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, urlsplit

import msgspec

from mcpbus.core.hub import Hub
from mcpbus.core.nursery import background
from mcpbus.inspector.answers import Answers, BadQueryError
from mcpbus.inspector.guards import UNGUARDED, refusal
from mcpbus.inspector.page import read_page
from mcpbus.metrics_address import address_of, addresses_of, naming_the_option
from mcpbus.serving import ServeOptions, serve
from mcpbus.serving.asgi import AsgiApp, Receive, Scope, Send
from mcpbus.watch.watch import Watch

_log = logging.getLogger("mcpbus")

TOKEN_VARIABLE: Final = "MCPBUS_INSPECT_TOKEN"  # noqa: S105 - its name
MOST_READERS: Final = 64
_TOKEN_BYTES: Final = 32
_JSON: Final = b"application/json"
_HTML: Final = b"text/html; charset=utf-8"
FIELDS: Final = (
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_NOTHING: Final = b"default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


def inspector_app(answers: Answers, names: set[str], token: str) -> AsgiApp:
    """Return the ASGI application of the inspector. It needs no lifespan.

    Args:
        answers: Answers the questions.
        names: What `Host` may say.
        token: What each request has to bring.
    """

    async def app(scope: Scope, _: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        refused = refusal(scope["method"], scope["path"], scope["headers"], names, token)
        if refused is None and scope["path"] == UNGUARDED:
            page = read_page()
            status, data, policy, kind = HTTPStatus.OK, page.data, page.policy, _HTML
        else:
            if refused is None:
                query = scope.get("query_string", b"").decode("latin-1")
                status, body = _answer(answers, scope["path"], query)
            else:
                status, body = refused[0], {"error": refused[1]}
            data, policy, kind = msgspec.json.encode(body) + b"\n", _NOTHING, _JSON
        fields = [*FIELDS, (b"content-security-policy", policy), (b"content-type", kind)]
        fields.append((b"content-length", b"%d" % len(data)))
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            fields.append((b"allow", b"GET, HEAD"))
        if status == HTTPStatus.UNAUTHORIZED:
            fields.append((b"www-authenticate", b"Bearer"))
        await send({"type": "http.response.start", "status": status.value, "headers": fields})
        await send({"type": "http.response.body", "body": data})

    return app


def _answer(answers: Answers, path: str, query: str) -> tuple[HTTPStatus, Mapping[str, object]]:
    try:
        found = answers.answer(path, dict(parse_qsl(query, keep_blank_values=True)))
    except BadQueryError as error:
        return HTTPStatus.BAD_REQUEST, {"error": str(error)}
    if found is None:
        return HTTPStatus.NOT_FOUND, {"error": "there is nothing there"}
    return HTTPStatus.OK, found


@asynccontextmanager
async def inspector_served(bus: Hub, watch: Watch, bind: str, number: int) -> AsyncIterator[None]:
    """Have the inspector of a bus at an address of its own while the block lasts, its drain included.

    Args:
        bus: The bus.
        watch: Its watch.
        bind: Where to listen: a loopback address, or ``unix:PATH``.
        number: Which of several workers this is: each has the port above that of the one before it.

    Raises:
        CannotListenError: It cannot be listened on; the message names the option.
        ValueError: It is no such address.
    """
    given = os.environ.get(TOKEN_VARIABLE)
    token = given or secrets.token_urlsafe(_TOKEN_BYTES)
    names: set[str] = set()
    app = inspector_app(Answers(bus, watch), names, token)
    (first,) = addresses_of(bind, option="inspect")
    options = ServeOptions(bind=address_of(first, number), max_connections=MOST_READERS)
    async with background() as nursery:
        with naming_the_option("inspect"):
            [url] = await nursery.start(partial(serve, app, options))
        place = urlsplit(url)
        names |= {"localhost"} if url.startswith("unix:") else {place.netloc, f"localhost:{place.port}"}
        shown = url if url.startswith("unix:") else f"{url}/"
        _log.info("inspector at %s", shown if given or url.startswith("unix:") else f"{shown}#token={token}")
        with token_kept(token, place.port):
            yield
        nursery.cancel_scope.cancel()


def token_file(port: int) -> Path | None:
    """Return the file in which the token of the inspector at a port is, for other programs of the same user; None if there is no place for it."""
    folder = os.environ.get("XDG_RUNTIME_DIR")
    return Path(folder) / "mcpbus" / str(port) if folder else None


@contextmanager
def token_kept(token: str, port: int | None) -> Iterator[None]:
    """Keep the token in its file while the block lasts, readable for this user alone. Where that cannot be, there is none."""
    file = None if port is None else token_file(port)
    if file is not None:
        try:
            file.parent.mkdir(mode=0o700, exist_ok=True)
            file.unlink(missing_ok=True)
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w") as written:
                written.write(token)
        except OSError as error:
            _log.info("the token of the inspector is in no file: %s", error)
            file = None
    try:
        yield
    finally:
        if file is not None:
            with suppress(OSError):
                file.unlink()
